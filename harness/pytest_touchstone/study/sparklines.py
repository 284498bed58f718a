"""Draws curves as lines of text, one per series and measure, aligned by epoch.

    Real@1      0.5          2          3.5         5   by epoch, 62.92 % to 67.78 %
    mlm_v2/1536  ▅ ▄ ▅ ▃ ▄[▆]▅ ▄ ▅ ▄    66.04 [64.12, 67.91] at 3 ~

All series of a measure share one scale, and those with epochs share one axis. Brackets mark the best value. ``~`` marks
a best value that does not differ significantly from others of its series.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_touchstone.core.text import format_step
from pytest_touchstone.document import Section, Verbatim
from pytest_touchstone.document.formatting import NOTHING, cell_width, cut_name
from pytest_touchstone.study.curves import curves_of
from pytest_touchstone.study.points import Axis, Series, Study, StudyMetric

BARS: Final = "▁▂▃▄▅▆▇█"
MISSING: Final = "·"
"""The sign for a checkpoint without a value."""

ASCII: Final = str.maketrans(dict(zip(f"{BARS}{MISSING}", "12345678.", strict=True)))
"""A translation table for terminals without bars: heights from 1 to 8."""

MOST_COLUMNS: Final = 20
"""The most columns that an axis has."""

FEWEST_COLUMNS: Final = 6
"""The fewest columns of an axis, even beside long texts."""

LINES: Final = 24
"""The most lines of curves in a brief report."""

WIDTH: Final = 76
"""The width of a line with its interval."""

LONGEST: Final = 18
"""The most columns of the name of a series."""

NOISE: Final = "~"
UNTESTED: Final = "?"
SIGNS: Final = {
    NOISE: "not more than noise: it cannot be told apart from others of its series",
    UNTESTED: "whether it is more than noise cannot be tested",
}


@dataclass(frozen=True, slots=True)
class Spark:
    """The values of a series by position; None if not measured.

    ``peak`` is the best value as text.
    """

    name: str
    places: tuple[float, ...]
    values: tuple[float | None, ...]
    higher_is_better: bool = True
    peak: str = ""

    @property
    def order(self) -> list[int]:
        """The indices of the values from worst to best; the first of equals comes last."""
        sign = 1 if self.higher_is_better else -1
        levels = [-math.inf if value is None else sign * value for value in self.values]
        return sorted(range(len(levels)), key=lambda index: (levels[index], -index))

    @property
    def best(self) -> int | None:
        """The index of the best value; None without a value."""
        return self.order[-1] if any(value is not None for value in self.values) else None


def columns_of(sparks: Iterable[Spark], most: int = MOST_COLUMNS) -> dict[float, int]:
    """Map positions to columns in order; neighbours share a column if there are too many."""
    positions = sorted({position for spark in sparks for position in spark.places})
    shown = min(most, len(positions))
    return {position: index * shown // len(positions) for index, position in enumerate(positions)}


def sparkline(spark: Spark, columns: Mapping[float, int], low: float, high: float) -> str:
    """Return the bars of a series, two characters per column.

    A column with several values shows the best of them.
    """
    cells = [" "] * (2 * max(columns.values()) + 3)
    for index in spark.order:
        cells[2 * columns[spark.places[index]] + 1] = bar_character(spark.values[index], low, high)
    if spark.best is not None:
        column = 2 * columns[spark.places[spark.best]]
        cells[column], cells[column + 2] = "[", "]"
    return "".join(cells)


def bar_character(value: float | None, low: float, high: float) -> str:
    """Return the bar for a value on a scale from ``low`` to ``high``."""
    if value is None:
        return MISSING
    if not high > low:
        return BARS[len(BARS) // 2]
    return BARS[min(len(BARS) - 1, int((value - low) / (high - low) * len(BARS) + 1e-9))]


def axis_labels(columns: Mapping[float, int]) -> str:
    """Return the positions above their columns: both ends, then as many others as fit."""
    positions = list(columns)
    cells = [" "] * (2 * columns[positions[-1]] + 12)
    for position in (positions[0], positions[-1], *positions):
        text, start = format_step(position), 2 * columns[position] + 1
        if set(cells[start - 1 : start + len(text) + 1]) == {" "}:
            cells[start : start + len(text)] = text
    return "".join(cells).rstrip()


def sparklines(study: Study, signs: Mapping[tuple[str, str], str]) -> list[list[str]]:
    """Return the lines of each measure, primary composites first.

    Args:
        study: The study.
        signs: The sign of each peak, by name of series and key of measure.

    """
    blocks = []
    for measure in sorted(
        study.measures, key=lambda measure: (not measure.primary, measure.composite is None)
    ):
        sparks = [(series, _make_spark(study, series, measure, signs)) for series in study.series]
        sizes = {series.name: len(study.valid_values(series, measure)) for series in study.series}
        axes = dict.fromkeys(series.axis for series in study.series if sizes[series.name] > 1)
        values = [value for _, spark in sparks for value in spark.values if value is not None]
        lines: list[str] = []
        for axis in axes:
            shown = [spark for series, spark in sparks if series.axis == axis and sizes[series.name]]
            lines += _block(shown, axis, (min(values), max(values)), measure)
        blocks += [lines] if lines else []
    return blocks


def _make_spark(
    study: Study, series: Series, measure: StudyMetric, signs: Mapping[tuple[str, str], str]
) -> Spark:
    points = [
        point for point in series.points if series.axis == "order" or series.position(point) is not None
    ]
    positions = [series.position(point) for point in points]
    values = [study.valid_value(point, measure) for point in points]
    spark = Spark(
        series.name,
        tuple(float(order if position is None else position) for order, position in enumerate(positions)),
        tuple(value.value if value is not None and math.isfinite(value.value) else None for value in values),
        measure.higher_is_better,
    )
    if spark.best is None or (value := values[spark.best]) is None:
        return spark
    position_text, limits = series.at(points[spark.best]), measure.range(value)
    text = measure.text(value.value) if limits == NOTHING else f"{measure.amount(value.value)} {limits}"
    return replace(
        spark, peak=f"{text} at {position_text} {signs.get((series.name, measure.key), '')}".rstrip()
    )


def _block(
    sparks: Sequence[Spark], axis: Axis, limits: tuple[float, float], measure: StudyMetric
) -> list[str]:
    """Return the labels of an axis and a line for each series below it, within ``WIDTH`` if possible."""
    name_width = min(LONGEST, max(cell_width(spark.name) for spark in sparks))
    width = max(name_width, cell_width(measure.label))
    columns_left = (WIDTH - width - max(cell_width(spark.peak) for spark in sparks) - len("   ") - 1) // 2
    columns = columns_of(sparks, max(FEWEST_COLUMNS, min(MOST_COLUMNS, columns_left)))
    numbers = "" if axis == "order" else axis_labels(columns)
    spread = " to ".join(measure.text(limit) for limit in limits)
    axis_note = "" if axis == "order" else f"by {axis}, "
    return [
        f"{_pad_name(measure.label, width)} {numbers:{2 * max(columns.values()) + 3}}  {axis_note}{spread}",
        *(
            f"{_pad_name(spark.name, width)} {sparkline(spark, columns, *limits)}  {spark.peak}"
            for spark in sparks
        ),
    ]


def _pad_name(text: str, width: int) -> str:
    """Cut or pad a name to ``width`` columns."""
    text = cut_name(text, width)
    return text + " " * (width - cell_width(text))


def sparklines_section(study: Study) -> Section | None:
    """Return the section with sparklines and a legend; None if no series has two values."""
    signs = {
        (curve.series.name, curve.measure.key): UNTESTED if curve.ties is None else NOISE * bool(curve.ties)
        for curve in study.compute_once(curves_of)
    }
    blocks = [Verbatim(tuple(block)) for block in sparklines(study, signs)]
    if not blocks:
        return None
    about = [f"[ ] the best of a series; {BARS[0]} the lowest, {BARS[-1]} the highest value of the measure"]
    about += [f"{sign}   {SIGNS[sign]}" for sign in SIGNS if sign in signs.values()]
    if any(MISSING in line for block in blocks for line in block.lines):
        about.append(f"{MISSING}   a checkpoint without a value, or with one that is NOT VALID")
    shown = min(sum(measure.primary for measure in study.measures), max(1, LINES // len(study.series)))
    return Section(
        key="sparklines",
        title="Curves at a glance",
        parts=(*blocks[:shown], "\n".join(about), *blocks[shown:]),
        brief_parts=min(shown, len(blocks)) + 1,
    )


def fit_encoding(text: str, encoding: str | None) -> str:
    """Replace bars by digits if an encoding lacks them."""
    try:
        f"{BARS}{MISSING}".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return text.translate(ASCII)
    return text
