"""The records of a run as columns: a run may have a million of them, and most of what they say is alike.

Only what results are made of is kept, about a hundred bytes of each: no exchanges, and of what a benchmark told only
what its aggregations take. A ``Record`` is made when somebody looks at it.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, overload

from pytest_touchstone.results.collected import NumberedTexts
from pytest_touchstone.results.records import Record

_ALIKE: Final = (
    *("benchmark", "checkpoint", "status", "group", "reused_from", "truncated", "outputs", "at_limit"),
    *("empty", "no_answer", "chat", "unanswered", "unsandboxed"),
)
"""Fields that are the same together in very many records."""

_VALUES: Final = operator.attrgetter(*_ALIKE)
_STATUS, _CHECKPOINT = _ALIKE.index("status"), _ALIKE.index("checkpoint")
_BENCHMARK, _GROUP, _UNANSWERED = _ALIKE.index("benchmark"), _ALIKE.index("group"), _ALIKE.index("unanswered")
_RARE: Final = ("message", "programs", "weak_tests", "told")
"""Fields that most records have nothing in."""

_MOST_ALIKE: Final = 10_000
"""Scores that are kept once for all records that have them."""

_LAST: Final = 2**32 - 1
"""Stands for no file."""

_DIGITS: Final = 16
"""Hexadecimal digits of the hash of a row, which are then kept as a number."""


class Rows:
    """Hashes of rows; one of sixteen hexadecimal digits takes eight bytes."""

    def __init__(self) -> None:
        self._numbers = array("Q")
        self._others: dict[int, str] = {}

    def append(self, text: str) -> None:
        """Append a hash, or any other text."""
        try:
            number = int(text, 16) if len(text) == _DIGITS else 0
        except ValueError:
            number = 0
        if f"{number:0{_DIGITS}x}" != text:
            number = 0
            self._others[len(self._numbers)] = text
        self._numbers.append(number)

    def __getitem__(self, place: int) -> str:
        return self._others[place] if place in self._others else f"{self._numbers[place]:0{_DIGITS}x}"


class RecordColumns:
    """Records in the order in which they were added, each by its place."""

    def __init__(self, told: Container[str] = ()) -> None:
        """``told`` are the names of what is kept of that which benchmarks told."""
        self._names = told
        self.items, self.examples, self._rows = NumberedTexts(), NumberedTexts(), Rows()
        self._seconds = array("d")
        self._of, self._wholes = array("I"), dict[tuple[Any, ...], int]()
        self._alike = list[tuple[Any, ...]]()
        self._scores = list[tuple[Any, ...]]()
        self._once, self._alike_dicts = dict[Any, Any](), dict[str, dict[str, Any]]()
        self._clusters = dict[int, str]()
        self._rare: dict[str, dict[int, Any]] = {name: {} for name in _RARE}

    def __len__(self) -> int:
        return len(self._of)

    def add(self, record: Record) -> None:
        """Append what is kept of a record."""
        place = len(self._of)
        self.items.append(record.item)
        self.examples.append(record.example)
        self._rows.append(record.row)
        self._seconds.append(record.seconds)
        whole = _VALUES(record)
        number = self._wholes.setdefault(whole, len(self._wholes))
        if number == len(self._alike):
            self._alike.append(whole)
        self._of.append(number)
        self._scores.append(self._kept(record.scores))
        if record.cluster is not None:
            self._clusters[place] = record.cluster
        if record.message is not None:
            self._rare["message"][place] = record.message
        if record.programs:
            self._rare["programs"][place] = self._shared(record.programs)
        if record.weak_tests:
            self._rare["weak_tests"][place] = record.weak_tests
        if record.told and self._names:
            told = {name: value for name, value in record.told.items() if name in self._names}
            if told:
                self._rare["told"][place] = self._shared(told)

    def _kept(self, scores: dict[str, float]) -> tuple[Any, ...]:
        """Return the scores as one tuple, their names first: of few different scores the same object."""
        key = repr(scores)
        if (found := self._once.get(key)) is None:
            names = tuple(scores)
            found = (self._once.setdefault(names, names), *scores.values())
            if len(self._once) < _MOST_ALIKE:
                self._once[key] = found
        kept: tuple[Any, ...] = found
        return kept

    def _shared(self, value: dict[str, Any]) -> dict[str, Any]:
        key = repr(value)
        if len(self._alike_dicts) < _MOST_ALIKE:
            return self._alike_dicts.setdefault(key, value)
        return self._alike_dicts.get(key, value)

    def status(self, place: int) -> str:
        """Return the status of a record."""
        return str(self._alike[self._of[place]][_STATUS])

    def result(self, place: int) -> tuple[str, str]:
        """Return the checkpoint and the benchmark of a record."""
        whole = self._alike[self._of[place]]
        return whole[_CHECKPOINT], whole[_BENCHMARK]

    def group(self, place: int) -> str | None:
        """Return the group of a record."""
        found: str | None = self._alike[self._of[place]][_GROUP]
        return found

    def unanswered(self, place: int) -> int:
        """Return the number of a record's unanswered texts."""
        return int(self._alike[self._of[place]][_UNANSWERED])

    def names(self, place: int) -> tuple[str, ...]:
        """Return the names of a record's scores."""
        found: tuple[str, ...] = self._scores[place][0]
        return found

    def score(self, place: int, name: str) -> float:
        """Return a score of a record. Raises ``ValueError`` where it has no such score."""
        found = self._scores[place]
        value: float = found[found[0].index(name) + 1]
        return value

    def cluster(self, place: int) -> str | None:
        """Return the cluster of a record."""
        return self._clusters.get(place)

    def row(self, place: int) -> str:
        """Return the hash of a record's row."""
        return self._rows[place]

    def of_checkpoint(self, name: str) -> Iterator[int]:
        """Yield the places of a checkpoint's records."""
        own = {number for whole, number in self._wholes.items() if whole[_CHECKPOINT] == name}
        return (place for place, number in enumerate(self._of) if number in own)

    def record(self, place: int) -> Record:
        """Return what is kept of a record."""
        rare = {name: found[place] for name, found in self._rare.items() if place in found}
        return Record(
            **dict(zip(_ALIKE, self._alike[self._of[place]], strict=True)),
            item=self.items[place],
            example=self.examples[place],
            row=self._rows[place],
            seconds=self._seconds[place],
            scores=dict(zip(self._scores[place][0], self._scores[place][1:], strict=True)),
            cluster=self._clusters.get(place),
            **rare,
        )


class KeptRecords(Sequence[Record]):
    """Some records of columns, in an order; each is made when somebody looks at it."""

    def __init__(self, columns: RecordColumns, places: Sequence[int]) -> None:
        self.columns, self.places = columns, places

    @classmethod
    def of(cls, records: Iterable[Record]) -> KeptRecords:
        """Return records as columns, with all that benchmarks told."""
        if isinstance(records, cls):
            return records
        columns = RecordColumns(told=_Everything())
        for record in records:
            columns.add(record)
        return cls(columns, range(len(columns)))

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, place: int) -> Record: ...

    @overload
    def __getitem__(self, place: slice) -> KeptRecords: ...

    def __getitem__(self, place: int | slice) -> Record | KeptRecords:
        if isinstance(place, slice):
            return KeptRecords(self.columns, self.places[place])
        return self.columns.record(self.places[place])

    def __iter__(self) -> Iterator[Record]:
        return map(self.columns.record, self.places)

    def where(self, wanted: Callable[[int], bool]) -> KeptRecords:
        """Return those whose place in the columns is wanted."""
        return KeptRecords(self.columns, array("Q", filter(wanted, self.places)))

    def scored(self) -> KeptRecords:
        """Return those that have scores, in order of their examples, then of their items."""
        status, examples, items = self.columns.status, self.columns.examples, self.columns.items
        own = array("Q", (place for place in self.places if status(place) == "scored"))
        ordered = array("Q", sorted(own, key=examples.__getitem__))
        if any(examples[one] == examples[other] for one, other in pairwise(ordered)):
            ordered = array("Q", sorted(own, key=lambda place: (examples[place], items[place])))
        return KeptRecords(self.columns, ordered)

    def by_example(self) -> KeptRecords:
        """Return all in order of their examples; those of one example stay as they are."""
        return KeptRecords(
            self.columns, array("Q", sorted(self.places, key=self.columns.examples.__getitem__))
        )

    def by_result(self) -> dict[tuple[str, str], KeptRecords]:
        """Return those that have scores, by checkpoint and benchmark."""
        found: dict[tuple[str, str], array[int]] = {}
        for place in self.places:
            if self.columns.status(place) == "scored":
                found.setdefault(self.columns.result(place), array("Q")).append(place)
        return {key: KeptRecords(self.columns, own) for key, own in found.items()}

    def having(self, name: str) -> KeptRecords:
        """Return those that have a score; itself where all have."""
        names = self.columns.names
        return self if all(name in one for one in self.names) else self.where(lambda at: name in names(at))

    def values(self, name: str) -> list[float]:
        """Return a score of each. Raises ``ValueError`` where one has no such score."""
        score = self.columns.score
        return [score(place, name) for place in self.places]

    @property
    def unscored(self) -> Iterator[str]:
        """The items of those that have no scores."""
        status, items = self.columns.status, self.columns.items
        return (items[place] for place in self.places if status(place) != "scored")

    @property
    def names(self) -> Iterator[tuple[str, ...]]:
        """The names of the scores of each."""
        return map(self.columns.names, self.places)

    @property
    def clusters(self) -> list[str | None]:
        """The clusters of each."""
        return list(map(self.columns.cluster, self.places))


class _Everything(Container[str]):
    def __contains__(self, name: object) -> bool:
        return True


class LatestRecords(KeptRecords):
    """One record of columns for each item, as ``journal.latest`` chooses."""

    def __init__(self, columns: RecordColumns, order: Sequence[int]) -> None:
        """``order`` has the places of the records in the order of their files."""
        found = columns.items.places(order)
        items = columns.items
        again = {items[place] for place in order if found.get(items[place]) != place}
        chosen: dict[str, int] = {}
        if again:
            order, whole = array("Q"), order
            for place in whole:
                if (item := items[place]) not in again:
                    order.append(place)
                elif item not in chosen:
                    chosen[item] = len(order)
                    order.append(place)
                elif not (
                    columns.status(place) == "lost" and columns.status(order[chosen[item]]) == "scored"
                ):
                    order[chosen[item]] = place
        super().__init__(columns, order)
        self._again = {item: order[place] for item, place in chosen.items()}
        self._found = found

    def find(self, item: str) -> int | None:
        """Return the place of an item's record in the columns; None where it has none."""
        return self._again[item] if item in self._again else self._found.get(item)


class FiledRecords:
    """The records of a run's files as they come: ``columns``, and the order that they have file by file."""

    def __init__(self, told: Container[str] = ()) -> None:
        self.columns = RecordColumns(told)
        self._files: dict[Path, int] = {}
        self._file_of = array("I")

    def add(self, path: Path, record: Record) -> None:
        """Append a record of a file."""
        self._file_of.append(self._files.setdefault(path, len(self._files)))
        self.columns.add(record)

    def add_last(self, record: Record) -> None:
        """Append a record that comes after those of all files."""
        self._file_of.append(_LAST)
        self.columns.add(record)

    def latest(self, checkpoint: str | None = None) -> LatestRecords:
        """Return one record for each item, of all checkpoints or of one."""
        columns = self.columns
        order: Sequence[int] = range(len(columns))
        if checkpoint is not None:
            order = array("Q", columns.of_checkpoint(checkpoint))
        if len(self._files) > 1:
            ranks = {self._files[path]: rank for rank, path in enumerate(sorted(self._files))}
            order = array("Q", sorted(order, key=lambda at: ranks.get(self._file_of[at], len(ranks))))
        return LatestRecords(columns, order)
