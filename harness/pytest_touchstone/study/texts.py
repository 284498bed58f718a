"""Values, differences and places of a study, and its tests, as the texts that its sections are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from pytest_touchstone.core.text import listed, place_text
from pytest_touchstone.document import Section
from pytest_touchstone.document.formatting import NOTHING, in_percent, interval, number
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.contrasts import Contrast
from pytest_touchstone.statistics.curves import Forecast
from pytest_touchstone.study.choice import ChoiceCost
from pytest_touchstone.study.curves import CurveChange
from pytest_touchstone.study.points import Measure, Study, Value

MOST_IN_LINE: Final = 3
"""The findings that a section's line names."""


Maker: TypeAlias = Callable[[Study], Section | None]


def found_among(told: Sequence[str], tested: int, tests: str) -> str:
    """Return which of so many tests are more than noise: ``1 of 49 drops: Real@1 of mlm``, ``none of 12 drops``."""
    if not told:
        return f"none of {tested} {tests}"
    return f"{len(told)} of {tested} {tests}: {listed(told, MOST_IN_LINE, between='; ')}"


def amount(value: float | None, measure: Measure) -> str:
    """Return a value of the measure without its unit: ``66.04``."""
    if value is None:
        return NOTHING
    return in_percent(value) if measure.share else number(value)


def value_text(value: float | None, measure: Measure) -> str:
    """Return a value of the measure: ``66.04 %`` of a share."""
    return f"{amount(value, measure)} %" if measure.share and value is not None else amount(value, measure)


def value_range(one: Value | Forecast | ChoiceCost | CurveChange, measure: Measure) -> str:
    """Return the interval of a value, ``[64.12, 67.91]``; ``-`` where there is none."""
    return interval(one.low, one.high, lambda limit: amount(limit, measure))


def moved_range(one: Comparison | Contrast | CurveChange | None, measure: Measure) -> str:
    """Return the interval of a difference, ``[-4.06, +1.32]``; ``-`` where there is none."""
    return NOTHING if one is None else interval(one.low, one.high, measure.told_in.moved)


def unit_of(measure: Measure) -> str:
    """Return the unit of values in tables."""
    return "per cent" if measure.share else measure.unit or "own unit"


def place_or_nothing(place: float | None) -> str:
    """Return a place on an axis as text."""
    return NOTHING if place is None else place_text(place)
