"""The parts of a study's report, before they are text: what every form (terminal, Markdown, JSON) is made of.

A section's ``parts`` are shown in order: a ``str`` is a paragraph, ``Facts`` are labels with texts, a ``Table`` is a
table, and ``Verbatim`` keeps its lines as they are (sparklines). ``details`` are shown in a terminal with ``-v`` only,
and always in Markdown. Texts are plain: each form escapes what it must.

A terminal shows the whole section with ``-v`` or by its name (``--section``); else its ``brief`` parts, and its
``line`` among those of all sections. Without either it shows nothing of the section.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pytest_touchstone.compare.study.differences import verdict_on
from pytest_touchstone.compare.study.points import Study, Value
from pytest_touchstone.core.text import listed
from pytest_touchstone.reports.formatting import NOTHING, in_percent, interval, number
from pytest_touchstone.statistics.comparison import Comparison

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

    ``brief`` and ``line`` are what a reader sees who asks for no section: parts, and what of the section's tests is
    more than noise in one line.
    """

    key: str
    title: str
    parts: tuple[Part, ...]
    details: tuple[Part, ...] = ()
    brief: tuple[Part, ...] = ()
    line: str = ""
    data: Any = None


Maker: TypeAlias = Callable[[Study], Section | None]


def found_among(told: Sequence[str], tested: int, tests: str) -> str:
    """Return which of so many tests are more than noise: ``1 of 49 drops: Real@1 of mlm``, ``none of 12 drops``."""
    if not told:
        return f"none of {tested} {tests}"
    return f"{len(told)} of {tested} {tests}: {listed(told, MOST_IN_LINE, between='; ')}"


def share_text(value: float | None, *, share: bool = True) -> str:
    """Return ``66.04 %`` for a share, four decimals for other values."""
    if value is None:
        return NOTHING
    return f"{in_percent(value)} %" if share else number(value)


def range_text(value: Value, *, share: bool = True) -> str:
    """Return the value's interval, ``[64.12, 67.91]``; ``-`` where there is none."""
    return interval(value.low, value.high, in_percent if share else number)


def comparison_facts(one: Comparison | None) -> dict[str, Any] | None:
    """Return a comparison as plain data."""
    if one is None:
        return None
    names = ("baseline", "new", "difference", "low", "high", "stderr", "p", "n", "method", "why", "level")
    facts: dict[str, Any] = {name: getattr(one, name) for name in names}
    return facts | {"verdict": verdict_on(one.p, one.level)}
