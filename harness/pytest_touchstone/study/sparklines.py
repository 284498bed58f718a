"""Curves as lines of text, one for each series and measure, aligned by epoch.

    Real@1      0.5          2          3.5         5   by epoch, 62.92 % to 67.78 %
    mlm_v2/1536  ▅ ▄ ▅ ▃ ▄[▆]▅ ▄ ▅ ▄    66.04 [64.12, 67.91] at 3 ~

All series of a measure share one scale, and those with epochs one axis. Brackets are around the best value; ``~`` says
that it is not more than noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_touchstone.core.text import ordinal_place
from pytest_touchstone.document import Section, Verbatim
from pytest_touchstone.document.formatting import NOTHING, cell_width, cut_name
from pytest_touchstone.study.curves import Curve, curves_of
from pytest_touchstone.study.points import Axis, Series, Study, StudyMetric

BARS: Final = "▁▂▃▄▅▆▇█"
LACKING: Final = "·"
"""The sign of a checkpoint that lacks the measure."""

ASCII: Final = str.maketrans(dict(zip(f"{BARS}{LACKING}", "12345678.", strict=True)))
"""The signs for terminals that have no others: heights from 1 to 8."""

MOST: Final = 20
"""The most columns that an axis has."""

FEWEST: Final = 6
"""The most columns that an axis has beside the longest texts."""

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
    """The values of a series at its places, None where not measured; ``peak`` is the best value as text."""

    name: str
    places: tuple[float, ...]
    values: tuple[float | None, ...]
    higher_is_better: bool = True
    peak: str = ""

    @property
    def order(self) -> list[int]:
        """The numbers of the values, the best last, and the first of equals after the others."""
        sign = 1 if self.higher_is_better else -1
        levels = [-math.inf if value is None else sign * value for value in self.values]
        return sorted(range(len(levels)), key=lambda number: (levels[number], -number))

    @property
    def best(self) -> int | None:
        """The number of the best value."""
        return self.order[-1] if any(value is not None for value in self.values) else None


def columns_of(sparks: Iterable[Spark], most: int = MOST) -> dict[float, int]:
    """Return the column of each place, in order; where there are more places than columns, neighbours share one."""
    places = sorted({place for one in sparks for place in one.places})
    shown = min(most, len(places))
    return {place: number * shown // len(places) for number, place in enumerate(places)}


def line(spark: Spark, columns: Mapping[float, int], low: float, high: float) -> str:
    """Return the bars of a series, two characters to a column; of several in a column the best, or the first."""
    cells = [" "] * (2 * max(columns.values()) + 3)
    for number in spark.order:
        cells[2 * columns[spark.places[number]] + 1] = bar(spark.values[number], low, high)
    if spark.best is not None:
        column = 2 * columns[spark.places[spark.best]]
        cells[column], cells[column + 2] = "[", "]"
    return "".join(cells)


def bar(value: float | None, low: float, high: float) -> str:
    """Return the sign of a value between the least and the greatest."""
    if value is None:
        return LACKING
    if not high > low:
        return BARS[len(BARS) // 2]
    return BARS[min(len(BARS) - 1, int((value - low) / (high - low) * len(BARS) + 1e-9))]


def scale(columns: Mapping[float, int]) -> str:
    """Return the places above their columns, as many as fit: the ends, then others."""
    places = list(columns)
    cells = [" "] * (2 * columns[places[-1]] + 12)
    for place in (places[0], places[-1], *places):
        text, start = ordinal_place(place), 2 * columns[place] + 1
        if set(cells[start - 1 : start + len(text) + 1]) == {" "}:
            cells[start : start + len(text)] = text
    return "".join(cells).rstrip()


def sparklines(study: Study, signs: Mapping[tuple[str, str], str]) -> list[list[str]]:
    """Return the lines of each measure, the primary composites first; ``signs`` are those of the peaks, by series and
    key of the measure."""
    blocks = []
    for measure in sorted(study.measures, key=lambda one: (not one.primary, one.composite is None)):
        sparks = [(one, _spark(study, one, measure, signs)) for one in study.series]
        sizes = {one.name: len(study.measured(one, measure)) for one in study.series}
        axes = dict.fromkeys(one.axis for one in study.series if sizes[one.name] > 1)
        known = [value for _, spark in sparks for value in spark.values if value is not None]
        lines: list[str] = []
        for axis in axes:
            shown = [spark for one, spark in sparks if one.axis == axis and sizes[one.name]]
            lines += _block(shown, axis, (min(known), max(known)), measure)
        blocks += [lines] if lines else []
    return blocks


def _spark(study: Study, series: Series, measure: StudyMetric, signs: Mapping[tuple[str, str], str]) -> Spark:
    points = [one for one in series.points if series.axis == "order" or series.place(one) is not None]
    places = [series.place(one) for one in points]
    values = [study.valid(one, measure) for one in points]
    spark = Spark(
        series.name,
        tuple(float(order if place is None else place) for order, place in enumerate(places)),
        tuple(one.value if one is not None and math.isfinite(one.value) else None for one in values),
        measure.higher_is_better,
    )
    if spark.best is None or (value := values[spark.best]) is None:
        return spark
    where, limits = series.at(points[spark.best]), measure.range(value)
    text = measure.text(value.value) if limits == NOTHING else f"{measure.amount(value.value)} {limits}"
    return replace(spark, peak=f"{text} at {where} {signs.get((series.name, measure.key), '')}".rstrip())


def _block(
    sparks: Sequence[Spark], axis: Axis, limits: tuple[float, float], measure: StudyMetric
) -> list[str]:
    """Return the lines of the series on one axis, below its numbers; all fit ``WIDTH``, if names of places allow."""
    names = min(LONGEST, max(cell_width(one.name) for one in sparks))
    width = max(names, cell_width(measure.label))
    room = (WIDTH - width - max(cell_width(one.peak) for one in sparks) - len("   ") - 1) // 2
    columns = columns_of(sparks, max(FEWEST, min(MOST, room)))
    numbers = "" if axis == "order" else scale(columns)
    spread = " to ".join(measure.text(limit) for limit in limits)
    by = "" if axis == "order" else f"by {axis}, "
    return [
        f"{_fit(measure.label, width)} {numbers:{2 * max(columns.values()) + 3}}  {by}{spread}",
        *(f"{_fit(one.name, width)} {line(one, columns, *limits)}  {one.peak}" for one in sparks),
    ]


def _fit(text: str, width: int) -> str:
    """Return a name in that many columns."""
    text = cut_name(text, width)
    return text + " " * (width - cell_width(text))


def glance(study: Study) -> Section | None:
    """Return the curves at a glance, with a line on every sign that occurs; None where no series has two values."""
    signs = {(one.series.name, one.measure.key): _sign(one) for one in study.once(curves_of)}
    blocks = [Verbatim(tuple(block)) for block in sparklines(study, signs)]
    if not blocks:
        return None
    about = [f"[ ] the best of a series; {BARS[0]} the lowest, {BARS[-1]} the highest value of the measure"]
    about += [f"{sign}   {SIGNS[sign]}" for sign in SIGNS if sign in signs.values()]
    lacking = f"{LACKING}   a checkpoint without a value, or with one that is NOT VALID"
    about += [lacking] if any(LACKING in line for block in blocks for line in block.lines) else []
    shown = min(sum(one.primary for one in study.measures), max(1, LINES // len(study.series)))
    return Section(
        key="sparklines",
        title="Curves at a glance",
        parts=(*blocks[:shown], "\n".join(about), *blocks[shown:]),
        brief=min(shown, len(blocks)) + 1,
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
