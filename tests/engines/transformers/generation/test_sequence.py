"""Stop sequences in texts that come token by token."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.core.reasoning import DELIMITERS, ReasoningDelimiters, delimiters_of
from pytest_touchstone.core.requests import earliest_stop
from pytest_touchstone.engines.transformers.generation.sequence import (
    DrawKey,
    SamplingParams,
    StopWatch,
    choose,
    may_begin_before,
    sample_by_inverse_cdf,
    uniform_draw,
    warp_probabilities,
)
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer
from tests.support.tiny import CORPUS, bytelevel_tokenizer, metaspace_tokenizer

TOKENIZERS: dict[str, Any] = {}
READERS: dict[str, TextTokenizer] = {}


def tokenizer_of(kind: str) -> Any:
    if kind not in TOKENIZERS:
        TOKENIZERS[kind] = bytelevel_tokenizer() if kind == "bytelevel" else metaspace_tokenizer()
        READERS[kind] = TextTokenizer(TOKENIZERS[kind])
    return TOKENIZERS[kind]


def watched(kind: str, tokens: list[int], stops: list[str]) -> tuple[str, int]:
    """The text that is left, and how many tokens were taken until it was known."""
    tokenizer = tokenizer_of(kind)

    def decode(ids: Any) -> str:
        return tokenizer.decode(list(ids), skip_special_tokens=True)  # type: ignore[no-any-return]

    may_end = READERS[kind].may_end(stops)
    watch = StopWatch(decode, stops, frozenset(tokenizer.all_special_ids), may_end=may_end)
    taken = next(
        (count for count in range(1, len(tokens) + 1) if watch.take(tokens[:count])),
        len(tokens),
    )
    return watch.cut(tokens[:taken])[1], taken


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
    text, taken = watched(kind, tokens, stops)
    seen = tokenizer.decode(tokens[:taken], skip_special_tokens=True)
    # A byte that is no character makes the bytes before it none either: a stop that was there is not in the whole.
    assert text == naive(whole if whole.startswith(seen) else seen, stops)


def test_a_stop_ends_a_text_though_a_byte_more_would_take_it_back() -> None:
    tokenizer = tokenizer_of("metaspace")
    word, brace, broken = (tokenizer.convert_tokens_to_ids(one) for one in ("a", "<0x7D>", "<0xE5>"))
    assert tokenizer.decode([word, brace, broken]).startswith("a\N{REPLACEMENT CHARACTER}")
    assert watched("metaspace", [word, brace, broken], ["a}"]) == ("", 2)


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


def some_logits(rows: int, vocabulary: int, seed: int = 0) -> Any:
    import torch

    return 3.0 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("vocabulary", [50, 3000])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 20.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (7, 1.0), (0, 0.9), (20, 0.5), (0, 0.999), (1, 0.1)])
def test_distributions_are_those_of_transformers(
    vocabulary: int, temperature: float, top_k: int, top_p: float
) -> None:
    import torch
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = some_logits(5, vocabulary)
    ids = torch.zeros((5, 1), dtype=torch.long)
    wanted = TemperatureLogitsWarper(temperature)(ids, logits)
    if top_k:
        wanted = TopKLogitsWarper(top_k)(ids, wanted)
    if top_p < 1:
        wanted = TopPLogitsWarper(top_p)(ids, wanted)
    wanted = wanted.softmax(-1)
    found = warp_probabilities(logits, SamplingParams(temperature, top_k, top_p))
    assert torch.equal(found > 0, wanted > 0)
    torch.testing.assert_close(found / found.sum(-1, keepdim=True), wanted, atol=1e-6, rtol=1e-4)


def test_draws_are_distributed_as_the_softmax() -> None:
    from scipy.stats import chisquare

    logits = some_logits(1, 12)
    count = 20_000
    draws = [DrawKey(SamplingParams(1.5), 7, number % 40, number // 40) for number in range(count)]
    tokens = choose(logits.expand(count, -1), draws)
    seen = [tokens.count(token) for token in range(12)]
    wanted = (logits / 1.5).softmax(-1)[0].double()
    assert chisquare(seen, (count * wanted / wanted.sum()).numpy()).pvalue > 0.001


@given(st.integers(-5, 2**40), st.integers(0, 1000), st.integers(0, 5000))
def test_numbers_depend_on_seed_sample_and_step_alone(seed: int, sample: int, step: int) -> None:
    number = uniform_draw(seed, sample, step)
    assert 0.0 <= number < 1.0
    assert number == uniform_draw(seed, sample, step)
    assert len({number, uniform_draw(seed + 1, sample, step), uniform_draw(seed, sample + 1, step)}) == 3


def test_a_draw_does_not_depend_on_its_batch() -> None:
    logits = some_logits(30, 200)
    warps = (SamplingParams(), SamplingParams(0.7, 0, 0.9), SamplingParams(1.0, 5, 1.0), SamplingParams(2.0))
    draws = [DrawKey(warps[number % 4], number, 3, 17) for number in range(30)]
    alone = [choose(logits[number : number + 1], [draws[number]])[0] for number in range(30)]
    assert choose(logits, draws) == alone
    assert choose(logits.flip(0), draws[::-1]) == alone[::-1]
    assert alone[::4] == logits[::4].argmax(-1).tolist()


def test_the_last_and_the_first_number_pick_a_possible_token() -> None:
    import torch

    chances = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.0]]).expand(3, -1)
    numbers = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert sample_by_inverse_cdf(chances, numbers).tolist() == [1, 3, 3]


def test_a_low_temperature_is_as_good_as_greedy_and_a_nan_is_told() -> None:
    logits = some_logits(4, 100)
    draws = [DrawKey(SamplingParams(1e-9), number, 0, 0) for number in range(4)]
    assert choose(logits, draws) == logits.argmax(-1).tolist()
    logits[2, 5] = float("nan")
    found = choose(logits, [*draws[:3], DrawKey(SamplingParams(), 0, 0, 0)])
    assert found[2] is None
    assert None not in (found[0], found[1], found[3])


# A reasoning before the answer


def answered(
    text: str, stops: list[str], delimiters: ReasoningDelimiters, *, opened: bool = False
) -> tuple[Any, ...]:
    """What the watch makes of a text that comes token by token, and whether it ended before the text did."""
    tokenizer = tokenizer_of("bytelevel")
    tokens = tokenizer.encode(text, add_special_tokens=False)
    watch = StopWatch(lambda ids: tokenizer.decode(list(ids)), stops, (), delimiters, opened=opened)
    counts = range(1, len(tokens) + 1)
    taken = next((count for count in counts if watch.take(tokens[:count])), len(tokens))
    return (*watch.cut(tokens[:taken]), taken < len(tokens))


@pytest.mark.parametrize("delimiters", DELIMITERS, ids=lambda one: one.end)
def test_a_stop_sequence_in_a_reasoning_does_not_end_the_text(delimiters: ReasoningDelimiters) -> None:
    text = f"{delimiters.begin}a\n\nb{delimiters.end}\n\nc\n\nd"
    assert answered(text, ["\n\n"], delimiters) == ("a\n\nb", "c", True, True)
    opened = text.removeprefix(delimiters.begin)
    assert answered(opened, ["\n\n"], delimiters, opened=True) == ("a\n\nb", "c", True, True)


def test_a_text_without_a_reasoning_ends_as_ever() -> None:
    (delimiters, *_) = delimiters_of("auto")
    assert answered("a\n\nb", ["\n\n"], delimiters) == (None, "a", True, True)
    assert answered("\n\na b", ["\n\n"], delimiters) == (None, "", True, True)
    assert answered("<th\n\nb", ["\n\n"], delimiters) == (None, "<th", True, True)


@settings(max_examples=100, deadline=None)
@given(trace=LETTERS, answer=LETTERS, stops=st.lists(st.text("ab\n 학", min_size=1, max_size=4), max_size=3))
def test_the_answer_after_a_reasoning_is_cut_as_it_would_be_alone(
    trace: str, answer: str, stops: list[str]
) -> None:
    (delimiters, *_) = delimiters_of("auto")
    text = f"<think>{trace}</think>{answer}"
    found = answered(text, stops, delimiters)
    assert found[:2] == (trace.strip(), naive(delimiters.split(text)[1], stops))


def test_a_reasoning_that_does_not_end_leaves_no_answer() -> None:
    (delimiters, *_) = delimiters_of("auto")
    assert answered("<think>a\n\nb", ["\n\n"], delimiters) == ("a\n\nb", "", False, False)
    assert answered("a\n\nb", ["\n\n"], delimiters, opened=True) == ("a\n\nb", "", False, False)


def test_with_a_mark_that_is_named_stops_count_only_after_it() -> None:
    (delimiters,) = delimiters_of("</x>")
    assert answered("a\n\nb</x>c\n\nd", ["\n\n"], delimiters) == ("a\n\nb", "c", True, True)
    assert answered("a\n\nb", ["\n\n"], delimiters) == (None, "a", True, False)
