"""Runs benchmark items.

The first item of a batch that pytest calls advances the whole batch; the others find their outcomes ready. The next
batch of the checkpoint is started meanwhile, so that the engine can prepare its requests: only with items that need no
fixture but their checkpoint, as nobody can tell when these were run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from pytest_touchstone.core.benchmark import Benchmark, generator_function
from pytest_touchstone.core.errors import JournalError, RequestError, ServerError
from pytest_touchstone.core.eval_config import Asking
from pytest_touchstone.core.files import shipped_evals
from pytest_touchstone.core.requests import to_plain
from pytest_touchstone.core.text import count
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.plugin.batches import (
    alike,
    batches_of,
    needs_no_fixture,
    runs_alone,
    stands_alone,
)
from pytest_touchstone.plugin.collection import (
    OWN_ARGUMENTS,
    Given,
    argument_names,
    checkpoint_of,
    given_of,
    result_of,
    reusable,
)
from pytest_touchstone.plugin.dispatch import ProgramRunner, SharedRows, VerdictGiver
from pytest_touchstone.plugin.driver import (
    SYNC_EVERY,
    Job,
    RunningBatch,
    TimeLimit,
    identity,
)
from pytest_touchstone.plugin.progress import ProgressWriter, sizes_of
from pytest_touchstone.plugin.xdist import Quarantine
from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.records import Record, Status
from pytest_touchstone.results.reuse import InFlight, ItemKey, Kills, Reuse
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.traces import AGAIN, DoubtfulTexts, doubtful_texts
from pytest_touchstone.results.usage import Usage, UsageMeter

if TYPE_CHECKING:
    from pytest_touchstone.checkpoints import CheckpointInfo
    from pytest_touchstone.engines.base import Engine
    from pytest_touchstone.plugin.gate import Sequential


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessWork:
    """The items that a process answers, and the tools for it.

    With ``in_order`` the batches come one after the other; a worker cannot know which it gets next. With ``by_kind``
    batches of items that ask for texts are larger than ``size``, which xdist's controller could not know of.

    ``engine`` loads a checkpoint; ``note_usage`` is told now and then what this process's answers have cost.
    ``sequential`` knows which items are no longer needed, ``reuse`` what earlier runs have scored. ``in_flight`` says
    what is computed, in case this process is killed. ``progress`` tells how far the process is, for which
    the ``settings`` of engines are needed.
    """

    items: Sequence[pytest.Item]
    size: int
    in_order: bool
    by_kind: bool
    journal: Journal
    quarantine: Quarantine
    engine: Callable[[CheckpointInfo], Engine]
    note_usage: Callable[[Sequence[Usage]], None]
    progress: ProgressWriter
    sandbox: ProgramRunner | None = None
    judge: VerdictGiver | None = None
    sequential: Sequential | None = None
    reuse: Reuse | None = None
    in_flight: InFlight | None = None
    settings: ModelSettings = field(default_factory=ModelSettings)


ASKED_AGAIN: Final = "a stop sequence or the limit of tokens may have ended its text within a reasoning"


class ItemEnd(NamedTuple):
    """The end of an item as pytest reports it: its scores, and the exception that it raised, if any."""

    scores: Mapping[str, float]
    raised: BaseException | None = None


class Execution:
    """The batches of this process and the outcomes that are yet to be reported."""

    def __init__(self, work: ProcessWork) -> None:
        self._work = work
        self._journal, self._progress = work.journal, work.progress
        self._meter = UsageMeter(work.journal.who, work.note_usage)
        self._functions: dict[tuple[Any, str], Callable[..., Any]] = {}
        self._specs: dict[str, Benchmark] = {}
        self._unreported: dict[str, ItemEnd] = {}
        self._settled: set[str] = set()
        self._limits: dict[tuple[str, str], TimeLimit] = {}
        self._batch_of: dict[pytest.Item, list[pytest.Item]] = {}
        self._asked: tuple[Engine, str] | None = None
        self._shared = SharedRows(work.items)
        self._kills = Kills(work.reuse) if work.reuse is not None and work.in_flight is not None else None
        self._doubtful: dict[str, DoubtfulTexts] = {}
        batches = [
            [work.items[index] for index in indices]
            for indices in batches_of(work.items, work.size, by_kind=work.by_kind)
        ]
        self._started: dict[str, RunningBatch] = {}
        self._next: dict[int, list[pytest.Item]] = {}
        ahead, former = work.in_order and work.sequential is None, dict[str, list[pytest.Item]]()
        for batch in batches:
            self._batch_of |= dict.fromkeys(batch, batch)
            if ahead and given_of(batch[0]) is not None:
                name = checkpoint_of(batch[0]).name
                if name in former:
                    self._next[id(former[name])] = batch
                former[name] = batch

    def call(self, item: pytest.Function) -> ItemEnd:
        """Return the end of an item, computed now together with its batch, unless another item or an earlier run
        has done so."""
        if item.nodeid in self._unreported:
            return self._unreported.pop(item.nodeid)
        if (reused := self._reused(item)) is not None:
            return reused
        sequential = None if self._doubtful else self._work.sequential
        if sequential is not None and (reason := sequential.not_needed(item.nodeid)) is not None:
            pytest.skip(reason)
        if self._kills is not None and (why := self._kills.given_up(_key(item))) is not None:
            raise RequestError(why)
        if not self._progress.planned:
            fresh = [one for one in self._work.items if not self._known(one)]
            self._progress.plan(fresh, self.sizes(fresh))
        if self._asked is not None and self._asked[1] != checkpoint_of(item).name:
            self.check()
        self._run(item)
        return self._unreported.pop(item.nodeid)

    def _run(self, item: pytest.Function) -> None:
        """Run an item together with the others of its batch."""
        info, alone = checkpoint_of(item), self._is_alone(item)
        with self._progress.doing(f"loading {info.name}"):
            engine = self._work.engine(info)
        if (batch := self._started.get(item.nodeid)) is None:
            batch = self._start([self._job(member, item) for member in self._members(item)], engine)
        try:
            self._begin(batch, engine)
            if not alone:
                self._start_next(item, engine)
            with self._progress.doing(batch.running[0].job.spec.name, engine):
                while batch.open:
                    batch.step()
        finally:
            self._end(batch, engine)

    def _start(self, jobs: Sequence[Job], engine: Engine) -> RunningBatch:
        info = engine.info
        batch = RunningBatch(jobs, engine, self._work.judge, lambda: self._work.engine(info))
        self._started |= dict.fromkeys(batch.items, batch)
        engine.prepare(batch.requests)
        return batch

    def _start_next(self, item: pytest.Function, engine: Engine) -> None:
        """Start those items of the next batch that may run at any time and have not run yet."""
        following = self._next.pop(id(self._batch_of[item]), ())
        functions = [one for one in following if isinstance(one, pytest.Function)]
        if jobs := [self._job(one, one) for one in functions if self._may_run_any_time(one)]:
            self._start(jobs, engine)

    def _begin(self, batch: RunningBatch, engine: Engine) -> None:
        """Ask what a batch has to ask, and write down what this process computes: it may be killed by that."""
        name, jobs = engine.info.name, [state.job for state in batch.running]
        self._asked = engine, name
        if name in self._doubtful:
            engine.expect_traces(opened=self._doubtful[name].opened)
        if self._work.in_flight is not None and not engine.info.served:
            self._work.in_flight.begin(ItemKey(job.checkpoint, job.spec.name, job.example.id) for job in jobs)
        scored = functools.partial(self._meter.begin, engine, name)
        recorder = _Recorder(self._journal, scored, self._settled, self._progress)
        rows = (job.example.sha256 for job in jobs)
        shared = None if batch.limited else self._shared.answers(name, rows)
        batch.begin(engine, recorder, self._work.sandbox, shared)

    def _end(self, batch: RunningBatch, engine: Engine) -> None:
        """Keep the ends of a batch's items until pytest reports them."""
        for name in batch.items:
            del self._started[name]
        batch.close()
        if self._work.in_flight is not None:
            self._work.in_flight.end()
        outcomes = {item: end for item, end in batch.outcomes.items() if item not in self._settled}
        self._unreported |= {item: ItemEnd(end.record.scores, end.raised) for item, end in outcomes.items()}
        self._settled.update(outcomes)
        self._meter.count(engine, engine.info.name, to_plain(engine.usage))

    def _may_run_any_time(self, item: pytest.Function) -> bool:
        given = given_of(item)
        if given is None or not stands_alone(item) or given.loaded.asking.seconds is not None:
            return False
        begun = self._has_ended(item) or item.nodeid in self._started
        return not (begun or self._known(item) or self._is_alone(item) or runs_alone(item))

    def _has_ended(self, item: pytest.Item) -> bool:
        return item.nodeid in self._settled

    def check(self) -> None:
        """Let the engine that was asked last check that it answers as at the beginning, where it can."""
        if self._asked is None:
            return
        (engine, name), self._asked = self._asked, None
        with suppress(ServerError):  # the items that it has not answered are lost, and say so
            engine.check()
        self._meter.count(engine, name, to_plain(engine.usage))

    def asked_again(self, directory: RunDirectory) -> Iterator[list[pytest.Item]]:
        """Yield the items of the run that are to run once more, until there are none: their checkpoint's texts have
        shown a trace since they were asked. Until they have run, their records say so. Raises ``JournalError``."""
        self._journal.sync()
        while doubtful := doubtful_texts(directory.path):
            self._journal = Journal(directory.path, AGAIN)
            self._doubtful |= doubtful
            names = {name for texts in doubtful.values() for name in texts.items}
            again = [item for item in self._work.items if item.nodeid in names]
            for item in again:
                given = given_of(item)
                assert given is not None
                who = identity(item.nodeid, self._spec(item, given), given.example, checkpoint_of(item).name)
                self._journal.append(Record(**who, status="error", message=ASKED_AGAIN))
                self._settled.discard(item.nodeid)
            directory.log(f"{count(len(again), 'item')} asked again: {ASKED_AGAIN}")
            yield again
            self._journal.sync()

    def sync(self) -> None:
        """Put the records on disk, and write down what this process's answers have cost so far."""
        self._journal.sync()
        self._meter.note()

    def settle(self, item: pytest.Item, status: Status, message: str, *, anew: bool = False) -> None:
        """Journal an item that never ran: it was skipped by a mark, or its fixtures failed.

        With ``anew``, also one that has a record, which pytest's verdict on it replaces: it was marked as xfail.
        """
        given = given_of(item)
        if given is None or (self._has_ended(item) and not anew):
            return
        if not self._has_ended(item):
            self._progress.ended(item.nodeid)
        self._settled.add(item.nodeid)
        who = identity(item.nodeid, self._spec(item, given), given.example, checkpoint_of(item).name)
        self._journal.append(Record(**who, status=status, message=message))

    def close(self) -> None:
        """Close generators that were started for a batch that never ran, and end the writing of progress."""
        for batch in set(self._started.values()):
            with suppress(JournalError):  # on a full disk, which the end of the loop has said
                batch.close()
        self._batch_of.clear()
        if self._work.in_flight is not None:
            self._work.in_flight.close()
        self._progress.close()

    def _reused(self, item: pytest.Function) -> ItemEnd | None:
        """Return the end that an earlier run had, now also in this run's journal; None where there is none."""
        if not self._known(item):
            return None
        given = given_of(item)
        assert given is not None
        assert self._work.reuse is not None
        example = given.example
        record = self._work.reuse.find(
            item.nodeid, checkpoint_of(item).name, given.loaded.spec.name, example.id, example.sha256
        )
        if record is None:
            return None
        self._journal.append(record)
        self._journal.sync(every=SYNC_EVERY)
        self._settled.add(item.nodeid)
        return ItemEnd(record.scores)

    @property
    def damaged(self) -> list[str]:
        """The records of earlier runs that were not believed, each with its place."""
        return [] if self._work.reuse is None else self._work.reuse.damaged

    def sizes(self, items: Iterable[pytest.Item]) -> dict[str, float]:
        """Return about how much work an item is, by its ``batch_key``."""
        return sizes_of(items, self.starting, self._work.settings.max_new_tokens)

    def starting(self, item: pytest.Item) -> Callable[[], Any] | None:
        """Return a function that starts an item's generator only to see its size.

        None but for the shipped benchmarks, which have no effects: other people's functions are started once per item.
        """
        given = given_of(item)
        if given is None or given.loaded.spec.folder.resolve() != shipped_evals().resolve():
            return None
        if not isinstance(item, pytest.Function) or not needs_no_fixture(item):
            return None
        return self._job(item, item).start

    def _known(self, item: pytest.Item) -> bool:
        """Return whether an earlier run has scored the item."""
        if self._doubtful or self._work.reuse is None or self._work.reuse.empty:
            return False
        given = given_of(item)
        if given is None or not reusable(item):
            return False
        return self._work.reuse.has(checkpoint_of(item).name, given.loaded.spec.name, given.example.id)

    def _members(self, leader: pytest.Function) -> list[pytest.Function]:
        """Return the batch's items that can run under the leader's fixtures and have not run yet, the leader first."""
        quarantined = self._work.quarantine.items()
        if leader.nodeid in quarantined or self._is_alone(leader):
            return [leader]
        sequential, members = None if self._doubtful else self._work.sequential, [leader]
        for item in self._batch_of.get(leader, ()):
            if item is leader or not isinstance(item, pytest.Function):
                continue
            ended = self._has_ended(item) or item.nodeid in self._started
            fresh = not ended and item.nodeid not in quarantined
            apart = sequential is not None and not sequential.together(leader.nodeid, item.nodeid)
            if fresh and not apart and alike(item, leader) and not self._known(item):
                members.append(item)
        return [leader, *(item for item in members[1:] if not self._is_alone(item))]

    def _is_alone(self, item: pytest.Item) -> bool:
        """Return whether earlier runs were killed with the item in flight, so that it is computed alone."""
        return self._kills is not None and self._kills.alone(_key(item))

    def _job(self, item: pytest.Function, leader: pytest.Function) -> Job:
        given = given_of(item)
        assert given is not None
        wanted = {
            name: OWN_ARGUMENTS[name](given)
            if name in OWN_ARGUMENTS
            else leader.funcargs[name]
            if name in leader.funcargs
            else item.callspec.params[name]
            for name in argument_names(item)
        }
        start = given.loaded.start(functools.partial(self._function(item), **wanted), given.example)
        name, asking = checkpoint_of(item).name, given.loaded.asking
        spec = self._spec(item, given)
        return Job(
            item.nodeid, spec, given.example, name, start, asking, self._limit(name, spec.name, asking)
        )

    def _limit(self, checkpoint: str, benchmark: str, asking: Asking) -> TimeLimit | None:
        """Return the time limit of a benchmark for a checkpoint, the same for all of its items; None without one."""
        if asking.seconds is None:
            return None
        return self._limits.setdefault((checkpoint, benchmark), TimeLimit(asking.seconds))

    def _spec(self, item: pytest.Item, given: Given) -> Benchmark:
        """Return the benchmark of an item, under the name of the result that it belongs to."""
        name = result_of(item, given)
        if name == given.loaded.spec.name:
            return given.loaded.spec
        if (found := self._specs.get(name)) is None:
            found = self._specs[name] = replace(given.loaded.spec, name=name)
        return found

    def _function(self, item: pytest.Function) -> Callable[..., Any]:
        """Return the generator function of an item; ``item.function`` is slow, and the same for very many items."""
        key = (item.parent, item.originalname)
        if (found := self._functions.get(key)) is None:
            found = self._functions[key] = generator_function(item.function)
        return found


def _key(item: pytest.Item) -> ItemKey:
    given = given_of(item)
    assert given is not None
    return ItemKey(checkpoint_of(item).name, given.loaded.spec.name, given.example.id)


class _Recorder:
    """The journal, which also reports when items end and are scored."""

    def __init__(
        self,
        journal: Journal,
        scored: Callable[[], None],
        settled: Container[str],
        progress: ProgressWriter,
    ) -> None:
        """Items that are ``settled`` meanwhile, by a mark or a hook, have their record."""
        self._journal, self._scored, self._settled, self._progress = journal, scored, settled, progress

    def append(self, record: Record) -> None:
        if record.item in self._settled:
            return
        self._journal.append(record)
        self._progress.ended(record.item)
        if record.status == "scored":
            self._scored()

    def sync(self, *, every: float = 0.0) -> None:
        self._journal.sync(every=every)
