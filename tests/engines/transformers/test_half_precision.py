"""What is guaranteed in half precision: the same calls give the same bytes, other batches only other rounding."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.core.requests import Generate, GenerateAnswer, Loglikelihood, LoglikelihoodAnswer, Request
from harness.engines.settings import Dtype
from harness.engines.transformers.agreement import FACTOR
from harness.engines.transformers.causal import CausalEngine
from harness.engines.transformers.in_float32 import in_float32
from tests.support.engines import engine_for
from tests.support.families import SHOTS
from tests.support.tiny import CORPUS

HALF: tuple[Dtype, ...] = ("bfloat16", "float16")

SCORED: list[Request] = [
    Loglikelihood(shots + question, choice)
    for shots in ("", SHOTS)
    for question in ("Which is it?", "She said that", CORPUS[4][:20])
    for choice in (" the river", " a boat", " 42", " the lazy dog jumps")
]

ASKED: list[Request] = [
    Generate(shots + text[:size], max_new_tokens=12)
    for shots in ("", SHOTS)
    for text, size in zip(CORPUS, (5, 17, 40, 9, 20), strict=False)
]


def logprobs(engine: CausalEngine, requests: Sequence[Request]) -> dict[Request, float]:
    answers = engine.answer(requests)
    return {
        request: answer.logprob
        for request, answer in zip(requests, answers, strict=True)
        if isinstance(answer, LoglikelihoodAnswer)
    }


def texts(engine: CausalEngine, requests: Sequence[Request]) -> list[str]:
    return [one.samples[0].text for one in engine.answer(requests) if isinstance(one, GenerateAnswer)]


def error(found: dict[Request, float], exact: dict[Request, float]) -> float:
    """The root mean square of the differences."""
    return float((sum((found[one] - exact[one]) ** 2 for one in exact) / len(exact)) ** 0.5)


@pytest.mark.parametrize("dtype", HALF)
def test_the_same_calls_give_the_same_bytes(dtype: Dtype, llama: Path) -> None:
    first, second = engine_for(llama, dtype=dtype), engine_for(llama, dtype=dtype)
    assert first.answer(SCORED) == second.answer(SCORED)
    assert first.answer(ASKED) == second.answer(ASKED)
    assert len(set(texts(first, ASKED))) > 1


@pytest.mark.parametrize("dtype", HALF)
def test_the_order_of_requests_within_a_call_changes_no_score(dtype: Dtype, llama: Path) -> None:
    mixed = random.Random(3).sample(SCORED, len(SCORED))
    assert logprobs(engine_for(llama, dtype=dtype), mixed) == logprobs(engine_for(llama, dtype=dtype), SCORED)


@pytest.mark.parametrize("dtype", HALF)
def test_other_batches_differ_by_rounding_only(dtype: Dtype, llama: Path) -> None:
    """No way of batching is further from float32 arithmetic than twice the error of sequences by themselves."""
    alone = engine_for(llama, dtype=dtype, together=False, batch=1)
    usual = logprobs(alone, SCORED)
    with in_float32():
        exact = logprobs(alone, SCORED)
    ways = {batch: logprobs(engine_for(llama, dtype=dtype, batch=batch), SCORED) for batch in (1, 2, 5, None)}
    one_by_one = engine_for(llama, dtype=dtype)
    ways[0] = {request: logprobs(one_by_one, [request])[request] for request in reversed(SCORED)}
    assert error(usual, exact) > 0
    assert any(found != usual for found in ways.values())
    for batch, found in ways.items():
        assert error(found, exact) <= FACTOR * error(usual, exact), batch
