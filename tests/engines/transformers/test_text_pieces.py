"""Texts in pieces: the tokens of the pieces are those of the text, or the text stays whole."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers

from pytest_touchstone.engines.transformers.tokenizer import cut_texts, splitter_of
from tests.support.tiny import bytelevel_tokenizer, metaspace_tokenizer, wordpiece_tokenizer

LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT_4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@functools.cache
def plain() -> Any:
    return bytelevel_tokenizer()


def by(*patterns: str, **more: Any) -> Any:
    """The byte-level tokenizer with other patterns of words, and other parts."""
    made = copy.deepcopy(plain())
    backend = made.backend_tokenizer
    if patterns:
        splits = [pre_tokenizers.Split(Regex(one), "isolated") for one in patterns]
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, last])
    for name, part in more.items():
        setattr(backend, name, part)
    return made


CUT: dict[str, Callable[[], Any]] = {
    "gpt2": plain,
    "smollm": lambda: by(r"\p{N}", r"'s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    "llama 3": lambda: by(LLAMA),
    "qwen 2": lambda: by(LLAMA.replace("{1,3}", ""), normalizer=normalizers.NFC()),
    "gpt-4o": lambda: by(GPT_4O),
}
CUT = {name: functools.cache(make) for name, make in CUT.items()}

TEXTS = st.text("the answer is 42.!?'s서울\n\r\t\xa0\u0301e\u200b/😀 ", max_size=200)


@pytest.mark.parametrize("kind", CUT)
@settings(deadline=None, max_examples=100)
@given(text=TEXTS, prefix=TEXTS)
def test_the_tokens_of_the_pieces_are_those_of_the_text(kind: str, text: str, prefix: str) -> None:
    tokenizer = CUT[kind]()
    pieces = splitter_of(tokenizer)(prefix + " the answer" * 9 + text)
    assert len(pieces) > 1
    apart = [token for one in pieces for token in tokenizer.encode(one, add_special_tokens=False)]
    assert apart == tokenizer.encode("".join(pieces), add_special_tokens=False)


def test_texts_that_begin_alike_share_pieces() -> None:
    split, shots = splitter_of(plain()), "the answer is far away. " * 20
    one, other = split(f"{shots}a question"), split(f"{shots}the question")
    assert one != other
    assert one[:-1] == other[:-1]


@settings(deadline=None, max_examples=100)
@given(asked=st.lists(st.tuples(st.integers(0, 9), TEXTS, TEXTS), max_size=6))
def test_what_a_text_shares_with_the_one_before_it_is_cut_alike(asked: list[tuple[int, str, str]]) -> None:
    split, pieces = splitter_of(plain()), list[str]()
    texts = ["the answer is far away. " * many + question + choice for many, question, choice in asked]
    for text, (same, others) in zip(texts, cut_texts(texts, split), strict=True):
        pieces = pieces[:same] + others
        assert pieces == split(text)


WHOLE: dict[str, Callable[[], Any]] = {
    "sentencepiece": metaspace_tokenizer,
    "wordpiece": wordpiece_tokenizer,
    "of another package": object,
    "a space last": lambda: by(r"\p{L}+ ?|\s+"),
    "a look back": lambda: by(r"(?<=a)\p{L}+|\s+"),
    "unknown classes": lambda: by(r"\w+|\s+"),
    "digits alone": lambda: by(r"\p{N}"),
    "a space in front": lambda: by(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "no words": lambda: by(pre_tokenizer=None),
    "stripped": lambda: by(normalizer=normalizers.Strip()),
    "a token that takes the space after it": lambda: added("<x>", rstrip=True),
    "a token with a space": lambda: added("the answer"),
}


def added(content: str, **how: bool) -> Any:
    made = copy.deepcopy(plain())
    made.add_tokens([AddedToken(content, **how)])
    return made


@pytest.mark.parametrize("kind", WHOLE)
def test_tokenizers_that_may_look_beyond_a_space_get_texts_whole(kind: str) -> None:
    text = "the answer is far away. " * 20
    assert splitter_of(WHOLE[kind]())(text) == [text]
