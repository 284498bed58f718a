"""What is packed comes back as it was, whatever it holds, and takes less room."""

from __future__ import annotations

import gzip
import json
import random
from functools import cache
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_touchstone.reports.page.packing import (
    ENCODER,
    SHARED,
    Words,
    chunk_items,
    chunk_text,
    packed,
    packed_pieces,
    pieces_of,
    unpacked,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
JSON = st.recursive(
    TEXTS | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(JSON)
def test_data_comes_back_and_needs_no_escape_in_html(value: object) -> None:
    text = packed(value)
    assert unpacked(text) == value
    assert not set(text) & set("<>&'\"")


def sentences(seed: int, many: int = 400) -> list[str]:
    some = random.Random(seed)
    words = [
        f"{first}{second}"
        for first in ("al", "bra", "chro", "dil")
        for second in ("ming", "tation", "ner", "속도")
    ]
    return [" ".join(some.choices(words, k=30)) + f" {some.random()}" for _ in range(many)]


@cache
def learnt() -> Words:
    """The words of a text that is long enough."""
    words = Words()
    assert words.unpacked(words.packed("brief")) == "brief"
    assert words.words == []
    text = ENCODER.encode(sentences(1))
    assert words.unpacked(words.packed(text)) == text
    return words


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXTS, max_size=4))
def test_texts_with_codes_for_words_come_back_whatever_signs_they_hold(others: list[str]) -> None:
    text = chunk_text([{"message": one} for one in (*sentences(2, 3), *others)])
    assert learnt().words
    assert learnt().unpacked(learnt().packed(text)) == text


def test_codes_save_a_tenth_or_there_are_none() -> None:
    words, text = Words(), ENCODER.encode(sentences(1))
    plain = len(gzip.compress(text.encode())) * 5 / 4
    assert len(words.packed(text)) < 0.9 * plain
    noise = random.Random(1)
    numbers = json.dumps([noise.random() for _ in range(4000)])
    none = Words()
    assert none.unpacked(none.packed(numbers)) == numbers
    assert none.words == []


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


def test_columns_that_come_in_pieces_are_packed_as_the_whole():
    draw = random.Random(3)
    value = {
        "example": [f"sums/{number * 7919 % 90_001}" for number in range(30_000)],
        "metrics": {"acc": [draw.random() for _ in range(30_000)]},
        "place": None,
    }
    assert packed_pieces(pieces_of(value)) == packed(value)
