"""``HttpEngine``: answers requests by asking a server."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.requests import Answer, Refusal, Request
from pytest_touchstone.engines.base import Done, EngineProgress
from pytest_touchstone.engines.http.calls import Failure, Reply
from pytest_touchstone.engines.http.canary import canaries, drift
from pytest_touchstone.engines.http.costs import money
from pytest_touchstone.engines.http.planning import Planned, Planner
from pytest_touchstone.engines.http.transport import Transport
from pytest_touchstone.engines.settings import ModelSettings

_LOG: Final = logging.getLogger(__name__)


class HttpEngine:
    """Answers ``Loglikelihood``, ``RollingLoglikelihood`` and ``Generate``, as far as its server does.

    Before the first answer, and when it is told that no more is asked, it asks known questions (``canary``).
    """

    def __init__(
        self, info: CheckpointInfo, transport: Transport, planner: Planner, settings: ModelSettings
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

    def prepare(self, requests: Sequence[Request]) -> None:
        """Do nothing: the server computes, and there is time for everything else meanwhile."""

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def _ask(self, planned: Planned, done: Done | None = None) -> list[Answer | Refusal]:
        found: dict[int, Answer | Refusal] = {}

        def take(number: int, answer: Answer | Refusal) -> None:
            found[number] = answer
            if done is not None:
                done(number, answer)

        def ended(number: int, end: Reply[Any] | Failure) -> None:
            if isinstance(end, Reply) and end.fingerprint is not None:
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
