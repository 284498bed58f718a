"""Known questions, asked at the beginning and at the end: a server may have another model by then.

Where it gives log-probabilities, those of known texts are compared; they differ by rounding alone, which is far less
than between two models. Else short greedy texts are compared, some of which rounding may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pytest_touchstone.core.requests import (
    Answer,
    Generate,
    GenerateAnswer,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
    Request,
    Turn,
)

MOST_PER_TOKEN: Final = 0.05
"""Nats by which the mean log-probability of a text's tokens may differ."""

_TEXTS: Final = (
    ("The capital of France", " is Paris, and the capital of Italy is Rome."),
    ("서울은", " 대한민국의 수도이며 가장 큰 도시이다."),
)

_PROMPTS: Final = ("The capital of France is", "2 + 2 =", "def add(a, b):", "Once upon a time")

_NEW: Final = 8

_SCORES: Final[tuple[Request, ...]] = tuple(Loglikelihood(*text) for text in _TEXTS)

_GREEDY: Final[tuple[Request, ...]] = tuple(
    Generate(prompt, max_new_tokens=_NEW, turns=(Turn("user", prompt),)) for prompt in _PROMPTS
)


def canaries(serves: Sequence[type[Request]]) -> tuple[Request, ...]:
    """Return the questions for a server that answers these kinds of request."""
    return _SCORES if Loglikelihood in serves else _GREEDY


def drift(before: Sequence[Answer | Refusal], after: Sequence[Answer | Refusal]) -> str | None:
    """Return in words how the answers at the end differ from those at the beginning; None where they agree.

    A question without an answer says nothing.
    """
    both = [
        two for two in zip(before, after, strict=True) if not any(isinstance(one, Refusal) for one in two)
    ]
    for one, other in both:
        if isinstance(one, LoglikelihoodAnswer) and isinstance(other, LoglikelihoodAnswer):
            nats = abs(one.logprob - other.logprob)
            if one.tokens != other.tokens or nats > MOST_PER_TOKEN * one.tokens:
                return (
                    "the server answers otherwise than at the beginning: a known text had the log-probability "
                    f"{one.logprob:.2f} then and {other.logprob:.2f} at the end"
                )
    texts = [
        (one.text, other.text)
        for one, other in both
        if isinstance(one, GenerateAnswer) and isinstance(other, GenerateAnswer)
    ]
    apart = [two for two in texts if two[0] != two[1]]
    if len(apart) > len(texts) / 2:
        return (
            f"the server answers otherwise than at the beginning: {len(apart)} of {len(texts)} known prompts, asked "
            "greedily, have other texts at the end"
        )
    return None
