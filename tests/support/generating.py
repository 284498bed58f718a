"""Requests for generated texts, and what an engine makes of them."""

from __future__ import annotations

from pytest_touchstone.core.requests import Generate, GenerateAnswer
from pytest_touchstone.engines.transformers.causal import CausalEngine
from tests.support.families import SHOTS
from tests.support.tiny import CORPUS


def prompts() -> list[Generate]:
    """With few-shot examples and without, of many lengths, one the prefix of another, one twice."""
    asked = [
        Generate(f"{SHOTS}\n\n{text[: 10 + 7 * number]}", max_new_tokens=4 + 3 * number)
        for number, text in enumerate(CORPUS)
    ]
    asked += [Generate(text[: 3 + 9 * number], max_new_tokens=10) for number, text in enumerate(CORPUS)]
    return [*asked, Generate(SHOTS[:40], max_new_tokens=9), asked[0]]


def few() -> list[Generate]:
    """Fewer of them, of all these kinds, and two with samples: for what is tried with every family."""
    asked = prompts()
    return [*asked[::3], asked[0], *with_samples()[1:5:2]]


def with_samples() -> list[Generate]:
    """Some of them with one sample to four, drawn."""
    return [
        Generate(
            one.prompt, max_new_tokens=12, temperature=1.3, top_p=0.95, samples=1 + number % 4, seed=number
        )
        for number, one in enumerate(prompts()[:11])
    ]


def texts(engine: CausalEngine, requests: list[Generate]) -> list[list[tuple[str, str, int]]]:
    """The text, finish reason and number of tokens of each sample of each request."""
    found: list[list[tuple[str, str, int]]] = []
    for answer in engine.answer(requests):
        assert isinstance(answer, GenerateAnswer)
        found.append([(one.text, one.finish_reason, one.tokens) for one in answer.samples])
    return found
