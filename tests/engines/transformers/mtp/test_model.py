"""Multi-token-prediction models against a forward pass written out once more, in NumPy and in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import (
    Loglikelihood,
    LoglikelihoodAnswer,
    RollingAnswer,
    RollingLoglikelihood,
)
from pytest_touchstone.engines.transformers.mtp.model import config_of
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer
from tests.support.engines import generates_together
from tests.support.references import independent_logits
from tests.support.tiny import CORPUS
from tests.support.tiny_mtp import PARAMS, head_logits, info_of, mtp_engine, random_state, save_mtp

Array = Any

VARIANTS: dict[str, dict[str, Any]] = {
    "four heads": {},
    "two heads": {"n_future_tokens": 2},
    "one head": {"n_future_tokens": 1},
    "only heads": {"n_layers": 4},
    "as many keys as queries": {"n_kv_heads": 4},
    "one key": {"n_kv_heads": 1},
    "wider feed-forward part": {"ffn_dim_multiplier": 1.3, "multiple_of": 8},
    "other constants": {"rope_theta": 500.0, "norm_eps": 1e-2},
}


def logprobs(logits: Array) -> Array:
    highest = logits.max(axis=-1, keepdims=True)
    return logits - highest - np.log(np.exp(logits - highest).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_logits_of_every_head_are_those_of_an_independent_forward_pass(
    variant: str, tmp_path: Path
) -> None:
    import torch

    changed = VARIANTS[variant]
    params = {**PARAMS, **changed}
    state = random_state(3, **changed)
    model = mtp_engine(info_of(save_mtp(tmp_path, state), **changed))._model
    ids = [(37 * number + 11) % 400 for number in range(50)]
    wanted = independent_logits(state, params, ids)
    assert len(wanted) == params["n_future_tokens"]
    with torch.no_grad():
        found = [head_logits(model, number, torch.tensor([ids]))[0].numpy() for number in range(len(wanted))]
        answered = model(torch.tensor([ids])).logits[0].numpy()
    for mine, theirs in zip([answered, *found], [wanted[0], *wanted], strict=True):
        assert np.abs(mine - theirs).max() < 1e-4
    assert np.abs(wanted[0]).max() > 2.0  # a difference would show


def test_loglikelihoods_are_those_of_an_independent_forward_pass(tmp_path: Path) -> None:
    state = random_state(5)
    engine = mtp_engine(info_of(save_mtp(tmp_path, state)))
    assert engine.shares
    assert engine._needed.gathers
    assert engine.notes == []
    shots = " ".join(CORPUS[:2])
    asked = [Loglikelihood(f"{shots} {text[:30]}", text[30:50]) for text in CORPUS[2:]]
    asked += [Loglikelihood(text[:9], text[9:40]) for text in CORPUS]
    for request, answer in zip(asked, engine.answer(asked), strict=True):
        pair = TextTokenizer(engine.loaded.tokenizer).pair(request.context, request.continuation)
        ids = [*pair.context, *pair.continuation]  # type: ignore[union-attr]
        table = logprobs(independent_logits(state, PARAMS, ids[:-1])[0])
        places = range(len(pair.context) - 1, len(ids) - 1)  # type: ignore[union-attr]
        assert isinstance(answer, LoglikelihoodAnswer)
        assert answer.logprob == pytest.approx(sum(table[at, ids[at + 1]] for at in places), abs=1e-3)
        assert answer.is_greedy == all(table[at].argmax() == ids[at + 1] for at in places)
    (whole,) = engine.answer([RollingLoglikelihood(CORPUS[1])])
    ids = [
        TextTokenizer(engine.loaded.tokenizer).start,
        *TextTokenizer(engine.loaded.tokenizer).text(CORPUS[1]),
    ]  # type: ignore[misc]
    table = logprobs(independent_logits(state, PARAMS, ids[:-1])[0])
    assert isinstance(whole, RollingAnswer)
    assert whole.logprob == pytest.approx(sum(table[at, ids[at + 1]] for at in range(len(ids) - 1)), abs=1e-3)


def test_half_precision_is_near_single_precision(tmp_path: Path) -> None:
    path = save_mtp(tmp_path, random_state(5))
    asked = [Loglikelihood(text[:9], text[9:30]) for text in CORPUS[:3]]
    whole = mtp_engine(info_of(path)).answer(asked)
    for dtype in ("float16", "bfloat16"):
        engine = mtp_engine(info_of(path), dtype=dtype)
        assert generates_together(engine)
        for mine, theirs in zip(engine.answer(asked), whole, strict=True):
            assert mine.logprob == pytest.approx(theirs.logprob, rel=0.05)  # type: ignore[union-attr]


def test_settings_of_transformers_mean_the_same() -> None:
    theirs = {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
        "max_position_embeddings": 4096,
        "vocab_size": 32000,
        "n_future_tokens": 4,
        "intermediate_size": 11008,
    }
    ours = {
        "dim": 4096,
        "n_layers": 32,
        "n_heads": 32,
        "n_kv_heads": 8,
        "norm_eps": 1e-6,
        "rope_theta": 5e5,
        "max_seq_len": 4096,
        "vocab_size": 32000,
        "n_future_tokens": 4,
        "multiple_of": 256,
    }
    assert config_of(theirs, "a") == config_of(ours, "b")
    assert config_of(ours, "b").blocks == 29
    assert config_of(ours, "b").intermediate_size == 11008


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": None}, "the field 'dim' is missing"),
        ({"dim": 30}, "does not divide"),
        ({"dim": True}, "dim=True: input should be a valid integer"),
        ({"n_layers": 0}, "n_layers=0"),
        ({"n_layers": "5"}, "n_layers='5'"),
        ({"n_kv_heads": 3}, "no multiple"),
        ({"n_future_tokens": 9}, "more than n_layers"),
        ({"norm_eps": float("nan")}, "norm_eps=nan"),
        ({"rope_theta": -1}, "rope_theta=-1"),
        ({"use_scaled_rope": True}, "not part of"),
    ],
)
def test_settings_that_make_no_model_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as found:
        config_of({**PARAMS, **change}, "params.json")
    assert str(found.value).startswith("params.json: ")
    assert "\n" not in str(found.value)
