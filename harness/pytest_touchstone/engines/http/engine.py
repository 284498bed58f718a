"""``HttpEngine``: answers requests by asking a server.

Known questions are asked at the beginning and at the end: a server may have another model by then. Where it gives
log-probabilities, those of known texts are compared; they differ by rounding alone, which is far less than between two
models. Else short greedy texts are compared, some of which rounding may change.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo
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
from pytest_touchstone.engines.base import Done, Engine, EngineProgress
from pytest_touchstone.engines.http.calls import CallReply, Failure
from pytest_touchstone.engines.http.planning import PlannedCalls, Planner, money
from pytest_touchstone.engines.http.transport import HttpTransport
from pytest_touchstone.engines.settings import ModelSettings

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


_LOG: Final = logging.getLogger(__name__)


class HttpEngine(Engine):
    """Answers ``Loglikelihood``, ``RollingLoglikelihood`` and ``Generate``, as far as its server does.

    Before the first answer, and when it is told that no more is asked, it asks known questions (``canary``).
    """

    def __init__(
        self, info: CheckpointInfo, transport: HttpTransport, planner: Planner, settings: ModelSettings
    ) -> None:
        self.info = info
        self._transport, self._planner, self._price = transport, planner, settings.price
        self._canaries = canaries(info.serves)
        self._before: list[Answer | Refusal] | None = None
        self._drift: str | None = None
        self._unchecked = False
        self._since = 0
        self._fingerprints: Counter[str] = Counter()
        self._scored = self._to_score = 0

    @property
    def usage(self) -> dict[str, Any]:
        """The cost of answering so far: requests, tokens as the server counts them, money; and what speaks against the
        answers."""
        now = self._transport.stats
        counts: dict[str, Any] = {
            "requests": now.requests,
            "retries": now.retries,
            "prompt_tokens": now.prompt_tokens,
            "completion_tokens": now.completion_tokens,
            "troubles": dict(now.troubles),
            "notes": self._notes(),
        }
        cost = money(now.prompt_tokens, now.completion_tokens, self._price)
        return (
            counts
            | ({} if cost is None else {"cost": cost})
            | ({"drift": self._drift} if self._drift else {})
        )

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request, in the order asked; each is passed to ``done`` when it is there.

        Raises ``ServerError`` where the server is gone.
        """
        if self._before is None:
            self._before = self._ask(self._planner.plan(self._canaries))
        self._since += len(requests)
        planned = self._planner.plan(requests)
        self._scored, self._to_score = 0, planned.to_score
        return self._ask(planned, done)

    def check(self) -> None:
        """Ask the known questions again, unless nothing was asked since; ``usage`` says what was found."""
        if self._before is None or not self._since:
            return
        self._since, self._unchecked = 0, True
        after = self._ask(self._planner.plan(self._canaries))
        self._drift = self._drift or drift(self._before, after)
        self._unchecked = all(isinstance(one, Refusal) for one in after)

    def progress(self) -> EngineProgress:
        """Return the work so far, as the server counts it."""
        now = self._transport.stats
        share = self._scored / self._to_score if self._to_score else 0.0
        return EngineProgress(
            tokens=now.prompt_tokens,
            steps=now.completion_tokens,
            generated=now.completion_tokens,
            scored=self._scored,
            to_score=self._to_score,
            share=min(1.0, share),
            trouble=self._transport.trouble,
        )

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def _ask(self, planned: PlannedCalls, done: Done | None = None) -> list[Answer | Refusal]:
        found: dict[int, Answer | Refusal] = {}

        def take(number: int, answer: Answer | Refusal) -> None:
            found[number] = answer
            if done is not None:
                done(number, answer)

        def ended(number: int, end: CallReply[Any] | Failure) -> None:
            if isinstance(end, CallReply) and end.fingerprint is not None:
                self._fingerprints[end.fingerprint] += 1
            self._scored += planned.scores_of(number)
            for request, answer in planned.take(number, end):
                take(request, answer)

        for number, answer in planned.ready():
            take(number, answer)
        self._transport.run(planned.calls, ended)
        return [found[number] for number in range(len(found))]

    def _notes(self) -> list[str]:
        notes = [f"{self.info.name}: {note}" for note in self.info.served["notes"]]
        if len(self._fingerprints) > 1:
            notes.append(
                f"{self.info.name}: the server answered with {len(self._fingerprints)} different system_fingerprints: "
                "its replies are not all of one system"
            )
        if self._unchecked:
            notes.append(
                f"{self.info.name}: the server gave no answer to the known questions at the end, so nobody knows "
                "whether it was still the same"
            )
        return notes
