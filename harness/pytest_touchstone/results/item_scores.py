"""The scores of a run's items by checkpoint and benchmark, straight from the journal, which is read once.

A comparison of many checkpoints reads very many lines and needs only the first fields of each. They stand before the
others, so a line is matched as far as ``row``; one that does not match is read whole, as ``journal.read_line`` does.
Where each line begins is kept too, so that the few items that are shown with their answers need no second search.
Texts and columns that occur again are kept once.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pytest_touchstone.core.errors import JournalError
from pytest_touchstone.core.files import SCHEMA, open_regular
from pytest_touchstone.results.journal import check_line, lines_of, read_line
from pytest_touchstone.results.records import STATUSES, Record
from pytest_touchstone.results.store_entry import ItemScores

_TEXT: Final = r'[^"\\\x00-\x1f]*'
_HEAD: Final = re.compile(
    rf'{{"schema":{SCHEMA},"kind":"item","item":"({_TEXT})","benchmark":"({_TEXT})","example":"({_TEXT})",'
    rf'"checkpoint":"({_TEXT})","status":"({"|".join(STATUSES)})","scores":({{[^{{}}\\\x00-\x1f]*}}),'
    rf'"group":(null|"{_TEXT}"),"cluster":(null|"{_TEXT}"),"row":"({_TEXT})","message":'.encode()
)
"""The first fields of a line as the journal writes them, where no text of them holds an escaped sign."""

_BUFFER: Final = 1 << 20
_MOST_SCORES: Final = 1000
"""Forms of scores that are parsed once: right and wrong have two, graded ones very many."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The places of the records of a result's items: of each, its file, and where in it its line begins."""

    shards: Sequence[Path]
    examples: Sequence[str]
    numbers: Sequence[int]
    offsets: Sequence[int]

    def of(self, examples: Container[str]) -> Iterator[Record]:
        """Yield the records of these items. Raises ``JournalError`` where one is there no more."""
        return (self._read(place) for place, example in enumerate(self.examples) if example in examples)

    def each(self) -> Iterator[Record]:
        """Yield all records, each read when it is asked for. Raises ``JournalError`` where one is there no more."""
        return map(self._read, range(len(self.examples)))

    def _read(self, place: int) -> Record:
        path, offset = self.shards[self.numbers[place]], self.offsets[place]
        try:
            with open_regular(path) as shard:
                shard.seek(offset)
                found = read_line(shard.readline())
        except (OSError, JournalError) as error:
            raise JournalError(f"{path}, at {offset}: {error}") from error
        if found.example != self.examples[place]:
            raise JournalError(f"{path}, at {offset}: not the record of {self.examples[place]} any more")
        return found


class Scored(NamedTuple):
    """The scored items of a checkpoint on a benchmark, and their lines."""

    items: ItemScores
    lines: Lines


def read_scores(directory: Path) -> dict[tuple[str, str], Scored]:
    """Return the scored items by checkpoint and benchmark, one record each as ``journal.latest`` chooses.

    Raises ``JournalError`` naming file and line for what is no record.
    """
    shards = sorted(directory.glob("items-*.jsonl"))
    found = _Found()
    for number, path in enumerate(shards):
        offset = 0
        try:
            with open_regular(path, buffering=_BUFFER) as shard:
                for place, line in enumerate(lines_of(shard), start=1):
                    if not line.endswith(b"\n"):
                        break  # never finished: the item counts as not recorded
                    found.add(_fields(found, line, path, place), number, offset)
                    offset += len(line)
        except OSError as error:
            raise JournalError(f"cannot read {path}: {error.strerror}") from error
    once: dict[tuple[Any, ...], list[Any]] = {}
    return {place: own.scored(shards, once) for place, own in found.parts.items() if own.items}


_Fields: TypeAlias = tuple[bytes, str, str, str, str, dict[str, float], str | None, str | None, str]
"""Item, benchmark, example, checkpoint, status, scores, group, cluster and row of a record."""


def _fields(found: _Found, line: bytes, path: Path, number: int) -> _Fields:
    try:
        if check_line(line) and (head := found.head(line)) is not None:
            return head
        one = read_line(line)
    except JournalError as error:
        raise JournalError(f"{path}, line {number}: {error}") from error
    item = one.item.encode("utf-8", "surrogatepass")
    return (
        item,
        one.benchmark,
        one.example,
        one.checkpoint,
        one.status,
        one.scores,
        one.group,
        one.cluster,
        one.row,
    )


@dataclass(slots=True)
class _Part:
    """The scored items of a checkpoint on a benchmark so far, as columns; ``orders`` counts the items of the run."""

    items: list[bytes] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)
    clusters: list[str | None] = field(default_factory=list)
    scores: list[dict[str, float]] = field(default_factory=list)
    orders: array[int] = field(default_factory=lambda: array("Q"))
    shards: array[int] = field(default_factory=lambda: array("I"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))

    def drop(self, item: bytes) -> int:
        """Forget an item, and return its number in the run."""
        place = self.items.index(item)
        order = self.orders[place]
        for name in self.__slots__:
            del getattr(self, name)[place]
        return order

    def scored(self, shards: Sequence[Path], once: dict[tuple[Any, ...], list[Any]]) -> Scored:
        """Return the items in order of their examples; ``once`` keeps columns that other parts have too."""
        places = sorted(range(len(self.items)), key=self.orders.__getitem__)
        places.sort(key=self.examples.__getitem__)

        def column(values: Sequence[Any]) -> list[Any]:
            found = [values[place] for place in places]
            return once.setdefault(tuple(found), found)

        examples = column(self.examples)
        scores = [self.scores[place] for place in places]
        names = dict.fromkeys(name for one in {id(one): one for one in scores}.values() for name in one)
        items = ItemScores(
            examples=examples,
            rows=column(self.rows),
            groups=column(self.groups),
            clusters=column(self.clusters),
            scores={name: [one.get(name) for one in scores] for name in names},
        )
        numbers = array("I", [self.shards[place] for place in places])
        offsets = array("Q", [self.offsets[place] for place in places])
        return Scored(items, Lines(shards, examples, numbers, offsets))


class _Found:
    """The items of a run's journal, as far as it has been read."""

    def __init__(self) -> None:
        self.parts: dict[tuple[str, str], _Part] = {}
        self._items: dict[bytes, _Part | int] = {}
        self._texts: dict[bytes, str] = {}
        self._marks: dict[bytes, str | None] = {b"null": None}
        self._scores: dict[bytes, dict[str, float]] = {}

    def add(self, fields: _Fields, shard: int, offset: int) -> None:
        """Keep the item, unless it was lost after it had been scored."""
        item, benchmark, example, checkpoint, status, scores, group, cluster, row = fields
        order = len(self._items)
        if (before := self._items.get(item)) is not None:
            if status == "lost" and isinstance(before, _Part):
                return
            order = before.drop(item) if isinstance(before, _Part) else before
        if status != "scored":
            self._items[item] = order
            return
        part = self.parts.get((checkpoint, benchmark))
        if part is None:
            part = self.parts[checkpoint, benchmark] = _Part()
        self._items[item] = part
        part.items.append(item)
        part.examples.append(example)
        part.rows.append(row)
        part.groups.append(group)
        part.clusters.append(cluster)
        part.scores.append(scores)
        part.orders.append(order)
        part.shards.append(shard)
        part.offsets.append(offset)

    def head(self, line: bytes) -> _Fields | None:
        """Return the first fields of a line, None where it must be read whole."""
        found = _HEAD.match(line)
        if found is None:
            return None
        item, benchmark, example, checkpoint, status, scores, group, cluster, row = found.groups()
        text, mark = self._text, self._mark
        try:
            if not item.isascii():
                item.decode("utf-8")
            return (
                item,
                text(benchmark),
                text(example),
                text(checkpoint),
                text(status),
                self._scores.get(scores) or self._parsed(scores),
                mark(group),
                mark(cluster),
                text(row),
            )
        except ValueError:
            return None

    def _text(self, data: bytes) -> str:
        found = self._texts.get(data)
        if found is None:
            found = self._texts[data] = data.decode("utf-8")
        return found

    def _mark(self, data: bytes) -> str | None:
        """Return the text within quotes, or None for null."""
        if data in self._marks:
            return self._marks[data]
        return self._marks.setdefault(data, data[1:-1].decode("utf-8"))

    def _parsed(self, data: bytes) -> dict[str, float]:
        found: dict[str, float] = json.loads(data)
        if len(self._scores) < _MOST_SCORES:
            self._scores[data] = found
        return found
