"""Texts whose own tokens propose the next ones are those of single steps, in fewer passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import Generate
from pytest_touchstone.engines.settings import Dtype, ModelSettings, Speculative
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.fused_layers import fuse
from pytest_touchstone.engines.transformers.fused_steps import fuse_steps
from pytest_touchstone.engines.transformers.generation import lookup_stepper
from pytest_touchstone.engines.transformers.generation.sequence import GeneratedSequence
from pytest_touchstone.engines.transformers.generation.speculative import PromptLookup
from pytest_touchstone.engines.transformers.generation.step import DecodeStep
from pytest_touchstone.engines.transformers.pool import load_weights
from tests.support.engines import ON_CPU, engine_for, generates_together
from tests.support.families import CAUSAL, SEQ_LEN, causal_of
from tests.support.generating import prompts, texts, with_samples

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
    monkeypatch.setattr(lookup_stepper, "best_width", lambda rows, free: 4)


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
    requests = [*prompts(), *with_samples()]
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
