"""Pictures of results, by matplotlib: curves with bands, and grouped bars over checkpoints, as PNG and SVG.

Charts are plain values (``harness.reports.charts``). The extra ``plots`` has matplotlib; nothing else needs it. Colours
are Okabe and Ito's, which colour-blind people tell apart; marks, dashes and hatches tell series apart in grey too.
Text in an SVG stays text. A PNG needs fonts for its letters: where this machine has none for Korean ones, they are
written in Latin letters there.
"""

from __future__ import annotations

import io
import math
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harness.compare.study.points import Study
from harness.core.errors import HarnessError
from harness.reports.charts import LIMITS, BarChart, Line, LineChart, bar_charts, line_charts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#b2a100")
BARS: Final = ("#0072b2", "#e69f00", "#009e73", "#f0c9de", "#56b4e9", "#d55e00", "#444444", "#f0e442")
"""The same colours for bars, in turns dark and light, so that neighbours differ in grey too."""

MARKS: Final = ("o", "s", "^", "D", "v", "X", "P", "h")
DASHES: Final = ("-", "--", ":", "-.", (0, (8, 2)), (0, (4, 4)), (0, (1, 3)), (0, (6, 2, 1, 2, 1, 2)))
HATCHES: Final = ("", "///", "...", "xxx", "\\\\\\", "++", "oo", "--")

TOGETHER: Final = 4
"""The series whose bands one panel can show; more get a panel each."""

DENSE: Final = 25
"""The checkpoints of a series from which on it gets a panel of its own, and no marks."""

DPI: Final = 160
COMPRESSION: Final = 3
"""Of PNG files, from 0 to 9: the larger ones take several times as long, and save a tenth."""

LONGEST_ROW: Final = 24
"""The checkpoints that stand in one row of bars."""

FONTS: Final = (
    *(
        "Noto Sans CJK KR",
        "Noto Sans KR",
        "NanumGothic",
        "NanumBarunGothic",
        "Malgun Gothic",
        "Apple SD Gothic Neo",
    ),
    *(
        "AppleGothic",
        "UnDotum",
        "Baekmuk Dotum",
        "Source Han Sans KR",
        "Noto Sans CJK JP",
        "Noto Sans CJK SC",
    ),
    "Arial Unicode MS",
)
"""Fonts with Korean letters, in the order in which they are taken."""

Files = dict[str, bytes]
Spell: TypeAlias = Callable[[str], str]
Job: TypeAlias = tuple[str, "Callable[[Any, Spell], Figure]", LineChart | BarChart]
"""A picture to draw: its name, its function, and its chart."""


def check_plots(option: str = "--plots") -> None:
    """Raise ``HarnessError`` where matplotlib is not installed, saying how to get it."""
    if not available():
        raise HarnessError(f"{option} needs matplotlib: pip install 'pytest-touchstone[plots]'")


def available() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def study_jobs(study: Study, bars: str = "bars") -> list[Job]:
    """Return the pictures to draw of a study: ``curve_MEASURE``, and those of ``bar_jobs``."""
    curves: list[Job] = [(f"curve_{one.key}", draw_curves, one) for one in line_charts(study)]
    return [*curves, *bar_jobs(study, bars)]


def bar_jobs(study: Study, front: str) -> list[Job]:
    """Return the bar charts to draw, ``FRONT_BENCHMARK``."""
    return [(f"{front}_{one.key}", draw_bars, one) for one in bar_charts(study)]


def pictures(name: str, draw: Callable[[Any, Spell], Figure], chart: LineChart | BarChart) -> Files:
    """Return a chart as ``NAME.png`` and ``NAME.svg``; the same chart always gives the same SVG."""
    with _style(chart.key):
        letters = Letters()
        figure = draw(chart, letters)
        files = {f"{name}.png": _saved(figure, "png")}
        if letters.changed:
            figure = draw(chart, str)
        else:
            figure.set_layout_engine("none")  # everything has its place already
        return files | {f"{name}.svg": _saved(figure, "svg")}


def _saved(figure: Figure, form: str) -> bytes:
    """Return a figure in a form. Figure.savefig would draw it twice, once to see how large it is."""
    import warnings

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    data = io.BytesIO()
    figure.set_dpi(DPI)
    canvas: Any
    if form == "png":
        canvas = FigureCanvasAgg(figure)
        canvas.print_png(data, metadata={"Software": None}, pil_kwargs={"compress_level": COMPRESSION})
        return data.getvalue()
    with warnings.catch_warnings():  # whoever looks at its text has the fonts
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        canvas = FigureCanvasSVG(figure)
        canvas.print_svg(data, metadata={"Date": None})
    return data.getvalue()


@contextmanager
def _style(key: str) -> Iterator[None]:
    """Set matplotlib up for one picture, whatever the user's own settings are."""
    import matplotlib

    korean = next((name for name in FONTS if name in _fonts()), None)
    own: dict[str, Any] = {
        "font.family": [*([korean] if korean else []), "DejaVu Sans"],
        "font.size": 9,
        "axes.unicode_minus": False,
        "text.parse_math": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": "#dddddd",
        "hatch.linewidth": 0.6,
        "svg.fonttype": "none",
        "svg.hashsalt": key,
        "figure.constrained_layout.use": True,
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams
        settings.update(own)
        yield


def _fonts() -> set[str]:
    from matplotlib.font_manager import fontManager

    return {font.name for font in fontManager.ttflist}


# Letters


class Letters:
    """Texts in letters that the fonts of a picture have; ``changed`` is whether one had others."""

    def __init__(self) -> None:
        from matplotlib import rcParams
        from matplotlib.font_manager import findfont, get_font

        self.changed = False
        self._known: set[int] = set()
        for family in rcParams["font.family"]:
            self._known |= get_font(findfont(family)).get_charmap().keys()

    def __call__(self, text: str) -> str:
        """Return the text; other Korean letters in Latin ones, and others still as ``?``."""
        found = "".join(one if ord(one) in self._known else latin(one) for one in text)
        self.changed |= found != text
        return found


def latin(letter: str) -> str:
    """Return a Korean syllable in Latin letters; ``?`` for any other letter without a plain form."""
    name = unicodedata.name(letter, "")
    if name.startswith("HANGUL SYLLABLE "):
        return name.rpartition(" ")[2].lower()
    plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return plain or "?"


def shortened(text: str, most: int = 40) -> str:
    """Return a name with its beginning left out where it is long: its end tells checkpoints apart."""
    text = f" {text}" if text.startswith("_") else text  # matplotlib leaves such names out of legends
    return text if len(text) <= most else f"..{text[2 - most :]}"


# Curves


def draw_curves(chart: LineChart, spell: Spell) -> Figure:
    """Return a figure of the curves, each with its band: in one panel, or where they are many in a panel each."""
    from matplotlib.figure import Figure

    dense = any(len(line.dots) > DENSE for line in chart.lines)
    panels = len(chart.lines) if dense or len(chart.lines) > TOGETHER else 1
    columns = 1 if panels == 1 else min(3, math.ceil(math.sqrt(panels)))
    rows = math.ceil(panels / columns)
    size = (7.2, 4.2) if panels == 1 else (3.4 * columns + 0.6, 2.7 * rows + 0.6)
    layout: Any = "none" if panels > 1 else "constrained"
    figure = Figure(figsize=size, layout=layout)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    if panels > 1:
        _spaced(figure, rows, columns)
    for place, own in enumerate(axes.flat):
        if place >= panels:
            own.set_visible(False)
            continue
        _panel(own, chart, None if panels == 1 else place, spell)
        if place + columns >= panels:
            own.tick_params(labelbottom=True)
    limits = f"bands: {LIMITS}; " if chart.limits else ""
    figure.suptitle(
        spell(f"{_heading(chart)} by {chart.axis}"),
        fontsize=11,
        fontweight="bold",
        x=0.02,
        ha="left",
        **({} if panels == 1 else {"y": 1 - 0.12 / size[1], "va": "top"}),
    )
    figure.supxlabel(
        f"{limits}rings: the best of each series",
        fontsize=7.5,
        color="#555555",
        x=0.99,
        ha="right",
        **({} if panels == 1 else {"y": 0.08 / size[1], "va": "bottom"}),
    )
    if panels == 1:
        _legend(figure, axes[0, 0], len(chart.lines))
    return figure


def _spaced(figure: Figure, rows: int, columns: int) -> None:
    """Give panels their places: they are alike, and to measure all of their texts takes as long as to draw them."""
    width, height = figure.get_size_inches()
    left, right, top, bottom, apart, below = 0.65, 0.15, 0.6, 0.5, 0.15, 0.4  # inches
    own, tall = (
        (width - left - right - apart * (columns - 1)) / columns,
        (height - top - bottom - below * (rows - 1)) / rows,
    )
    figure.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        top=1 - top / height,
        bottom=bottom / height,
        wspace=apart / own,
        hspace=below / tall,
    )


def _heading(chart: LineChart | BarChart) -> str:
    return f"{chart.title}, %" if chart.percent else chart.title


def _panel(axes: Axes, chart: LineChart, one: int | None, spell: Spell) -> None:
    """Draw all lines; with ``one``, that line with its band, and the others in grey."""
    for place, line in enumerate(chart.lines):
        if one is None or place == one:
            _curve(axes, line, place, 100 if chart.percent else 1, spell)
    if one is not None:
        others = [
            _points(line, 100 if chart.percent else 1) for line in chart.lines if line is not chart.lines[one]
        ]
        # One line with gaps: of many series, many lines in each of as many panels would take long.
        places, values = (
            [place for own in column for place in (*own, math.nan)] for column in zip(*others, strict=True)
        )
        axes.plot(places, values, color="#c8c8c8", linewidth=0.9, zorder=1)
        axes.set_title(spell(shortened(chart.lines[one].name)), fontsize=9, loc="left", y=1.0)


def _points(line: Line, factor: float) -> tuple[list[float], list[float]]:
    return [dot.place for dot in line.dots], [factor * dot.value for dot in line.dots]


def _curve(axes: Axes, line: Line, place: int, factor: float, spell: Spell) -> None:
    at = place % len(COLOURS)
    places, values = _points(line, factor)
    lows = [math.nan if dot.low is None else factor * dot.low for dot in line.dots]
    highs = [math.nan if dot.high is None else factor * dot.high for dot in line.dots]
    axes.fill_between(places, lows, highs, color=COLOURS[at], alpha=0.15, linewidth=0)
    for alone in _alone(lows, highs):
        axes.vlines(places[alone], lows[alone], highs[alone], color=COLOURS[at], linewidth=1.2, alpha=0.6)
    few = len(places) <= DENSE
    axes.plot(
        places,
        values,
        color=COLOURS[at],
        linestyle=DASHES[at],
        marker=MARKS[at] if few else None,
        markersize=4.5,
        linewidth=1.5,
        zorder=3,
        label=spell(shortened(line.name)),
    )
    if line.best is not None and len(places) > 1:
        axes.plot(
            [places[line.best]],
            [values[line.best]],
            linestyle="none",
            marker="o",
            markersize=10,
            fillstyle="none",
            color=COLOURS[at],
            zorder=4,
        )


def _alone(lows: Sequence[float], highs: Sequence[float]) -> list[int]:
    """Return the places of limits without neighbours that have some: no band is there."""
    known = [not math.isnan(low + high) for low, high in zip(lows, highs, strict=True)]
    around = [False, *known, False]
    return [place for place, one in enumerate(known) if one and not (around[place] or around[place + 2])]


def _gaps(upper: Sequence[float], lower: Sequence[float]) -> list[float]:
    """Return the lengths of error bars; none where a limit is not known."""
    return [
        0.0 if math.isnan(one - other) else max(0.0, one - other)
        for one, other in zip(upper, lower, strict=True)
    ]


def _legend(figure: Figure, axes: Axes, count: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    longest = max((len(label) for label in labels), default=1)
    columns = max(1, min(count, int(88 / (longest + 8))))
    figure.legend(
        handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize=8, handlelength=3
    )


# Bars


def draw_bars(chart: BarChart, spell: Spell) -> Figure:
    """Return a figure of grouped bars with error bars, in rows of ``LONGEST_ROW`` checkpoints at most."""
    from matplotlib.figure import Figure

    rows = _rows(chart)
    most = max(end - start for start, end in rows)
    width = min(16.0, max(4.5, 1.2 + most * (0.28 + 0.16 * len(chart.bars))))
    longest = max(len(shortened(name)) for name in chart.groups)
    steep = most * (longest + 2) * 0.075 > width
    below = 0.35 + (0.055 * longest if steep else 0.0)
    figure = Figure(figsize=(width, (2.4 + below) * len(rows) + 0.6))
    axes = figure.subplots(len(rows), 1, squeeze=False, sharey=True)
    for (start, end), own in zip(rows, axes[:, 0], strict=True):
        _row(own, chart, (start, end), steep, spell)
        own.set_xlim(-0.6, most - 0.4)
    figure.suptitle(spell(_heading(chart)), fontsize=11, fontweight="bold", x=0.02, ha="left")
    if any(bar.low is not None for _, row in chart.bars for bar in row):
        figure.supxlabel(f"bars: {LIMITS}", fontsize=7.5, color="#555555", x=0.99, ha="right")
    if len(chart.bars) > 1:
        _legend(figure, axes[0, 0], len(chart.bars))
    return figure


def _rows(chart: BarChart) -> list[tuple[int, int]]:
    """Return the groups of each row: whole series as long as they fit."""
    ends = [*(start for start, _ in chart.sections if start), len(chart.groups)]
    found, start, last = [], 0, 0
    for end in ends:
        if end - start > LONGEST_ROW and last > start:
            found.append((start, last))
            start = last
        while end - start > LONGEST_ROW:
            part = math.ceil((end - start) / math.ceil((end - start) / LONGEST_ROW))
            found.append((start, start + part))
            start += part
        last = end
    return [*found, (start, last)] if last > start else found


def _row(axes: Axes, chart: BarChart, row: tuple[int, int], steep: bool, spell: Spell) -> None:
    start, end = row
    factor = 100 if chart.percent else 1
    wide = 0.8 / len(chart.bars)
    for place, (name, bars) in enumerate(chart.bars):
        at = place % len(COLOURS)
        shift = (place - (len(chart.bars) - 1) / 2) * wide
        known = [(number, one) for number, one in enumerate(bars[start:end]) if one.value is not None]
        values = [factor * (one.value or 0.0) for _, one in known]
        lows = [math.nan if one.low is None else factor * one.low for _, one in known]
        highs = [math.nan if one.high is None else factor * one.high for _, one in known]
        axes.bar(
            [number + shift for number, _ in known],
            values,
            wide * 0.92,
            color=BARS[at],
            edgecolor="#ffffff" if at % 2 == 0 else "#333333",
            hatch=HATCHES[at],
            linewidth=0.4,
            yerr=[_gaps(values, lows), _gaps(highs, values)],
            error_kw={"elinewidth": 0.9, "capsize": min(2.5, 12 * wide), "ecolor": "#222222"},
            label=spell(shortened(name)),
        )
    names = [spell(shortened(name)) for name in chart.groups[start:end]]
    axes.set_xticks(
        range(end - start),
        names,
        rotation=50 if steep else 0,
        ha="right" if steep else "center",
        rotation_mode="anchor" if steep else "default",
        fontsize=8,
    )
    for place, name in chart.sections:
        if start < place < end:
            axes.axvline(place - start - 0.5, color="#999999", linewidth=0.8, linestyle=":")
        if start <= place < end or (place < start and name == _section(chart, start)):
            left = max(place, start) - start - 0.45
            axes.text(left, 1.01, spell(shortened(name)), transform=axes.get_xaxis_transform(), fontsize=8)


def _section(chart: BarChart, group: int) -> str:
    """Return the series that a group is in."""
    return [name for place, name in chart.sections if place <= group][-1]
