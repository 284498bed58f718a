"""Multi-token-prediction models against a forward pass written out once more, in NumPy and in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import CheckpointError
from harness.core.requests import Loglikelihood, LoglikelihoodAnswer, RollingAnswer, RollingLoglikelihood
from harness.engines.transformers.mtp.config import config_of
from harness.engines.transformers.tokenizer import TextTokenizer
from tests.support.generating import generates_together
from tests.support.tiny import CORPUS
from tests.support.tiny_mtp import PARAMS, info_of, mtp_engine, random_state, save_mtp

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


def reference(state: dict[str, Any], params: dict[str, Any], ids: list[int]) -> list[Array]:
    """Logits [length, vocabulary] of each head: mtp.md's forward pass, one text, one head of attention at a time."""
    weights = {name: tensor.double().numpy() for name, tensor in state.items()}
    heads, keys = params["n_heads"], params["n_kv_heads"]
    width = params["dim"] // heads
    length = len(ids)

    def norm(x: Array, weight: Array) -> Array:
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + params["norm_eps"]) * weight

    def turn(x: Array) -> Array:
        found = np.empty_like(x)
        for position in range(length):
            for pair in range(width // 2):
                angle = position * params["rope_theta"] ** (-2 * pair / width)
                number = (x[position, 2 * pair] + 1j * x[position, 2 * pair + 1]) * np.exp(1j * angle)
                found[position, 2 * pair], found[position, 2 * pair + 1] = number.real, number.imag
        return found

    def block(x: Array, name: str) -> Array:
        inside = norm(x, weights[f"{name}.attention_norm.weight"])
        parts = []
        for head in range(heads):
            own, shared = (
                slice(number * width, (number + 1) * width) for number in (head, head // (heads // keys))
            )
            query = turn(inside @ weights[f"{name}.attention.wq.weight"][own].T)
            key = turn(inside @ weights[f"{name}.attention.wk.weight"][shared].T)
            scores = query @ key.T / np.sqrt(width)
            scores[np.triu_indices(length, 1)] = -np.inf
            shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
            shares /= shares.sum(axis=-1, keepdims=True)
            parts.append(shares @ (inside @ weights[f"{name}.attention.wv.weight"][shared].T))
        x = x + np.concatenate(parts, axis=-1) @ weights[f"{name}.attention.wo.weight"].T
        inside = norm(x, weights[f"{name}.ffn_norm.weight"])
        gate = inside @ weights[f"{name}.feed_forward.w1.weight"].T
        inside = gate / (1 + np.exp(-gate)) * (inside @ weights[f"{name}.feed_forward.w3.weight"].T)
        return x + inside @ weights[f"{name}.feed_forward.w2.weight"].T

    trunk = weights["tok_embeddings.weight"][ids]
    last = params["n_layers"] - params["n_future_tokens"]
    for number in range(last):
        trunk = block(trunk, f"layers.{number}")
    names = [f"layers.{last}", *(f"extra_heads.{number}" for number in range(params["n_future_tokens"] - 1))]
    return [norm(block(trunk, name), weights["norm.weight"]) @ weights["output.weight"].T for name in names]


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
    wanted = reference(state, params, ids)
    assert len(wanted) == params["n_future_tokens"]
    with torch.no_grad():
        found = [model.head(number, torch.tensor([ids]))[0].numpy() for number in range(len(wanted))]
        answered = model(torch.tensor([ids])).logits[0].numpy()
    for mine, theirs in zip([answered, *found], [wanted[0], *wanted], strict=True):
        assert np.abs(mine - theirs).max() < 1e-4
    assert np.abs(wanted[0]).max() > 2.0  # a difference would show


def test_loglikelihoods_are_those_of_an_independent_forward_pass(tmp_path: Path) -> None:
    state = random_state(5)
    engine = mtp_engine(info_of(save_mtp(tmp_path, state)))
    assert engine.shares
    assert engine.gathers
    assert engine.notes == []
    shots = " ".join(CORPUS[:2])
    asked = [Loglikelihood(f"{shots} {text[:30]}", text[30:50]) for text in CORPUS[2:]]
    asked += [Loglikelihood(text[:9], text[9:40]) for text in CORPUS]
    for request, answer in zip(asked, engine.answer(asked), strict=True):
        pair = TextTokenizer(engine.loaded.tokenizer).pair(request.context, request.continuation)
        ids = [*pair.context, *pair.continuation]  # type: ignore[union-attr]
        table = logprobs(reference(state, PARAMS, ids[:-1])[0])
        places = range(len(pair.context) - 1, len(ids) - 1)  # type: ignore[union-attr]
        assert isinstance(answer, LoglikelihoodAnswer)
        assert answer.logprob == pytest.approx(sum(table[at, ids[at + 1]] for at in places), abs=1e-3)
        assert answer.is_greedy == all(table[at].argmax() == ids[at + 1] for at in places)
    (whole,) = engine.answer([RollingLoglikelihood(CORPUS[1])])
    ids = [
        TextTokenizer(engine.loaded.tokenizer).start,
        *TextTokenizer(engine.loaded.tokenizer).text(CORPUS[1]),
    ]  # type: ignore[misc]
    table = logprobs(reference(state, PARAMS, ids[:-1])[0])
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
    assert config_of(ours, "b").hidden == 11008


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
