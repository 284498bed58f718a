"""The items of runs as the page holds them: columns and compressed chunks of texts, read from the journal once.

The form is in the docstring of this package. Memory is that of the columns and of the compressed texts: a chunk is
packed as soon as it is full.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple, TypeAlias, overload

from pytest_touchstone.core.keys import has_key
from pytest_touchstone.reports.page.data import DataRows
from pytest_touchstone.reports.page.packing import Words, chunk_items, chunk_text, packed_pieces, pieces_of
from pytest_touchstone.reports.page.security import Redaction, own_text
from pytest_touchstone.results.collected import NumberedTexts
from pytest_touchstone.results.item_view import Question, asked_of, is_right, rest_of_row
from pytest_touchstone.results.records import STATUSES, Record

CHUNK: Final = 250
"""Items whose texts are packed together: a page opens one item by unpacking so many."""

MOST_ALIKE: Final = 10_000
"""Values that are kept once for all items that have them."""

WHOLE: Final = {"choices", "FillMask", "RollingLoglikelihood", "PseudoLoglikelihood"}
"""Kinds of questions that show all of the row that matters."""

_NUMBER: Final = re.compile(r"\d+")
_DIGITS: Final = 18
_CLASS: Final = re.compile(r"\b([A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Warning))\b")

Tell: TypeAlias = Callable[[Record, list[str]], Mapping[str, Any] | None]
"""Returns what the benchmark tells of an item whose record does not have it, or None with a note."""


class Codes:
    """A column of few different values: the values, and a number per item."""

    def __init__(self) -> None:
        self.values: dict[Any, int] = {}
        self.codes: list[int | None] = []

    def add(self, value: Any) -> None:
        """Append a value; None has no number."""
        self.codes.append(None if value is None else self.values.setdefault(value, len(self.values)))

    def plain(self) -> dict[str, Any]:
        """Return the column as the page has it."""
        return {"values": list(self.values), "codes": self.codes}


class Row(NamedTuple):
    """The values that an item is filtered by; they become the columns of the page. ``item`` is its name or number."""

    item: str | int
    example: str
    status: int
    right: int | None
    scores: Mapping[str, float]
    group: str | None
    cluster: str | None
    length: int
    seconds: float
    tokens: int
    error: str | None
    invalid: int
    repeats: int
    passed: int | None
    fields: Mapping[str, Any]


class Rows(Sequence[Row]):
    """Rows as columns, each row made when somebody looks at it: ``examples``, and the ``values`` of other fields."""

    def __init__(self) -> None:
        self.examples = NumberedTexts()
        self.values: dict[str, Any] = {name: [] for name in Row._fields if name != "example"}
        self.values["item"] = array("q")
        self._once: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self.examples)

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...

    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        others = {name: values[place] for name, values in self.values.items()}
        return Row(example=self.examples[place], **others)

    def append(self, row: Row) -> None:
        """Append a row."""
        self.examples.append(row.example)
        if isinstance(row.item, str) and isinstance(self.values["item"], array):
            self.values["item"] = list(self.values["item"])
        for name, values in self.values.items():
            values.append(self._kept_once(getattr(row, name)))

    def __setitem__(self, place: int, row: Row) -> None:
        self.examples[place] = row.example
        for name, values in self.values.items():
            values[place] = getattr(row, name)

    def _kept_once(self, value: Any) -> Any:
        if not isinstance(value, (str, float)):  # others are shared already, or small
            return value
        if len(self._once) < MOST_ALIKE:
            return self._once.setdefault(value, value)
        return self._once.get(value, value)


class Kind(NamedTuple):
    """A benchmark as its items need it: the score that they are right by, rows of its dataset, frequent words."""

    name: str
    score: str
    right_by: str | None
    rows: DataRows
    words: Words

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the rows that one can filter by."""
        return self.rows.fields


class Part:
    """The items of one checkpoint on one benchmark; ``add`` takes them as they come."""

    def __init__(
        self,
        kind: Kind,
        checkpoint: str,
        redaction: Redaction,
        tell: Tell | None = None,
        size: int = CHUNK,
    ) -> None:
        self.kind, self.checkpoint, self.size = kind, checkpoint, size
        self._redaction, self._tell = redaction, tell
        self._rows = Rows()
        self._once: dict[str, Mapping[str, Any]] = {}
        self._places: dict[str | int, int] | None = None
        self._open: list[Mapping[str, Any]] = []
        self._packed: list[str] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, record: Record, number: int | None = None, *, again: bool = True) -> None:
        """Take an item; a later record of the same item replaces the former, unless it only says that it was lost.

        ``number`` stands for its name, as the place in the order of items. Where it does not come ``again``, nobody
        looks for a former record.
        """
        name = record.item if number is None else number
        place = self._place(name) if again else None
        if place is None:
            row, texts = self._made(record)
            if self._places is not None:
                self._places[name] = len(self._rows)
            self._rows.append(row._replace(item=name))
            self._open.append(texts)
            if len(self._open) == self.size:
                self._close()
        elif not (record.status == "lost" and self._rows[place].status == STATUSES.index("scored")):
            self._replace(place, record, name)

    def _place(self, name: str | int) -> int | None:
        if self._places is None:
            self._places = {name: place for place, name in enumerate(self._rows.values["item"])}
        return self._places.get(name)

    def columns(self, order: Mapping[str, int], groups: Mapping[str, int], ranks: Ranks) -> str:
        """Return the packed columns, the items in the order that is given, or in that of their numbers; ``ranks`` are
        those of the examples."""

        def at(place: int) -> int:
            name = self._rows.values["item"][place]
            return name if isinstance(name, int) else order.get(name, place)

        places: Sequence[int] = range(len(self._rows))
        if any(before > after for before, after in pairwise(map(at, places))):
            places = array("q", sorted(places, key=at))
        plain = _columns(self._rows, places, groups, self.kind.fields)
        found = array("q", [0, *(ranks[self._rows.examples[place]] for place in places)])
        plain["rank"] = array("q", (after - before for before, after in pairwise(found)))
        plain["place"] = None if isinstance(places, range) else places
        if any(map(has_key, pieces_of(plain))):
            plain = self._redaction.value(_whole(plain), self._where)
        return packed_pieces(pieces_of(plain))

    def chunks(self) -> list[str]:
        """Return the packed texts; nothing can be added afterwards."""
        if self._open:
            self._close()
        return self._packed

    @property
    def groups(self) -> Iterator[str]:
        """The groups of its items."""
        return (group for group in self._rows.values["group"] if group is not None)

    @property
    def rows(self) -> Rows:
        """The items, as they came."""
        return self._rows

    @property
    def scores(self) -> dict[str, None]:
        """The names of its scores."""
        return dict.fromkeys(name for scores in self._rows.values["scores"] for name in scores)

    @property
    def _where(self) -> str:
        return f"{self.kind.name} of {self.checkpoint}"

    def _made(self, record: Record) -> tuple[Row, dict[str, Any]]:
        if record.message:
            record = replace(record, message=own_text(record.message))
        right = is_right(record.scores.get(self.kind.right_by or ""))
        data = self.kind.rows.get(record.row) or {}
        told: Mapping[str, Any] | None = record.told
        notes: list[str] = []
        if told is None and self._tell is not None and record.status == "scored":
            told = self._tell(record, notes)
        told = told or {}
        asked = asked_of(record, self.kind.right_by, right, lambda _count, _notes: told.get("right"), notes)
        fields = {name: data[name] for name in self.kind.fields if name in data}
        row = row_of(record, right, asked, told, self._kept_once(fields))
        row = row._replace(scores=self._kept_once(row.scores))
        return row, texts_of(record, asked, told, data, notes)

    def _kept_once(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values, the same object for items that have the same."""
        key = repr(values)
        if (found := self._once.get(key)) is None:
            found = values
            if len(self._once) < MOST_ALIKE:
                self._once[key] = values
        return found

    def _close(self) -> None:
        text = chunk_text(self._open)
        if has_key(text):
            first = len(self._packed) * self.size
            names = self._rows.examples[first : first + len(self._open)]
            cleaned = [
                self._redaction.value(one, f"{name} of {self.checkpoint}")
                for name, one in zip(names, self._open, strict=True)
            ]
            text = chunk_text(cleaned)
        self._packed.append(self.kind.words.packed(text))
        self._open = []

    def _replace(self, place: int, record: Record, name: str | int) -> None:
        """Put an item into the place of an earlier record of it: it ran again, which is rare."""
        row, texts = self._made(record)
        self._rows[place] = row._replace(item=name)
        chunk, number = divmod(place, self.size)
        if chunk == len(self._packed):
            self._open[number] = texts
            return
        found = chunk_items(self.kind.words.unpacked(self._packed[chunk]))
        found[number] = self._redaction.value(texts, f"{record.example} of {self.checkpoint}")
        self._packed[chunk] = self.kind.words.packed(chunk_text(found))


class _Column(Sequence[Any]):
    """A column in the order of ``places``, each value made when it is written."""

    def __init__(
        self, values: Sequence[Any], places: Sequence[int], shown: Callable[[Any], Any] | None = None
    ) -> None:
        self._values, self._places, self._shown = values, places, shown

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: Any) -> Any:
        some = [self._values[one] for one in self._places[place]]
        return some if self._shown is None else list(map(self._shown, some))


def _columns(
    rows: Rows, places: Sequence[int], groups: Mapping[str, int], fields: Sequence[str]
) -> dict[str, Any]:
    values = rows.values
    scores = dict.fromkeys(name for place in places for name in values["scores"][place])
    errors, coded = Codes(), {name: Codes() for name in fields}
    for place in places:
        errors.add(values["error"][place])
        for name, codes in coded.items():
            codes.add(values["fields"][place].get(name))
    same = ("status", "right", "length", "seconds", "tokens", "invalid", "repeats", "passed")

    def metric(name: str) -> _Column:
        return _Column(values["scores"], places, lambda own: _short(own.get(name)))

    return {
        "example": _Column(rows.examples, places),
        **{name: _Column(values[name], places) for name in same},
        "metrics": {name: metric(name) for name in scores},
        "group": _Column(values["group"], places, lambda name: None if name is None else groups[name]),
        "error": errors.plain(),
        "fields": {name: codes.plain() for name, codes in coded.items()},
    }


def _whole(value: Any) -> Any:
    """Return columns as lists."""
    if isinstance(value, Mapping):
        return {name: _whole(one) for name, one in value.items()}
    return list(value[:]) if isinstance(value, (_Column, array)) else value


class Ranks:
    """The place of each example in the order that people expect, numbers by their size."""

    def __init__(self, examples: Iterable[str]) -> None:
        texts = NumberedTexts(examples)
        self._places = texts.places()
        self._ranks = array("q", [-1]) * len(texts)  # by the last place of an example
        first = array("q")
        for place, text in enumerate(texts):
            last = self._last(text)
            if self._ranks[last] < 0:
                self._ranks[last] = 0
                first.append(place)

        def order(place: int) -> str:
            return _NUMBER.sub(lambda found: found[0].zfill(_DIGITS), texts[place])

        for rank, place in enumerate(sorted(first, key=order)):
            self._ranks[self._last(texts[place])] = rank

    def __getitem__(self, example: str) -> int:
        return self._ranks[self._last(example)]

    def _last(self, example: str) -> int:
        place = self._places.get(example)
        if place is None:
            raise KeyError(example)
        return place


def ranks_of(parts: Iterable[Part]) -> Ranks:
    """Return the ranks of the examples of parts, many of which may have the same ones."""
    found: list[NumberedTexts] = []
    for part in parts:
        if part.rows.examples not in found:
            found.append(part.rows.examples)
    return Ranks(chain.from_iterable(found))


def _short(value: float | None) -> float | int | None:
    """Return a score with six digits: a page shows four."""
    if value is None:
        return None
    return int(value) if value == int(value) else float(f"{value:.6g}")


# One item


def row_of(
    record: Record,
    right: bool | None,
    asked: Sequence[Question],
    told: Mapping[str, Any],
    fields: Mapping[str, Any],
) -> Row:
    """Return what an item is filtered by."""
    answers = [one["answer"] for one in record.exchanges]
    samples = [sample for answer in answers for sample in answer.get("samples", ())]
    repeats = max((len(answer.get("samples", ())) for answer in answers), default=0) or 1
    judged = repeats > 1 and sum(record.programs.values()) == repeats
    return Row(
        item=record.item,
        example=record.example,
        status=STATUSES.index(record.status),
        right=None if right is None else int(right),
        scores=record.scores,
        group=record.group,
        cluster=record.cluster,
        length=told.get("length") or (len(asked[0].text) if asked else 0),
        seconds=round(record.seconds, 4),
        tokens=sum(one.get("tokens", 0) for one in (*samples, *answers)),
        error=error_of(record),
        invalid=int(bool(record.at_limit or record.no_answer)),
        repeats=repeats,
        passed=record.programs.get("passed", 0) if judged else None,
        fields=fields,
    )


def error_of(record: Record) -> str | None:
    """Return the class of an item's error, or what became of its programs; None where nothing went wrong."""
    if record.status == "scored":
        failed = {name: number for name, number in record.programs.items() if name != "passed"}
        return max(failed, key=lambda name: failed[name]) if failed else None
    found = _CLASS.search(record.message or "") if record.status == "error" else None
    return found.group(1) if found else record.status


def texts_of(
    record: Record,
    asked: Sequence[Question],
    told: Mapping[str, Any],
    data: Mapping[str, Any],
    notes: Sequence[str],
) -> dict[str, Any]:
    """Return what is shown of one item, without the fields that are empty."""
    found: dict[str, Any] = {
        "asked": [_question(one) for one in asked if one.kind != "RunProgram"],
        "programs": [_program(one) for one in record.exchanges if one["kind"] == "RunProgram"],
        "extracted": told.get("extracted"),
        "gold": told.get("gold"),
        "row": {} if {one.kind for one in asked} <= WHOLE else rest_of_row(asked, data),
        "message": record.message,
        "notes": list(notes),
    }
    return {name: value for name, value in found.items() if value}


def _question(one: Question) -> dict[str, Any]:
    choices = [
        {
            "text": choice.text,
            "logprob": _short(choice.logprob),
            "chosen": choice.chosen,
            "right": choice.right,
        }
        for choice in one.choices
    ]
    answers = [{"text": said.text, "remark": said.remark} for said in one.answers]
    found = {
        "kind": one.kind,
        "question": one.text,
        "turns": one.turns,
        "choices": choices,
        "answers": answers,
    }
    return {name: value for name, value in found.items() if value}


def _program(exchange: Mapping[str, Any]) -> dict[str, Any]:
    answer = exchange["answer"]
    outcome = answer.get("outcome") or "not judged"
    detail = answer.get("detail") or answer.get("error") or answer.get("reason")
    found = {"text": exchange["request"]["program"], "outcome": outcome, "detail": detail}
    return {name: value for name, value in found.items() if value}
