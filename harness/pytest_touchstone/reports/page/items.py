"""The items of runs as the page holds them: columns and compressed chunks of texts, read from the journal once.

The form is in the docstring of this package. A chunk of texts is packed as soon as it is full: JSON by gzip, which a
browser unpacks by itself, in base85 with signs that HTML keeps, which ten lines of ours put back into bytes
(``script/core.js``). Base64 would need none, and make every page a fifteenth larger.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from pytest_touchstone.core.keys import has_key
from pytest_touchstone.reports.page.security import Redaction, own_text
from pytest_touchstone.results.item_view import Question, asked_of, is_right, rest_of_row
from pytest_touchstone.results.records import STATUSES, Record

CHUNK: Final = 250
"""Items whose texts are packed together: a page opens one item by unpacking so many."""

LONGEST: Final = 60
"""The characters of a text that may be chosen from a list of values; longer ones are texts to read."""

MOST_FIELDS: Final = 12

WHOLE: Final = {"choices", "FillMask", "RollingLoglikelihood", "PseudoLoglikelihood"}
"""Kinds of questions that show all of the row that matters."""

_NUMBER: Final = re.compile(r"\d+")
_DIGITS: Final = 18
_CLASS: Final = re.compile(r"\b([A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Warning))\b")

Tell: TypeAlias = Callable[[Record, list[str]], Mapping[str, Any] | None]
"""Returns what the benchmark tells of an item whose record does not have it, or None with a note."""


class DataRows:
    """The rows of a dataset by their hashes; ``fields`` are those that one can filter by."""

    def __init__(self, rows: Iterable[tuple[str, dict[str, Any]]]) -> None:
        self._rows: dict[str, str] = {}  # as JSON, which takes a fraction of the memory
        values: dict[str, set[Any] | None] = {}
        for digest, row in rows:
            self._rows[digest] = ENCODER.encode(row)
            for name, value in row.items():
                known = values.setdefault(name, set())
                if known is None or value is None:
                    continue
                if isinstance(value, (bool, int, float)) or (
                    isinstance(value, str) and len(value) <= LONGEST
                ):
                    known.add(value)
                else:
                    values[name] = None
        fields = (name for name, known in values.items() if known and self._told_apart(known))
        self.fields = tuple(fields)[:MOST_FIELDS]

    def _told_apart(self, values: set[Any]) -> bool:
        """Return whether a field divides the rows: it has several values, and is no name that nearly each row has."""
        named = all(isinstance(value, str) for value in values) and 2 * len(values) > len(self._rows)
        return len(values) > 1 and not named

    def get(self, digest: str) -> Mapping[str, Any]:
        """Return the row with a hash; empty where the data does not have it."""
        row: dict[str, Any] = json.loads(self._rows.get(digest, "{}"))
        return row

    def forget(self) -> None:
        """Let go of the rows, when all items have been made; ``fields`` stay."""
        self._rows.clear()


class Codes:
    """A column of few different values: the values, and a number per item."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._numbers: dict[Any, int] = {}
        self._codes = [
            None if value is None else self._numbers.setdefault(value, len(self._numbers)) for value in values
        ]

    def plain(self) -> dict[str, Any]:
        """Return the column as the page has it."""
        return {"values": list(self._numbers), "codes": self._codes}


class ItemRow(NamedTuple):
    """The values that an item is filtered by; they become the columns of the page."""

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


class Kind(NamedTuple):
    """A benchmark as its items need it: the score that they are right by, and the rows of its dataset."""

    name: str
    score: str
    right_by: str | None
    rows: DataRows

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the rows that one can filter by."""
        return self.rows.fields


class PagePart:
    """The items of one checkpoint on one benchmark, by their numbers in the order of collection.

    ``rows`` are as they came; ``add`` takes them.
    """

    def __init__(
        self,
        kind: Kind,
        checkpoint: str,
        redaction: Redaction,
        tell: Tell | None = None,
        size: int = CHUNK,
    ) -> None:
        self.kind, self.checkpoint, self.size = kind, checkpoint, size
        self.rows: list[ItemRow] = []
        self._redaction, self._tell = redaction, tell
        self._places: dict[int, int] = {}
        self._open: list[Mapping[str, Any]] = []
        self._packed: list[str] = []

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def numbers(self) -> Iterable[int]:
        """The numbers of the items, as they came."""
        return self._places

    @property
    def scores(self) -> dict[str, None]:
        """The names of its scores."""
        return dict.fromkeys(name for row in self.rows for name in row.scores)

    def add(self, record: Record, number: int) -> None:
        """Take an item; a later record of the same number replaces the former, unless it only says that it was lost."""
        place = self._places.setdefault(number, len(self.rows))
        if place == len(self.rows):
            row, texts = self._made(record)
            self.rows.append(row)
            self._open.append(texts)
            if len(self._open) == self.size:
                self._close()
        elif not (record.status == "lost" and self.rows[place].status == STATUSES.index("scored")):
            self._replace(place, record)

    def columns(self, groups: Mapping[str, int], ranks: Mapping[str, int]) -> str:
        """Return the packed columns, the items in the order of their numbers; ``ranks`` are those of the examples."""
        places = [place for _, place in sorted(self._places.items())]
        rows = [self.rows[place] for place in places]
        plain: dict[str, Any] = {"example": [row.example for row in rows]}
        for name in ("status", "right", "length", "seconds", "tokens", "invalid", "repeats", "passed"):
            plain[name] = [getattr(row, name) for row in rows]
        scores = dict.fromkeys(name for row in rows for name in row.scores)
        plain["metrics"] = {name: [_short(row.scores.get(name)) for row in rows] for name in scores}
        plain["group"] = [None if row.group is None else groups[row.group] for row in rows]
        plain["error"] = Codes(row.error for row in rows).plain()
        plain["fields"] = {
            name: Codes(row.fields.get(name) for row in rows).plain() for name in self.kind.fields
        }
        plain["rank"] = [
            after - before for before, after in pairwise([0, *(ranks[row.example] for row in rows)])
        ]
        plain["place"] = None if places == list(range(len(places))) else places
        text = ENCODER.encode(plain)
        if has_key(text):
            text = ENCODER.encode(self._redaction.value(plain, f"{self.kind.name} of {self.checkpoint}"))
        return packed_text(text)

    def chunks(self) -> list[str]:
        """Return the packed texts; nothing can be added afterwards."""
        if self._open:
            self._close()
        return self._packed

    def _made(self, record: Record) -> tuple[ItemRow, dict[str, Any]]:
        if record.message:
            record = replace(record, message=own_text(record.message))
        right = is_right(record.scores.get(self.kind.right_by or ""))
        data = self.kind.rows.get(record.row)
        told: Mapping[str, Any] | None = record.told
        notes: list[str] = []
        if told is None and self._tell is not None and record.status == "scored":
            told = self._tell(record, notes)
        told = told or {}
        asked = asked_of(record, self.kind.right_by, right, lambda _count, _notes: told.get("right"), notes)
        fields = {name: data[name] for name in self.kind.fields if name in data}
        return row_of(record, right, asked, told, fields), texts_of(record, asked, told, data, notes)

    def _close(self) -> None:
        text = chunk_text(self._open)
        if has_key(text):
            rows = self.rows[len(self._packed) * self.size :]
            cleaned = [
                self._redaction.value(texts, f"{row.example} of {self.checkpoint}")
                for row, texts in zip(rows, self._open, strict=True)
            ]
            text = chunk_text(cleaned)
        self._packed.append(packed_text(text))
        self._open = []

    def _replace(self, place: int, record: Record) -> None:
        """Put an item into the place of an earlier record of it: it ran again, which is rare."""
        self.rows[place], texts = self._made(record)
        chunk, number = divmod(place, self.size)
        if chunk == len(self._packed):
            self._open[number] = texts
            return
        items = chunk_items(unpacked_text(self._packed[chunk]))
        items[number] = self._redaction.value(texts, f"{record.example} of {self.checkpoint}")
        self._packed[chunk] = packed_text(chunk_text(items))


def ranks_of(parts: Iterable[PagePart]) -> dict[str, int]:
    """Return the place of each example in the order that people expect, numbers by their size."""
    examples = dict.fromkeys(row.example for part in parts for row in part.rows)
    order = sorted(examples, key=lambda text: _NUMBER.sub(lambda digits: digits[0].zfill(_DIGITS), text))
    return {example: rank for rank, example in enumerate(order)}


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
) -> ItemRow:
    """Return what an item is filtered by."""
    answers = [one["answer"] for one in record.exchanges]
    samples = [sample for answer in answers for sample in answer.get("samples", ())]
    repeats = max((len(answer.get("samples", ())) for answer in answers), default=0) or 1
    share = record.scores.get("pass@1") if repeats > 1 else None
    return ItemRow(
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
        passed=None if share is None else round(share * repeats),
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
        {"text": choice.text}
        | ({} if choice.logprob is None else {"logprob": round(choice.logprob, 2)})
        | ({"chosen": True} if choice.chosen else {})
        | ({"right": True} if choice.right else {})
        for choice in one.choices
    ]
    answers = [
        {"text": said.text, "remark": said.remark} | ({"reasoning": said.reasoning} if said.reasoning else {})
        for said in one.answers
    ]
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


# Packing


ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

_THEIRS: Final = b"<>&"
_OURS: Final = b".,:"

BETWEEN: Final = "\x00"
"""Stands between the items of a chunk: JSON never holds it as it is."""

SHARED: Final = 200
"""The characters that questions have in common before they are kept once: few-shot examples and instructions."""


def packed(value: object) -> str:
    """Return data as the page holds it."""
    return packed_text(ENCODER.encode(value))


def packed_text(text: str) -> str:
    """Return a text as the page holds it; the same text always gives the same signs."""
    raw = gzip.compress(text.encode("utf-8", "backslashreplace"), mtime=0)
    return base64.b85encode(raw).translate(bytes.maketrans(_THEIRS, _OURS)).decode("ascii")


def unpacked(text: str) -> Any:
    """Return the data that ``packed`` was given."""
    return json.loads(unpacked_text(text))


def unpacked_text(signs: str) -> str:
    """Return the text that ``packed_text`` was given."""
    raw = base64.b85decode(signs.encode("ascii").translate(bytes.maketrans(_OURS, _THEIRS)))
    return gzip.decompress(raw).decode("utf-8")


def chunk_text(items: Sequence[Mapping[str, Any]]) -> str:
    """Return a chunk's items as texts of JSON with ``BETWEEN`` them, after the beginnings of questions.

    Of its first question an item has only what follows the beginning. So a page unpacks a third of the characters,
    searches each beginning once, and reads the JSON of few items.
    """
    questions = [_first(item).get("question", "") for item in items]
    leads: list[list[Any]] = []
    rest, lead = [], ""
    for place, (item, text) in enumerate(zip(items, questions, strict=True)):
        if not lead or not text.startswith(lead):
            lead = _shared(text, *questions[place + 1 : place + 2])
        if not leads or leads[-1][0] != lead:
            leads.append([lead, 0])
        leads[-1][1] += 1
        rest.append(_with_question(item, text[len(lead) :]) if lead else item)
    return BETWEEN.join(map(ENCODER.encode, [leads, *rest]))


def chunk_items(text: str) -> list[Mapping[str, Any]]:
    """Return the items that ``chunk_text`` was given."""
    leads, *items = map(json.loads, text.split(BETWEEN))
    each = [lead for lead, many in leads for _ in range(many)]
    return [
        _with_question(item, lead + _first(item)["question"]) if lead else item
        for item, lead in zip(items, each, strict=True)
    ]


def _shared(text: str, following: str = "") -> str:
    """Return the whole lines that both begin with, nothing where they are few."""
    pairs = enumerate(zip(text, following, strict=False))
    same = next((place for place, (one, other) in pairs if one != other), min(len(text), len(following)))
    length = text.rfind("\n", 0, same) + 1
    return text[:length] if length >= SHARED else ""


def _with_question(item: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    return {**item, "asked": [{**_first(item), "question": text}, *item["asked"][1:]]}


def _first(item: Mapping[str, Any]) -> Mapping[str, Any]:
    asked = item.get("asked")
    return asked[0] if asked else {}
