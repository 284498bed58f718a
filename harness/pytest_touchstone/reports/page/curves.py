"""Curves as SVG within a page: a pure function from a chart to text, without matplotlib.

The picture has a title and a description for screen readers. Text, axes and grid are ``currentColor``, so that it is
readable on light and on dark pages; only series have colours. The parts of a series have the class
``curve-1`` to ``curve-8``, by which a page may colour them (``.curve-1 { color: ... }``); else they have ``COLOURS``,
which colour-blind people can tell apart. Each also has a shape and dashes of its own, for print and grey screens. It
has no style attributes, which a content policy may forbid, runs no script and asks for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from pytest_touchstone.core.text import place_text
from pytest_touchstone.reports.charts import LIMITS, Dot, Line, LineChart, extent, ticks
from pytest_touchstone.reports.formatting import cell_width, number

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b2a100")
"""Okabe and Ito's colours, their black and yellow in tones that are readable on white and on black."""

DASHES: Final = ("", "7 3", "2 2", "8 3 2 3", "12 4", "4 4", "1 3", "10 2 2 2")
WIDTH: Final = 720
PLOT: Final = 300
"""The height of the part between the axes."""

LEFT, RIGHT, TOP, ROW, LETTER = 62, 16, 34, 20, 6.6

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


class Scale(NamedTuple):
    """Numbers from ``low`` to ``high`` between two places of the picture."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the place of a number."""
        span = self.high - self.low
        return self.start + (value - self.low) / span * (self.end - self.start) if span else self.start


def svg(chart: LineChart, ident: str = "") -> str:
    """Return the chart as an SVG element; ``ident`` is unique in the page (the chart's key without it)."""
    ident = escape(ident or f"curve-{chart.key}", quote=True)
    legend, rows = _legend(chart.lines)
    bottom = TOP + PLOT
    height = bottom + 44 + ROW * (rows + 1)
    x, y = _scales(chart)
    parts = [
        f'<svg class="curve" role="img" viewBox="0 0 {WIDTH} {height}" width="100%" '
        f'aria-labelledby="{ident}-title {ident}-desc" xmlns="http://www.w3.org/2000/svg" '
        'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">',
        f'<title id="{ident}-title">{escape(heading(chart))}</title>',
        f'<desc id="{ident}-desc">{escape(description(chart))}</desc>',
        f'<text x="{LEFT}" y="18" font-size="14" font-weight="600">{escape(heading(chart))}</text>',
        *_axes(chart, x, y),
        *(_group(place, _band(line, x, y)) for place, line in enumerate(chart.lines)),
        *(_group(place, _line(chart, place, line, x, y)) for place, line in enumerate(chart.lines)),
        f'<g transform="translate({LEFT},{bottom + 48})">{legend}</g>',
    ]
    about = (
        f"bands: {LIMITS}; rings: the best of each series"
        if chart.limits
        else "rings: the best of each series"
    )
    parts.append(f'<text x="{LEFT}" y="{height - 6}" opacity="0.75">{about}</text>')
    return "".join([*parts, "</svg>"])


def heading(chart: LineChart) -> str:
    """Return the chart's title with its unit: ``Real@1, %``."""
    return f"{chart.title}, %" if chart.percent else chart.title


def description(chart: LineChart) -> str:
    """Return the chart in words: first, best and last value of each series."""
    found = [f"{chart.title} by {chart.axis}."]
    for line in chart.lines:
        if not line.dots:
            continue
        first, last = line.dots[0], line.dots[-1]
        best = line.dots[line.best] if line.best is not None else last
        found.append(
            f"{line.name}: {shown(chart, first.value)} at {place_text(first.place)}, "
            f"best {shown(chart, best.value)} at {place_text(best.place)}, "
            f"{shown(chart, last.value)} at {place_text(last.place)}."
        )
    return " ".join(found)


def shown(chart: LineChart, value: float) -> str:
    """Return a value as texts have it."""
    return f"{100 * value:.2f} %" if chart.percent else number(value)


def series_of(place: int) -> str:
    """Return the attributes of a group of the series' parts, which are drawn in its ``currentColor``."""
    at = place % len(COLOURS)
    return f'class="curve-{at + 1}" color="{COLOURS[at]}"'


def _scales(chart: LineChart) -> tuple[Scale, Scale]:
    places = [dot.place for line in chart.lines for dot in line.dots]
    values = ticks(*extent(chart))
    pad = (max(places) - min(places)) * 0.02 or 0.5
    x = Scale(min(places) - pad, max(places) + pad, LEFT, WIDTH - RIGHT)
    return x, Scale(values[0], values[-1], TOP + PLOT, TOP)


def _axes(chart: LineChart, x: Scale, y: Scale) -> Iterator[str]:
    levels = ticks(*extent(chart))
    digits = max(0, -math.floor(math.log10((levels[1] - levels[0]) * (100 if chart.percent else 1)) + 1e-9))
    for level in levels:
        at = f"{y.at(level):.1f}"
        text = f"{level * (100 if chart.percent else 1):.{digits}f}"
        yield f'<path d="M{LEFT},{at}H{WIDTH - RIGHT}" stroke="currentColor" stroke-opacity="0.18"/>'
        yield f'<text x="{LEFT - 8}" y="{at}" text-anchor="end" dominant-baseline="middle">{text}</text>'
    bottom = TOP + PLOT
    for place in ticks(x.low, x.high, 8):
        if x.low <= place <= x.high:
            at = f"{x.at(place):.1f}"
            yield f'<path d="M{at},{bottom}v5" stroke="currentColor" stroke-opacity="0.6"/>'
            yield f'<text x="{at}" y="{bottom + 18}" text-anchor="middle">{place_text(place)}</text>'
    yield f'<path d="M{LEFT},{bottom}H{WIDTH - RIGHT}" stroke="currentColor" stroke-opacity="0.6"/>'
    yield f'<text x="{WIDTH - RIGHT}" y="{bottom + 33}" text-anchor="end">{escape(chart.axis)}</text>'


def _group(place: int, parts: Iterator[str]) -> str:
    """Return the parts of a series as a group in its colour."""
    return f'<g {series_of(place)} fill="currentColor">{"".join(parts)}</g>'


def _band(line: Line, x: Scale, y: Scale) -> Iterator[str]:
    """Yield the interval of a line: a band, with a bar where a dot has no neighbour that has one."""
    for run in _runs(line.dots):
        if len(run) == 1:
            (dot,) = run
            yield (
                f'<path d="M{x.at(dot.place):.1f},{y.at(dot.low or 0):.1f}V{y.at(dot.high or 0):.1f}" '
                f'stroke="currentColor" stroke-opacity="0.6" stroke-width="1.5"/>'
            )
            continue
        upper = [f"{x.at(dot.place):.1f},{y.at(dot.high or 0):.1f}" for dot in run]
        lower = [f"{x.at(dot.place):.1f},{y.at(dot.low or 0):.1f}" for dot in reversed(run)]
        yield f'<path d="M{"L".join([*upper, *lower])}z" fill-opacity="0.12"/>'


def _runs(dots: Sequence[Dot]) -> list[list[Dot]]:
    """Return the dots that have an interval, neighbours together."""
    found: list[list[Dot]] = [[]]
    for dot in dots:
        if dot.low is None or dot.high is None:
            found.append([])
        else:
            found[-1].append(dot)
    return [run for run in found if run]


def _line(chart: LineChart, place: int, line: Line, x: Scale, y: Scale) -> Iterator[str]:
    points = [(f"{x.at(dot.place):.1f}", f"{y.at(dot.value):.1f}") for dot in line.dots]
    dashes = f' stroke-dasharray="{DASHES[place % len(DASHES)]}"' if DASHES[place % len(DASHES)] else ""
    yield (
        f'<polyline points="{" ".join(",".join(one) for one in points)}" fill="none" '
        f'stroke="currentColor" stroke-width="2"{dashes}/>'
    )
    for number_, ((left, top), dot) in enumerate(zip(points, line.dots, strict=True)):
        limits = ""
        if dot.low is not None and dot.high is not None:
            limits = f" [{shown(chart, dot.low)}, {shown(chart, dot.high)}]"
        best = ", the best of its series" if number_ == line.best else ""
        text = f"{line.name}, {chart.axis} {place_text(dot.place)}: {shown(chart, dot.value)}{limits}{best}"
        if dot.name:
            text += f" ({dot.name})"
        ring = (
            '<circle r="8" fill="none" stroke="currentColor" stroke-width="1.5"/>'
            if number_ == line.best and len(line.dots) > 1
            else ""
        )
        yield f'<g transform="translate({left},{top})"><title>{escape(text)}</title>{ring}{_mark(place)}</g>'


def _mark(place: int) -> str:
    at = place % len(_SHAPES)
    return f'<path d="{_SHAPES[at]}" stroke="currentColor" stroke-width="1.4"/>'


def _legend(lines: Sequence[Line]) -> tuple[str, int]:
    """Return the names of the lines with their marks, as many in a row as fit, and the number of rows."""
    parts, left, row = [], 0.0, 0
    for place, line in enumerate(lines):
        width = 34 + LETTER * cell_width(line.name) + 18
        if left and left + width > WIDTH - LEFT - RIGHT:
            left, row = 0.0, row + 1
        dashes = DASHES[place % len(DASHES)]
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts.append(
            f'<g transform="translate({left:.0f},{row * ROW})"><g {series_of(place)} fill="currentColor">'
            f'<path d="M0,0H28" stroke="currentColor" stroke-width="2"{dashed}/>'
            f'<g transform="translate(14,0)">{_mark(place)}</g></g>'
            f'<text x="34" dominant-baseline="middle">{escape(line.name)}</text></g>'
        )
        left += width
    return "".join(parts), row + 1
