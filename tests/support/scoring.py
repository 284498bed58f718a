"""Requests that are scored, and how far apart two ways of scoring them are."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_touchstone.core.requests import Loglikelihood, LoglikelihoodAnswer, Request
from pytest_touchstone.engines.transformers.causal import CausalEngine
from tests.support.families import SHOTS
from tests.support.tiny import CORPUS

SCORED: list[Request] = [
    Loglikelihood(shots + question, choice)
    for shots in ("", SHOTS)
    for question in ("Which is it?", "She said that", CORPUS[4][:20])
    for choice in (" the river", " a boat", " 42", " the lazy dog jumps")
]


def logprobs(engine: CausalEngine, requests: Sequence[Request]) -> dict[Request, float]:
    """The log-probabilities of requests, by request."""
    answers = engine.answer(requests)
    return {
        request: answer.logprob
        for request, answer in zip(requests, answers, strict=True)
        if isinstance(answer, LoglikelihoodAnswer)
    }


def error(found: dict[Request, float], exact: dict[Request, float]) -> float:
    """The root mean square of the differences."""
    return float((sum((found[one] - exact[one]) ** 2 for one in exact) / len(exact)) ** 0.5)
