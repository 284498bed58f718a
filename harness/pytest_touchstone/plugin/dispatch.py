"""Pass requests to the engine and the sandbox, and hand on every answer as soon as it arrives.

Requests to the model are submitted to its engine. Programs go to the sandbox the moment they are asked for, and run
while the model computes. The receiver of an answer may ask again.

Questions of several benchmarks about one row, such as those of ``mmlu`` and ``mmlu_stem``, are asked once
(``execution.shared_rows``).
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import pytest

from pytest_touchstone.core.errors import ServerError
from pytest_touchstone.core.requests import (
    Answer,
    Judge,
    JudgeAnswer,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
    Request,
    RunProgram,
    RunProgramAnswer,
)
from pytest_touchstone.engines.base import Engine

STOPPING: Final = (KeyboardInterrupt, SystemExit, pytest.exit.Exception, ServerError)
CAUGHT: Final = (Exception, pytest.skip.Exception, pytest.fail.Exception)
"""pytest's outcomes are BaseExceptions; these three concern a single item."""

Answered: TypeAlias = Answer | Refusal | BaseException
"""An answer, or the error raised instead."""

ProgramFuture: TypeAlias = Future[RunProgramAnswer] | Future[RunProgramAnswer | Refusal]
AnswerFuture: TypeAlias = ProgramFuture | Future[LoglikelihoodAnswer]

Owner = TypeVar("Owner")


class ProgramRunner(Protocol):
    """Runs programs: the sandbox."""

    def submit(self, request: RunProgram) -> ProgramFuture:
        """Begin at once, in other threads or processes, and return a future that will hold the answer.

        The same future may be returned for equal requests.
        """


class LlmJudge(Protocol):
    """Answers questions about texts: the judge of a run, which may need the memory of the checkpoint."""

    def answers(self, requests: Sequence[Judge], /) -> Sequence[JudgeAnswer | Refusal | Exception]:
        """Return one answer per request, in the order asked."""

    def closed(self, engine: Engine, /) -> bool:
        """Return whether an engine was closed for its sake, and is to be opened anew."""


@dataclass(slots=True, eq=False)
class _PendingRequests(Generic[Owner]):
    """What an owner has asked the model at once; called with the answers.

    ``requests`` are those that the engine has got, each with its number among the owner's. ``begun`` is what the
    dispatcher's clock said; ``open`` counts the requests without an answer. Answers that come once it is ``forgotten``
    are of no use.
    """

    dispatcher: RequestDispatcher[Owner]
    owner: Owner
    begun: float
    open: int
    requests: Sequence[tuple[int, Request]]
    forgotten: bool = False

    def __call__(self, index: int, answer: Answered) -> None:
        if not self.forgotten:
            self.dispatcher.answered(self, index, answer)


class RequestDispatcher(Generic[Owner]):
    """The requests without an answer, each with the ``Owner`` that asked it.

    The model's answers arrive when ``collect`` is called. Time is divided equally among the requests to the model that
    are open at that moment; ``open`` is their number.
    """

    def __init__(
        self,
        engine: Engine,
        sandbox: ProgramRunner | None,
        take: Callable[[Owner, int, Answered, float], None],
        shared: dict[bytes, LoglikelihoodAnswer] | None = None,
    ) -> None:
        """Set up a dispatcher.

        ``take`` is called with the owner of a request, its number, its answer and the seconds it took, in the thread
        that collects. ``shared`` has the answers about rows of several benchmarks.
        """
        self._engine, self._sandbox, self._take, self._shared = engine, sandbox, take, shared
        self._asked: dict[Owner, _PendingRequests[Owner]] = {}
        self.open = self._waiting = 0
        self._each, self._last = 0.0, time.perf_counter()
        self._futures: list[AnswerFuture] = []
        self._to_judge: deque[tuple[Owner, int, Judge]] = deque()
        self._ended: SimpleQueue[tuple[Owner, int, AnswerFuture]] = SimpleQueue()

    def ask(self, owner: Owner, requests: Sequence[Request]) -> None:
        """Ask what an owner needs next; programs need a sandbox."""
        model: list[tuple[int, Request]] = []
        for number, request in enumerate(requests):
            if isinstance(request, RunProgram):
                assert self._sandbox is not None, "programs need a sandbox"
                try:
                    self._wait_for(owner, number, self._sandbox.submit(request))
                except Exception as error:  # of this program alone, like an exception that its future holds
                    failed: Future[RunProgramAnswer] = Future()
                    failed.set_exception(error)
                    self._wait_for(owner, number, failed)
            elif isinstance(request, Judge):
                self._to_judge.append((owner, number, request))
            elif self._shared and (answer := self._shared.get(_key(request))) is not None:
                ready: Future[LoglikelihoodAnswer] = Future()
                ready.set_result(answer)
                self._wait_for(owner, number, ready)
            else:
                model.append((number, request))
        if model:
            self._tick()
            asked = self._asked[owner] = _PendingRequests(self, owner, self._each, len(model), model)
            self.open += len(model)
            self._engine.submit([request for _, request in model], asked)

    def answered(self, asked: _PendingRequests[Owner], index: int, answer: Answered) -> None:
        """Hand on an answer of the model, and what has ended meanwhile."""
        number, request = asked.requests[index]
        asked.open -= 1
        if not asked.open:
            self._asked.pop(asked.owner, None)
        self._tick()
        self.open -= 1
        answer = refuse_nan(answer)
        try:
            self._take(asked.owner, number, answer, self._each - asked.begun)
            shared = self._shared if isinstance(request, Loglikelihood) else None
            if shared is not None and isinstance(answer, LoglikelihoodAnswer):
                shared[_key(request)] = answer
            self.collect()
        finally:
            self._last = time.perf_counter()

    def collect(self, *, seconds: float = 0.0) -> None:
        """Hand on answers that are known, and those of finished programs, waiting at most ``seconds`` for one.

        Raises exceptions that are meant to stop everything.
        """
        with suppress(Empty):
            while self._waiting:
                owner, number, future = self._ended.get(block=seconds > 0, timeout=seconds or None)
                seconds = 0.0
                self._waiting -= 1
                answer: Answered
                try:
                    answer = future.result()
                except STOPPING:
                    raise
                except CAUGHT as error:
                    answer = error
                self._take(owner, number, answer, getattr(answer, "seconds", 0.0))

    def judge(self, judge: LlmJudge | None) -> bool:
        """Let the judge answer all that waits for it, and hand that on; return whether there was anything."""
        waiting = list(self._to_judge)
        if not waiting:
            return False
        self._to_judge.clear()
        assert judge is not None, "questions about texts need a judge"
        began = time.perf_counter()
        answers = judge.answers([request for _, _, request in waiting])
        each = (time.perf_counter() - began) / len(waiting)
        self._last = time.perf_counter()
        for (owner, number, _), answer in zip(waiting, answers, strict=True):
            self._take(owner, number, answer, each)
        return True

    def withdraw(self, owners: Iterable[Owner]) -> None:
        """Forget what these owners have asked the model and the judge."""
        owners = list(owners)
        self._to_judge = deque(question for question in self._to_judge if question[0] not in owners)
        gone = [asked for owner in owners if (asked := self._asked.pop(owner, None)) is not None]
        self._tick()
        for asked in gone:
            asked.forgotten = True
            self.open -= asked.open
        if gone:
            self._engine.withdraw(gone)

    def close(self) -> None:
        """Withdraw what has no answer, and programs that have not begun to run."""
        self.withdraw(list(self._asked))
        self._to_judge.clear()
        for future in self._futures:
            future.cancel()

    def _tick(self) -> None:
        now = time.perf_counter()
        self._each += (now - self._last) / max(1, self.open)
        self._last = now

    def _wait_for(self, owner: Owner, number: int, future: AnswerFuture) -> None:
        self._waiting += 1
        self._futures.append(future)
        future.add_done_callback(
            lambda ended: self._ended.put((owner, number, ended))
        )  # called in any thread


def refuse_nan(answer: Answered) -> Answered:
    """Return the answer, or a refusal if it contains a NaN, which must not become a score."""
    values = [getattr(answer, "logprob", None)]
    values += [candidate.logprob for candidate in getattr(answer, "candidates", ())]
    if not any(value is not None and math.isnan(value) for value in values):
        return answer
    return Refusal(
        "the checkpoint answered with NaN; its weights are broken, or overflow: try --eval-dtype float32"
    )


def _key(request: Request) -> bytes:
    """Return a hash that is the same for equal requests."""
    return hashlib.blake2b(repr(request).encode(), digest_size=16).digest()
