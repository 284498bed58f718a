"""Advances the generators of a batch together.

Their requests are submitted to the engine, and each generator is sent its answers as soon as it has all of them, and
asks again.

Each item is journalled when its generator ends, not when its batch ends or pytest reports it: that is what makes
``-x``, Ctrl-C and crashes cheap. A mistake in one item ends that item alone.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, Final, Protocol

import pytest

from pytest_touchstone.core.aggregation import is_soft
from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.dataset import Example
from pytest_touchstone.core.errors import BenchmarkError, RequestError, WireError
from pytest_touchstone.core.eval_config import AS_THE_RUN, BenchmarkOptions
from pytest_touchstone.core.grade import NO_ANSWER, PASSED, grade_details, scores_of
from pytest_touchstone.core.reasoning import seems_to_have_trace
from pytest_touchstone.core.requests import (
    NOT_OF_CHECKPOINTS,
    REQUEST_KINDS,
    Generate,
    GenerateAnswer,
    Judge,
    JudgeAnswer,
    LoglikelihoodAnswer,
    Refusal,
    Request,
    RunProgram,
    RunProgramAnswer,
    plain_scores,
    plain_text,
    to_plain,
)
from pytest_touchstone.core.text import repeats_itself
from pytest_touchstone.engines.answers.engine import AnsweredRequest
from pytest_touchstone.engines.answers.files import AnswerRow
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.metrics.samples import SampleGrade
from pytest_touchstone.metrics.soft import soft_of
from pytest_touchstone.plugin.dispatch import (
    CAUGHT,
    STOPPING,
    Answered,
    LlmJudge,
    ProgramRunner,
    RequestDispatcher,
)
from pytest_touchstone.plugin.item_errors import assertion_message, hint, sentence
from pytest_touchstone.results.journal import shorten_request
from pytest_touchstone.results.records import Record, Status


@dataclass(slots=True, eq=False)
class TimeLimit:
    """A limit in seconds; ``until`` is its end, None until the first question."""

    seconds: float
    until: float | None = None

    def begin(self) -> None:
        """Start the clock; calling it again does nothing."""
        if self.until is None:
            self.until = time.monotonic() + self.seconds

    def past(self) -> bool:
        """Return whether the time is over."""
        return self.until is not None and time.monotonic() >= self.until


MOST_YIELDS: Final = 1000
"""A generator that yields this many times is taken to be endless."""

TEXT_FIELDS: Final[Mapping[type[Any], tuple[str, ...]]] = {
    kind: tuple(field.name for field in fields(kind) if field.type == "str") for kind in REQUEST_KINDS
}
"""The fields of each kind of request that are texts; annotations are kept as they are written."""

LOOK_EVERY: Final = 0.05
"""Seconds from one look at what has come to the next, where nothing tells that something has."""

SYNC_EVERY: Final = 1.0
"""The least number of seconds between two syncs: on a busy disk a sync takes longer than a batch of trivial items."""


@dataclass(frozen=True, slots=True)
class ItemJob:
    """An item to run: its node id, benchmark, example, checkpoint, and the function that starts its generator.

    ``asking`` are the options that change its requests, ``time`` is the time limit of its benchmark, ``answers`` are
    the rows of the checkpoint that answer it, if that is a file of answers.
    """

    item: str
    spec: Benchmark
    example: Example
    checkpoint: str
    start: Callable[[], Any]
    asking: BenchmarkOptions = AS_THE_RUN
    time: TimeLimit | None = None
    answers: tuple[AnswerRow, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """The end of an item: its record, and the exception that it raised, if any."""

    record: Record
    raised: BaseException | None = None


@dataclass(slots=True, eq=False)
class _RunningItem:
    """An item that has been started.

    ``answers`` has the answers to its present requests so far, by number; the first of its former requests has
    ``length`` characters. ``counts`` are fields of its record.
    """

    job: ItemJob
    generator: Generator[Any, Any, Any] | None = None
    yields: int = 0
    requests: list[Request] = field(default_factory=list)
    answers: dict[int, Answered] = field(default_factory=dict)
    single: bool = False
    exchanges: list[dict[str, Any]] = field(default_factory=list)
    length: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    programs: Counter[str] = field(default_factory=Counter)
    weak_tests: dict[str, list[str]] = field(default_factory=dict)
    missing_modules: Counter[str] = field(default_factory=Counter)
    failure: BaseException | None = None
    outcome: ItemOutcome | None = None

    @property
    def asked(self) -> list[Any]:
        """Its present requests as the engine gets them; the journal has them as its generator yields them."""
        requests, rows = [self.job.asking.request(request) for request in self.requests], self.job.answers
        return [
            AnsweredRequest(request, rows)
            if rows and not isinstance(request, NOT_OF_CHECKPOINTS)
            else request
            for request in requests
        ]


class Recorder(Protocol):
    """The receiver of records: the journal."""

    def append(self, record: Record) -> None:
        """Write a record."""

    def sync(self, *, every: float = 0.0) -> None:
        """Flush the journal; called after each item or batch."""


class RunningBatch:
    """A batch whose generators have been started and have asked their first questions.

    Nothing is answered or journalled until it begins. ``open`` is the number of its items that have not ended.
    Lets ``KeyboardInterrupt``, ``SystemExit`` and ``pytest.exit`` through, with all generators closed.
    """

    def __init__(
        self,
        jobs: Sequence[ItemJob],
        engine: Engine,
        journal: Recorder,
        sandbox: ProgramRunner | None = None,
        *,
        judge: LlmJudge | None = None,
        reopen: Callable[[], Engine] | None = None,
    ) -> None:
        """Run items, and write their outcomes to the journal.

        ``reopen`` opens the engine anew after the judge has closed it, by default the same engine.
        """
        self.running = [_RunningItem(job) for job in jobs]
        self.open = len(self.running)
        self._engine, self._journal, self._sandbox = engine, journal, sandbox
        self._judge, self._reopen = judge, reopen or (lambda: engine)
        needs: dict[type[Request], tuple[object, str]] = {
            RunProgram: (sandbox, "sandbox to run programs in"),
            Judge: (judge, "judge: give --eval-judge"),
        }
        self._lacks = {kind: name for kind, (tool, name) in needs.items() if tool is None}
        self._shared: dict[bytes, LoglikelihoodAnswer] | None = None
        self._asking = RequestDispatcher(engine, sandbox, self._take)
        try:
            for state in self.running:
                self._start(state)
        except BaseException:
            self.close()
            raise

    def run(
        self,
        engine: Engine,
        shared: dict[bytes, LoglikelihoodAnswer] | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> dict[str, ItemOutcome]:
        """Run the jobs; return every job's outcome by item, all of them in the journal.

        ``shared`` has answers about rows of several benchmarks; ``meanwhile`` is called once everything is asked. Lets
        ``KeyboardInterrupt``, ``SystemExit`` and ``pytest.exit`` through, with all generators closed. Raises
        ``ServerError`` where the engine answers no more.
        """
        limits = {state.job.time for state in self.running if state.job.time is not None}
        self._shared = None if limits else shared
        try:
            for limit in limits:
                limit.begin()
            for state in self.running:
                if state.failure is not None:
                    fail(state, state.failure, self._journal)
                elif _has_timed_out(state):
                    _record_timeout(state, self._journal)
            self._ask_all(engine, self.running)
            meanwhile()
            while self.open:
                self._asking.collect()
                if self._asking.open:
                    if self._judge is not None and self._judge.closed(self._engine):
                        unfinished = [state for state in self.running if state.outcome is None]
                        self._ask_all(self._reopen(), unfinished)
                    self._engine.collect()
                elif not self._asking.judge(self._judge) and self.open:
                    self._asking.collect(seconds=LOOK_EVERY)
        finally:
            self.close()
        return self.outcomes

    def _ask_all(self, engine: Engine, states: Iterable[_RunningItem]) -> None:
        """Ask an engine what there is to ask, anew where another was asked before."""
        self._asking.close()
        self._engine = engine
        self._asking = RequestDispatcher(engine, self._sandbox, self._take, self._shared)
        for state in states:
            state.answers = {}
            self._ask(state)

    def close(self) -> None:
        """Close the generators that have not ended; what they raise then no longer matters."""
        self._asking.close()
        for state in self.running:
            if state.generator is not None:
                with suppress(*CAUGHT):
                    state.generator.close()
        self._journal.sync(every=SYNC_EVERY)

    @property
    def items(self) -> set[str]:
        """The items in the batch."""
        return {state.job.item for state in self.running}

    @property
    def requests(self) -> list[Request]:
        """The requests that its generators send the model first."""
        return [
            request
            for state in self.running
            for request in state.asked
            if not isinstance(request, NOT_OF_CHECKPOINTS)
        ]

    @property
    def outcomes(self) -> dict[str, ItemOutcome]:
        """The outcomes so far, by item; each is in the journal."""
        return {state.job.item: state.outcome for state in self.running if state.outcome is not None}

    def _ask(self, state: _RunningItem) -> None:
        if state.outcome is not None:
            self.open -= 1
            self._journal.sync(every=SYNC_EVERY)
        else:
            self._asking.ask(state, state.asked)

    def _take(self, state: _RunningItem, number: int, answer: Answered, seconds: float) -> None:
        state.seconds += seconds
        if state.outcome is not None:
            return  # it has ended by its time limit
        state.answers[number] = (
            state.job.asking.answer(answer) if isinstance(answer, GenerateAnswer) else answer
        )
        if _has_timed_out(state):
            # The engine leaves what items have asked whose benchmark is past its time limit.
            late = [other for other in self.running if other.outcome is None and _has_timed_out(other)]
            self._asking.withdraw(late)
            for other in late:
                _record_timeout(other, self._journal)
            self.open -= len(late)
        elif len(state.answers) == len(state.requests):
            self._advance(state)
            self._ask(state)

    def _start(self, state: _RunningItem) -> None:
        """Run a generator up to its first question; an error is kept until the batch runs."""

        def first() -> object:
            generator = state.job.start()
            if not inspect.isgenerator(generator):
                raise BenchmarkError(
                    f"{_who(state.job)} never yields; a benchmark yields requests and returns scores"
                )
            state.generator = generator
            return next(generator)

        state.failure = self._resume(state, first)
        if isinstance(state.failure, StopIteration):
            state.failure = BenchmarkError(
                f"{_who(state.job)} returned before it yielded a request; a score must come from the checkpoint"
            )

    def _advance(self, state: _RunningItem) -> None:
        """Send a generator the answers to all its requests, which takes it to its next requests or its end."""
        assert state.generator is not None
        answers = [state.answers[number] for number in range(len(state.requests))]
        state.answers = {}
        _journal_exchanges(state, answers)
        trouble = next((answer for answer in answers if isinstance(answer, (Refusal, BaseException))), None)
        if trouble is not None:
            reason = trouble.reason if isinstance(trouble, Refusal) else sentence(trouble)
            error = RequestError(f"{_who(state.job)}: {reason}")
            end = self._resume(state, functools.partial(state.generator.throw, error))
        else:
            answer = answers[0] if state.single else answers
            end = self._resume(state, functools.partial(state.generator.send, answer))
        if isinstance(end, StopIteration):
            _finish(state, end.value, self._journal)
        elif end is not None:
            fail(state, end, self._journal)

    def _resume(self, state: _RunningItem, run: Callable[[], object]) -> BaseException | None:
        """Run a generator to its next requests and store these.

        Returns the exception that it raises, or ``StopIteration`` at its end.
        """
        began = time.perf_counter()
        try:
            _advance_to_request(state, run(), self._engine, self._lacks)
        except STOPPING:
            raise
        except CAUGHT as error:
            return error
        finally:
            state.seconds += time.perf_counter() - began
        return None


def _has_timed_out(state: _RunningItem) -> bool:
    return state.job.time is not None and state.job.time.past()


def _record_timeout(state: _RunningItem, journal: Recorder) -> None:
    """Journal an item whose benchmark is past its time limit."""
    assert state.job.time is not None
    error = RequestError(
        f"benchmark {state.job.spec.name} is past its timeout of {state.job.time.seconds:g} s (--eval-config); "
        "it has no answer"
    )
    _record_outcome(state, journal, "timeout", raised=error, message=str(error))


def _advance_to_request(
    state: _RunningItem, yielded: object, engine: Engine, lacks: Mapping[type[Request], str]
) -> None:
    """Store the requests of a generator.

    Raises ``BenchmarkError`` if one is not a request that it may yield, or is of a kind for which the run ``lacks``
    something.
    """
    state.single = isinstance(yielded, REQUEST_KINDS)
    asked = [yielded] if state.single else yielded
    who = _who(state.job)
    state.yields += 1
    if state.yields > MOST_YIELDS:
        raise BenchmarkError(f"{who} yielded {MOST_YIELDS} times without returning scores")
    if not isinstance(asked, (list, tuple)) or not asked:
        raise BenchmarkError(
            f"{who} yielded {_shown(yielded)}; yield a request or a list of requests, at least one"
        )
    for request in asked:
        if not isinstance(request, REQUEST_KINDS):
            raise BenchmarkError(
                f"{who} yielded a list with {_shown(request)} in it; only requests can be answered"
            )
        if type(request) not in state.job.spec.asks:
            named = ", ".join(kind.__name__ for kind in state.job.spec.asks)
            raise BenchmarkError(
                f"{who} yielded a {type(request).__name__} but declares asks={named}; add it there"
            )
        _check_plain(request, who)
        if not isinstance(request, (*engine.info.serves, *NOT_OF_CHECKPOINTS)):
            raise BenchmarkError(
                f"{who} yielded a {type(request).__name__}, which a {engine.info.kind} checkpoint cannot answer"
            )
        if (lack := lacks.get(type(request))) is not None:
            raise BenchmarkError(f"{who} yielded a {type(request).__name__}, but there is no {lack}")
        if isinstance(request, Judge) and request.question not in state.job.spec.judge:
            raise BenchmarkError(
                f"{who} asks the judge another question than it declares; add it to judge=(...)"
            )
    state.requests = list(asked)


def _check_plain(request: Request, who: str) -> None:
    """Raise ``BenchmarkError`` unless a request holds only texts where texts belong, and no mutable values."""
    kind: Any = type(request)
    for name in TEXT_FIELDS[kind]:
        if not isinstance(value := getattr(request, name), str):
            raise BenchmarkError(
                f"{who} yielded a {kind.__name__} whose {name} is {_shown(value)}; give text"
            )
    try:
        hash(request)
    except TypeError as error:
        raise BenchmarkError(
            f"{who} yielded a {type(request).__name__} with a part of {error}; use text, numbers and tuples"
        ) from None


def _journal_exchanges(state: _RunningItem, answers: Sequence[Answered]) -> None:
    if not state.exchanges:
        first = state.requests[0]
        state.length = len(getattr(first, TEXT_FIELDS[type(first)][0]))
    for request, answer in zip(state.requests, answers, strict=True):
        state.counts["truncated"] += bool(getattr(answer, "truncated", 0))
        state.counts["joins"] += getattr(answer, "spans_join", False) or getattr(answer, "after_bos", False)
        if isinstance(request, Generate) and isinstance(answer, GenerateAnswer):
            state.counts.update(_counts_of(answer))
        elif isinstance(answer, JudgeAnswer):
            state.counts.update(
                judged=1, no_verdict=answer.verdict is None, verdicts_at_limit=answer.at_limit
            )
        elif isinstance(answer, RunProgramAnswer):
            state.programs[answer.outcome] += 1
            state.counts["unsandboxed"] += answer.unsandboxed
            state.missing_modules.update(filter(None, [answer.missing_module]))
            if answer.weak_tests and isinstance(request, RunProgram):
                state.weak_tests[plain_text(request.task)] = list(answer.weak_tests)
        stored_answer = {"error": sentence(answer)} if isinstance(answer, BaseException) else to_plain(answer)
        state.exchanges.append(
            {
                "kind": type(request).__name__,
                "request": shorten_request(to_plain(request)),
                "answer": stored_answer,
            }
        )
    state.requests = []


def _counts_of(answer: GenerateAnswer) -> dict[str, int]:
    """Return what a record counts of generated texts."""
    samples = answer.samples
    cut = [sample for sample in samples if sample.finish_reason == "length"]
    empty = [sample for sample in samples if not sample.text.strip()]
    unanswered = [
        sample for sample in empty if sample.finish_reason == "length" or sample.reasoning is not None
    ]
    return {
        "outputs": len(samples),
        "at_limit": len(cut),
        "repeating": sum(repeats_itself(sample.text) for sample in cut),
        "empty": len(empty),
        "chat": len(samples) * answer.chat,
        "unanswered": len(unanswered),
        "trace_only": sum(sample.finish_reason != "length" for sample in unanswered),
        "reasoned": sum(sample.reasoning is not None for sample in samples),
        "reasoning_tokens": sum(sample.reasoning_tokens for sample in samples),
        "traces_seen": sum(seems_to_have_trace(sample.text) for sample in samples),
    }


def _finish(state: _RunningItem, returned: object, journal: Recorder) -> None:
    try:
        scores = plain_scores(scores_of(returned, state.job.spec.primary_score), _who(state.job))
        state.counts["no_answer"] = int(scores.pop(NO_ANSWER, 0))
        if (primary := state.job.spec.primary_score) not in scores:
            remedy = "return it too, or give another primary"
            raise WireError(
                f"{_who(state.job)} returned {', '.join(scores)} but not its primary score {primary!r}; "
                f"{'give primary=..., one of these' if primary == PASSED else remedy}"
            )
        metrics = state.job.spec.metrics
        metric_names = (*metrics, *(returned.added if isinstance(returned, SampleGrade) else ()))
        unknown = [name for name in scores if name not in metric_names and not is_soft(name)]
        if metrics and unknown:
            raise WireError(
                f"{_who(state.job)} returned {unknown[0]!r}, which is not among its metrics: {', '.join(metrics)}"
            )
    except WireError as error:
        fail(state, error, journal)
        return
    facts: dict[str, Any] = {"length": state.length}
    with suppress(Exception):  # a grade of others may raise anything; what it tells changes no score
        facts |= grade_details(returned)
    failure, message = None, None
    if isinstance(returned, SampleGrade) and (failure := returned.failure) is not None:
        message = f"{returned.failed} of {returned.samples} samples: {assertion_message(failure)}"
    soft = soft_of(returned, state.job.spec)
    scores |= {name: value for name, value in soft.items() if name not in scores}
    _record_outcome(state, journal, "scored", failure, scores=scores, facts=facts, message=message)


def fail(state: _RunningItem, error: BaseException, journal: Recorder) -> None:
    """Journal an item that ends with an error, a skip or a failed assertion."""
    status: Status = "error"
    # An assertion about an answer is the item's score, where there is no other primary score.
    is_about_answer = state.job.spec.primary_score == PASSED and bool(state.exchanges)
    if isinstance(error, pytest.skip.Exception):
        status = "skipped"
    elif isinstance(error, pytest.xfail.Exception):
        status = "xfailed"
    elif isinstance(error, (AssertionError, pytest.fail.Exception)) and is_about_answer:
        facts = {"length": state.length}
        _record_outcome(
            state,
            journal,
            "scored",
            error,
            scores={PASSED: 0.0},
            facts=facts,
            message=assertion_message(error),
        )
        return
    if helps := hint(error, state.job.example.row):
        error.add_note(helps)
    message = "; ".join(filter(None, (sentence(error), plain_text(helps))))
    _record_outcome(state, journal, status, raised=error, message=message)


def _record_outcome(
    state: _RunningItem,
    journal: Recorder,
    status: Status,
    raised: BaseException | None = None,
    **outcome: Any,
) -> None:
    """Journal the end of an item; ``outcome`` is its scores, or the message."""
    counts: dict[str, Any] = {**state.counts}
    record = Record(
        **identity(state.job.item, state.job.spec, state.job.example, state.job.checkpoint),
        status=status,
        **outcome,
        seconds=round(state.seconds, 6),
        **counts,
        programs=dict(state.programs),
        weak_tests=dict(state.weak_tests),
        missing_modules=dict(state.missing_modules),
        exchanges=state.exchanges if state.job.asking.samples else [],
    )
    journal.append(record)
    state.outcome = ItemOutcome(record, raised)
    state.exchanges = []


def identity(item: str, spec: Benchmark, example: Example, checkpoint: str) -> dict[str, Any]:
    """Return the fields of a record that say which item it is about."""
    return {
        "item": item,
        "benchmark": spec.name,
        "example": example.id,
        "checkpoint": checkpoint,
        "group": example.group,
        "cluster": cluster_of(spec, example),
        "row": example.sha256,
    }


def cluster_of(spec: Benchmark, example: Example) -> str | None:
    """Return the cluster of rows to which an example belongs; None without one."""
    cluster = example.row.get(spec.row_rules.cluster) if spec.row_rules.cluster else None
    return None if cluster is None else plain_text(str(cluster))


def _who(job: ItemJob) -> str:
    return f"benchmark {job.spec.name} ({job.example.id})"


def _shown(value: object) -> str:
    plain = isinstance(value, (str, int, float, type(None), list, tuple))
    return repr(value)[:60] if plain else f"a {type(value).__name__}"
