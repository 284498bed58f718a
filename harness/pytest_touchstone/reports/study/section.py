"""The parts of a study's report, before they are text: what every form (terminal, Markdown, page, JSON) is made of.

A section's ``parts`` are shown in order: a ``str`` is a paragraph, ``Facts`` are labels with texts, a ``StudyTable`` is
a table, and ``Verbatim`` keeps its lines as they are (sparklines). Texts are plain: each form escapes what it must.

A brief report has the first ``brief`` parts of each section, as many rows of them as fit, and its ``line`` among those
of all sections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pytest_touchstone.compare.study.choice import ChoiceCost
from pytest_touchstone.compare.study.curves import CurveChange
from pytest_touchstone.compare.study.points import Measure, Study, Value
from pytest_touchstone.core.text import listed, place_text
from pytest_touchstone.reports.formatting import NOTHING, in_percent, interval, number
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.contrasts import Contrast
from pytest_touchstone.statistics.curves import Forecast

MOST_IN_LINE: Final = 3
"""The findings that a section's line names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTable:
    """A table; its first ``left`` columns, and the last one with ``words``, are texts, the others numbers.

    ``best`` holds (row, column) of the cells that are marked as the best; the form adds the mark.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    words: bool = False
    best: frozenset[tuple[int, int]] = frozenset()
    title: str = ""

    def is_text(self, column: int) -> bool:
        """Return whether a column has texts, which may fold."""
        return column < self.left or (self.words and column == len(self.header) - 1)


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels with their texts."""

    rows: tuple[tuple[str, str], ...]


COMMAND: Final = "type"
"""The label of a command, which is shown so that it can be pasted."""


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Lines that stay as they are, in letters of one width."""

    lines: tuple[str, ...]


Part: TypeAlias = str | StudyTable | Facts | Verbatim


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section: its title, its parts, and its findings as plain data under ``key``, which is its name too.

    ``brief`` is the number of parts that a reader sees who asks for no section, and ``line`` says what of the section's
    tests is more than noise.
    """

    key: str
    title: str
    parts: tuple[Part, ...]
    brief: int = 0
    line: str = ""
    data: Any = None


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
