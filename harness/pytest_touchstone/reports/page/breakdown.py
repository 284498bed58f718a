"""A benchmark's score by the fields of its rows and by the length of its questions, for the summary of a run.

Groups are a benchmark's own and have results; these parts are only described. They say where to look among the items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from pytest_touchstone.core.text import count
from pytest_touchstone.reports.page.items import Part, Row
from pytest_touchstone.statistics.intervals import mean_estimate

MOST_VALUES: Final = 12
"""Values of a field that are shown; one with more is for filters."""

MOST_ROWS: Final = 240
"""Rows of a benchmark: with very many checkpoints, fields are left out."""

THIRDS: Final = 3


@dataclass(frozen=True, slots=True)
class Share:
    """The items of one checkpoint with one value of a field: their mean score with its interval, over ``n`` items."""

    field: str
    value: str
    checkpoint: str
    mean: float | None
    low: float | None
    high: float | None
    method: str
    n: int


def breakdown(parts: Sequence[Part]) -> dict[str, list[Share]]:
    """Return the shares of each benchmark that has any, by its name."""
    found = {}
    for name in dict.fromkeys(part.kind.name for part in parts):
        own = [part for part in parts if part.kind.name == name]
        if shares := _of_benchmark(own):
            found[name] = shares
    return found


class _Rows(Iterable[Row]):
    """The rows of parts, each made when somebody looks at it."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[Row]:
        return chain.from_iterable(part.rows for part in self._parts)

    @property
    def lengths(self) -> Iterator[int]:
        """The lengths of their questions."""
        return chain.from_iterable(part.rows.values["length"] for part in self._parts)


def _of_benchmark(parts: Sequence[Part]) -> list[Share]:
    rows = _Rows(parts)
    shares: list[Share] = []
    for field, value_of in (("length", _third(rows)), *_fields(parts, rows)):
        values = sorted({value for row in rows if (value := value_of.get(row.item)) is not None}, key=_order)
        if 1 < len(values) <= MOST_VALUES and len(shares) + len(values) * len(parts) <= MOST_ROWS:
            shares += _shares(field, values, value_of, parts)
    return shares


def _fields(parts: Sequence[Part], rows: _Rows) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    if not parts[0].kind.fields:
        return
    groups = {row.item: row.group for row in rows if row.group is not None}
    for name in parts[0].kind.fields:
        values = {row.item: row.fields[name] for row in rows if row.fields.get(name) is not None}
        pairs = {(values.get(row.item), groups.get(row.item)) for row in rows}
        if not groups or len(pairs) > len(set(groups.values())):  # else it is what the groups say already
            yield name, values


def _third(rows: _Rows) -> dict[str | int, str]:
    """Return the third of the lengths that each item is in, in words; nothing where lengths hardly differ."""
    lengths = sorted(rows.lengths)
    limits = [lengths[len(lengths) * part // THIRDS - 1] for part in (1, 2)] if len(lengths) >= THIRDS else []
    if not limits or not lengths[0] < limits[0] < limits[1] < lengths[-1]:
        return {}
    low, high = limits
    names = (f"to {count(low, 'character')}", f"{low + 1:,} to {high:,}", f"above {high:,}")
    return {row.item: names[(row.length > low) + (row.length > high)] for row in rows}


def _order(value: Any) -> tuple[Any, ...]:
    """Return the order of values: lengths as they rise, numbers, then texts."""
    if isinstance(value, (int, float)):
        return 0, value, ""
    first = str(value).partition(" ")[0]
    return 1, {"to": 0, "above": 2}.get(first, 1), str(value)


def _shares(
    field: str, values: Sequence[Any], value_of: Mapping[Any, Any], parts: Sequence[Part]
) -> Iterator[Share]:
    for value in values:
        for part in parts:
            score = part.kind.score
            rows = [row for row in part.rows if value_of.get(row.item) == value and score in row.scores]
            if rows:
                found = mean_estimate([row.scores[score] for row in rows], [row.cluster for row in rows])
                limits = (found.value, found.low, found.high, found.method)
                yield Share(field, str(value), part.checkpoint, *limits, len(rows))
