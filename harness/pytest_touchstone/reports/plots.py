"""Pictures of curves and bars, drawn once as shapes for the page and for files, and written as SVG.

``reports.charts`` has the charts as plain values, ``reports.png`` writes pictures as PNG. A picture has a title and a
description for screen readers. Text, axes and grid are ``currentColor``, so that it is readable on light and on dark
pages; only series have colours, which colour-blind people can tell apart. Their parts have the class ``curve-1`` to
``curve-8``, by which a page may colour them. Each also has a shape and dashes of its own, for print and grey screens.
There are no style attributes, which a content policy may forbid, no scripts and no addresses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

from pytest_touchstone.core.text import format_step, join_names
from pytest_touchstone.document.formatting import cell_width, cut_name, in_percent, number
from pytest_touchstone.reports.charts import (
    LIMITS,
    BarChart,
    ChartPoint,
    CurveLine,
    LineChart,
    bar_charts,
    extent,
    line_charts,
    ticks,
)
from pytest_touchstone.study.points import Study, Value

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b2a100")
"""Okabe and Ito's colours, their black and yellow in tones that are readable on white and on black."""

BAR_ORDER: Final = (0, 4, 2, 5, 6, 3, 1, 7)
"""The colours of bars, in turns dark and light, so that neighbours differ in grey too."""

DASHES: Final = ((), (7, 3), (2, 2), (8, 3, 2, 3), (12, 4), (4, 4), (1, 3), (10, 2, 2, 2))

LONGEST_NAME: Final = 40
"""The columns of a name beside a curve or below a bar."""

TOGETHER: Final = 4
"""The series whose bands one panel can show; more get a panel each."""

DENSE: Final = 25
"""The checkpoints of a series from which on it gets a panel of its own, and no marks."""

LONGEST_ROW: Final = 24
"""The checkpoints that stand in one row of bars."""

BETWEEN_TICKS: Final = 48
"""The least distance of two numbers below an axis."""

WIDTH: Final = 720
PLOT, PANEL = 300, 160
"""The height of the part between the axes, and that of panels."""

LEFT, RIGHT, TOP, ROW, LETTER, GAP = 62, 16, 34, 20, 7.0, 14

_SHAPES: Final = (
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "M-3.6,-3.6h7.2v7.2h-7.2z",
    "M0,-4.6L4.4,3.4H-4.4z",
    "M0,-5L5,0L0,5L-5,0z",
    "M0,4.6L4.4,-3.4H-4.4z",
    "M-4,-4L4,4M-4,4L4,-4",
    "M-4.8,0H4.8M0,-4.8V4.8",
    "M-4.6,-2.4h9.2v4.8h-9.2z",
)

_CROSS: Final = _SHAPES[5]
_SMALL: Final = "M-1.5,0a1.5,1.5 0 1,0 3,0a1.5,1.5 0 1,0 -3,0z"

XY: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class PlotLine:
    """Lines through points, or with ``filled`` the area that they enclose.

    ``series`` selects the colour, None that of text. ``title`` is the tooltip.
    """

    runs: tuple[tuple[XY, ...], ...]
    series: int | None = None
    width: float = 1.0
    opacity: float = 1.0
    dashes: tuple[int, ...] = ()
    filled: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True)
class PlotMarker:
    """The marker of a series at a point.

    ``ring`` encircles the best point of a series; ``small`` is for dense curves. Without a series the marker is a grey
    cross.
    """

    at: XY
    series: int | None
    title: str = ""
    ring: bool = False
    small: bool = False


@dataclass(frozen=True, slots=True)
class PlotText:
    """A line of text at a point.

    ``anchor`` is the end that lies on the point; with ``middle`` the text is centred vertically.
    """

    at: XY
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    size: int = 12
    bold: bool = False
    middle: bool = False
    opacity: float = 1.0
    angle: int = 0
    series: None = None


Part: TypeAlias = PlotLine | PlotMarker | PlotText


class Picture(NamedTuple):
    """The shapes of a drawn chart.

    ``name`` is the file name without suffix; in a page it follows ``curve-`` in the element's id.
    """

    name: str
    title: str
    about: str
    width: float
    height: float
    parts: list[Part]


def study_pictures(study: Study, bars: str = "bars") -> list[Picture]:
    """Return all pictures of a study: ``curve_METRIC`` for the curves, then the bars."""
    return [*map(draw_curves, line_charts(study)), *bar_pictures(study, bars)]


def bar_pictures(study: Study, front: str) -> list[Picture]:
    """Return a picture of bars for each benchmark, named ``FRONT_BENCHMARK``."""
    return [draw_bars(chart, front) for chart in bar_charts(study)]


class AxisScale(NamedTuple):
    """A linear map of values from ``low`` to ``high`` to coordinates of the picture."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the coordinate of a value."""
        span = self.high - self.low
        return self.start + (value - self.low) / span * (self.end - self.start) if span else self.start


class Panel(NamedTuple):
    """The two axes of a panel, which begin at its left and bottom ends."""

    x: AxisScale
    y: AxisScale


def heading(chart: LineChart | BarChart) -> str:
    """Return the chart's title with its unit: ``Real@1, %``."""
    return f"{chart.title}, %" if chart.percent else chart.title


def shown(chart: LineChart | BarChart, value: float) -> str:
    """Return a value as text with its unit."""
    return f"{in_percent(value)} %" if chart.percent else number(value)


def labels(names: Sequence[str]) -> list[str]:
    """Return names shortened, or in full where short names would collide."""
    short = [cut_name(name, LONGEST_NAME) for name in names]
    return short if len(set(short)) == len(set(names)) else list(names)


# Curves


def draw_curves(chart: LineChart) -> Picture:
    """Draw curves with their bands, in one panel or in a panel for each series."""
    dense = any(len(line.dots) > DENSE for line in chart.lines)
    apart = len(chart.lines) > 1 and (dense or len(chart.lines) > TOGETHER)
    panels, bottom = _panels(chart, apart)
    names = labels([line.name for line in chart.lines])
    parts: list[Part] = [PlotText((LEFT, 18), heading(chart), size=14, bold=True)]
    for series, panel in enumerate(panels):
        parts += _axes(chart, panel, left=panel.x.start == LEFT, below=panel.y.start > bottom - PANEL)
        if apart:
            line = chart.lines[series]
            parts.append(PlotText((panel.x.start, panel.y.end - 6), names[series]))
            others = (other for other in chart.lines if other is not line)
            runs = tuple(
                tuple((round(panel.x.at(dot.place)), round(panel.y.at(dot.value))) for dot in other.dots)
                for other in others
            )
            parts += [
                PlotLine(runs, opacity=0.25),
                *_band(line, series, panel),
                *_curve(chart, series, panel),
            ]
    if not apart:
        parts += [
            shape for series, line in enumerate(chart.lines) for shape in _band(line, series, panels[0])
        ]
        parts += [shape for series in range(len(chart.lines)) for shape in _curve(chart, series, panels[0])]
    parts.append(PlotText((WIDTH - RIGHT, bottom + 33), chart.axis, "end"))
    legend, height = _legend(names, bottom + 48) if not apart else ([], bottom + 28)
    note = (
        f"bands: {LIMITS}; rings: the best of each series"
        if chart.limits
        else "rings: the best of each series"
    )
    note += "; grey crosses: NOT VALID" if any(line.invalid for line in chart.lines) else ""
    parts += [*legend, PlotText((LEFT, height + 14), note, opacity=0.75)]
    return Picture(f"curve_{chart.key}", heading(chart), description(chart), WIDTH, height + 20, parts)


def description(chart: LineChart) -> str:
    """Describe a chart in words: first, best and last value of each series."""
    texts = [f"{chart.title} by {chart.axis}."]
    for line in (series for series in chart.lines if series.dots):
        first, last = line.dots[0], line.dots[-1]
        best = line.dots[line.best] if line.best is not None else last
        wrong = [format_step(dot.place) for dot in line.invalid]
        texts.append(
            f"{line.name}: {shown(chart, first.value)} at {format_step(first.place)}, "
            f"best {shown(chart, best.value)} at {format_step(best.place)}, "
            f"{shown(chart, last.value)} at {format_step(last.place)}"
            f"{f'; NOT VALID at {join_names(wrong)}' if wrong else ''}."
        )
    return " ".join(texts)


def _panels(chart: LineChart, apart: bool) -> tuple[list[Panel], float]:
    """Return the panels and the lower edge of the lowest one."""
    places = [dot.place for line in chart.lines for dot in (*line.dots, *line.invalid)]
    pad = (max(places) - min(places)) * 0.02 or 0.5
    values = ticks(*extent(chart))
    many = len(chart.lines) if apart else 1
    columns = min(3, math.ceil(math.sqrt(many)))
    wide = (WIDTH - LEFT - RIGHT - (columns - 1) * GAP) / columns
    tall, top = (PANEL, TOP + ROW) if apart else (PLOT, TOP)
    panels = []
    for index in range(many):
        row, column = divmod(index, columns)
        left, upper = LEFT + column * (wide + GAP), top + row * (tall + ROW + GAP)
        x = AxisScale(min(places) - pad, max(places) + pad, left, left + wide)
        panels.append(Panel(x, AxisScale(values[0], values[-1], upper + tall, upper)))
    return panels, panels[-1].y.start


def _axes(chart: LineChart | BarChart, panel: Panel, *, left: bool, below: bool) -> Iterator[Part]:
    """Yield grid, axis and ticks, with numbers where ``left`` or ``below`` says so."""
    x, y = panel
    levels = ticks(y.low, y.high)
    factor = 100 if chart.percent else 1
    digits = max(0, -math.floor(math.log10((levels[1] - levels[0]) * factor) + 1e-9))
    grid = tuple(((x.start, y.at(level)), (x.end, y.at(level))) for level in levels)
    yield PlotLine(grid, opacity=0.18)
    for level in levels if left else ():
        yield PlotText((x.start - 8, y.at(level)), f"{level * factor:.{digits}f}", "end", middle=True)
    places = [] if isinstance(chart, BarChart) else _measured_places(chart, x)
    runs = [((x.at(at), y.start), (x.at(at), y.start + 5)) for at in places]
    yield PlotLine((((x.start, y.start), (x.end, y.start)), *runs), opacity=0.6)
    for at in places if below else ():
        yield PlotText((x.at(at), y.start + 18), format_step(at), "middle")


def _measured_places(chart: LineChart, x: AxisScale) -> list[float]:
    """Return the steps or epochs that get a number below the axis. The last one is always among them."""
    places = {dot.place for line in chart.lines for dot in (*line.dots, *line.invalid)}
    shown: list[float] = []
    for place in sorted(places, reverse=True):
        if not shown or x.at(shown[-1]) - x.at(place) >= BETWEEN_TICKS:
            shown.append(place)
    return shown[::-1]


def _band(line: CurveLine, series: int, panel: Panel) -> Iterator[Part]:
    """Yield the interval of a line as a band. An isolated interval is a vertical stroke."""
    x, y = panel
    for has_interval, dots in groupby(
        line.dots, key=lambda dot: dot.low is not None and dot.high is not None
    ):
        run = list(dots) if has_interval else []
        upper = [(x.at(dot.place), y.at(dot.high or 0.0)) for dot in run]
        lower = [(x.at(dot.place), y.at(dot.low or 0.0)) for dot in reversed(run)]
        if len(run) > 1:
            yield PlotLine(((*upper, *lower),), series, opacity=0.12, filled=True)
        elif run:
            yield PlotLine(((*upper, *lower),), series, 1.5, 0.6)


def _curve(chart: LineChart, series: int, panel: Panel) -> Iterator[Part]:
    line = chart.lines[series]
    points = [(panel.x.at(dot.place), panel.y.at(dot.value)) for dot in line.dots]
    yield PlotLine((tuple(points),), series, 2, dashes=DASHES[series % len(DASHES)])
    for index, (at, dot) in enumerate(zip(points, line.dots, strict=True)):
        best = index == line.best
        position = f"{line.name}, {chart.axis} {format_step(dot.place)}"
        text = f"{position}: {_with_limits(chart, dot)}{', the best of its series' if best else ''}"
        text += f" ({dot.name})" if dot.name else ""
        yield PlotMarker(at, series, text, best and len(points) > 1, len(points) > DENSE)
    for dot in line.invalid:
        yield PlotMarker((panel.x.at(dot.place), panel.y.at(dot.value)), None)


def _with_limits(chart: LineChart | BarChart, dot: ChartPoint | Value) -> str:
    """Return a value as text, followed by its interval if there is one."""
    has_interval = dot.low is not None and dot.high is not None
    limits = f" [{shown(chart, dot.low or 0.0)}, {shown(chart, dot.high or 0.0)}]" if has_interval else ""
    return f"{shown(chart, dot.value)}{limits}"


def _legend(
    names: Sequence[str], top: float, width: float = WIDTH, order: Sequence[int] | None = None
) -> tuple[list[Part], float]:
    """Return the shapes of the legend and its lower edge.

    With ``order`` the entries are bars, coloured as these series.
    """
    parts: list[Part] = []
    left, row = 0.0, 0
    for series, name in enumerate(labels(names)):
        wide = 34 + LETTER * cell_width(name) + 18
        if left and left + wide > width - LEFT - RIGHT:
            left, row = 0.0, row + 1
        x, y = LEFT + left, top + row * ROW
        if order:
            parts.append(_box((x + 14, y - 5), (x + 28, y + 5), order[series % len(order)]))
        else:
            parts.append(PlotLine((((x, y), (x + 28, y)),), series, 2, dashes=DASHES[series % len(DASHES)]))
            parts.append(PlotMarker((x + 14, y), series))
        parts.append(PlotText((x + 34, y), name, middle=True))
        left += wide
    return parts, top + row * ROW + 10


# Bars


def draw_bars(chart: BarChart, front: str = "bars") -> Picture:
    """Draw grouped bars with their intervals, at most ``LONGEST_ROW`` checkpoints in a row."""
    rows: list[tuple[int, int]] = []
    for start, end in pairwise([*(start for start, _ in chart.sections or ((0, ""),)), len(chart.groups)]):
        if rows and end - rows[-1][0] <= LONGEST_ROW:  # a series stays whole where it fits
            rows[-1] = rows[-1][0], end
        else:
            rows += [(at, min(at + LONGEST_ROW, end)) for at in range(start, end, LONGEST_ROW)]
    most = max(end - start for start, end in rows)
    width = min(1600, max(450, 120 + most * (28 + 16 * len(chart.bars))))
    longest = max(map(len, labels(chart.groups)))
    steep = most * (longest + 2) * LETTER > width
    below = 24 + (0.77 * LETTER * longest if steep else 0)
    bars = [bar for _, row in chart.bars for bar in row if bar is not None]
    numbers = [value for bar in bars for value in (bar.value, bar.low, bar.high) if value is not None]
    levels = ticks(min(0.0, *numbers), max(0.0, *numbers))
    parts: list[Part] = [PlotText((LEFT, 18), heading(chart), size=14, bold=True)]
    top = float(TOP + ROW)
    for row in rows:
        panel = Panel(
            AxisScale(-0.6, most - 0.4, LEFT, width - RIGHT), AxisScale(levels[0], levels[-1], top + 200, top)
        )
        parts += [*_axes(chart, panel, left=True, below=False), *_bar_row(chart, row, panel, steep)]
        top += 200 + below + ROW
    names, bottom = [name for name, _ in chart.bars], top - 6
    if len(names) > 1:
        legend, bottom = _legend(names, top, width, BAR_ORDER)
        parts += legend
    if any(bar.low is not None for bar in bars):
        parts.append(PlotText((LEFT, bottom + 14), f"bars: {LIMITS}", opacity=0.75))
    about = f"{', '.join(names)} of {len(chart.groups)} checkpoints."
    return Picture(f"{front}_{chart.key}", heading(chart), about, width, bottom + 20, parts)


def _bar_row(chart: BarChart, row: tuple[int, int], panel: Panel, steep: bool) -> Iterator[Part]:
    start, end = row
    x, y = panel
    wide = 0.8 / len(chart.bars)
    errors: list[tuple[XY, ...]] = []
    for metric_index, (name, bars) in enumerate(chart.bars):
        for group, bar in enumerate(bars[start:end]):
            if bar is None:
                continue
            left = group - 0.4 + (metric_index + 0.04) * wide
            title = f"{chart.groups[start + group]}, {name}: {_with_limits(chart, bar)}"
            ends = x.at(left), x.at(left + 0.92 * wide)
            series = BAR_ORDER[metric_index % len(BAR_ORDER)]
            yield _box((ends[0], y.at(0.0)), (ends[1], y.at(bar.value)), series, title)
            if bar.low is not None and bar.high is not None:
                middle, cap = (ends[0] + ends[1]) / 2, min(3.0, (ends[1] - ends[0]) / 4)
                low, high = y.at(bar.low), y.at(bar.high)
                errors.append(((middle, low), (middle, high)))
                errors += [((middle - cap, level), (middle + cap, level)) for level in (low, high)]
    yield PlotLine(tuple(errors))
    for group, name in enumerate(labels(chart.groups)[start:end]):
        at = x.at(group), y.start + 16
        yield PlotText(at, name, "end" if steep else "middle", size=11, angle=-50 if steep else 0)
    inner = [x.at(first - start - 0.5) for first, _ in chart.sections if start < first < end]
    yield PlotLine(tuple(((at, y.start), (at, y.end)) for at in inner), opacity=0.6, dashes=(1, 3))
    section = max((first for first, _ in chart.sections if first <= start), default=0)
    for first, name in chart.sections:
        if start <= first < end or first == section:
            yield PlotText(
                (x.at(max(first, start) - start - 0.45), y.end - 6), cut_name(name, LONGEST_NAME), size=11
            )


def _box(corner: XY, opposite: XY, series: int, title: str = "") -> PlotLine:
    (left, bottom), (right, top) = corner, opposite
    points = ((left, bottom), (left, top), (right, top), (right, bottom))
    return PlotLine((points,), series, filled=True, title=title)


# SVG


def svg(picture: Picture, *, alone: bool = False) -> str:
    """Return a picture as an SVG element, or with ``alone`` as a file on white."""
    ident = escape(picture.name.replace("_", "-", 1), quote=True)
    width, height = f"{picture.width:g}", f"{picture.height:g}"
    size = 'width="100%"'
    if alone:
        size = f'width="{width}" height="{height}" xmlns="http://www.w3.org/2000/svg" color="#222222"'
    pieces = [
        f'<svg class="curve" role="img" viewBox="0 0 {width} {height}" {size} '
        f'aria-labelledby="{ident}-title {ident}-desc" '
        'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">',
        f'<title id="{ident}-title">{escape(picture.title)}</title>',
        f'<desc id="{ident}-desc">{escape(picture.about)}</desc>',
        '<rect width="100%" height="100%" fill="#ffffff"/>' if alone else "",
    ]
    for series, parts in groupby(picture.parts, key=lambda shape: shape.series):
        text = "".join(map(_element, parts))
        if series is not None:
            at = series % len(COLOURS)
            text = f'<g class="curve-{at + 1}" color="{COLOURS[at]}" fill="currentColor">{text}</g>'
        pieces.append(text)
    return "".join([*pieces, "</svg>"])


def _element(shape: Part) -> str:
    title = "" if isinstance(shape, PlotText) or not shape.title else f"<title>{escape(shape.title)}</title>"
    match shape:
        case PlotLine(runs, _, _, opacity, _, True):
            attributes = f' fill-opacity="{opacity:g}"' * (opacity < 1)
            return f'<path d="{_run(runs[0])}z"{attributes}>{title}</path>'
        case PlotLine(runs, _, width, opacity, dashes):
            attributes = f'fill="none" stroke="currentColor" stroke-width="{width:g}"'
            attributes += f' stroke-opacity="{opacity:g}"' * (opacity < 1)
            attributes += f' stroke-dasharray="{" ".join(map(str, dashes))}"' * bool(dashes)
            if len(runs) == 1:
                return f'<polyline points="{" ".join(map(_point, runs[0]))}" {attributes}/>'
            return f'<path d="{"".join(map(_run, runs))}" {attributes}/>' if runs else ""
        case PlotMarker((x, y), series, _, ring, small):
            outline = _SMALL if small else _CROSS if series is None else _SHAPES[series % len(_SHAPES)]
            around = '<circle r="8" fill="none" stroke="currentColor" stroke-width="1.5"/>' * ring
            grey = ' stroke-opacity="0.55"' * (series is None)
            mark = f'<path d="{outline}" stroke="currentColor" stroke-width="1.4"{grey}/>'
            return f'<g transform="translate({x:.1f},{y:.1f})">{title}{around}{mark}</g>'
        case PlotText((x, y), text, anchor, size, bold, middle, opacity, angle):
            attributes = f' text-anchor="{anchor}"' * (anchor != "start") + f' font-size="{size}"' * (
                size != 12
            )
            attributes += ' font-weight="600"' * bold + ' dominant-baseline="middle"' * middle
            attributes += f' opacity="{opacity:g}"' * (opacity < 1)
            attributes += f' transform="rotate({angle} {x:.1f} {y:.1f})"' * bool(angle)
            return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(text)}</text>'


def _run(points: Sequence[XY]) -> str:
    return f"M{'L'.join(map(_point, points))}"


def _point(point: XY) -> str:
    return ",".join(f"{coordinate:.1f}".removesuffix(".0") for coordinate in point)
