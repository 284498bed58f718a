"""Pictures of results, by matplotlib: curves with bands, and grouped bars over checkpoints, as PNG and SVG.

Charts are plain values (``reports.charts``). The extra ``plots`` has matplotlib; nothing else needs it. Colours
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

from pytest_touchstone.compare.study.points import Study
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.reports.charts import LIMITS, BarChart, Line, LineChart, bar_charts, line_charts
from pytest_touchstone.reports.panels import draw_panels
from pytest_touchstone.reports.plot_parts import (
    COLOURS,
    DASHES,
    DENSE,
    MARKS,
    Spell,
    heading,
    in_panels,
    limits_of,
    points_of,
    runs_of,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BARS: Final = ("#0072b2", "#e69f00", "#009e73", "#f0c9de", "#56b4e9", "#d55e00", "#444444", "#f0e442")
"""The colours of curves for bars, in turns dark and light, so that neighbours differ in grey too."""

HATCHES: Final = ("", "///", "...", "xxx", "\\\\\\", "++", "oo", "--")

DPI: Final = 160
DPI_WIDE: Final = 110
WIDE: Final = 8.0
"""The dots of an inch, and those of pictures that are so many inches wide, which take long."""

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
    figure.set_dpi(DPI if figure.get_figwidth() < WIDE else DPI_WIDE)
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


# Curves


def draw_curves(chart: LineChart, spell: Spell) -> Figure:
    """Return a figure of the curves, each with its band: in one panel, or where they are many in a panel each."""
    from matplotlib.figure import Figure

    if in_panels(chart):
        return draw_panels(chart, spell)
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    for place, line in enumerate(chart.lines):
        _curve(axes, line, place, 100 if chart.percent else 1, spell)
    limits = f"bands: {LIMITS}; " if chart.limits else ""
    title = spell(f"{heading(chart)} by {chart.axis}")
    figure.suptitle(title, fontsize=11, fontweight="bold", x=0.02, ha="left")
    about = f"{limits}rings: the best of each series"
    figure.supxlabel(about, fontsize=7.5, color="#555555", x=0.99, ha="right")
    _legend(figure, axes, len(chart.lines))
    return figure


def _curve(axes: Axes, line: Line, place: int, factor: float, spell: Spell) -> None:
    at = place % len(COLOURS)
    places, values = points_of(line, factor)
    lows, highs = limits_of(line, factor)
    axes.fill_between(places, lows, highs, color=COLOURS[at], alpha=0.15, linewidth=0)
    for run in runs_of(lows, highs):
        if len(run) == 1:
            only = run.start
            axes.vlines(places[only], lows[only], highs[only], color=COLOURS[at], linewidth=1.2, alpha=0.6)
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
    figure.suptitle(spell(heading(chart)), fontsize=11, fontweight="bold", x=0.02, ha="left")
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
    below = axes.get_xaxis_transform()
    ends = [place - start - 0.5 for place, _ in chart.sections if start < place < end]
    axes.vlines(ends, 0, 1, transform=below, color="#999999", linewidth=0.8, linestyle=":")
    for place, name in chart.sections:
        if start <= place < end or (place < start and name == _section(chart, start)):
            left = max(place, start) - start - 0.45
            axes.text(left, 1.01, spell(shortened(name)), transform=below, fontsize=8)


def _section(chart: BarChart, group: int) -> str:
    """Return the series that a group is in."""
    return [name for place, name in chart.sections if place <= group][-1]
