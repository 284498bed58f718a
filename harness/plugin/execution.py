"""Runs benchmark items: the first item of a unit that pytest calls advances the whole unit, the others find
their outcome waiting. While a unit computes, the engine prepares what the next one will ask.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.core.benchmark import ENGINE_FIXTURE, Benchmark, generator_function
from harness.core.requests import Generate
from harness.core.serialize import to_plain
from harness.plugin.collection import OWN_ARGUMENTS, Given, checkpoint_of, given_of, result_of, reusable
from harness.plugin.dispatch import ProgramRunner
from harness.plugin.driver import SYNC_EVERY, Job, Outcome, RunningBatch, identity, run_batch
from harness.plugin.units import plan_batches
from harness.plugin.xdist import Quarantine
from harness.results.journal import Journal
from harness.results.records import Record, Status
from harness.results.reuse import Reuse
from harness.results.usage import Usage, UsageMeter

if TYPE_CHECKING:
    from harness.engines.base import Engine

ALONE_MARKS: Final = ("skip", "skipif", "xfail")
"""pytest decides about items with these marks one by one, so they are never run for another item's sake."""


class Execution:
    """The units of this process and the outcomes that wait to be reported."""

    def __init__(
        self,
        items: Sequence[pytest.Item],
        unit_size: int,
        journal: Journal,
        quarantine: Quarantine,
        *,
        in_order: bool,
        sandbox: ProgramRunner | None = None,
        by_kind: bool,
        note_effort: Callable[[Sequence[Usage]], None],
        breaks: Sequence[str] = (),
        settled: Callable[[str], str | None] | None = None,
        reuse: Reuse | None = None,
    ) -> None:
        """With ``in_order`` the units come one after the other; a worker cannot know which it gets next. With
        ``by_kind`` units of items that ask for texts are larger than ``unit_size``, which xdist's controller
        could not know of. ``note_effort`` is told now and then what this process's answers have cost. No unit goes
        on beyond an item in ``breaks``; ``settled`` gives the reason why an item is not needed any more, if any.
        ``reuse`` knows what earlier runs have scored."""
        self._reuse = reuse
        self._in_order = in_order
        self._not_needed = settled
        self._sandbox = sandbox
        self._meter = UsageMeter(journal.who, note_effort)
        self._functions: dict[tuple[Any, str], Callable[..., Any]] = {}
        self._specs: dict[str, Benchmark] = {}
        self._ahead: dict[str, RunningBatch] = {}
        self._items = list(items)
        self._journal = journal
        self._quarantine = quarantine
        self._outcomes: dict[str, Outcome] = {}
        self._settled: set[str] = set()
        self._unit_of: dict[str, list[int]] = {}
        self._leader_after: dict[str, pytest.Item] = {}
        before: dict[str | None, list[int]] = {}
        last: str | None = None
        generating = generating_of(items) if by_kind else []
        nodeids = [item.nodeid for item in items]
        units = plan_batches(nodeids, unit_size, alone_of(items), generating, breaks)
        for unit in units:
            for index in unit:
                self._unit_of[self._items[index].nodeid] = unit
            leader = self._items[unit[0]]
            # Units of checkpoints that share a model alternate: after a unit comes the next of its own checkpoint, and
            # in between fixtures that know the checkpoint are made anew.
            whose = checkpoint_of(leader).name if given_of(leader) is not None else None
            if whose == last or _needs_no_fixture(leader):
                for index in before.get(whose, ()):
                    self._leader_after[self._items[index].nodeid] = leader
            before[whose], last = unit, whose

    def call(self, item: pytest.Function) -> Outcome:
        """The outcome of an item, computed now together with its unit, unless another item or an earlier run has
        done so."""
        if item.nodeid not in self._outcomes and (reused := self._reused(item)) is not None:
            return reused
        if item.nodeid not in self._outcomes:
            if self._not_needed is not None and (reason := self._not_needed(item.nodeid)) is not None:
                pytest.skip(reason)
            engine: Engine = item._request.getfixturevalue(ENGINE_FIXTURE)
            unit = self._started(item, engine)
            try:
                self._start_next(item, engine)
            except BaseException:  # an interrupt: the unit will not run
                unit.close()
                raise
            checkpoint = checkpoint_of(item).name
            begin = functools.partial(self._meter.begin, engine, checkpoint)
            try:
                run_batch(unit, engine, _Recorder(self._journal, begin), self._sandbox)
            finally:
                self._outcomes.update(unit.outcomes)
                self._settled.update(unit.outcomes)
            self._meter.count(engine, checkpoint, to_plain(engine.effort))
        return self._outcomes.pop(item.nodeid)

    def sync(self) -> None:
        """Makes sure that the records are on disk, and writes down what this process's answers have cost so far."""
        self._journal.sync()
        self._meter.note()

    def settle(self, item: pytest.Item, status: Status, message: str) -> None:
        """Journals an item that never got to run: skipped by a mark, or its fixtures failed."""
        given = given_of(item)
        if given is None or item.nodeid in self._settled:
            return
        self._settled.add(item.nodeid)
        who = identity(item.nodeid, self._spec(item, given), given.example, checkpoint_of(item).name)
        self._journal.append(Record(**who, status=status, message=message))

    def close(self) -> None:
        """Closes generators that were started for a unit that never came."""
        for unit in self._ahead.values():
            unit.close()
        self._ahead.clear()

    def _reused(self, item: pytest.Function) -> Outcome | None:
        """The outcome that an earlier run had, now in this run's journal too; None where there is none."""
        if not self._known(item):
            return None
        given = given_of(item)
        assert given is not None
        assert self._reuse is not None
        example = given.example
        record = self._reuse.find(
            item.nodeid, checkpoint_of(item).name, given.loaded.spec.name, example.id, example.sha256
        )
        if record is None:
            return None
        self._journal.append(record)
        self._journal.sync(every=SYNC_EVERY)
        self._settled.add(item.nodeid)
        return Outcome(record)

    def _known(self, item: pytest.Item) -> bool:
        """Whether an earlier run has scored the item."""
        if self._reuse is None or self._reuse.empty:
            return False
        given = given_of(item)
        if given is None or not reusable(item):
            return False
        return self._reuse.has(checkpoint_of(item).name, given.loaded.spec.name, given.example.id)

    def _started(self, item: pytest.Function, engine: Engine) -> RunningBatch:
        """The unit of an item with its generators started, now or ahead of time."""
        ahead = self._ahead.pop(checkpoint_of(item).name, None)
        if ahead is not None:
            if item.nodeid in ahead.items and not ahead.items & self._settled:
                return ahead
            ahead.close()
        unit = RunningBatch([self._job(member, item) for member in self._members(item)], engine)
        engine.prepare(unit.requests)
        return unit

    def _start_next(self, item: pytest.Function, engine: Engine) -> None:
        """Starts the generators of the unit after the item's, where the two share all fixtures, so that the
        engine can prepare its requests while it computes."""
        leader = self._leader_after.get(item.nodeid)
        if not self._in_order or not isinstance(leader, pytest.Function):
            return
        same = leader.parent is item.parent and leader.originalname == item.originalname
        if same and _alike(leader, item):
            members = [one for one in self._members(leader) if not self._known(one)]
            if members:
                ahead = RunningBatch([self._job(one, item) for one in members], engine)
                self._ahead[checkpoint_of(item).name] = ahead
                engine.prepare(ahead.requests)

    def _members(self, leader: pytest.Function) -> list[pytest.Function]:
        """The unit's items that can run under the leader's fixtures and have not run yet, the leader first."""
        quarantined = self._quarantine.items()
        if leader.nodeid in quarantined:
            return [leader]
        members = [leader]
        for index in self._unit_of.get(leader.nodeid, ()):
            item = self._items[index]
            fresh = item.nodeid not in self._settled and item.nodeid not in quarantined
            if item is leader or not fresh or not isinstance(item, pytest.Function):
                continue
            if _alike(item, leader) and not self._known(item):
                members.append(item)
        return members

    def _job(self, item: pytest.Function, leader: pytest.Function) -> Job:
        given = given_of(item)
        assert given is not None
        params = item.callspec.params
        wanted = {
            name: given.argument(name)
            if name in OWN_ARGUMENTS
            else leader.funcargs[name]
            if name in leader.funcargs
            else params[name]
            for name in item._fixtureinfo.argnames  # what pytest itself would pass to the function
        }
        start = functools.partial(self._function(item), **wanted)
        return Job(item.nodeid, self._spec(item, given), given.example, checkpoint_of(item).name, start)

    def _spec(self, item: pytest.Item, given: Given) -> Benchmark:
        """The benchmark of an item, under the name of the result that it belongs to."""
        name = result_of(item, given)
        if name == given.loaded.spec.name:
            return given.loaded.spec
        if (found := self._specs.get(name)) is None:
            found = self._specs[name] = replace(given.loaded.spec, name=name)
        return found

    def _function(self, item: pytest.Function) -> Callable[..., Any]:
        """The generator function of an item; ``item.function`` is dear, and the same for very many items."""
        key = (item.parent, item.originalname)
        if (found := self._functions.get(key)) is None:
            found = self._functions[key] = generator_function(item.function)
        return found


class _Recorder:
    """The journal, which also tells when items are scored."""

    def __init__(self, journal: Journal, scored: Callable[[], None]) -> None:
        self._journal, self._scored = journal, scored

    def append(self, record: Record) -> None:
        self._journal.append(record)
        if record.status == "scored":
            self._scored()

    def sync(self, *, every: float = 0.0) -> None:
        self._journal.sync(every=every)


def alone_of(items: Sequence[pytest.Item]) -> list[str]:
    """The node ids of items with marks for which they run alone."""
    return [item.nodeid for item in items if any(mark.name in ALONE_MARKS for mark in item.iter_markers())]


def generating_of(items: Sequence[pytest.Item]) -> list[str]:
    """The node ids of benchmark items that ask for texts."""
    return [
        item.nodeid
        for item in items
        if (given := given_of(item)) is not None and Generate in given.loaded.spec.asks
    ]


def _needs_no_fixture(item: pytest.Item) -> bool:
    """Whether all arguments of a benchmark item are the plugin's or parameters."""
    if given_of(item) is None or not isinstance(item, pytest.Function):
        return False
    return all(name in OWN_ARGUMENTS or name in item.callspec.params for name in item._fixtureinfo.argnames)


def _alike(item: pytest.Function, leader: pytest.Function) -> bool:
    """Whether the two differ in their examples only, so that the leader's fixtures are the item's too."""
    mine, its = item.callspec.params, leader.callspec.params
    if mine.keys() != its.keys():
        return False
    # By value, since pytest numbers the values of a plain parameter anew for every item.
    return all(its[name] is value for name, value in mine.items() if name not in OWN_ARGUMENTS)
