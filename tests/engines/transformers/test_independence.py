"""An answer depends on its own text alone, and not on later tokens, neighbours, their lengths, or earlier passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import (
    Answer,
    FillMask,
    FillMaskAnswer,
    Loglikelihood,
    LoglikelihoodAnswer,
    PseudoLoglikelihood,
    Refusal,
    Request,
    RollingAnswer,
)
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.independence import Company, LoadedState, length_boundary
from pytest_touchstone.engines.transformers.pool import load_weights
from tests.support.engines import engine_for
from tests.support.tiny import CORPUS, tiny_causal, tiny_masked

_XLNET = {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}

BIDIRECTIONAL: dict[str, tuple[dict[str, Any], str]] = {
    "llama": ({"is_causal": False}, "is_causal is false"),
    "gemma3_text": (
        {"head_dim": 8, "use_bidirectional_attention": True},
        "use_bidirectional_attention is true",
    ),
    "xlnet": (_XLNET, "attn_type is 'bi'"),
    "bert-generation": ({}, "is_decoder is false"),
}
"""Models that are loaded as causal ones and see later tokens: settings, and what the refusal names."""


@pytest.mark.parametrize("family", BIDIRECTIONAL)
def test_a_model_that_sees_later_tokens_is_refused_and_the_field_named(family: str, tmp_path: Path) -> None:
    settings, named = BIDIRECTIONAL[family]
    folder = tiny_causal(tmp_path / "m", model_type=family, **settings)
    with pytest.raises(CheckpointError, match=f"tokens see later ones.* {named}") as raised:
        engine_for(folder)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_a_decoder_that_sees_later_tokens_is_a_masked_model(family: str, tmp_path: Path) -> None:
    causal = tiny_causal(tmp_path / "causal", model_type=family, is_decoder=True)
    assert resolve(str(causal), seq_len=None)[0].kind == "causal"
    folder = tiny_causal(tmp_path / "masked", model_type=family)
    (info,) = resolve(str(folder), seq_len=None)
    assert info.kind == "masked"
    assert "is_decoder is not true" in info.extra["no causal model"]
    scored, refused = open_engine(info, ModelSettings(threads=1)).answer(
        [PseudoLoglikelihood("no token is the mask here"), Loglikelihood("a", " b")]
    )
    assert isinstance(scored, Refusal)  # its tokenizer has no mask token
    assert isinstance(refused, Refusal)


@pytest.mark.parametrize("family", ["xlm", "flaubert"])
def test_xlm_is_a_masked_model_unless_it_is_causal(family: str, tmp_path: Path) -> None:
    settings = {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "pad_index": 0, "n_words": 500}
    folder = tiny_masked(tmp_path / "m", model_type=family, vocab_size=500, **settings)
    assert resolve(str(folder), seq_len=None)[0].kind == "masked"


MIXING: dict[str, dict[str, Any]] = {
    "fnet": {},
    "funnel": {"block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64},
    "convbert": {"embedding_size": 32},
    "mobilebert": {"embedding_size": 16, "true_hidden_size": 32, "intra_bottleneck_size": 32},
    "big_bird": {"block_size": 4, "num_random_blocks": 1},
}
"""Masked models whose answers change with padding, or with the texts that were answered before."""

TEXTS = (
    f"[MASK] {CORPUS[0]} {CORPUS[1]}",
    "a [MASK]",
    f"{CORPUS[2]} [MASK]",
    "The quick brown [MASK] jumps",
)


def numbers(answers: Sequence[Answer | Refusal]) -> list[float]:
    """What is compared of answers."""
    found = []
    for answer in answers:
        assert isinstance(answer, FillMaskAnswer | RollingAnswer | LoglikelihoodAnswer), answer
        found.append(answer.candidates[0].logprob if isinstance(answer, FillMaskAnswer) else answer.logprob)
    return found


def by_itself(folder: Path, request: Request) -> float:
    """The answer of an engine that is asked nothing else."""
    (info,) = resolve(str(folder), seq_len=None)
    return numbers(open_engine(info, ModelSettings(threads=1)).answer([request]))[0]


@pytest.mark.parametrize("family", MIXING)
def test_what_is_answered_together_does_not_matter_to_a_model_that_mixes_padding(
    family: str, tmp_path: Path
) -> None:
    folder = tiny_masked(tmp_path / "m", model_type=family, **MIXING[family])
    requests: list[Request] = [FillMask(text, 1) for text in TEXTS]
    requests += [PseudoLoglikelihood("The boat was small"), PseudoLoglikelihood("a a a a a a a")]
    alone = [by_itself(folder, request) for request in requests]
    (info,) = resolve(str(folder), seq_len=None)
    engine = open_engine(info, ModelSettings(threads=1))
    assert numbers(engine.answer(requests)) == pytest.approx(alone, abs=1e-4)
    assert numbers(engine.answer(requests[::-1])) == pytest.approx(alone[::-1], abs=1e-4)
    (told,) = (told for told in engine.usage["slow"] if told["way"] == "batching")
    assert told["computed"] > told["enough"]
    assert told["reason"]


_OF_LENGTH = 40

BY_LENGTH: dict[str, dict[str, Any]] = {
    "longrope": {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4},
    "dynamic": {"factor": 4.0},
}


def of_length(folder: Path, kind: str) -> Path:
    """A model whose positions are computed otherwise in texts of more than ``_OF_LENGTH`` tokens."""
    rope = {"rope_type": kind, "rope_theta": 10000.0, "original_max_position_embeddings": _OF_LENGTH}
    length = _OF_LENGTH if kind == "dynamic" else 256
    return tiny_causal(folder, seq_len=length, head_dim=8, rope_parameters={**rope, **BY_LENGTH[kind]})


@pytest.mark.parametrize("order", [1, -1])
def test_one_long_row_changes_no_shorter_ones(order: int, tmp_path: Path) -> None:
    folder = of_length(tmp_path / "m", "longrope")
    contexts = ("She said", CORPUS[2], CORPUS[0] + CORPUS[1], "A question:", CORPUS[1][:30])[::order]
    requests: list[Request] = [Loglikelihood(context, " the boat was small") for context in contexts]
    alone = [by_itself(folder, request) for request in requests]
    engine = engine_for(folder)
    assert numbers(engine.answer(requests)) == pytest.approx(alone, abs=1e-4)
    assert numbers(engine.answer(requests[1:2])) == pytest.approx(alone[1:2], abs=1e-4)
    assert engine.company == Company(
        boundary=_OF_LENGTH,
        reason=f"its positions are computed otherwise in texts of more than {_OF_LENGTH} tokens",
    )


def test_the_rope_of_a_longer_row_is_forgotten(tmp_path: Path) -> None:
    """Dynamic scaling stays at the longest row so far, until a short one comes."""
    (info,) = resolve(str(of_length(tmp_path / "m", "dynamic")), seq_len=None)
    info = replace(info, seq_len=200)

    def engine() -> CausalEngine:
        return CausalEngine(info, load_weights(info, ModelSettings()), ModelSettings(threads=1))

    requests: list[Request] = [
        Loglikelihood(text, " the boat was small")
        for text in (CORPUS[0] + CORPUS[1], CORPUS[0] + "They", "a")
    ]
    alone = [numbers(engine().answer([request]))[0] for request in requests]
    shared = engine()
    for _ in range(2):
        for request, expected in zip(requests, alone, strict=True):
            assert numbers(shared.answer([request])) == pytest.approx([expected], abs=1e-4)
    assert numbers(shared.answer(requests)) == pytest.approx(alone, abs=1e-4)


def test_a_model_is_tried_beyond_the_window_that_its_config_names(tmp_path: Path) -> None:
    engine = engine_for(tiny_causal(tmp_path / "m", model_type="mistral", sliding_window=40))
    assert "without the future of 41 tokens" in engine._ways._known


def test_rows_stay_apart_by_what_the_model_makes_of_lengths() -> None:
    assert len({Company().group(length) for length in (1, 50, 200)}) == 1
    assert [Company(boundary=50).group(length) for length in (1, 50, 51, 200)] == [0, 0, 1, 1]
    assert [Company(boundary=50, by_length=True).group(length) for length in (50, 51, 52)] == [0, 51, 52]
    assert [Company("equal").group(length) for length in (1, 2)] == [1, 2]


def test_the_boundary_is_found_in_the_rope_of_each_kind_of_layer() -> None:
    def boundary(**rope: Any) -> tuple[int | None, bool]:
        config = SimpleNamespace(max_position_embeddings=64, rope_parameters=rope)
        config.get_text_config = lambda: config
        return length_boundary(SimpleNamespace(config=config))

    long = {"rope_type": "longrope", "original_max_position_embeddings": 32}
    assert boundary(full_attention=long, sliding_attention={"rope_type": "default"}) == (32, False)
    assert boundary(rope_type="dynamic", factor=2.0) == (64, True)
    assert boundary(rope_type="yarn", original_max_position_embeddings=32) == (None, False)


def test_a_state_puts_attributes_buffers_and_parts_back() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model.register_buffer("table", torch.zeros(1), persistent=False)
    state, first = LoadedState(model), model[0]
    assert not state.changed
    model[0], model.table, model.longest = torch.nn.Linear(2, 2), torch.ones(1), 8  # type: ignore[assignment]
    assert state.changed
    state.restore()
    assert not state.changed
    assert model[0] is first
    assert float(model.table) == 0.0
    assert not hasattr(model, "longest")


def test_a_model_with_one_logit_for_all_tokens_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny_causal(tmp_path / "m")
    weights = folder / "model.safetensors"
    save_file({name: one * 0 for name, one in load_file(weights).items()}, weights, {"format": "pt"})
    with pytest.raises(CheckpointError, match="logits are 0 for every token"):
        engine_for(folder)


def test_a_model_that_draws_its_logits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    folder = tiny_causal(tmp_path / "m")
    plain = torch.nn.Linear.forward
    monkeypatch.setattr(
        torch.nn.Linear, "forward", lambda self, hidden: plain(self, hidden) + torch.rand(self.out_features)
    )
    with pytest.raises(CheckpointError, match="drawn by chance"):
        engine_for(folder)
