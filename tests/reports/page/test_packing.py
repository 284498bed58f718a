"""What is packed comes back as it was, whatever it holds, and takes less room."""

from __future__ import annotations

import gzip
import json
import random
from functools import cache

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.reports.page.packing import ENCODER, Words, packed, unpacked

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
    assert words.unpacked(words.packed(ENCODER.encode(["brief"]))) == ["brief"]
    assert words.words == []
    assert words.unpacked(words.packed(ENCODER.encode(sentences(1)))) == sentences(1)
    return words


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXTS, max_size=4))
def test_texts_with_codes_for_words_come_back_whatever_signs_they_hold(others: list[str]) -> None:
    texts = [*sentences(2, 3), *others]
    assert learnt().words
    assert learnt().unpacked(learnt().packed(ENCODER.encode(texts))) == texts


def test_codes_save_a_tenth_or_there_are_none() -> None:
    words, text = Words(), ENCODER.encode(sentences(1))
    plain = len(gzip.compress(text.encode())) * 5 / 4
    assert len(words.packed(text)) < 0.9 * plain
    noise = random.Random(1)
    numbers = json.dumps([noise.random() for _ in range(4000)])
    none = Words()
    assert none.unpacked(none.packed(numbers)) == json.loads(numbers)
    assert none.words == []
