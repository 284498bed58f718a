"""Runs benchmark items in batches, and reports the progress of the process.

The first item of a batch that pytest calls runs the whole batch; the outcomes of the other items are kept until pytest
calls them. Meanwhile the next batch of the checkpoint is started, so that the engine can prepare its requests. Only
items without other fixtures than their checkpoint are started early, since a fixture could tell the difference.
"""

from __future__ import annotations

import _thread
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
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
from pytest_touchstone.plugin.driver import SYNC_EVERY, ItemJob, ItemOutcome, RunningBatch
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
    from pytest_touchstone.plugin.gate import InterimGate

MAIN: Final = "main"
"""The name of a process that is no worker of xdist."""

ASKED_AGAIN: Final = "a stop sequence or the limit of tokens may have ended its text within a reasoning"


@dataclass(frozen=True, slots=True)
class Backends:
    """The services that answer requests: engines of checkpoints, the sandbox, and the judge.

    ``engine`` loads a checkpoint.
    """

    engine: Callable[[CheckpointInfo], Engine]
    sandbox: ProgramRunner | None
    judge: LlmJudge | None


class _BatchPlan:
    """The items of the run, divided into batches of one checkpoint each."""

    def __init__(self, items: Sequence[PlannedItem], size: int, *, by_kind: bool) -> None:
        self._batches = [
            [items[index] for index in batch] for batch in split_into_batches(items, size, by_kind=by_kind)
        ]
        self._index_of = {item: index for index, batch in enumerate(self._batches) for item in batch}

    def batch_of(self, item: PlannedItem) -> list[PlannedItem]:
        """Return the batch that contains an item."""
        return self._batches[self._index_of[item]]

    def next_batch(self, item: PlannedItem) -> list[PlannedItem]:
        """Return the batch of the checkpoint after that of an item; empty after the last."""
        later = self._batches[self._index_of[item] + 1 :]
        return next((batch for batch in later if batch[0].info.name == item.info.name), [])


class Execution:
    """The batches of this process, and the outcomes that pytest has not reported yet.

    The batches write their records through it to the journal.
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
        backends: Backends,
        sequential: InterimGate | None,
        progress: ProgressWriter,
    ) -> None:
        """Divide the items into batches.

        Args:
            items: The items of the run.
            size: The most items in a batch.
            who: The name of this process: ``main``, or that of a worker, which cannot know its next batch.
            by_kind: Whether batches that generate text are larger than ``size``; xdist's controller cannot do that.
            settings: The settings of the run.
            directory: The folder of the run.
            backends: The services that answer requests.
            sequential: The sequential gate, which skips items that it no longer needs.
            progress: The writer of this process's progress.

        """
        self._items, self._directory = items, directory
        self._backends, self._sequential = backends, sequential
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
        self._plan = _BatchPlan(items, size, by_kind=by_kind)
        self._shared = shared_rows(items)
        self._answers: dict[str, dict[bytes, LoglikelihoodAnswer]] = {}
        self._started: dict[str, RunningBatch] = {}
        self._unreported: dict[str, ItemOutcome] = {}
        self._settled: set[str] = set()
        self._asked: Engine | None = None
        self._doubtful: dict[str, DoubtfulTexts] = {}

    def call(self, item: PlannedItem) -> ItemOutcome:
        """Return the outcome of an item: from its batch or an earlier run, or by running its batch now."""
        if item.nodeid in self._unreported:
            return self._unreported.pop(item.nodeid)
        if (reused := self._reuse_earlier(item)) is not None:
            return reused
        sequential = None if self._doubtful else self._sequential
        if sequential is not None and (reason := sequential.not_needed(item.nodeid)) is not None:
            pytest.skip(reason)
        if self._kills is not None and (why := self._kills.given_up(item.key)) is not None:
            raise RequestError(why)
        if not self._progress.planned:
            self._progress.plan([planned for planned in self._items if not self._is_reusable(planned)])
        if self._asked is not None and self._asked.info.name != item.info.name:
            self.check()
        self._run(item)
        return self._unreported.pop(item.nodeid)

    def _run(self, item: PlannedItem) -> None:
        """Run an item with the rest of its batch, and keep the outcomes until pytest reports them."""
        with self._progress.doing(f"loading {item.info.name}"):
            engine = self._backends.engine(item.info)
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
            # Only the scores are needed from here on; the journal has the texts.
            self._unreported |= {
                nodeid: replace(outcome, record=replace(outcome.record, exchanges=[]))
                for nodeid, outcome in batch.outcomes.items()
                if nodeid not in self._settled
            }
            self._settled.update(batch.outcomes)
            self._meter.count(engine, engine.info.name, to_plain(engine.usage))

    def _start(self, jobs: Sequence[ItemJob], engine: Engine) -> RunningBatch:
        """Start the generators of a batch, and let the engine prepare their requests."""
        sandbox, judge = self._backends.sandbox, self._backends.judge
        reopen = functools.partial(self._backends.engine, engine.info)
        batch = RunningBatch(jobs, engine, self, sandbox, judge=judge, reopen=reopen)
        self._started |= dict.fromkeys(batch.items, batch)
        engine.prepare(batch.requests)
        return batch

    def _start_next(self, item: PlannedItem, engine: Engine) -> None:
        """Start the items of the checkpoint's next batch that may run early and have not run yet."""
        if not self._prepares or self._is_alone(item):
            return
        batch = self._plan.next_batch(item)
        early = (other for other in batch if other.stands_alone and other.limit is None and not other.marked)
        if jobs := [other.job(other) for other in early if self._is_pending(other)]:
            self._start(jobs, engine)

    def append(self, record: Record) -> None:
        """Journal the record of an item, unless a mark or a hook has settled it meanwhile."""
        if record.item in self._settled:
            return
        self._journal.append(record)
        self._progress.ended(record.item, record.status)
        if record.status == "scored" and self._asked is not None:
            self._meter.begin(self._asked, record.checkpoint)

    def sync(self, *, every: float = 0.0) -> None:
        """Sync the journal to disk, at most every ``every`` seconds."""
        self._journal.sync(every=every)

    def check(self) -> None:
        """Let the engine that was asked last check that its answers have not changed since it was opened."""
        if self._asked is None:
            return
        engine, self._asked = self._asked, None
        with suppress(ServerError):  # unanswered items are lost, and their records say so
            engine.check()
        self._meter.count(engine, engine.info.name, to_plain(engine.usage))

    def items_to_repeat(self) -> Iterator[list[pytest.Function]]:
        """Yield the items to run again, until there are none.

        Their texts may have been cut within a reasoning trace, which later texts of the checkpoint have shown. Until
        they run again, their records are errors that say so. Raises ``JournalError``.
        """
        self._journal.sync()
        while doubtful := find_doubtful_texts(self._directory.path):
            self._journal = Journal(self._directory.path, REASKED)
            self._doubtful |= doubtful
            names = {name for texts in doubtful.values() for name in texts.items}
            repeated = [item for item in self._items if item.nodeid in names]
            for item in repeated:
                self._journal.append(item.record("error", ASKED_AGAIN))
                self._settled.discard(item.nodeid)
            self._directory.log(f"{count(len(repeated), 'item')} asked again: {ASKED_AGAIN}")
            yield [item.item for item in repeated]
            self._journal.sync()

    def flush(self) -> None:
        """Sync the journal to disk, and write the usage of this process so far."""
        self._journal.sync()
        self._meter.note()

    def settle(self, item: pytest.Item, status: Status, message: str, *, anew: bool = False) -> None:
        """Journal an item that never ran, because a mark skipped it or its fixtures failed.

        With ``anew``, replace the record of an item that has run: pytest's verdict counts where it is marked as xfail.
        """
        planned, ended = planned_of(item), item.nodeid in self._settled
        if planned is None or (ended and not anew):
            return
        self._progress.ended(item.nodeid, status)
        self._settled.add(item.nodeid)
        self._journal.append(planned.record(status, message))

    def close(self) -> None:
        """Close the generators of batches that never ran, and stop the progress writer."""
        for batch in set(self._started.values()):
            with suppress(JournalError):  # on a full disk, as reported at the end of the loop
                batch.close()
        if self._in_flight is not None:
            self._in_flight.close()
        self._progress.close()

    def _reuse_earlier(self, item: PlannedItem) -> ItemOutcome | None:
        """Copy an item's outcome in an earlier run to the journal and return it; None without one."""
        record = None
        if self._reuse is not None and self._is_reusable(item):
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
        """The damaged records of earlier runs, each with its file and line."""
        return [] if self._reuse is None else self._reuse.damaged

    def _is_reusable(self, item: PlannedItem) -> bool:
        """Return whether an earlier run has scored the item."""
        if self._doubtful or self._reuse is None or self._reuse.empty:
            return False
        return item.function.no_parameters and self._reuse.has(*item.key)

    def _members(self, leader: PlannedItem) -> list[PlannedItem]:
        """Return the pending items of the batch that can share the leader's fixtures, the leader first."""
        quarantined = self._quarantine.items()
        if leader.nodeid in quarantined or self._is_alone(leader):
            return [leader]
        sequential = None if self._doubtful else self._sequential
        others = [
            item
            for item in self._plan.batch_of(leader)
            if item is not leader
            and item.nodeid not in quarantined
            and (sequential is None or sequential.together(leader.nodeid, item.nodeid))
            and item.alike(leader)
            and self._is_pending(item)
        ]
        return [leader, *others]

    def _is_pending(self, item: PlannedItem) -> bool:
        """Return whether an item has not been started, and may run together with other items."""
        has_begun = item.nodeid in self._settled or item.nodeid in self._started
        return not (has_begun or self._is_reusable(item) or self._is_alone(item))

    def _is_alone(self, item: PlannedItem) -> bool:
        """Return whether an item runs alone because earlier runs were killed while computing it."""
        return self._kills is not None and self._kills.alone(item.key)


def shared_rows(items: Iterable[PlannedItem]) -> set[tuple[str, str]]:
    """Return the checkpoint name and row hash of each row that several benchmarks of a checkpoint share.

    Log-likelihoods of these rows are cached for the life of the process; xdist's workers do not share the cache.
    """
    results: dict[tuple[str, str], str] = {}
    shared: set[tuple[str, str]] = set()
    for item in items:
        row = item.info.name, item.given.example.sha256
        if Loglikelihood in item.spec.asks and results.setdefault(row, item.spec.name) != item.spec.name:
            shared.add(row)
    return shared


# Progress


INTERVAL: Final = 0.5
"""Seconds between two writes of a process's state."""


class ProgressWriter:
    """Writes the progress of this process to the run's folder, in a thread of its own."""

    def __init__(self, directory: Path, who: str) -> None:
        self._directory = directory
        self._state = ProcessProgress(who=who)
        self._sizes: Mapping[str, float] = {}
        self._ended: set[str] = set()
        self._faulty: set[str] = set()
        self._activity: tuple[str, Engine | None, int] = (
            "",
            None,
            0,
        )  # the tokens are those of former engines
        self._ending, self._stopped = threading.Event(), threading.Event()
        self._stopped.set()

    @property
    def planned(self) -> bool:
        """Return whether the amount of work is known."""
        return bool(self._sizes)

    def plan(self, items: Sequence[PlannedItem]) -> None:
        """Add up the work of these items, and start the writing thread."""
        self._sizes = {batch_key(item.nodeid): estimated_work(item) for item in items}
        self._state.work = sum(map(estimated_work, items))
        # ``threading.Thread.start`` never returns if the thread dies for want of memory before its first line.
        with suppress(RuntimeError):  # the system may have no thread left; then no progress is shown
            _thread.start_new_thread(self._run, ())

    @contextmanager
    def doing(self, what: str, engine: Engine | None = None) -> Iterator[None]:
        """Show an activity while the body of the ``with`` statement runs, with the engine's tokens."""
        tokens = engine.progress().tokens if engine is not None else 0
        self._activity = (what, engine, self._state.tokens - tokens)
        if engine is not None:
            self._state.done = self._state.done or 1.0  # almost zero: marks the start of answering
        try:
            yield
        finally:
            self.look()
            self._activity = ("", None, self._state.tokens)

    def ended(self, item: str, status: Status) -> None:
        """Count an item that has ended, perhaps for the second time."""
        if item not in self._ended:
            self._state.done += self._sizes.get(batch_key(item), 0.0)
        self._ended.add(item)
        (self._faulty.add if status in FAULTS else self._faulty.discard)(item)
        self._state.ended, self._state.faults = len(self._ended), len(self._faulty)

    def look(self) -> None:
        """Update the state from the engine's progress."""
        self._state.doing, engine, tokens = self._activity
        if engine is not None:
            progress = engine.progress()
            self._state.tokens = tokens + progress.tokens
            self._state.doing = progress.trouble or self._state.doing

    def close(self) -> None:
        """End the thread; calling it again does nothing."""
        self._ending.set()
        self._stopped.wait(timeout=5)

    def _run(self) -> None:
        self._stopped.clear()
        while not self._ending.wait(INTERVAL):
            with suppress(Exception):  # progress must never stop the run
                self.look()
                write_progress(self._directory, self._state)
        self._stopped.set()


# Estimates of work


USUAL_TOKENS: Final = 100.0
"""The approximate number of prompt tokens of an item."""

TEXT_TOKENS: Final = 512.0
"""The approximate cost of a generated text in prompt tokens; each of its tokens takes about as long as two of them."""

PARAMETERS: Final = 100_000_000
"""The number of parameters assumed for a checkpoint that does not state it."""


def estimated_work(item: PlannedItem) -> float:
    """Return the approximate work of an item in tokens times parameters, by the requests of its benchmark."""
    tokens = USUAL_TOKENS + TEXT_TOKENS * (Generate in item.spec.asks)
    return tokens * (item.info.weights.parameters or PARAMETERS)
