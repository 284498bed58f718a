"""Columns and chunks of a page's items, as they are made of records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_touchstone.core.keys import MARK
from pytest_touchstone.reports.page.items import (
    ENCODER,
    SHARED,
    PageBenchmark,
    PagePart,
    chunk_text,
    error_of,
    filter_fields,
    pack_text,
    ranks_of,
)
from pytest_touchstone.reports.page.security import Redaction
from pytest_touchstone.results.records import Record
from tests.support.pages import chunk_items, unpacked

KEY = "sk-" + "a1B2c3D4" * 4


def record(number, text="42", **fields):
    told = {"extracted": {"strict": "42"}, "gold": "18", "length": 7}
    samples = [{"text": text, "finish_reason": "stop", "tokens": 3}] * 2
    exchange = {"kind": "Generate", "request": {"prompt": f"Sum {number}?"}, "answer": {"samples": samples}}
    plain = {
        "item": f"t.py::sums[m-sums/{number}]",
        "benchmark": "sums",
        "example": f"sums/{number}",
        "checkpoint": "m",
        "status": "scored",
        "scores": {"exact": number % 2},
        "row": f"row {number}",
        "facts": told,
        "exchanges": [exchange],
    }
    return Record(**{**plain, **fields})


def part_of(records, rows=(), size=4, redaction=None):
    known = dict(rows)
    kind = PageBenchmark("sums", "exact", "exact", filter_fields(known.values()), {}, {})
    part = PagePart(kind, "m", redaction or Redaction(), size)
    for one in records:
        part.add(one, known.get(one.row, {}))
    return part


def items_of(part):
    """The items as the page's script reads them: columns, and the texts that belong to each."""
    columns = json.loads(unpacked(part.columns(ranks_of([part]))))
    return columns, [one for chunk in part.chunks() for one in chunk_items(unpacked(chunk))]


def test_an_item_has_its_columns_and_what_is_read_of_it():
    row = {"source": "web", "text": "long " * 30, "level": 3}
    others = [(f"row {number}", {"source": "book", "level": number}) for number in (4, 5, 6)]
    columns, texts = items_of(part_of([record(1)], [("row 1", row), *others]))
    assert columns["example"] == ["sums/1"]
    assert columns["right"] == [1]
    assert columns["length"] == [7]
    assert (columns["tokens"], columns["repeats"]) == ([6], [2])
    assert columns["fields"] == {
        "source": {"values": ["web"], "codes": [0]},
        "level": {"values": [3], "codes": [0]},
    }
    assert texts == [
        {
            "asked": [
                {
                    "kind": "Generate",
                    "question": "Sum 1?",
                    "answers": [{"text": "42", "remark": "ended at a stop sequence, 3 tokens"}] * 2,
                }
            ],
            "extracted": {"strict": "42"},
            "gold": "18",
            "row": row,
        }
    ]


def test_the_right_choice_is_the_one_that_the_benchmark_has_told():
    choices = [
        {
            "kind": "Loglikelihood",
            "request": {"context": "2 + 2 =", "continuation": f" {number}"},
            "answer": {
                "logprob": -1.0 - number,
                "is_greedy": False,
                "tokens": 1,
                "truncated": 0,
                "spans_join": False,
            },
        }
        for number in (3, 4)
    ]
    _, (item,) = items_of(part_of([record(0, facts={"right": [1]}, exchanges=choices)]))
    assert [one.get("right", False) for one in item["asked"][0]["choices"]] == [False, True]


def test_a_key_in_an_answer_reaches_no_part_of_the_page_and_its_item_is_named():
    redaction = Redaction()
    records = [record(number, f"use {KEY} now" if number in (2, 5) else "42") for number in range(6)]
    records.append(record(6, status="error", scores={}, facts=None, message=f"ValueError: bad {KEY}"))
    columns, texts = items_of(part_of(records, redaction=redaction))
    assert KEY not in f"{columns}{texts}"
    assert texts[2]["asked"][0]["answers"][0]["text"] == f"use {MARK.format('an API key')} now"
    assert list(redaction.places) == ["sums/2 of m", "sums/5 of m", "sums/6 of m"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"programs": {"passed": 3, "wrong": 1, "timeout": 2}}, "timeout"),
        ({"programs": {"passed": 3}}, None),
        (
            {"status": "error", "message": "benchmark x: ZeroDivisionError: division by zero"},
            "ZeroDivisionError",
        ),
        ({"status": "error", "message": "it never yields"}, "error"),
        ({"status": "timeout", "message": "ValueError"}, "timeout"),
        ({"status": "lost", "message": None}, "lost"),
    ],
)
def test_the_class_of_an_error_is_the_exceptions_the_faults_or_that_of_the_programs(fields, expected):
    assert error_of(record(1, **fields)) == expected


def test_fields_that_divide_the_rows_can_be_filtered_by():
    rows = [
        {"id": f"n{number}", "level": number, "source": "ab"[number % 2], "same": 1, "text": "x" * 99}
        for number in range(40)
    ]
    assert filter_fields(rows) == ("level", "source")


TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
JSON = st.recursive(
    TEXTS | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(JSON)
def test_data_comes_back_and_needs_no_escape_in_html(value: object) -> None:
    text = pack_text(ENCODER.encode(value))
    assert json.loads(unpacked(text)) == value
    assert not set(text) & set("<>&'\"")


LEADS = st.sampled_from(["", "brief\n", "one shot\n" * 30, "one shot\n" * 40, "another\n" * 30])
QUESTIONS = st.builds(lambda lead, rest: {"kind": "Generate", "question": lead + rest}, LEADS, TEXTS)
ITEMS = st.one_of(
    st.builds(lambda asked: {"asked": asked}, st.lists(QUESTIONS, min_size=1, max_size=2)),
    st.builds(lambda message: {"message": message}, TEXTS),
    st.just({"asked": [{"kind": "choices"}]}),
)


@given(st.lists(ITEMS, max_size=8))
def test_questions_come_back_with_the_beginnings_that_they_share(items: list[dict[str, Any]]) -> None:
    assert chunk_items(chunk_text(items)) == items


def test_a_beginning_that_questions_share_is_kept_once() -> None:
    examples = "Question: one?\nAnswer: two\n\n" * 10
    items = [{"asked": [{"question": f"{examples}Question: {number}?"}]} for number in range(50)]
    assert len(examples) > SHARED
    text = chunk_text(items)
    assert text.count("Answer: two") == 10
    leads, _, second, *_ = map(json.loads, text.split("\x00"))
    assert leads == [[examples, 50]]
    assert second == {"asked": [{"question": "Question: 1?"}]}
