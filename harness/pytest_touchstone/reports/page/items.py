"""The items of runs as the page holds them: columns and compressed chunks of texts.

The form is in the docstring of this package. A chunk of texts is packed as soon as it is full: JSON by gzip, which a
browser unpacks by itself, in base85 with signs that HTML keeps, which ten lines of ours put back into bytes
(``script/core.js``). Base64 would need none, and make every page a fifteenth larger.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

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


def filter_fields(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the fields of a dataset's rows that one can filter by.

    Such a field has several short values, and is no name that nearly each row has.
    """
    values: dict[str, set[Any]] = {}
    long: set[str] = set()
    size = 0
    for row in rows:
        size += 1
        for name, value in row.items():
            if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= LONGEST):
                values.setdefault(name, set()).add(value)
            elif value is not None:
                long.add(name)
    several = {name: found for name, found in values.items() if len(found) > 1 and name not in long}
    named = {
        name
        for name, found in several.items()
        if all(isinstance(value, str) for value in found) and 2 * len(found) > size
    }
    return tuple(name for name in several if name not in named)[:MOST_FIELDS]


def coded(values: Iterable[Any]) -> dict[str, Any]:
    """Return a column of few different values: the values, and a number per item."""
    numbers: dict[Any, int] = {}
    codes = [None if value is None else numbers.setdefault(value, len(numbers)) for value in values]
    return {"values": list(numbers), "codes": codes}


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
    """A benchmark as the page shows it: the score that items are right by, its metrics and groups so far, and the
    fields of its rows."""

    name: str
    score: str
    right_by: str | None
    fields: tuple[str, ...]
    metrics: dict[str, None]
    groups: dict[str, int]


class PagePart:
    """The items of one checkpoint on one benchmark, in the order in which they are added."""

    def __init__(self, kind: Kind, checkpoint: str, redaction: Redaction, size: int = CHUNK) -> None:
        self.kind, self.checkpoint, self.size = kind, checkpoint, size
        self.rows: list[ItemRow] = []
        self._redaction = redaction
        self._open: list[Mapping[str, Any]] = []
        self._packed: list[str] = []

    def add(self, record: Record, data: Mapping[str, Any]) -> None:
        """Take an item with its row of the dataset."""
        if record.message:
            record = replace(record, message=own_text(record.message))
        right = is_right(record.scores.get(self.kind.right_by or ""))
        told, notes = record.told or {}, list[str]()
        asked = asked_of(record, self.kind.right_by, right, lambda _count, _notes: told.get("right"), notes)
        fields = {name: data[name] for name in self.kind.fields if name in data}
        self.kind.metrics.update(dict.fromkeys(record.scores))
        if record.group is not None:
            self.kind.groups.setdefault(record.group, len(self.kind.groups))
        self.rows.append(row_of(record, right, asked, told, fields))
        self._open.append(texts_of(record, asked, told, data, notes))
        if len(self._open) == self.size:
            self._close()

    def columns(self, ranks: Mapping[str, int]) -> str:
        """Return the packed columns; ``ranks`` are those of the examples."""
        rows, groups = self.rows, self.kind.groups
        plain: dict[str, Any] = {
            name: [getattr(row, name) for row in rows]
            for name in (
                "example",
                "status",
                "right",
                "length",
                "seconds",
                "tokens",
                "invalid",
                "repeats",
                "passed",
            )
        }
        scores = dict.fromkeys(name for row in rows for name in row.scores)
        plain["metrics"] = {name: [_short(row.scores.get(name)) for row in rows] for name in scores}
        plain["group"] = [None if row.group is None else groups[row.group] for row in rows]
        plain["error"] = coded(row.error for row in rows)
        plain["fields"] = {name: coded(row.fields.get(name) for row in rows) for name in self.kind.fields}
        plain["rank"] = [
            after - before for before, after in pairwise([0, *(ranks[row.example] for row in rows)])
        ]
        text = ENCODER.encode(plain)
        if has_key(text):
            text = ENCODER.encode(self._redaction.value(plain, f"{self.kind.name} of {self.checkpoint}"))
        return packed(text)

    def chunks(self) -> list[str]:
        """Return the packed texts; nothing can be added afterwards."""
        if self._open:
            self._close()
        return self._packed

    def _close(self) -> None:
        text = chunk_text(self._open)
        if has_key(text):
            rows = self.rows[-len(self._open) :]
            text = chunk_text(
                [
                    self._redaction.value(texts, f"{row.example} of {self.checkpoint}")
                    for row, texts in zip(rows, self._open, strict=True)
                ]
            )
        self._packed.append(packed(text))
        self._open = []


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

BETWEEN: Final = "\x00"
"""Stands between the items of a chunk: JSON never holds it as it is."""

SHARED: Final = 200
"""The characters that questions have in common before they are kept once: few-shot examples and instructions."""


def packed(text: str) -> str:
    """Return a text as the page holds it; the same text always gives the same signs."""
    raw = gzip.compress(text.encode("utf-8", "backslashreplace"), mtime=0)
    return base64.b85encode(raw).translate(bytes.maketrans(b"<>&", b".,:")).decode("ascii")


def chunk_text(items: Sequence[Mapping[str, Any]]) -> str:
    """Return a chunk's items as texts of JSON with ``BETWEEN`` them, after the beginnings of questions.

    Of its first question an item has only what follows the beginning. So a page unpacks a third of the characters,
    searches each beginning once, and reads the JSON of few items.
    """
    questions = [item["asked"][0].get("question", "") if item.get("asked") else "" for item in items]
    leads: list[list[Any]] = []
    rest, lead = [], ""
    for place, (item, text) in enumerate(zip(items, questions, strict=True), start=1):
        if not lead or not text.startswith(lead):
            lead = _shared(text, *questions[place : place + 1])
        if not leads or leads[-1][0] != lead:
            leads.append([lead, 0])
        leads[-1][1] += 1
        rest.append({**item, "asked": _after(lead, item["asked"])} if lead else item)
    return BETWEEN.join(map(ENCODER.encode, [leads, *rest]))


def _shared(text: str, following: str = "") -> str:
    """Return the whole lines that both begin with, nothing where they are few."""
    pairs = enumerate(zip(text, following, strict=False))
    same = next((place for place, (one, other) in pairs if one != other), min(len(text), len(following)))
    length = text.rfind("\n", 0, same) + 1
    return text[:length] if length >= SHARED else ""


def _after(lead: str, asked: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    first, *others = asked
    return [{**first, "question": first["question"][len(lead) :]}, *others]
