"""Curves as lines of text, one for each series and measure, aligned by epoch.

    Real@1                 61.38 % to 67.78 %
    epoch         0.5          2          3.5         5
    mlm_v2/1536    ▅ ▄ ▅ ▃ ▄[▆]▅ ▄ ▅ ▄    66.04 % at 3 ~

All series of a measure share one scale, and those with epochs one axis. Brackets are around the best value; ``~`` says
that it is not more than noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.compare.study.curves import Curve, judged_curves
from harness.compare.study.points import Axis, Measure, Series, Study
from harness.core.text import place_text
from harness.reports.charts import best_of, ticks
from harness.reports.formatting import cell_width, number
from harness.reports.study.section import Section, Verbatim, share_text

BARS: Final = "▁▂▃▄▅▆▇█"
LACKING: Final = "·"
"""The sign of a checkpoint that lacks the measure."""

ASCII: Final = str.maketrans(dict(zip(f"{BARS}{LACKING}", "12345678.", strict=True)))
"""The signs for terminals that have no others: heights from 1 to 8."""

MOST: Final = 20
"""The most columns that an axis has."""

SHOWN: Final = 6
"""The measures that a terminal shows without ``-v``."""

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


def scale(grid: Grid) -> str:
    """Return the numbers below which columns stand, as many as fit."""
    last = grid.first + grid.step * (grid.columns - 1)
    cells = [" "] * (2 * grid.columns + 9)
    for place in [grid.first, last, *ticks(grid.first, last, 9)]:
        text, start = place_text(place), 2 * grid.column(place) + 1
        inside = grid.first <= place <= last
        around = cells[start - 1 : start + len(text) + 1]
        if inside and start + len(text) <= len(cells) and set(around) == {" "}:
            cells[start : start + len(text)] = text
    return "".join(cells).rstrip()


def sparklines(study: Study, signs: Mapping[tuple[str, str], str]) -> list[list[str]]:
    """Return the lines of each measure; ``signs`` are those of the peaks, by series and key of the measure."""
    blocks = []
    for measure in study.measures:
        sparks = {one.name: _spark(study, one, measure, signs) for one in study.series}
        known = [value for one in sparks.values() for value in one.values if value is not None]
        curves = [one for one in study.series if _measured(sparks[one.name]) > 1]
        if not curves:
            continue
        low, high = min(known), max(known)
        spread = f"{share_text(low, share=measure.share)} to {share_text(high, share=measure.share)}"
        lines = [f"{measure.label}  {spread}"]
        for axis in dict.fromkeys(one.axis for one in curves):
            same = [one for one in study.series if one.axis == axis and _measured(sparks[one.name])]
            lines += _block(same, sparks, measure, axis, (low, high))
        blocks.append(lines)
    return blocks


def _spark(study: Study, series: Series, measure: Measure, signs: Mapping[tuple[str, str], str]) -> Spark:
    places, values = [], []
    for order, point in enumerate(series.points):
        place, found = series.place(point), study.value(point, measure)
        places.append(float(order if place is None else place))
        values.append(found.value if found is not None and math.isfinite(found.value) else None)
    sign = signs.get((series.name, measure.key), "")
    return Spark(series.name, tuple(places), tuple(values), measure.higher_is_better, sign)


def _measured(spark: Spark) -> int:
    return sum(value is not None for value in spark.values)


def _block(
    same: Sequence[Series],
    sparks: Mapping[str, Spark],
    measure: Measure,
    axis: Axis,
    limits: tuple[float, float],
) -> list[str]:
    """Return the lines of the series on one axis, below its numbers."""
    own = [sparks[one.name] for one in same]
    grid = grid_of(own)
    width = min(LONGEST, max(map(cell_width, (axis, *(one.name for one in same)))))
    lines = [] if axis == "order" else [f"{_fit(axis, width)} {scale(grid)}"]
    for series, spark in zip(same, own, strict=True):
        best = spark.best
        value = "" if best is None else share_text(spark.values[best], share=measure.share)
        where = ""
        if best is not None:
            place = series.place(series.points[best])
            where = f" at {series.points[best].short if place is None else number_text(place)}"
        told = f"{value}{where} {spark.sign}".rstrip()
        lines.append(f"{_fit(spark.name, width)} {line(spark, grid, *limits)}  {told}")
    return lines


def number_text(place: float) -> str:
    """Return an epoch or a step: ``2.84``, ``1600``."""
    return f"{place:.0f}" if place == int(place) else number(place).rstrip("0").rstrip(".")


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
    lacking = f"{LACKING}   a checkpoint without a value"
    about += [lacking] if any(LACKING in line for block in blocks for line in block) else []
    parts = [Verbatim(tuple(block)) for block in blocks]
    return Section(
        key="sparklines",
        title="Curves at a glance",
        parts=(*parts[:SHOWN], Verbatim(tuple(about))),
        details=tuple(parts[SHOWN:]),
    )


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
