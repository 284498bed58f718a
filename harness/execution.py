"""Runs benchmark items: the first item of a unit that pytest calls advances the whole unit, the others find
their outcome waiting.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.benchmark import ENGINE_FIXTURE, generator_function
from harness.collection import OWN_ARGUMENTS, checkpoint_of, given_of
from harness.drive import Job, Outcome, identity, run_unit
from harness.journal import Journal
from harness.records import Record, Status
from harness.scheduling import Quarantine
from harness.units import plan_units

if TYPE_CHECKING:
    from harness.engines import Engine

ALONE_MARKS: Final = ("skip", "skipif", "xfail")
"""pytest decides about items with these marks one by one, so they are never run for another item's sake."""


class Execution:
    """The units of this process and the outcomes that wait to be reported."""

    def __init__(
        self, items: Sequence[pytest.Item], unit_size: int, journal: Journal, quarantine: Quarantine
    ) -> None:
        self._items = list(items)
        self._journal = journal
        self._quarantine = quarantine
        self._outcomes: dict[str, Outcome] = {}
        self._settled: set[str] = set()
        self._unit_of: dict[str, list[int]] = {}
        alone = [
            item.nodeid for item in items if any(mark.name in ALONE_MARKS for mark in item.iter_markers())
        ]
        for unit in plan_units([item.nodeid for item in items], unit_size, alone):
            for index in unit:
                self._unit_of[self._items[index].nodeid] = unit

    def call(self, item: pytest.Function) -> Outcome:
        """The outcome of an item, computed now together with its unit, unless another item has done so."""
        if item.nodeid not in self._outcomes:
            members = self._members(item)
            jobs = [self._job(member, item) for member in members]
            engine: Engine = item._request.getfixturevalue(ENGINE_FIXTURE)
            outcomes = run_unit(jobs, engine, self._journal)
            self._outcomes.update(outcomes)
            self._settled.update(outcomes)
        return self._outcomes.pop(item.nodeid)

    def settle(self, item: pytest.Item, status: Status, message: str) -> None:
        """Journals an item that never got to run: skipped by a mark, or its fixtures failed."""
        given = given_of(item)
        if given is None or item.nodeid in self._settled:
            return
        self._settled.add(item.nodeid)
        who = identity(item.nodeid, given.loaded.spec, given.example, checkpoint_of(item).name)
        self._journal.append(Record(**who, status=status, message=message))

    def _members(self, leader: pytest.Function) -> list[pytest.Function]:
        """The unit's items that can run under the leader's fixtures and have not run yet, the leader first."""
        quarantined = self._quarantine.items()
        if leader.nodeid in quarantined:
            return [leader]
        members = [leader]
        for index in self._unit_of.get(leader.nodeid, ()):
            item = self._items[index]
            fresh = item.nodeid not in self._settled and item.nodeid not in quarantined
            if item is not leader and fresh and isinstance(item, pytest.Function) and _alike(item, leader):
                members.append(item)
        return members

    def _job(self, item: pytest.Function, leader: pytest.Function) -> Job:
        given = given_of(item)
        assert given is not None
        function = generator_function(item.function)
        own: Mapping[str, Any] = given.arguments()
        params = item.callspec.params
        wanted = {
            name: own[name]
            if name in OWN_ARGUMENTS
            else leader.funcargs[name]
            if name in leader.funcargs
            else params[name]
            for name in item._fixtureinfo.argnames  # what pytest itself would pass to the function
        }
        start = functools.partial(function, **wanted)
        return Job(item.nodeid, given.loaded.spec, given.example, checkpoint_of(item).name, start)


def _alike(item: pytest.Function, leader: pytest.Function) -> bool:
    """Whether the two differ in their examples only, so that the leader's fixtures are the item's too."""
    mine, its = item.callspec.indices, leader.callspec.indices
    return all(mine.get(name) == its.get(name) for name in {*mine, *its} - set(OWN_ARGUMENTS))
