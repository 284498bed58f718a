"""Runs benchmark items.

The first item of a batch that pytest calls advances the whole batch; the others find their outcomes ready. The next
batch of the checkpoint is started meanwhile, so that the engine can prepare its requests: only with items that need no
fixture but their checkpoint, as nobody can tell when these were run. How far the process is, it writes for the
progress line and for others (``results.run_directory``).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pytest_touchstone.core.errors import JournalError, RequestError, ServerError
from pytest_touchstone.core.requests import (
    Generate,
    Loglikelihood,
    LoglikelihoodAnswer,
    to_plain,
)
from pytest_touchstone.core.text import count
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.plugin.batches import Quarantine, batch_key, split_into_batches
from pytest_touchstone.plugin.dispatch import LlmJudge, ProgramRunner
from pytest_touchstone.plugin.driver import SYNC_EVERY, ItemOutcome, Job, RunningBatch
from pytest_touchstone.plugin.options import Settings
from pytest_touchstone.plugin.planned import PlannedItem, planned_of
from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.records import FAULTS, Record, Status
from pytest_touchstone.results.reuse import (
    REASKED,
    CrashHistory,
    DoubtfulTexts,
    InFlight,
    ItemKey,
    Reuse,
    find_doubtful_texts,
)
from pytest_touchstone.results.run_directory import ProcessProgress, RunDirectory, write_progress
from pytest_touchstone.results.usage import UsageMeter

if TYPE_CHECKING:
    from pytest_touchstone.checkpoints import CheckpointInfo
    from pytest_touchstone.engines.base import Engine
    from pytest_touchstone.plugin.gate import Sequential

MAIN: Final = "main"
"""The name of a process that is no worker of xdist."""

ASKED_AGAIN: Final = "a stop sequence or the limit of tokens may have ended its text within a reasoning"


class Execution:
    """The batches of this process and the outcomes that are yet to be reported.

    It is also the recorder of its batches: the journal, which counts the items that end.
    """

    def __init__(
        self,
        items: Sequence[PlannedItem],
        size: int,
        *,
        who: str,
        by_kind: bool,
        settings: Settings,
        directory: RunDirectory,
        engine: Callable[[CheckpointInfo], Engine],
        sandbox: ProgramRunner | None,
        judge: LlmJudge | None,
        sequential: Sequential | None,
        progress: ProgressWriter,
    ) -> None:
        """``who`` is the name of this process; a worker cannot know which batch it gets next. With ``by_kind`` batches
        of items that ask for texts are larger than ``size``, which xdist's controller could not know of. ``engine``
        loads a checkpoint; ``sequential`` knows which items are no longer needed."""
        self._items, self._directory = items, directory
        self._engine, self._sandbox, self._judge, self._sequential = engine, sandbox, judge, sequential
        self._journal = Journal(directory.path, who)
        self._progress = progress
        self._meter = UsageMeter(who, functools.partial(directory.write_usage, who))
        self._quarantine = Quarantine(directory.quarantine)
        self._reuse = None if settings.no_cache else Reuse(directory.path)
        # xdist's controller finds out by itself what kills a worker; what replicas compute kills them alone.
        self._in_flight = None if who != MAIN or settings.engine else InFlight(directory.path, who)
        self._kills = (
            CrashHistory(self._reuse) if self._reuse is not None and self._in_flight is not None else None
        )
        self._prepares = who == MAIN and sequential is None
        self._batches = [
            [items[index] for index in batch] for batch in split_into_batches(items, size, by_kind=by_kind)
        ]
        self._batch_of = {item: number for number, batch in enumerate(self._batches) for item in batch}
        self._shared = shared_rows(items)
        self._answers: dict[str, dict[bytes, LoglikelihoodAnswer]] = {}
        self._started: dict[str, RunningBatch] = {}
        self._unreported: dict[str, ItemOutcome] = {}
        self._settled: set[str] = set()
        self._asked: Engine | None = None
        self._doubtful: dict[str, DoubtfulTexts] = {}

    def call(self, item: PlannedItem) -> ItemOutcome:
        """Return the end of an item, computed now together with its batch, unless another item or an earlier run
        has done so."""
        if item.nodeid in self._unreported:
            return self._unreported.pop(item.nodeid)
        if (reused := self._reused(item)) is not None:
            return reused
        sequential = None if self._doubtful else self._sequential
        if sequential is not None and (reason := sequential.not_needed(item.nodeid)) is not None:
            pytest.skip(reason)
        if self._kills is not None and (why := self._kills.given_up(item.key)) is not None:
            raise RequestError(why)
        if not self._progress.planned:
            self._progress.plan([planned for planned in self._items if not self._known(planned)])
        if self._asked is not None and self._asked.info.name != item.info.name:
            self.check()
        self._run(item)
        return self._unreported.pop(item.nodeid)

    def _run(self, item: PlannedItem) -> None:
        """Run an item together with the others of its batch, whose outcomes are kept until pytest reports them."""
        with self._progress.doing(f"loading {item.info.name}"):
            engine = self._engine(item.info)
        if (batch := self._started.get(item.nodeid)) is None:
            batch = self._start([member.job(item) for member in self._members(item)], engine)
        name, jobs = item.info.name, [state.job for state in batch.running]
        self._asked = engine
        if name in self._doubtful:
            engine.expect_traces(opened=self._doubtful[name].opened)
        if self._in_flight is not None and not engine.info.served:
            # This process may be killed by what it computes.
            self._in_flight.begin(ItemKey(job.checkpoint, job.spec.name, job.example.id) for job in jobs)
        rows = {(name, job.example.sha256) for job in jobs}
        shared = self._answers.setdefault(name, {}) if rows & self._shared else None
        try:
            with self._progress.doing(jobs[0].spec.name, engine):
                batch.run(engine, shared, functools.partial(self._start_next, item, engine))
        finally:
            for nodeid in batch.items:
                del self._started[nodeid]
            if self._in_flight is not None:
                self._in_flight.end()
            # Texts are in the journal: of a batch's records the scores are needed alone.
            self._unreported |= {
                nodeid: replace(outcome, record=replace(outcome.record, exchanges=[]))
                for nodeid, outcome in batch.outcomes.items()
                if nodeid not in self._settled
            }
            self._settled.update(batch.outcomes)
            self._meter.count(engine, engine.info.name, to_plain(engine.usage))

    def _start(self, jobs: Sequence[Job], engine: Engine) -> RunningBatch:
        """Start the generators of a batch, and let the engine prepare their requests."""
        reopen = functools.partial(self._engine, engine.info)
        batch = RunningBatch(jobs, engine, self, self._sandbox, judge=self._judge, reopen=reopen)
        self._started |= dict.fromkeys(batch.items, batch)
        engine.prepare(batch.requests)
        return batch

    def _start_next(self, item: PlannedItem, engine: Engine) -> None:
        """Start those items of the checkpoint's next batch that may run at any time and have not run yet."""
        if not self._prepares or self._is_alone(item):
            return
        later = self._batches[self._batch_of[item] + 1 :]
        following = next((batch for batch in later if batch[0].info.name == item.info.name), [])
        any_time = (other for other in following if other.stands_alone and other.limit is None)
        if jobs := [other.job(other) for other in any_time if not other.marked and self._waits(other)]:
            self._start(jobs, engine)

    def append(self, record: Record) -> None:
        """Journal the end of an item; one that was settled meanwhile, by a mark or a hook, has its record."""
        if record.item in self._settled:
            return
        self._journal.append(record)
        self._progress.ended(record.item, record.status)
        if record.status == "scored" and self._asked is not None:
            self._meter.begin(self._asked, record.checkpoint)

    def sync(self, *, every: float = 0.0) -> None:
        """Put the records on disk."""
        self._journal.sync(every=every)

    def check(self) -> None:
        """Let the engine that was asked last check that it answers as at the beginning, where it can."""
        if self._asked is None:
            return
        engine, self._asked = self._asked, None
        with suppress(ServerError):  # the items that it has not answered are lost, and say so
            engine.check()
        self._meter.count(engine, engine.info.name, to_plain(engine.usage))

    def asked_again(self) -> Iterator[list[pytest.Function]]:
        """Yield the items of the run that are to run once more, until there are none: their checkpoint's texts have
        shown a trace since they were asked. Until they have run, their records say so. Raises ``JournalError``."""
        self._journal.sync()
        while doubtful := find_doubtful_texts(self._directory.path):
            self._journal = Journal(self._directory.path, REASKED)
            self._doubtful |= doubtful
            names = {name for texts in doubtful.values() for name in texts.items}
            again = [item for item in self._items if item.nodeid in names]
            for item in again:
                self._journal.append(item.record("error", ASKED_AGAIN))
                self._settled.discard(item.nodeid)
            self._directory.log(f"{count(len(again), 'item')} asked again: {ASKED_AGAIN}")
            yield [item.item for item in again]
            self._journal.sync()

    def flush(self) -> None:
        """Put the records on disk, and write down what this process's answers have cost so far."""
        self._journal.sync()
        self._meter.note()

    def settle(self, item: pytest.Item, status: Status, message: str, *, anew: bool = False) -> None:
        """Journal an item that never ran: it was skipped by a mark, or its fixtures failed.

        With ``anew``, also one that has a record, which pytest's verdict on it replaces: it was marked as xfail.
        """
        planned, ended = planned_of(item), item.nodeid in self._settled
        if planned is None or (ended and not anew):
            return
        self._progress.ended(item.nodeid, status)
        self._settled.add(item.nodeid)
        self._journal.append(planned.record(status, message))

    def close(self) -> None:
        """Close generators that were started for a batch that never ran, and end the writing of progress."""
        for batch in set(self._started.values()):
            with suppress(JournalError):  # on a full disk, which the end of the loop has said
                batch.close()
        if self._in_flight is not None:
            self._in_flight.close()
        self._progress.close()

    def _reused(self, item: PlannedItem) -> ItemOutcome | None:
        """Return the outcome of an earlier run, now also in this run's journal; None where there is none."""
        record = None
        if self._reuse is not None and self._known(item):
            record = self._reuse.find(item.nodeid, *item.key, item.given.example.sha256)
        if record is None:
            return None
        self._journal.append(record)
        self._progress.ended(record.item, record.status)
        self._journal.sync(every=SYNC_EVERY)
        self._settled.add(item.nodeid)
        return ItemOutcome(record)

    @property
    def damaged(self) -> list[str]:
        """The records of earlier runs that were not believed, each with its place."""
        return [] if self._reuse is None else self._reuse.damaged

    def _known(self, item: PlannedItem) -> bool:
        """Return whether an earlier run has scored the item."""
        if self._doubtful or self._reuse is None or self._reuse.empty:
            return False
        return item.function.no_parameters and self._reuse.has(*item.key)

    def _members(self, leader: PlannedItem) -> list[PlannedItem]:
        """Return the batch's items that can run under the leader's fixtures and have not run yet, the leader first."""
        quarantined = self._quarantine.items()
        if leader.nodeid in quarantined or self._is_alone(leader):
            return [leader]
        sequential = None if self._doubtful else self._sequential
        others = [
            item
            for item in self._batches[self._batch_of[leader]]
            if item is not leader
            and item.nodeid not in quarantined
            and (sequential is None or sequential.together(leader.nodeid, item.nodeid))
            and item.alike(leader)
            and self._waits(item)
        ]
        return [leader, *others]

    def _waits(self, item: PlannedItem) -> bool:
        """Return whether an item has neither run nor been started, and may run for another's sake."""
        has_begun = item.nodeid in self._settled or item.nodeid in self._started
        return not (has_begun or self._known(item) or self._is_alone(item))

    def _is_alone(self, item: PlannedItem) -> bool:
        """Return whether earlier runs were killed with the item in flight, so that it is computed alone."""
        return self._kills is not None and self._kills.alone(item.key)


def shared_rows(items: Iterable[PlannedItem]) -> set[tuple[str, str]]:
    """Return the rows that belong to several results of a checkpoint, each with the checkpoint's name.

    What was answered about their log-probabilities is remembered for as long as the process lives; xdist's other
    workers do not know of it.
    """
    results: dict[tuple[str, str], str] = {}
    shared: set[tuple[str, str]] = set()
    for item in items:
        row = item.info.name, item.given.example.sha256
        if Loglikelihood in item.spec.asks and results.setdefault(row, item.spec.name) != item.spec.name:
            shared.add(row)
    return shared


# How far a process is, for the progress line and for others


INTERVAL: Final = 0.5
"""Seconds between two writings of a process's state."""


class ProgressWriter:
    """Is told by the main thread what the process does; a thread of its own writes that."""

    def __init__(self, directory: Path, who: str) -> None:
        self._directory = directory
        self._state = ProcessProgress(who=who)
        self._sizes: Mapping[str, float] = {}
        self._ended: set[str] = set()
        self._faulty: set[str] = set()
        self._doing: tuple[str, Engine | None, int] = ("", None, 0)  # the tokens are those of former engines
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def planned(self) -> bool:
        """Return whether the sizes of items are known."""
        return bool(self._sizes)

    def plan(self, items: Sequence[PlannedItem]) -> None:
        """Begin to write, for a run of these items."""
        self._sizes = {batch_key(item.nodeid): estimated_work(item) for item in items}
        self._state.work = sum(map(estimated_work, items))
        thread = threading.Thread(target=self._run, name="touchstone-progress-writer", daemon=True)
        with suppress(RuntimeError):  # a thread cannot always be had; then nobody sees how far it is
            thread.start()
            self._thread = thread

    @contextmanager
    def doing(self, what: str, engine: Engine | None = None) -> Iterator[None]:
        """Stand around what the process does, such as the answering of a batch by an engine."""
        tokens = engine.progress().tokens if engine is not None else 0
        self._doing = (what, engine, self._state.tokens - tokens)
        if engine is not None:
            self._state.done = self._state.done or 1.0  # next to nothing: the time of answering begins
        try:
            yield
        finally:
            self.look()
            self._doing = ("", None, self._state.tokens)

    def ended(self, item: str, status: Status) -> None:
        """Take note of an item that has ended, perhaps once more."""
        if item not in self._ended:
            self._state.done += self._sizes.get(batch_key(item), 0.0)
        self._ended.add(item)
        (self._faulty.add if status in FAULTS else self._faulty.discard)(item)
        self._state.ended, self._state.faults = len(self._ended), len(self._faulty)

    def look(self) -> None:
        """Take over what the engine tells of its work."""
        self._state.doing, engine, tokens = self._doing
        if engine is not None:
            progress = engine.progress()
            self._state.tokens = tokens + progress.tokens
            self._state.doing = progress.trouble or self._state.doing

    def close(self) -> None:
        """End the thread; calling it again does nothing."""
        if self._thread is not None:
            self._ending.set()
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._ending.wait(INTERVAL):
            with suppress(Exception):  # whoever is watched must not suffer
                self.look()
                write_progress(self._directory, self._state)


# About how much work items are


USUAL_TOKENS: Final = 100.0
"""The tokens of an item's questions, about."""

TEXT_TOKENS: Final = 512.0
"""The same for a text that is generated: each of its tokens takes about as long as two of a prompt."""

PARAMETERS: Final = 100_000_000
"""Of a checkpoint that does not say."""


def estimated_work(item: PlannedItem) -> float:
    """Return about how much work an item is, in tokens times parameters, by what its benchmark asks."""
    tokens = USUAL_TOKENS + TEXT_TOKENS * (Generate in item.spec.asks)
    return tokens * (item.info.weights.parameters or PARAMETERS)
