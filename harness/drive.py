"""Advances the generators of a unit together: collect what they ask, answer it in one call, send the answers
back, repeat.

Each item is journalled when its generator ends, not when pytest reports it: that is what makes ``-x``, Ctrl-C
and crashes cheap. What one item does wrong ends that item alone.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pytest

from harness.benchmark import NO_ANSWER, Benchmark
from harness.data import Example
from harness.engines import Engine
from harness.errors import BenchmarkError, RequestError, WireError
from harness.records import GENERATED, Record, Status
from harness.requests import REQUEST_KINDS, Answer, GenerateAnswer, Refusal, Request
from harness.wire import plain_scores, plain_text, to_plain

MOST_ROUNDS: Final = 1000
"""A generator that yields this often is taken to be endless."""

SYNC_EVERY: Final = 1.0
"""Seconds: on a busy disk a sync takes longer than a unit of trivial items."""

LONGEST_KEPT: Final = 1000
"""Characters of a request's text that the journal keeps; of longer ones the end, and the hash of the whole.
"""

KEPT_WHOLE: Final = ("program",)
"""Fields of a request that the journal keeps whole, however long."""

STOPPING = (KeyboardInterrupt, SystemExit, pytest.exit.Exception)
CAUGHT = (Exception, pytest.skip.Exception, pytest.fail.Exception)
"""pytest's outcomes are BaseExceptions; both are an item's own affair."""


@dataclass(frozen=True, slots=True)
class Job:
    """One item to be run: its node id, its benchmark and example, the checkpoint's name, and how to start its
    generator.
    """

    item: str
    spec: Benchmark
    example: Example
    checkpoint: str
    start: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an item ended: its record, and what it raised, if it did."""

    record: Record
    raised: BaseException | None = None


@dataclass(slots=True)
class _Running:
    """A job on its way."""

    job: Job
    generator: Generator[Any, Any, Any] | None = None
    requests: list[Request] = field(default_factory=list)
    single: bool = False
    exchanges: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    truncated: int = 0
    generated: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(GENERATED, 0))
    failure: BaseException | None = None
    outcome: Outcome | None = None


class StartedUnit:
    """A unit whose generators have been started, as far as their first question; nothing is answered or
    journalled yet.

    Lets ``KeyboardInterrupt``, ``SystemExit`` and ``pytest.exit`` through, with all generators closed.
    """

    def __init__(self, jobs: Sequence[Job], engine: Engine) -> None:
        self.running = [_Running(job) for job in jobs]
        try:
            for state in self.running:
                _start(state, engine)
        except BaseException:
            self.close()
            raise

    @property
    def items(self) -> set[str]:
        """The items that it holds."""
        return {state.job.item for state in self.running}

    @property
    def requests(self) -> list[Request]:
        """What its generators ask first."""
        return [request for state in self.running for request in state.requests]

    def close(self) -> None:
        """Closes the generators that have not ended."""
        for state in self.running:
            _close(state)


class Recorder(Protocol):
    """Where records go: the journal."""

    def append(self, record: Record) -> None:
        """Writes a record."""

    def sync(self, *, every: float = 0.0) -> None:
        """Called when a unit is done."""


def run_unit(unit: StartedUnit, engine: Engine, journal: Recorder) -> dict[str, Outcome]:
    """The outcome of every job by item; each is in the journal when this returns.

    Lets ``KeyboardInterrupt``, ``SystemExit`` and ``pytest.exit`` through, with all generators closed.
    """
    running = unit.running
    try:
        for state in running:
            if state.failure is not None:
                _fail(state, state.failure, journal)
        for _ in range(MOST_ROUNDS):
            waiting = [state for state in running if state.outcome is None]
            if not waiting:
                break
            _round(waiting, engine, journal)
        for state in running:
            if state.outcome is None:
                _fail(
                    state,
                    BenchmarkError(f"{_who(state.job)} yielded {MOST_ROUNDS} times without returning scores"),
                    journal,
                )
    finally:
        unit.close()
        journal.sync(every=SYNC_EVERY)
    return {state.job.item: state.outcome for state in running if state.outcome is not None}


def _start(state: _Running, engine: Engine) -> None:
    """Takes a generator to its first question; what goes wrong is kept until the unit runs."""
    began = time.perf_counter()
    try:
        generator = state.job.start()
        if not inspect.isgenerator(generator):
            raise BenchmarkError(
                f"{_who(state.job)} never yields; a benchmark yields requests and returns scores"
            )
        state.generator = generator
        _take(state, next(generator), engine)
    except StopIteration:
        state.failure = BenchmarkError(
            f"{_who(state.job)} returned before it yielded a request; a score must come from the checkpoint"
        )
    except STOPPING:
        raise
    except CAUGHT as error:
        state.failure = error
    finally:
        state.seconds += time.perf_counter() - began


def _round(waiting: Sequence[_Running], engine: Engine, journal: Recorder) -> None:
    """Answers what the waiting generators have asked and advances each to its next question or its end."""
    requests = [request for state in waiting for request in state.requests]
    began = time.perf_counter()
    answers = _ask(engine, requests)
    share = (time.perf_counter() - began) / len(requests)
    position = 0
    for state in waiting:
        mine = answers[position : position + len(state.requests)]
        position += len(state.requests)
        state.seconds += share * len(mine)
        _advance(state, mine, engine, journal)


def _advance(
    state: _Running, answers: Sequence[Answer | Refusal | BaseException], engine: Engine, journal: Recorder
) -> None:
    began = time.perf_counter()
    assert state.generator is not None
    _remember(state, answers)
    try:
        trouble = next((answer for answer in answers if isinstance(answer, (Refusal, BaseException))), None)
        if trouble is not None:
            reason = trouble.reason if isinstance(trouble, Refusal) else _sentence(trouble)
            yielded = state.generator.throw(RequestError(f"{_who(state.job)}: {reason}"))
        else:
            yielded = state.generator.send(answers[0] if state.single else list(answers))
        _take(state, yielded, engine)
    except StopIteration as end:
        state.seconds += time.perf_counter() - began
        _finish(state, end.value, journal)
    except STOPPING:
        raise
    except CAUGHT as error:
        state.seconds += time.perf_counter() - began
        _fail(state, error, journal)
    else:
        state.seconds += time.perf_counter() - began


def _ask(engine: Engine, requests: Sequence[Request]) -> list[Answer | Refusal | BaseException]:
    """One answer a request. Where the engine breaks, requests are asked one by one, and only the guilty ones
    fail.
    """
    try:
        answers = engine.answer(requests)
        if len(answers) != len(requests):
            raise RuntimeError(f"the engine gave {len(answers)} answers to {len(requests)} requests")
    except STOPPING:
        raise
    except Exception as error:
        if len(requests) == 1:
            return [error]
        half = len(requests) // 2
        return _ask(engine, requests[:half]) + _ask(engine, requests[half:])
    return [_sound(answer) for answer in answers]


def _sound(answer: Answer | Refusal) -> Answer | Refusal:
    """The answer, or a refusal in place of one that holds a NaN: no score may come of it."""
    numbers = [getattr(answer, "logprob", None), *(one.logprob for one in getattr(answer, "candidates", ()))]
    if any(number is not None and math.isnan(number) for number in numbers):
        return Refusal(
            "the checkpoint answered with NaN; its weights are broken, or overflow: try --eval-dtype float32"
        )
    return answer


def _take(state: _Running, yielded: object, engine: Engine) -> None:
    """Notes what a generator asks; raises ``BenchmarkError`` when it is no request that it may ask."""
    state.single = isinstance(yielded, REQUEST_KINDS)
    asked = [yielded] if state.single else yielded
    who = _who(state.job)
    if not isinstance(asked, (list, tuple)) or not asked:
        raise BenchmarkError(
            f"{who} yielded {_shown(yielded)}; yield a request or a list of requests, at least one"
        )
    for request in asked:
        if not isinstance(request, REQUEST_KINDS):
            raise BenchmarkError(
                f"{who} yielded a list with {_shown(request)} in it; only requests can be answered"
            )
        _check_plain(request, who)
        if type(request) not in state.job.spec.asks:
            named = ", ".join(kind.__name__ for kind in state.job.spec.asks)
            raise BenchmarkError(
                f"{who} yielded a {type(request).__name__} but declares asks={named}; add it there"
            )
        if type(request) not in engine.info.serves:
            raise BenchmarkError(
                f"{who} yielded a {type(request).__name__}, which a {engine.info.kind} checkpoint cannot answer"
            )
    state.requests = list(asked)


def _check_plain(request: Request, who: str) -> None:
    """Raises ``BenchmarkError`` for a request that holds a list or the like: it could change on its way."""
    try:
        hash(request)
    except TypeError as error:
        raise BenchmarkError(
            f"{who} yielded a {type(request).__name__} with a part of {error}; use text, numbers and tuples"
        ) from None


def _remember(state: _Running, answers: Sequence[Answer | Refusal | BaseException]) -> None:
    for request, answer in zip(state.requests, answers, strict=True):
        state.truncated += bool(getattr(answer, "truncated", 0))
        if isinstance(answer, GenerateAnswer):
            _count_outputs(state.generated, answer)
        said = {"error": _sentence(answer)} if isinstance(answer, BaseException) else to_plain(answer)
        state.exchanges.append(
            {"kind": type(request).__name__, "request": kept(to_plain(request)), "answer": said}
        )


def _count_outputs(counts: dict[str, Any], answer: GenerateAnswer) -> None:
    counts["outputs"] += len(answer.samples)
    counts["at_limit"] += sum(sample.finish_reason == "length" for sample in answer.samples)
    counts["empty"] += sum(not sample.text.strip() for sample in answer.samples)
    counts["chat"] += len(answer.samples) * answer.chat


def _finish(state: _Running, returned: object, journal: Recorder) -> None:
    try:
        scores = plain_scores(returned, _who(state.job))
        state.generated["no_answer"] = int(scores.pop(NO_ANSWER, 0))
        if state.job.spec.primary not in scores:
            named = ", ".join(scores)
            raise WireError(
                f"{_who(state.job)} returned {named} but not its primary score {state.job.spec.primary!r}"
            )
    except WireError as error:
        _fail(state, error, journal)
    else:
        _settle(state, journal, "scored", scores=scores)


def _fail(state: _Running, error: BaseException, journal: Recorder) -> None:
    status: Status = "skipped" if isinstance(error, pytest.skip.Exception) else "error"
    _settle(state, journal, status, raised=error, message=_sentence(error))


def _settle(
    state: _Running,
    journal: Recorder,
    status: Status,
    *,
    scores: Mapping[str, float] | None = None,
    raised: BaseException | None = None,
    message: str | None = None,
) -> None:
    record = Record(
        **identity(state.job.item, state.job.spec, state.job.example, state.job.checkpoint),
        status=status,
        scores=dict(scores or {}),
        message=message,
        seconds=round(state.seconds, 6),
        truncated=state.truncated,
        **state.generated,
        exchanges=state.exchanges,
    )
    journal.append(record)
    state.outcome = Outcome(record, raised)
    state.exchanges = []


def identity(item: str, spec: Benchmark, example: Example, checkpoint: str) -> dict[str, Any]:
    """The fields of a record that say which item it is about."""
    cluster = example.row.get(spec.cluster) if spec.cluster else None
    return {
        "item": item,
        "benchmark": spec.name,
        "example": example.id,
        "checkpoint": checkpoint,
        "group": example.group,
        "cluster": None if cluster is None else plain_text(str(cluster)),
        "row": example.sha256,
    }


def _close(state: _Running) -> None:
    """Lets an unfinished generator clean up after itself; what it raises while it does is of no interest any
    more.
    """
    if state.generator is None:
        return
    try:
        state.generator.close()
    except CAUGHT:
        return


def kept(request: dict[str, Any]) -> dict[str, Any]:
    """A request as the journal keeps it: of a long text its end, of a long list its last part, and the hash
    of the whole. A program is kept whole: it is what the checkpoint has written, cut."""
    found: dict[str, Any] = {}
    for name, value in request.items():
        if isinstance(value, dict):
            found[name] = kept(value)
            continue
        whole = value if isinstance(value, str) else json.dumps(value) if isinstance(value, list) else ""
        if len(whole) > LONGEST_KEPT and name not in KEPT_WHOLE:
            found[name] = "…" + value[-LONGEST_KEPT:] if isinstance(value, str) else _last(value)
            found[f"{name}_sha256"] = hashlib.sha256(whole.encode()).hexdigest()
        else:
            found[name] = value
    return found


def _last(parts: list[Any]) -> list[Any]:
    """The last part of a long list; not where it is long itself, as a pair of input and output may be."""
    if isinstance(parts[-1], list) and len(json.dumps(parts[-1])) > LONGEST_KEPT:
        return []
    return parts[-1:]


def _who(job: Job) -> str:
    return f"benchmark {job.spec.name} ({job.example.id})"


def _sentence(error: BaseException) -> str:
    text = plain_text(str(error)).strip()
    if isinstance(error, (BenchmarkError, pytest.skip.Exception, pytest.fail.Exception)) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _shown(value: object) -> str:
    return (
        f"a {type(value).__name__}"
        if not isinstance(value, (str, int, float, type(None), list, tuple))
        else repr(value)[:60]
    )
