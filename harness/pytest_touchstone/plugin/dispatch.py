"""Passes requests to the engine and the sandbox, and hands every answer on as soon as it is there.

Requests to the model wait until they can be asked all at once. Programs go to the sandbox the moment they are asked
for, and run while the model computes. The receiver of an answer may ask again: the model in the next batch. When the
model has nothing more to do, the programs still running are waited for.

Some requests may be asked for later: they fill rows that are free, and nobody waits for them. An engine that keeps its
texts at work is left when all others are answered, or when many have asked again, and asked for all of it at once.

Questions of several benchmarks about one row, such as those of ``mmlu`` and ``mmlu_stem``, are asked once
(``SharedRows``).
"""

from __future__ import annotations

import functools
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import pytest

from pytest_touchstone.core.errors import ServerError
from pytest_touchstone.core.requests import (
    Answer,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
    Request,
    RunProgram,
    RunProgramAnswer,
)
from pytest_touchstone.engines.base import Done, Engine
from pytest_touchstone.plugin.collection import checkpoint_of, given_items, result_of

STOPPING: Final = (KeyboardInterrupt, SystemExit, pytest.exit.Exception, ServerError)
CAUGHT: Final = (Exception, pytest.skip.Exception, pytest.fail.Exception)
"""pytest's outcomes are BaseExceptions; these three concern a single item."""

Answered: TypeAlias = Answer | Refusal | BaseException
"""An answer, or the error raised instead."""

ProgramFuture: TypeAlias = Future[RunProgramAnswer] | Future[RunProgramAnswer | Refusal]

Owner = TypeVar("Owner")

AGAIN: Final = 8
"""An engine that keeps its texts is asked anew when one request waits for every so many that are under way."""


class _EnoughError(Exception):
    """Raised for the engine to leave the texts that are at work."""


class ProgramRunner(Protocol):
    """Runs programs: the sandbox."""

    def submit(self, request: RunProgram) -> ProgramFuture:
        """Begin at once, in other threads or processes, and return a future that will hold the answer.

        The same future may be returned for equal requests.
        """


class _Open(NamedTuple, Generic[Owner]):
    """A request without an answer: who asked it, its number among the owner's, the request, and the seconds that it
    has taken."""

    owner: Owner
    number: int
    request: Request
    spent: float = 0.0


class RequestDispatcher(Generic[Owner]):
    """The requests that have no answer yet, each with an ``Owner``, whoever asked it."""

    def __init__(
        self,
        engine: Engine,
        sandbox: ProgramRunner | None,
        take: Callable[[Owner, int, Answered, float], None],
    ) -> None:
        """``take`` is called with the owner of a request, its number, its answer and the seconds it took.

        It is always called in the thread that called ``run``.
        """
        self._engine, self._sandbox, self._take = engine, sandbox, take
        self._waiting: list[_Open[Owner]] = []
        self._later: list[_Open[Owner]] = []
        self._under_way: Sequence[_Open[Owner]] = ()
        self._programs = 0
        self._futures: list[ProgramFuture] = []
        self._ended: SimpleQueue[tuple[_Open[Owner], ProgramFuture]] = SimpleQueue()

    def ask(self, owner: Owner, requests: Sequence[Request]) -> None:
        """Begin what can begin at once; ``run`` brings the answers. Programs need a sandbox."""
        for number, request in enumerate(requests):
            one = _Open(owner, number, request)
            if isinstance(request, RunProgram):
                self._submit(one, request)
            else:
                self._waiting.append(one)

    def ask_later(self, owner: Owner, requests: Sequence[Request]) -> None:
        """Let the model answer requests where others leave room, if it can be left; ``run`` does not wait for them."""
        if self._engine.continues:
            self._later += [_Open(owner, number, request) for number, request in enumerate(requests)]

    def run(self) -> None:
        """Return when everything has been answered, including what is asked in the meantime, but not for later.

        Lets through what ``take`` raises, and exceptions meant to stop everything.
        """
        while self._waiting or self._programs:
            if self._waiting:
                asked, self._waiting = self._waiting, []
                later, self._later = self._later, []
                self._ask_model(asked, SharedClock(len(asked)), later)
            self._collect(wait=not self._waiting)

    def owner(self, number: int) -> Owner | None:
        """Return the owner of a request that the model is asked now; called by another thread."""
        asked = self._under_way
        return asked[number].owner if number < len(asked) else None

    def close(self) -> None:
        """Withdraw programs that have not begun to run."""
        for future in self._futures:
            future.cancel()

    def _ask_model(
        self, now: Sequence[_Open[Owner]], clock: SharedClock, later: Sequence[_Open[Owner]] = ()
    ) -> None:
        """Hand on one answer per request; those for later that have none yet are asked the next time.

        If the engine breaks, the requests without an answer are asked in halves, so that in the end only those at
        fault fail. Time counts for those that are waited for.
        """
        asked = [*now, *later]
        left = dict(enumerate(asked))
        due = len(now)
        self._under_way = asked
        raised: list[BaseException] = []

        def done(number: int, answer: Answered) -> None:
            nonlocal due
            if (one := left.pop(number, None)) is None:
                return
            waited_for = number < len(now)
            due -= waited_for
            try:
                seconds = one.spent + (clock.end(0.0) if waited_for else 0.0)
                self._take(one.owner, one.number, _sound(answer), seconds)
                self._collect(wait=False)
                if left and self._leaves(due):
                    raise _EnoughError
            except BaseException as error:  # not the engine's exception: it must get out unchanged
                raised.append(error)
                raise
            finally:
                clock.go_on()

        answers: Sequence[Answered] = []
        failure: Exception | None = None
        try:
            answers = self._answers([one.request for one in asked], len(now), done)
            if len(answers) != len(asked):
                raise RuntimeError(f"the engine gave {len(answers)} answers to {len(asked)} requests")
        except STOPPING:
            raise
        except Exception as error:
            failure = error.with_traceback(None)  # otherwise it would hold the memory of its batch
        if raised and isinstance(raised[0], _EnoughError):
            spent = clock.each
            again = [
                one._replace(spent=one.spent + spent) for number, one in left.items() if number < len(now)
            ]
            self._waiting = [*again, *self._waiting]
            self._later = [*(one for number, one in left.items() if number >= len(now)), *self._later]
            return
        if raised:
            raise raised[0]
        if failure is None or len(asked) == 1:
            for number in list(left):
                done(number, answers[number] if failure is None else failure)
            return
        rest = list(left.values())
        half = len(rest) // 2
        for part in (rest[:half], rest[half:]):
            if part:
                self._ask_model(part, clock)

    def _answers(self, requests: Sequence[Request], now: int, done: Done) -> Sequence[Answered]:
        if now < len(requests):
            return self._engine.answer_first(now, requests, done)
        return self._engine.answer(requests, done)

    def _leaves(self, due: int) -> bool:
        """Return whether to leave an engine that has so many requests to answer for which somebody waits."""
        if not self._engine.continues:
            return False
        return not due or AGAIN * len(self._waiting) > due

    def _submit(self, one: _Open[Owner], request: RunProgram) -> None:
        assert self._sandbox is not None, "programs need a sandbox"
        try:
            future = self._sandbox.submit(request)
        except Exception as error:  # of this program alone, like an exception that its future holds
            future = Future()
            future.set_exception(error)
        self._programs += 1
        self._futures.append(future)
        future.add_done_callback(lambda ended: self._ended.put((one, ended)))  # called in any thread

    def _collect(self, *, wait: bool) -> None:
        """Hand on the answers of the programs that have ended, or, with ``wait``, of all."""
        while self._programs:
            try:
                one, future = self._ended.get(block=wait)
            except Empty:
                return
            self._take_ended(one, future)

    def _take_ended(self, one: _Open[Owner], future: ProgramFuture) -> None:
        self._programs -= 1
        answer = _outcome(future)
        self._take(one.owner, one.number, answer, getattr(answer, "seconds", 0.0))


class SharedDispatcher(RequestDispatcher[Owner]):
    """The same beside others, with an engine that others ask too: it waits for nothing itself.

    ``collect`` asks what waits; the answers come whenever somebody waits for such an engine.
    """

    def __init__(
        self,
        engine: Engine,
        sandbox: ProgramRunner | None,
        take: Callable[[Owner, int, Answered, float], None],
        clock: SharedClock,
    ) -> None:
        """``take`` is called as ``RequestDispatcher`` calls it, in the thread that waits or looks."""
        super().__init__(engine, sandbox, take)
        self._clock = clock
        self._open = 0

    @property
    def asks(self) -> bool:
        """Return whether the model is asked something that it has not answered."""
        return self._open > 0

    def collect(self, *, seconds: float = 0.0) -> None:
        """Hand on the answers of programs that have ended, then ask what waits; wait so long for one at most."""
        if seconds and self._programs:
            with suppress(Empty):
                self._take_ended(*self._ended.get(timeout=seconds))
        self._collect(wait=False)
        while self._waiting:
            asked, self._waiting = self._waiting, []
            self._open += len(asked)
            done = functools.partial(self._answered, asked, self._clock.begin(len(asked)))
            self._engine.ask([one.request for one in asked], done)

    def _answered(self, asked: Sequence[_Open[Owner]], begun: float, number: int, answer: Answered) -> None:
        one = asked[number]
        self._open -= 1
        self._take(one.owner, one.number, _sound(answer), self._clock.end(begun))


class SharedClock:
    """Splits the time of all who ask: every moment is divided equally among the requests that are open.

    ``each`` has the seconds so far of a request that is open since the beginning.
    """

    def __init__(self, count: int = 0) -> None:
        """``count`` requests are open at once."""
        self._open, self.each, self._last = count, 0.0, time.perf_counter()

    def begin(self, count: int) -> float:
        """Take note of requests; return what ``end`` needs to know of each."""
        self._tick()
        self._open += count
        return self.each

    def end(self, begun: float) -> float:
        """Take note of an answer; return the seconds that it has taken."""
        self._tick()
        self._open -= 1
        return self.each - begun

    def go_on(self) -> None:
        """Let the clock run again: what has passed since anybody asked or answered was for something else."""
        self._last = time.perf_counter()

    def _tick(self) -> None:
        now = time.perf_counter()
        self.each += (now - self._last) / max(1, self._open)
        self._last = now


def _outcome(future: ProgramFuture) -> Answered:
    """Return what a future that has ended holds; raise exceptions meant to stop everything."""
    try:
        return future.result()
    except STOPPING:
        raise
    except CAUGHT as error:
        return error


def _sound(answer: Answered) -> Answered:
    """Return the answer, or a refusal in place of one that holds a NaN: it must not become a score."""
    numbers = [getattr(answer, "logprob", None), *(one.logprob for one in getattr(answer, "candidates", ()))]
    if any(number is not None and math.isnan(number) for number in numbers):
        return Refusal(
            "the checkpoint answered with NaN; its weights are broken, or overflow: try --eval-dtype float32"
        )
    return answer


Later: TypeAlias = Callable[[Answer | Refusal], None]


class SharedRows:
    """The rows of a run that belong to several results of a checkpoint, and the answers about them so far.

    Log-probabilities of a continuation alone are remembered, for as long as the process lives; xdist's other workers do
    not know of them.
    """

    def __init__(self, items: Iterable[pytest.Item]) -> None:
        results: dict[tuple[str, str], str] = {}
        self._shared: set[tuple[str, str]] = set()
        for item, given in given_items(items):
            if Loglikelihood not in given.loaded.spec.asks:
                continue
            row, result = (checkpoint_of(item).name, given.example.sha256), result_of(item, given)
            if results.setdefault(row, result) != result:
                self._shared.add(row)
        self._answers: dict[str, Remembered] = {}

    def engine(self, engine: Engine, checkpoint: str, items: Iterable[pytest.Item]) -> Engine:
        """Return the engine for these items of a checkpoint: one that remembers answers where a row is shared."""
        own = ((checkpoint, given.example.sha256) for _, given in given_items(items if self._shared else ()))
        if not any(row in self._shared for row in own):
            return engine
        return Remembering(engine, self._answers.setdefault(checkpoint, Remembered()))


@dataclass(frozen=True, slots=True)
class Remembered:
    """The answers about a checkpoint's shared rows, and who waits for those that are under way."""

    answers: dict[bytes, LoglikelihoodAnswer] = field(default_factory=dict)
    pending: dict[bytes, list[Later]] = field(default_factory=dict)


class Remembering(Engine):
    """An engine that is asked only what has no answer yet. It continues no texts, even where the other one does."""

    def __init__(self, engine: Engine, remembered: Remembered) -> None:
        self.info = engine.info
        self._engine, self._answers, self._pending = engine, remembered.answers, remembered.pending

    @property
    def usage(self) -> dict[str, Any]:
        """The cost of answering so far."""
        return self._engine.usage

    def close(self) -> None:
        """Free the checkpoint's memory."""
        self._engine.close()

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

    def _known(self, requests: Sequence[Request]) -> dict[int, LoglikelihoodAnswer]:
        keys = ((number, _key(one)) for number, one in enumerate(requests) if isinstance(one, Loglikelihood))
        return {number: self._answers[key] for number, key in keys if key in self._answers}

    def _remember(self, request: Request, answer: Answer | Refusal) -> None:
        if not isinstance(request, Loglikelihood) or not isinstance(answer, LoglikelihoodAnswer):
            return
        if not math.isnan(answer.logprob):
            self._answers[_key(request)] = answer

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
