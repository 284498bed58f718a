"""Stop sequences in texts that come token by token."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.core.requests import earliest_stop
from pytest_touchstone.engines.transformers.generation.sequence import StopWatch, may_begin_before
from tests.support.tiny import CORPUS, bytelevel_tokenizer, metaspace_tokenizer

TOKENIZERS: dict[str, Any] = {}


def tokenizer_of(kind: str) -> Any:
    if kind not in TOKENIZERS:
        TOKENIZERS[kind] = bytelevel_tokenizer() if kind == "bytelevel" else metaspace_tokenizer()
    return TOKENIZERS[kind]


def watched(kind: str, tokens: list[int], stops: list[str]) -> tuple[str, int]:
    """The text that is left, and how many tokens were taken until it was known."""
    tokenizer = tokenizer_of(kind)

    def decode(ids: Any) -> str:
        return tokenizer.decode(list(ids), skip_special_tokens=True)  # type: ignore[no-any-return]

    watch = StopWatch(decode, stops, frozenset(tokenizer.all_special_ids))
    taken = next(
        (count for count in range(1, len(tokens) + 1) if watch.take(tokens[:count])),
        len(tokens),
    )
    return watch.cut(tokens[:taken])[0], taken


def naive(text: str, stops: list[str]) -> str:
    found = [text.find(stop) for stop in stops if stop in text]
    return text[: min(found)] if found else text


LETTERS = st.text("ab\n 학é", max_size=30)


@pytest.mark.parametrize("kind", ["bytelevel", "metaspace"])
@settings(max_examples=300, deadline=None)
@given(text=LETTERS, stops=st.lists(st.text("ab\n 학é", min_size=1, max_size=5), max_size=3))
def test_a_text_is_cut_where_the_whole_text_has_its_earliest_stop(
    kind: str, text: str, stops: list[str]
) -> None:
    tokenizer = tokenizer_of(kind)
    tokens = tokenizer.encode(text, add_special_tokens=False)
    whole = tokenizer.decode(tokens, skip_special_tokens=True)
    assert watched(kind, tokens, stops)[0] == naive(whole, stops)


@pytest.mark.parametrize("kind", ["bytelevel", "metaspace"])
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_tokens_are_cut_as_their_text_is(kind: str, data: st.DataObject) -> None:
    tokenizer = tokenizer_of(kind)
    tokens = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=40))
    whole = tokenizer.decode(tokens, skip_special_tokens=True)
    stops = [
        one for one in (whole[5:8], whole[20:27], "the") if one and "\N{REPLACEMENT CHARACTER}" not in one
    ]
    assert watched(kind, tokens, stops)[0] == naive(whole, stops)


@pytest.mark.parametrize("kind", ["bytelevel", "metaspace"])
@pytest.mark.parametrize("text", CORPUS)
def test_a_stop_is_seen_at_the_token_that_completes_it(kind: str, text: str) -> None:
    tokenizer = tokenizer_of(kind)
    tokens = tokenizer.encode(text, add_special_tokens=False)
    whole = tokenizer.decode(tokens)
    for begin in range(0, len(whole) - 8, 5):
        stop = whole[begin : begin + 7]
        _, taken = watched(kind, tokens, [stop])
        assert stop in tokenizer.decode(tokens[:taken])
        assert stop not in tokenizer.decode(tokens[: taken - 1])


def test_a_stop_found_waits_for_one_begun_before_it() -> None:
    assert earliest_stop("xabc", ["c", "abcd"]) == 3
    assert may_begin_before("xabc", ["c", "abcd"], 3)
    assert not may_begin_before("xabcx", ["c", "abcd"], 3)
    assert earliest_stop("xabcd", ["c", "abcd"]) == 1
    assert not may_begin_before("xabcd", ["c", "abcd"], 1)
    assert earliest_stop("abc", []) is None


def test_special_tokens_between_do_not_hide_a_stop() -> None:
    tokenizer = tokenizer_of("bytelevel")
    end = tokenizer.eos_token_id
    parts = [tokenizer.encode(part) for part in ("a que", "sti", "on", " more")]
    tokens = [token for part in parts for token in (*part, *[end] * 30)]
    assert watched("bytelevel", tokens, ["question"]) == ("a ", len(tokens) - len(parts[-1]) - 60)
