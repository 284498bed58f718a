"""Texts whose own tokens propose the next ones are those of single steps, in fewer passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import Generate
from pytest_touchstone.engines.settings import Dtype, ModelSettings, Speculative
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.fused_layers import fuse
from pytest_touchstone.engines.transformers.fused_steps import fuse_steps
from pytest_touchstone.engines.transformers.generation import speculative
from pytest_touchstone.engines.transformers.generation.sequence import GeneratedSequence
from pytest_touchstone.engines.transformers.generation.speculative import (
    FREE,
    PromptLookup,
    agreeing,
    best_width,
    may_pay,
)
from pytest_touchstone.engines.transformers.generation.step import DecodeStep
from pytest_touchstone.engines.transformers.pool import load_weights
from pytest_touchstone.engines.transformers.split_attention import FEW
from tests.support.engines import ON_CPU, engine_for, generates_together
from tests.support.families import CAUSAL, SEQ_LEN, causal_of
from tests.support.generating import few, prompts, texts

pytestmark = ON_CPU

LONG = [Generate(word, max_new_tokens=60) for word in ("a", "one two", "three")]


def own_engine(
    folder: Path, speculative: Speculative = "auto", dtype: Dtype = "auto", *, fused: bool = False
) -> CausalEngine:
    (info,) = resolve(str(folder), seq_len=None)
    settings = ModelSettings(device="cpu", threads=1, dtype=dtype, speculative=speculative)
    loaded = load_weights(info, settings)
    if fused:
        fuse(loaded.model)
        fuse_steps(loaded.model)
    return CausalEngine(info, loaded, settings)


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each row in each pass that continues texts."""
    seen: list[int] = []
    right = DecodeStep.several_all

    def several_all(self: DecodeStep, caches: Any, fed: Any, width: int) -> torch.Tensor:
        seen.append(width)
        return right(self, caches, fed, width)

    monkeypatch.setattr(DecodeStep, "several_all", several_all)
    return seen


@pytest.fixture
def often_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Propose in every pass, and something else than what would follow in half of the places."""
    right = PromptLookup.proposals

    def proposals(self: PromptLookup, generated: list[int], count: int) -> list[int]:
        found = right(self, generated, count)
        return [token if (len(generated) + place) % 4 else 3 for place, token in enumerate(found)][:3]

    monkeypatch.setattr(PromptLookup, "proposals", proposals)
    monkeypatch.setattr(speculative, "best_width", lambda rows, free: 4)


@pytest.mark.parametrize("fused", [False, True])
def test_right_proposals_change_no_text_and_take_fewer_passes_than_it_has_tokens(
    fused: bool, llama: Path, widths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict[GeneratedSequence, list[int]] = {}
    right = GeneratedSequence.take

    def take(self: GeneratedSequence, token: int | None) -> bool:
        ended = right(self, token)
        known[self] = self.tokens
        return ended

    with monkeypatch.context() as patches:
        patches.setattr(GeneratedSequence, "take", take)
        wanted = texts(own_engine(llama, "off"), LONG)
    whole = [tokens for tokens in known.values() if len(tokens) > 2]

    def proposals(_: PromptLookup, generated: list[int], count: int) -> list[int]:
        found = [tokens for tokens in whole if tokens[: len(generated)] == generated]
        return found[0][len(generated) : len(generated) + count]

    monkeypatch.setattr(PromptLookup, "proposals", proposals)
    engine = own_engine(llama, fused=fused)
    assert generates_together(engine)
    widths.clear()
    assert texts(engine, LONG) == wanted
    assert len(widths) < 12
    assert max(widths) > 4
    done = engine.work_done
    assert done.generated == done.decoded == sum(tokens - 1 for some in wanted for _, _, tokens in some)


def test_where_proposals_are_turned_off_each_pass_gives_one_token(llama: Path, widths: list[int]) -> None:
    engine = own_engine(llama, "off")
    assert texts(engine, LONG) == texts(own_engine(llama), LONG)
    widths.clear()
    texts(engine, LONG)
    assert set(widths) == {1}


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.usefixtures("often_wrong")
def test_wrong_proposals_change_no_text_of_any_family(name: str, tmp_path: Path, widths: list[int]) -> None:
    folder = causal_of(tmp_path, name)
    requests = few()
    engine = own_engine(folder, fused=True)
    assert texts(engine, requests) == texts(engine_for(folder, together=False), requests)
    assert engine.notes == []
    assert 4 in widths


@pytest.mark.usefixtures("often_wrong")
def test_no_position_lies_beyond_the_models_length(tmp_path: Path, widths: list[int]) -> None:
    folder = causal_of(tmp_path, "gpt2")  # its positions are rows of a table
    engine = own_engine(folder)
    requests = [
        Generate(text, max_new_tokens=SEQ_LEN - len(engine.loaded.tokenizer(text)["input_ids"]))
        for text in ("one two " * 3, "a")
    ]
    assert texts(engine, requests) == texts(engine_for(folder, together=False), requests)
    assert 4 in widths


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_fault_in_passes_of_several_tokens_is_found_and_none_are_proposed(
    dtype: Dtype, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = DecodeStep.several_all

    def faulty(self: DecodeStep, caches: Any, fed: Any, width: int) -> torch.Tensor:
        found = right(self, caches, fed, width)
        return found.roll(1, 0) if width > 1 else found  # the logits of the token before

    wanted = texts(own_engine(llama, "off", dtype), LONG)
    monkeypatch.setattr(DecodeStep, "several_all", faulty)
    engine = own_engine(llama, dtype=dtype)
    assert texts(engine, LONG) == wanted
    assert len(engine.notes) == 1
    assert "no tokens are proposed from the texts themselves: a logit is" in engine.notes[0]


def test_in_half_precision_the_same_call_gives_the_same_texts_in_any_order(llama: Path) -> None:
    requests = [*LONG, *prompts()[:6]]
    one, other = (own_engine(llama, dtype="bfloat16") for _ in range(2))
    found = texts(one, requests)
    assert texts(other, requests) == found
    assert texts(own_engine(llama, dtype="bfloat16"), requests[::-1]) == found[::-1]


TOKENS = st.lists(st.integers(0, 3), max_size=40)


def test_what_followed_the_same_tokens_is_proposed_to_follow_again() -> None:
    assert PromptLookup([1, 2, 3, 4, 5, 9, 1, 2, 3]).proposals([], 2) == [4, 5]
    assert PromptLookup([1, 2, 3, 4]).proposals([9, 1, 2, 3], 3) == [4, 9, 1]


def test_more_tokens_decide_before_fewer_and_later_places_before_earlier_ones() -> None:
    assert PromptLookup([1, 2, 3, 4, 8, 2, 3, 5, 8, 1, 2, 3]).proposals([], 1) == [4]
    assert PromptLookup([1, 2, 4, 1, 2, 5, 1, 2]).proposals([], 1) == [5]


def test_a_loop_goes_on() -> None:
    assert PromptLookup([]).proposals([7, 1, 2, 3, 1, 2, 3, 1], 8) == [2, 3, 1, 2, 3, 1, 2, 3]
    assert PromptLookup([5, 5, 5]).proposals([], 4) == [5, 5, 5, 5]


@pytest.mark.parametrize("text", [[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 1]])
def test_nothing_is_proposed_after_tokens_that_did_not_stand_together_before(text: list[int]) -> None:
    assert PromptLookup(text).proposals([], 5) == []


@given(TOKENS, st.lists(TOKENS, max_size=5), st.integers(0, 6))
def test_proposals_do_not_depend_on_when_they_are_asked_for(
    prompt: list[int], parts: list[list[int]], count: int
) -> None:
    whole = [token for part in parts for token in part]
    lookup = PromptLookup(prompt)
    for end in range(len(parts)):
        lookup.proposals([token for part in parts[:end] for token in part], count)
    found = lookup.proposals(whole, count)
    assert found == PromptLookup(prompt).proposals(whole, count)
    assert len(found) in (0, count)


@given(TOKENS, TOKENS)
def test_proposals_agree_up_to_the_first_that_is_wrong(proposed: list[int], chosen: list[int]) -> None:
    right = agreeing(proposed, chosen)
    assert proposed[:right] == chosen[:right]
    assert right == min(len(proposed), len(chosen)) or proposed[right] != chosen[right]


def test_the_rate_follows_what_was_right() -> None:
    lookup = PromptLookup([])
    for _ in range(20):
        lookup.judge([1, 2, 3], [1, 2, 3, 4])
    assert lookup.rate > 0.95
    for _ in range(20):
        lookup.judge([1, 2, 3], [4])
    assert lookup.rate < 0.05
    before = lookup.rate
    lookup.judge([], [4])
    assert lookup.rate == before


def test_a_text_in_a_loop_gives_many_tokens_in_a_pass_and_one_without_proposals_one() -> None:
    assert best_width([(1.0, FEW - 1)], FREE[4]) == FEW
    assert best_width([(1.0, 0)], FREE[4]) == 1
    assert best_width([(0.0, FEW - 1)], FREE[4]) == 1
    assert best_width([(1.0, FEW - 1)] + [(0.5, 0)] * 15, FREE[4]) == 1


RATES = st.tuples(st.floats(0, 1), st.integers(0, FEW - 1))


def test_where_numbers_are_computed_faster_a_pass_takes_more_of_them() -> None:
    rows = [(0.6, FEW - 1)] * 20
    assert best_width(rows, FREE[2]) > best_width(rows, FREE[4])


@given(st.lists(RATES, min_size=1, max_size=64), st.sampled_from(sorted(FREE.values())))
def test_the_width_is_bounded_and_does_not_depend_on_the_order_of_the_rows(
    rows: list[tuple[float, int]], free: int
) -> None:
    width = best_width(rows, free)
    assert width == 1 or (width * len(rows) <= 4 * free and may_pay(len(rows), free))
    assert best_width(sorted(rows), free) == width
