"""Curves as lines of text, one for each series and measure, aligned by epoch.

    Real@1                 61.38 % to 67.78 %
    epoch         0.5          2          3.5         5
    mlm_v2/1536    ▅ ▄ ▅ ▃ ▄[▆]▅ ▄ ▅ ▄    66.04 % at 3 ~

All series of a measure share one scale, and those with epochs one axis. Brackets are around the best value; ``~`` says
that it is not more than noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_touchstone.compare.study.curves import Curve, judged_curves
from pytest_touchstone.compare.study.points import Axis, Measure, Point, Series, Study
from pytest_touchstone.core.text import place_text
from pytest_touchstone.reports.charts import best_of, ticks
from pytest_touchstone.reports.formatting import NOTHING, cell_width
from pytest_touchstone.reports.study.section import Part, Section, Verbatim, range_text, share_text

BARS: Final = "▁▂▃▄▅▆▇█"
LACKING: Final = "·"
"""The sign of a checkpoint that lacks the measure."""

ASCII: Final = str.maketrans(dict(zip(f"{BARS}{LACKING}", "12345678.", strict=True)))
"""The signs for terminals that have no others: heights from 1 to 8."""

MOST: Final = 20
"""The most columns that an axis has."""

FEWEST: Final = 6
"""The most columns that an axis has beside the longest texts."""

SHOWN: Final = 6
"""The measures that a terminal shows without ``-v``."""

NEAR: Final = 0.2
"""The part of a column by which a number on the axis may stand beside its place."""

LINES: Final = 24
"""The lines of curves that a reader sees who asks for no section."""

WIDTH: Final = 76
"""The columns of a line with its interval."""

LONGEST: Final = 18
"""The columns of a series' name."""

NOISE: Final = "~"
UNTESTED: Final = "?"
SIGNS: Final = {
    NOISE: "not more than noise: it cannot be told from others of its series",
    UNTESTED: "whether it is more than noise cannot be tested",
}


@dataclass(frozen=True, slots=True)
class Spark:
    """The values of a series at its places, None where not measured, and the sign of its peak."""

    name: str
    places: tuple[float, ...]
    values: tuple[float | None, ...]
    higher_is_better: bool = True
    sign: str = ""
    peak: str = ""
    """The best value and its place as text."""

    @property
    def best(self) -> int | None:
        """The number of the best value."""
        known = [one for one, value in enumerate(self.values) if value is not None]
        place = best_of((self.values[one] or 0.0 for one in known), higher=self.higher_is_better)
        return None if place is None else known[place]


@dataclass(frozen=True, slots=True)
class Grid:
    """The columns of an axis: places from ``first`` on, each ``step`` wide."""

    first: float
    step: float
    columns: int

    def column(self, place: float) -> int:
        """Return the column of a place."""
        return min(self.columns - 1, round((place - self.first) / self.step)) if self.step else 0

    def stands_at(self, place: float) -> bool:
        """Return whether a place is nearer to its column than to the middle between two."""
        return not self.step or abs((place - self.first) / self.step - self.column(place)) <= NEAR


def grid_of(sparks: Sequence[Spark], most: int = MOST) -> Grid:
    """Return columns as narrow as the smallest gap within a series needs, at most ``most`` of them."""
    places = sorted({place for one in sparks for place in one.places})
    gaps = [
        after - before
        for one in sparks
        for before, after in zip(sorted(one.places), sorted(one.places)[1:], strict=False)
        if after > before
    ]
    width = places[-1] - places[0]
    if not gaps:
        return Grid(places[0], width, 1 if not width else 2)
    columns = min(most, round(width / min(gaps)) + 1)
    return Grid(places[0], width / (columns - 1) if columns > 1 else 0.0, columns)


def line(spark: Spark, grid: Grid, low: float, high: float) -> str:
    """Return the bars of a series, two characters to a column; of several in a column the best, or the first."""
    cells = [" "] * (2 * grid.columns + 1)
    best = spark.best
    sign = 1 if spark.higher_is_better else -1
    shown: dict[int, int] = {}
    for place, value in enumerate(spark.values):
        column = grid.column(spark.places[place])
        other = spark.values[shown[column]] if column in shown else None
        if column not in shown or (value is not None and (other is None or sign * value > sign * other)):
            shown[column] = place
    for column, place in shown.items():
        cells[2 * column + 1] = bar(spark.values[place], low, high)
    if best is not None:
        column = grid.column(spark.places[best])
        cells[2 * column], cells[2 * column + 2] = "[", "]"
    return "".join(cells)


def bar(value: float | None, low: float, high: float) -> str:
    """Return the sign of a value between the least and the greatest."""
    if value is None:
        return LACKING
    if not high > low:
        return BARS[len(BARS) // 2]
    return BARS[min(len(BARS) - 1, int((value - low) / (high - low) * len(BARS) + 1e-9))]


def scale(grid: Grid, places: Iterable[float]) -> str:
    """Return the places of checkpoints above their columns, as many as fit: the ends, then round ones, then others."""
    last = grid.first + grid.step * (grid.columns - 1)
    cells = [" "] * (2 * grid.columns + 9)
    known = sorted(places)
    even = [place for place in ticks(grid.first, last, 9) if place in known]
    for place in [grid.first, last, *even, *known]:
        text, start = place_text(place), 2 * grid.column(place) + 1
        inside = grid.first <= place <= last and grid.stands_at(place)
        around = cells[start - 1 : start + len(text) + 1]
        if inside and start + len(text) <= len(cells) and set(around) == {" "}:
            cells[start : start + len(text)] = text
    return "".join(cells).rstrip()


def sparklines(
    study: Study,
    signs: Mapping[tuple[str, str], str],
    measures: Sequence[Measure] | None = None,
    *,
    intervals: bool = False,
    most: int | None = None,
) -> list[list[str]]:
    """Return the lines of each measure; ``signs`` are those of the peaks, by series and key of the measure.

    With ``intervals`` each peak has its interval. ``most``: so many series of a measure, those with the best peaks.
    """
    blocks = []
    for measure in study.measures if measures is None else measures:
        every = {one.name: _spark(study, one, measure, signs, intervals) for one in study.series}
        sparks = {one.name: one for one in _best_of(list(every.values()), most)}
        known = [value for one in sparks.values() for value in one.values if value is not None]
        curves = [one for one in study.series if one.name in sparks and _measured(sparks[one.name]) > 1]
        if not curves:
            continue
        low, high = min(known), max(known)
        spread = f"{share_text(low, share=measure.share)} to {share_text(high, share=measure.share)}"
        lines = [] if intervals else [f"{measure.label}  {spread}"]
        for axis in dict.fromkeys(one.axis for one in curves):
            own = [sparks[one.name] for one in study.series if one.axis == axis and one.name in sparks]
            head = (measure.label, spread) if intervals else None
            lines += _block([one for one in own if _measured(one)], axis, (low, high), head)
        blocks.append(lines)
    return blocks


def _best_of(sparks: Sequence[Spark], most: int | None) -> Sequence[Spark]:
    """Return so many with the best peaks, in their order."""
    if most is None or len(sparks) <= most:
        return sparks

    def height(one: Spark) -> float:
        value = None if one.best is None else one.values[one.best]
        return -math.inf if value is None else value if one.higher_is_better else -value

    chosen = {one.name for one in sorted(sparks, key=height, reverse=True)[:most]}
    return [one for one in sparks if one.name in chosen]


def _spark(
    study: Study,
    series: Series,
    measure: Measure,
    signs: Mapping[tuple[str, str], str],
    intervals: bool,
) -> Spark:
    places, values, shown = [], [], []
    for order, point in enumerate(series.points):
        place, found = series.place(point), study.valid(point, measure)
        if place is None and series.axis != "order":
            continue
        places.append(float(order if place is None else place))
        shown.append(point)
        values.append(found.value if found is not None and math.isfinite(found.value) else None)
    sign = signs.get((series.name, measure.key), "")
    spark = Spark(series.name, tuple(places), tuple(values), measure.higher_is_better, sign)
    return (
        spark
        if spark.best is None
        else replace(spark, peak=_peak(study, series, measure, shown[spark.best], intervals))
    )


def _peak(study: Study, series: Series, measure: Measure, point: Point, interval: bool) -> str:
    """Return the value and its place: ``66.04 % at 3``, or ``66.04 [64.12, 67.91] at 3``."""
    place, value = series.place(point), study.value(point, measure)
    where = point.short if place is None else place_text(place)
    if value is None:
        return where
    text = share_text(value.value, share=measure.share)
    limits = range_text(value, share=measure.share) if interval else NOTHING
    return f"{text} at {where}" if limits == NOTHING else f"{text.removesuffix(' %')} {limits} at {where}"


def _measured(spark: Spark) -> int:
    return sum(value is not None for value in spark.values)


def _block(
    own: Sequence[Spark], axis: Axis, limits: tuple[float, float], head: tuple[str, str] | None
) -> list[str]:
    """Return the lines of the series on one axis, below its numbers; all fit ``WIDTH``, if names of places allow.

    ``head`` are the measure's name and range, which then stand beside the numbers; a long name stands above them.
    """
    title = head[0] if head else axis
    alone = [title] * (head is not None and cell_width(title) > LONGEST)
    title = "" if alone else title
    width = min(LONGEST, max(map(cell_width, (title, *(one.name for one in own)))))
    told = [f"{spark.peak} {spark.sign}".rstrip() for spark in own]
    room = (WIDTH - width - max(map(cell_width, told)) - len("   ") - 1) // 2
    grid = grid_of(own, max(FEWEST, min(MOST, room)))
    numbers = "" if axis == "order" else scale(grid, {place for one in own for place in one.places})
    lines = [f"{_fit(title, width)} {numbers}"] if numbers else []
    if head:
        by = "" if axis == "order" else f"by {axis}, "
        lines = [*alone, f"{_fit(title, width)} {numbers:{2 * grid.columns + 1}}  {by}{head[1]}"]
    for spark, text in zip(own, told, strict=True):
        lines.append(f"{_fit(spark.name, width)} {line(spark, grid, *limits)}  {text}")
    return lines


def _fit(text: str, width: int) -> str:
    """Return a name in that many columns, its end where it is longer."""
    if cell_width(text) > width:
        while cell_width(text) > width - 2:
            text = text[1:]
        text = f"..{text}"
    return text + " " * (width - cell_width(text))


def glance(study: Study) -> Section | None:
    """Return the section, with a line on every sign that occurs; None where no series has two values."""
    signs = {
        (one.curve.series.name, one.curve.measure.key): _sign(one.curve) for one in study.once(judged_curves)
    }
    blocks = sparklines(study, signs)
    if not blocks:
        return None
    about = [f"[ ] the best of a series; {BARS[0]} the lowest, {BARS[-1]} the highest value of the measure"]
    about += [f"{sign}   {SIGNS[sign]}" for sign in SIGNS if sign in signs.values()]
    lacking = f"{LACKING}   a checkpoint without a value, or with one that is NOT VALID"
    about += [lacking] if any(LACKING in line for block in blocks for line in block) else []
    parts = [Verbatim(tuple(block)) for block in blocks]
    brief = [*_brief(study, signs), "\n".join(about)]
    return Section(
        key="sparklines",
        title="Curves at a glance",
        parts=(*parts[:SHOWN], Verbatim(tuple(about))),
        details=tuple(parts[SHOWN:]),
        brief=tuple(brief),
    )


def _brief(study: Study, signs: Mapping[tuple[str, str], str]) -> Sequence[Part]:
    """Return the curves of the primary measures as far as there is room, the first composite before others."""
    primary = [one for one in study.measures if one.primary]
    ordered = sorted(primary, key=lambda one: one.composite is None)
    room = max(1, LINES // len(study.series))
    shown = [one for one in primary if one in ordered[:room]]
    blocks = sparklines(study, signs, shown, intervals=True, most=LINES)
    hidden = [f"{len(primary) - len(shown)} primary measures more"] if len(primary) > len(shown) else []
    hidden += [f"{len(study.series) - LINES} series more"] if len(study.series) > LINES else []
    told = [f"{' and '.join(hidden)}: --section sparklines"] if hidden else []
    return [*(Verbatim(tuple(block)) for block in blocks), *told]


def _sign(curve: Curve) -> str:
    if curve.ties is None:
        return UNTESTED
    return NOISE if curve.ties else ""


def spelled(text: str, encoding: str | None) -> str:
    """Return a text for a terminal of this encoding: with numbers for bars where it has no bars."""
    try:
        f"{BARS}{LACKING}".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return text.translate(ASCII)
    return text
