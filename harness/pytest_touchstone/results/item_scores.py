"""The scores of a run's items by checkpoint and benchmark, from the journal, which is read once.

Where each line begins is kept too, so that the few items that are shown with their answers need no second search.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pytest_touchstone.core.errors import JournalError
from pytest_touchstone.results.journal import Place, latest_placed, read_at
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.store_entry import ItemScores, items_of


@dataclass(frozen=True, slots=True)
class Lines:
    """The places of the records of a result's items."""

    examples: Sequence[str]
    places: Sequence[Place]

    def of(self, examples: Container[str]) -> Iterator[Record]:
        """Yield the records of these items. Raises ``JournalError`` where one is there no more."""
        pairs = zip(self.examples, self.places, strict=True)
        return (_read(example, place) for example, place in pairs if example in examples)

    def each(self) -> Iterator[Record]:
        """Yield all records, each read when it is asked for. Raises ``JournalError`` where one is there no more."""
        return map(_read, self.examples, self.places)


def _read(example: str, place: Place) -> Record:
    record = read_at(place)
    if record.example != example:
        raise JournalError(f"{place.path}, line {place.line}: not the record of {example} any more")
    return record


class ScoredItems(NamedTuple):
    """The scored items of a checkpoint on a benchmark, and their lines."""

    items: ItemScores
    lines: Lines


def read_scores(directory: Path) -> dict[tuple[str, str], ScoredItems]:
    """Return the scored items by checkpoint and benchmark, one record each as ``journal.latest`` chooses.

    Raises ``JournalError`` naming file and line for what is no record.
    """
    results: dict[tuple[str, str], list[tuple[Record, Place]]] = {}
    for record, place in latest_placed(directory).values():
        if record.status == "scored":
            results.setdefault((record.checkpoint, record.benchmark), []).append((record, place))
    return {key: _scored(pairs) for key, pairs in results.items()}


def _scored(pairs: list[tuple[Record, Place]]) -> ScoredItems:
    pairs.sort(key=lambda pair: pair[0].example)
    items = items_of([record for record, _ in pairs])
    return ScoredItems(items, Lines(items.examples, [place for _, place in pairs]))
