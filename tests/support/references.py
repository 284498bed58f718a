"""Answers computed in the plainest way, to hold the engines' against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pytest_touchstone.core.requests import Loglikelihood, LoglikelihoodAnswer
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer, TokenPair

Array = Any


def plain_answer(folder: Path, request: Loglikelihood, seq_len: int = 128) -> LoglikelihoodAnswer:
    """One plain forward pass of transformers over one request."""
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    pair = TextTokenizer(tokenizer).pair(request.context, request.continuation)
    assert isinstance(pair, TokenPair)
    whole = [*pair.context, *pair.continuation]
    with torch.no_grad():
        logprobs = model(torch.tensor([whole[-(seq_len + 1) : -1]])).logits[0].float().log_softmax(-1)
    rows = logprobs[-len(pair.continuation) :]
    wanted = torch.tensor(pair.continuation)
    greedy = bool((rows.argmax(-1) == wanted).all())
    total = float(rows[torch.arange(len(wanted)), wanted].double().sum())
    return LoglikelihoodAnswer(total, greedy, len(wanted), max(0, len(whole) - seq_len - 1), pair.spans_join)


def independent_logits(state: dict[str, Any], params: dict[str, Any], ids: list[int]) -> list[Array]:
    """Logits [length, vocabulary] of each head of a multi-token-prediction model: one text, one head of attention and
    one position at a time."""
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
