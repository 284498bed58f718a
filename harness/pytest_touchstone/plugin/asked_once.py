"""Questions of several benchmarks about one row, such as those of ``mmlu`` and ``mmlu_stem``: the model is asked once.

Log-probabilities of a continuation alone are remembered, for as long as the process lives; xdist's other workers do
not know of them.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import pytest

from pytest_touchstone.core.requests import Answer, Loglikelihood, LoglikelihoodAnswer, Refusal, Request
from pytest_touchstone.engines.base import Done, Engine
from pytest_touchstone.plugin.collection import checkpoint_of, given_items, result_of

Later: TypeAlias = Callable[[Answer | Refusal], None]


class SharedRows:
    """The rows of a run that belong to several results of a checkpoint, and the answers about them so far."""

    def __init__(self, items: Iterable[pytest.Item]) -> None:
        results: dict[tuple[str, str], str] = {}
        self._shared: set[tuple[str, str]] = set()
        for item, given in given_items(items):
            if Loglikelihood not in given.loaded.spec.asks:
                continue
            row, result = (checkpoint_of(item).name, given.example.sha256), result_of(item, given)
            if results.setdefault(row, result) != result:
                self._shared.add(row)
        self._answers: dict[str, dict[bytes, LoglikelihoodAnswer]] = {}
        self._pending: dict[str, dict[bytes, list[Later]]] = {}

    def engine(self, engine: Engine, checkpoint: str, items: Iterable[pytest.Item]) -> Engine:
        """Return the engine for these items of a checkpoint: one that remembers answers where a row is shared."""
        if not self._has(checkpoint, items):
            return engine
        return Remembering(engine, self._answers.setdefault(checkpoint, {}))

    def beside(self, engine: Engine, checkpoint: str, items: Iterable[pytest.Item]) -> Engine:
        """Return the same for an engine that is asked beside others."""
        if not self._has(checkpoint, items):
            return engine
        pending = self._pending.setdefault(checkpoint, {})
        return RememberingBeside(engine, self._answers.setdefault(checkpoint, {}), pending)

    def _has(self, checkpoint: str, items: Iterable[pytest.Item]) -> bool:
        if not self._shared:
            return False
        return any((checkpoint, given.example.sha256) in self._shared for _, given in given_items(items))


class Remembering(Engine):
    """An engine that is asked only what has no answer yet."""

    def __init__(self, engine: Engine, answers: dict[bytes, LoglikelihoodAnswer]) -> None:
        self.info = engine.info
        self._engine, self._answers = engine, answers

    @property
    def usage(self) -> dict[str, Any]:
        """The cost of answering so far."""
        return self._engine.usage

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request, in the order asked; known ones are passed to ``done`` first."""
        known = self._known(requests)
        for number, answer in known.items():
            if done is not None:
                done(number, answer)
        rest = [number for number in range(len(requests)) if number not in known]
        found: dict[int, Answer | Refusal] = {**known}

        def take(place: int, answer: Answer | Refusal) -> None:
            found[rest[place]] = answer
            self._remember(requests[rest[place]], answer)
            if done is not None:
                done(rest[place], answer)

        if rest:
            asked = self._engine.answer([requests[number] for number in rest], take)
            for number, said in zip(rest, asked, strict=True):
                found[number] = said
                self._remember(requests[number], said)
        return [found[number] for number in range(len(requests))]

    def prepare(self, requests: Sequence[Request]) -> None:
        """Prepare for what has no answer yet."""
        known = self._known(requests)
        self._engine.prepare([one for number, one in enumerate(requests) if number not in known])

    def close(self) -> None:
        """Free the checkpoint's memory."""
        self._engine.close()

    def _known(self, requests: Sequence[Request]) -> dict[int, LoglikelihoodAnswer]:
        keys = ((number, _key(one)) for number, one in enumerate(requests) if isinstance(one, Loglikelihood))
        return {number: self._answers[key] for number, key in keys if key in self._answers}

    def _remember(self, request: Request, answer: Answer | Refusal) -> None:
        if not isinstance(request, Loglikelihood) or not isinstance(answer, LoglikelihoodAnswer):
            return
        if not math.isnan(answer.logprob):
            self._answers[_key(request)] = answer


class RememberingBeside(Remembering):
    """The same for an engine that is asked beside others: what is under way is not asked again either."""

    def __init__(
        self,
        engine: Engine,
        answers: dict[bytes, LoglikelihoodAnswer],
        pending: dict[bytes, list[Later]],
    ) -> None:
        super().__init__(engine, answers)
        self._pending = pending

    def ask(self, requests: Sequence[Request], done: Done) -> None:
        """Take requests; ``done`` is called with each answer, at once with those that are known."""
        known = self._known(requests)
        rest: list[int] = []
        for number, one in enumerate(requests):
            key = _key(one) if isinstance(one, Loglikelihood) and number not in known else None
            if key is not None and key in self._pending:
                self._pending[key].append(functools.partial(done, number))
            elif number not in known:
                rest.append(number)
                if key is not None:
                    self._pending[key] = []

        def take(place: int, answer: Answer | Refusal) -> None:
            request = requests[rest[place]]
            self._remember(request, answer)
            done(rest[place], answer)
            if isinstance(request, Loglikelihood):
                for later in self._pending.pop(_key(request), ()):
                    later(answer)

        if rest:
            self._engine.ask([requests[number] for number in rest], take)
        for number, answer in known.items():
            done(number, answer)


def _key(request: Loglikelihood) -> bytes:
    text = f"{len(request.context)} {request.context}{request.continuation}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
