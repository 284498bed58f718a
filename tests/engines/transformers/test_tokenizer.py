"""Cutting joined texts into context and continuation tokens."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.core.requests import Refusal
from pytest_touchstone.engines.transformers import tokenizer as tokens
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer, TokenPair, Vocabulary
from tests.support.tiny import bytelevel_tokenizer, metaspace_tokenizer, wordpiece_tokenizer

KINDS: dict[str, Callable[[], Any]] = {
    "bytes": bytelevel_tokenizer,
    "pieces": metaspace_tokenizer,
    "words": wordpiece_tokenizer,
}
CACHE: dict[str, Any] = {}


def tokenizer(kind: str) -> Any:
    if kind not in CACHE:
        CACHE[kind] = KINDS[kind]()
    return CACHE[kind]


class WithoutOffsets:
    """A tokenizer as the slow ones are: it encodes, and knows no offsets and no spelling."""

    is_fast = False

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def convert_ids_to_tokens(self, token_id: int) -> str:
        return f"?{token_id}"


def pair(kind: str, context: str, continuation: str) -> TokenPair:
    found = TextTokenizer(tokenizer(kind)).pair(context, continuation)
    assert isinstance(found, TokenPair)
    return found


def texts(kind: str, found: TokenPair) -> tuple[str, str]:
    decode = tokenizer(kind).decode
    return decode(found.context, skip_special_tokens=True), decode(found.continuation)


words = st.text(alphabet="the answer서울학교 \n\t.,é😀👩‍👩‍👧", max_size=30)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(context=words, continuation=words)
def test_context_and_continuation_tokens_are_the_joint_tokens(
    kind: str, context: str, continuation: str
) -> None:
    inner = tokenizer(kind)
    found = TextTokenizer(inner).pair(context, continuation)
    joint = inner.encode(context + continuation, add_special_tokens=False)
    if isinstance(found, Refusal):
        assert continuation == "" or not joint or not (context + continuation).strip() or kind == "words"
        return
    assert found.context
    assert found.continuation
    whole = [*found.context, *found.continuation]
    assert whole[len(whole) - len(joint) :] == joint
    front = whole[: len(whole) - len(joint)]
    assert set(front) <= set(inner.all_special_ids)


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
@settings(deadline=None)
@given(context=words, continuation=words)
def test_exact_spans_say_which_tokens_end_after_the_join(kind: str, context: str, continuation: str) -> None:
    found = TextTokenizer(tokenizer(kind)).pair(context, continuation)
    if isinstance(found, Refusal):
        return
    vocabulary = Vocabulary(tokenizer(kind))
    size = sum(len(vocabulary.token_bytes(token) or b"") for token in found.continuation)
    after = (context.rstrip() and context[len(context.rstrip()) :]) or ("" if context.strip() else context)
    wanted = len((after + continuation).encode())
    assert size > wanted if found.spans_join else size in (wanted, wanted + 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("context", "continuation"),
    [
        ("Question: what is the answer?\nAnswer:", " 42"),
        ("서울은 대한민국의", " 수도이며"),
        ("the river", " was wide"),
    ],
)
def test_the_cut_is_where_the_context_alone_ends(kind: str, context: str, continuation: str) -> None:
    alone = tokenizer(kind).encode(context, add_special_tokens=False)
    joint = tokenizer(kind).encode(context + continuation, add_special_tokens=False)
    found = pair(kind, context, continuation)
    assert list(found.continuation) == joint[len(alone) :]
    assert not found.spans_join


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
def test_spaces_at_the_end_of_the_context_move_to_the_continuation(kind: str) -> None:
    assert pair(kind, "the answer ", "is") == pair(kind, "the answer", " is")
    assert pair(kind, "the answer\n\n", "is") == pair(kind, "the answer", "\n\nis")


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
def test_a_continuation_of_spaces_only_is_scored(kind: str) -> None:
    assert texts(kind, pair(kind, "the answer", "  "))[1].strip() == ""
    assert len(pair(kind, "the answer", "  ").continuation) >= 1


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
def test_a_character_of_several_tokens_stays_whole(kind: str) -> None:
    found = pair(kind, "the 😀", "👩 answer")
    assert not found.spans_join
    assert texts(kind, found)[0].endswith("😀")
    assert texts(kind, found)[1].startswith("👩")


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_over_the_join_belongs_to_the_continuation(kind: str) -> None:
    whole = "the answer is 42"
    cut = whole.index("swer")
    found = pair(kind, whole[:cut], whole[cut:])
    joint = tokenizer(kind).encode(whole, add_special_tokens=False)
    if len(pair(kind, "the", whole[3:]).continuation) == len(found.continuation):
        assert found.spans_join
    assert list(found.continuation) == joint[len(joint) - len(found.continuation) :]


def test_a_first_token_over_the_join_leaves_the_start_token_as_context() -> None:
    found = pair("bytes", "h", "e")
    assert (found.spans_join, len(found.continuation)) == (True, 1)
    assert found.context == (tokenizer("bytes").bos_token_id,)


def test_an_empty_context_is_the_start_token() -> None:
    assert pair("bytes", "", "the").context == (tokenizer("bytes").bos_token_id,)
    assert pair("pieces", "", "the").context == (tokenizer("pieces").bos_token_id,)
    assert pair("bytes", " ", "the") == pair("bytes", "", " the")


def test_a_start_token_in_the_text_is_not_doubled() -> None:
    found = pair("pieces", "<s>the answer", " is")
    assert found.context.count(tokenizer("pieces").bos_token_id) == 1
    assert pair("bytes", "", "<|endoftext|>the").context == pair("bytes", "", "the").context


def test_the_tokenizers_own_end_token_is_left_out() -> None:
    found = pair("words", "the river", " was wide")
    inner = tokenizer("words")
    assert found.context[0] == inner.cls_token_id
    assert inner.sep_token_id not in found.continuation


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_continuation_is_refused(kind: str) -> None:
    assert isinstance(TextTokenizer(tokenizer(kind)).pair("the", ""), Refusal)


def test_no_start_token_is_refused() -> None:
    inner = bytelevel_tokenizer()
    inner.bos_token = inner.eos_token = None
    assert isinstance(TextTokenizer(inner).pair("", "the"), Refusal)
    assert isinstance(TextTokenizer(inner).text("the"), Refusal)


@pytest.mark.parametrize("kind", KINDS)
def test_without_offsets_the_common_prefix_decides(kind: str) -> None:
    slow = TextTokenizer(WithoutOffsets(tokenizer(kind)))
    assert slow.pair("the river", " was wide") == pair(kind, "the river", " was wide")


def test_spellings_are_told_apart() -> None:
    assert [Vocabulary(tokenizer(kind)).spelling for kind in KINDS] == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_plain_text_has_no_marks(kind: str) -> None:
    inner = tokenizer(kind)
    vocabulary = Vocabulary(inner)
    marked = {"bytes": "Ġthe", "pieces": "▁the", "words": "##e"}[kind]
    assert vocabulary.plain(inner.convert_tokens_to_ids(marked)) == marked[-len(marked.lstrip("Ġ▁#")) :]
    assert inner.convert_tokens_to_ids(marked) in vocabulary.by_plain_text[marked.lstrip("Ġ▁#")]


def test_byte_level_korean_is_decoded() -> None:
    inner = tokenizer("bytes")
    ids = inner.encode("서울", add_special_tokens=False)
    vocabulary = Vocabulary(inner)
    pieces = vocabulary.joined(ids, "서울")
    assert pieces is not None
    assert b"".join(pieces).decode() == "서울"


@pytest.mark.parametrize("kind", [*KINDS, "without offsets"])
@settings(deadline=None)
@given(pairs=st.lists(st.tuples(words, words), max_size=5))
def test_texts_read_at_once_have_the_tokens_of_each_by_itself(
    kind: str, pairs: list[tuple[str, str]]
) -> None:
    plain = TextTokenizer(tokenizer(kind) if kind in KINDS else WithoutOffsets(tokenizer("bytes")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "_AT_ONCE", 20)
        known = plain.with_encoded(context + continuation for context, continuation in pairs)
    assert [known.pair(*one) for one in pairs] == [plain.pair(*one) for one in pairs]


def test_long_texts_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return getattr(tokenizer("bytes"), name)

        def __call__(self, some: list[str], **how: Any) -> Any:
            sizes.append(len(some))
            return tokenizer("bytes")(some, **how)

        def encode(self, text: str, **how: Any) -> list[int]:
            found: list[int] = tokenizer("bytes").encode(text, **how)
            return found

    plain = TextTokenizer(Counted())
    monkeypatch.setattr(tokens, "_AT_ONCE", 10)
    known = plain.with_encoded(["the answer is far away", "a", "bc", "a", "the answer", "d"])
    assert sizes == [1, 2, 1, 1]
    monkeypatch.setattr(Counted, "encode", lambda *_, **__: pytest.fail("it is at hand"))
    assert known.text("the answer") == TextTokenizer(tokenizer("bytes")).text("the answer")


@pytest.mark.parametrize(("chosen", "kept"), [(None, "true"), ("false", "false")])
def test_texts_are_read_by_all_cores_unless_somebody_says_otherwise(
    chosen: str | None, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", chosen or "")  # so that it is as before afterwards
    if chosen is None:
        monkeypatch.delenv("TOKENIZERS_PARALLELISM")
    TextTokenizer(tokenizer("bytes")).with_encoded(["the answer"])
    assert os.environ["TOKENIZERS_PARALLELISM"] == kept


def test_rolling_text_has_no_special_tokens() -> None:
    tokens = TextTokenizer(tokenizer("pieces")).text("the answer")
    assert not isinstance(tokens, Refusal)
    assert tokenizer("pieces").bos_token_id not in tokens


def test_half_of_a_character_is_a_refusal_and_leaves_the_texts_beside_it_alone() -> None:
    plain = TextTokenizer(tokenizer("bytes"))
    known = plain.with_encoded(["good one", "bad \ud83d one", "fine x"])
    for refusal in (known.pair("bad \ud83d", " one"), known.pair("bad", " \ud83d"), known.text("\udfff")):
        assert isinstance(refusal, Refusal)
        assert "half of a character" in refusal.reason
    assert known.pair("good", " one") == plain.pair("good", " one")
    assert isinstance(plain.pair("\U0001f600", " one"), TokenPair)
