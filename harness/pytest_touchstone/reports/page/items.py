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
from pytest_touchstone.reports.page.security import Redaction, redact_own_text
from pytest_touchstone.results.item_view import Question, is_right, questions_of, unshown_fields
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
    """Return the fields of a dataset's rows to filter by.

    Such a field has several short values, shared by many rows.
    """
    values: dict[str, set[Any]] = {}
    long_fields: set[str] = set()
    size = 0
    for row in rows:
        size += 1
        for name, value in row.items():
            if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= LONGEST):
                values.setdefault(name, set()).add(value)
            elif value is not None:
                long_fields.add(name)
    several = {
        name: field_values
        for name, field_values in values.items()
        if len(field_values) > 1 and name not in long_fields
    }
    names_of_rows = {
        name
        for name, field_values in several.items()
        if all(isinstance(value, str) for value in field_values) and 2 * len(field_values) > size
    }
    return tuple(name for name in several if name not in names_of_rows)[:MOST_FIELDS]


def encode_column(values: Iterable[Any]) -> dict[str, Any]:
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


class PageBenchmark(NamedTuple):
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

    def __init__(self, kind: PageBenchmark, checkpoint: str, redaction: Redaction, size: int = CHUNK) -> None:
        self.kind, self.checkpoint, self.size = kind, checkpoint, size
        self.rows: list[ItemRow] = []
        self._redaction = redaction
        self._open: list[Mapping[str, Any]] = []
        self._packed: list[str] = []

    def add(self, record: Record, row: Mapping[str, Any]) -> None:
        """Take an item with its row of the dataset."""
        if record.message:
            record = replace(record, message=redact_own_text(record.message))
        right = is_right(record.scores.get(self.kind.right_by or ""))
        recorded, notes = record.facts or {}, list[str]()
        asked = questions_of(
            record, self.kind.right_by, right, lambda _count, _notes: recorded.get("right"), notes
        )
        fields = {name: row[name] for name in self.kind.fields if name in row}
        self.kind.metrics.update(dict.fromkeys(record.scores))
        if record.group is not None:
            self.kind.groups.setdefault(record.group, len(self.kind.groups))
        self.rows.append(row_of(record, right, asked, recorded, fields))
        self._open.append(texts_of(record, asked, recorded, row, notes))
        if len(self._open) == self.size:
            self._close()

    def columns(self, ranks: Mapping[str, int]) -> str:
        """Return the packed columns; ``ranks`` are those of the examples."""
        rows, groups = self.rows, self.kind.groups
        columns: dict[str, Any] = {
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
        columns["metrics"] = {name: [_round_score(row.scores.get(name)) for row in rows] for name in scores}
        columns["group"] = [None if row.group is None else groups[row.group] for row in rows]
        columns["error"] = encode_column(row.error for row in rows)
        columns["fields"] = {
            name: encode_column(row.fields.get(name) for row in rows) for name in self.kind.fields
        }
        columns["rank"] = [
            after - before for before, after in pairwise([0, *(ranks[row.example] for row in rows)])
        ]
        text = ENCODER.encode(columns)
        if has_key(text):
            text = ENCODER.encode(self._redaction.value(columns, f"{self.kind.name} of {self.checkpoint}"))
        return pack_text(text)

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
        self._packed.append(pack_text(text))
        self._open = []


def ranks_of(parts: Iterable[PagePart]) -> dict[str, int]:
    """Return the place of each example in the order that people expect, numbers by their size."""
    examples = dict.fromkeys(row.example for part in parts for row in part.rows)
    order = sorted(examples, key=lambda text: _NUMBER.sub(lambda digits: digits[0].zfill(_DIGITS), text))
    return {example: rank for rank, example in enumerate(order)}


def _round_score(value: float | None) -> float | int | None:
    """Return a score with six digits: a page shows four."""
    if value is None:
        return None
    return int(value) if value == int(value) else float(f"{value:.6g}")


# One item


def row_of(
    record: Record,
    right: bool | None,
    asked: Sequence[Question],
    recorded: Mapping[str, Any],
    fields: Mapping[str, Any],
) -> ItemRow:
    """Return what an item is filtered by."""
    answers = [exchange["answer"] for exchange in record.exchanges]
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
        length=recorded.get("length") or (len(asked[0].text) if asked else 0),
        seconds=round(record.seconds, 4),
        tokens=sum(exchange.get("tokens", 0) for exchange in (*samples, *answers)),
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
    exception = _CLASS.search(record.message or "") if record.status == "error" else None
    return exception.group(1) if exception else record.status


def texts_of(
    record: Record,
    asked: Sequence[Question],
    recorded: Mapping[str, Any],
    row: Mapping[str, Any],
    notes: Sequence[str],
) -> dict[str, Any]:
    """Return what is shown of one item, without the fields that are empty."""
    texts: dict[str, Any] = {
        "asked": [_question(question) for question in asked if question.kind != "RunProgram"],
        "programs": [_program(question) for question in record.exchanges if question["kind"] == "RunProgram"],
        "extracted": recorded.get("extracted"),
        "gold": recorded.get("gold"),
        "row": {} if {question.kind for question in asked} <= WHOLE else unshown_fields(asked, row),
        "message": record.message,
        "notes": list(notes),
    }
    return {name: value for name, value in texts.items() if value}


def _question(question: Question) -> dict[str, Any]:
    choices = [
        {"text": choice.text}
        | ({} if choice.logprob is None else {"logprob": round(choice.logprob, 2)})
        | ({"chosen": True} if choice.chosen else {})
        | ({"right": True} if choice.right else {})
        for choice in question.choices
    ]
    answers = [
        {"text": answer.text, "remark": answer.remark}
        | ({"reasoning": answer.reasoning} if answer.reasoning else {})
        for answer in question.answers
    ]
    fields = {
        "kind": question.kind,
        "question": question.text,
        "turns": question.turns,
        "choices": choices,
        "answers": answers,
    }
    return {name: value for name, value in fields.items() if value}


def _program(exchange: Mapping[str, Any]) -> dict[str, Any]:
    answer = exchange["answer"]
    outcome = answer.get("outcome") or "not judged"
    detail = answer.get("detail") or answer.get("error") or answer.get("reason")
    fields = {"text": exchange["request"]["program"], "outcome": outcome, "detail": detail}
    return {name: value for name, value in fields.items() if value}


# Packing


ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

BETWEEN: Final = "\x00"
"""Stands between the items of a chunk: JSON never holds it as it is."""

SHARED: Final = 200
"""The characters that questions have in common before they are kept once: few-shot examples and instructions."""


def pack_text(text: str) -> str:
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
    texts, lead = [], ""
    for number, (item, text) in enumerate(zip(items, questions, strict=True), start=1):
        if not lead or not text.startswith(lead):
            lead = _common_lines(text, *questions[number : number + 1])
        if not leads or leads[-1][0] != lead:
            leads.append([lead, 0])
        leads[-1][1] += 1
        texts.append({**item, "asked": _without_lead(lead, item["asked"])} if lead else item)
    return BETWEEN.join(map(ENCODER.encode, [leads, *texts]))


def _common_lines(text: str, following: str = "") -> str:
    """Return the whole lines that both begin with, nothing where they are few."""
    pairs = enumerate(zip(text, following, strict=False))
    common = next(
        (index for index, (first, second) in pairs if first != second), min(len(text), len(following))
    )
    length = text.rfind("\n", 0, common) + 1
    return text[:length] if length >= SHARED else ""


def _without_lead(lead: str, asked: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    first, *others = asked
    return [{**first, "question": first["question"][len(lead) :]}, *others]
