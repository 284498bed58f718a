"""The scores of a run's items by checkpoint and benchmark, from the journal, which is read once.

Where each line begins is kept too, so that the few items that are shown with their answers need no second search.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pytest_touchstone.core.errors import JournalError
from pytest_touchstone.results.journal import (
    RecordPlace,
    journal_files,
    placed_heads,
    read_at,
)
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.store_entry import ItemScores


@dataclass(frozen=True, slots=True)
class Lines:
    """The places of the records of a result's items."""

    examples: Sequence[str]
    places: Sequence[RecordPlace]

    def of(self, examples: Container[str]) -> Iterator[Record]:
        """Yield the records of these items. Raises ``JournalError`` where one is there no more."""
        pairs = zip(self.examples, self.places, strict=True)
        return (_read(example, place) for example, place in pairs if example in examples)

    def each(self) -> Iterator[Record]:
        """Yield all records, each read when it is asked for. Raises ``JournalError`` where one is there no more."""
        return map(_read, self.examples, self.places)


def _read(example: str, place: RecordPlace) -> Record:
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
    kept: dict[str, tuple[dict[str, Any], RecordPlace]] = {}
    for path in journal_files(directory):
        for head, place in placed_heads(path):
            item = head["item"]
            if head["status"] != "lost" or item not in kept or kept[item][0]["status"] != "scored":
                kept[item] = head, place
    results: dict[tuple[str, str], list[tuple[dict[str, Any], RecordPlace]]] = {}
    for head, place in kept.values():
        if head["status"] == "scored":
            results.setdefault((head["checkpoint"], head["benchmark"]), []).append((head, place))
    return {key: _scored(pairs) for key, pairs in results.items()}


def _scored(pairs: list[tuple[dict[str, Any], RecordPlace]]) -> ScoredItems:
    pairs.sort(key=lambda pair: pair[0]["example"])
    heads = [head for head, _ in pairs]
    names = dict.fromkeys(name for head in heads for name in head["scores"])
    items = ItemScores(
        examples=[sys.intern(head["example"]) for head in heads],  # other checkpoints have the same ones
        rows=[sys.intern(head["row"]) for head in heads],
        groups=[head["group"] for head in heads],
        clusters=[head["cluster"] for head in heads],
        scores={name: [head["scores"].get(name) for head in heads] for name in names},
    )
    return ScoredItems(items, Lines(items.examples, [place for _, place in pairs]))
