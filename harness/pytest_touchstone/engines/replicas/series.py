"""The checkpoint that each replica of a series holds, and the one that it loads next. Pure: events in, orders out.

A replica takes a checkpoint, and stays with it as long as there is something for it to compute, or more is to come. A
free one takes the next checkpoint that no replica holds.

When there are fewer of these than replicas, a free one helps with a checkpoint that others hold: with the one whose
replicas will need longest, if that is longer than loading takes. Both are measured: the seconds of loading, and the
tokens computed in a second. Before any loading is measured, it is taken to help, so that at first all replicas load.
From then on a free replica waits for the first measurement of work.

What becomes of the units of one checkpoint is up to its ``Schedule``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from pytest_touchstone.engines.replicas.schedule import Answers, Order, ReplicaState, Schedule, Unit

Name = TypeVar("Name", bound=Hashable)
"""Whatever names a checkpoint."""

UNKNOWN: Final = math.inf
"""The cost of what is to come where nobody can tell."""


class LoadOrder(NamedTuple, Generic[Name]):
    """Let a replica load a checkpoint, in place of the one that it holds."""

    replica: int
    checkpoint: Name


class UnitOrder(NamedTuple, Generic[Name]):
    """Send a unit of a checkpoint to a replica."""

    checkpoint: Name
    order: Order


@dataclass(slots=True)
class Speed:
    """A quantity by time, as far as it is measured."""

    amount: float = 0.0
    seconds: float = 0.0

    def add(self, amount: float, seconds: float) -> None:
        """Take a measurement."""
        if seconds > 0.0:
            self.amount += amount
            self.seconds += seconds

    @property
    def each(self) -> float | None:
        """The seconds for one; None where nothing was measured."""
        return self.seconds / self.amount if self.amount else None


@dataclass(slots=True)
class Held:
    """A checkpoint: its schedule, whose replicas are those that hold it, and what is to come in tokens.

    ``wanted``: somebody waits for it now. ``avoids`` are the replicas that died of loading it. ``loads`` counts how
    often it was loaded.
    """

    schedule: Schedule = field(default_factory=lambda: Schedule.of([], {}))
    to_come: float = UNKNOWN
    wanted: bool = False
    avoids: set[int] = field(default_factory=set)
    loads: int = 0
    loading: Speed = field(default_factory=Speed)
    computing: Speed = field(default_factory=Speed)

    @property
    def holders(self) -> Mapping[int, ReplicaState]:
        """The replicas that hold it, or load it."""
        return self.schedule.replicas

    @property
    def alone(self) -> bool:
        """Return whether no replica holds or loads it of which anything is heard."""
        return all(one.away for one in self.holders.values())

    @property
    def unfinished(self) -> bool:
        """Return whether there is something left to do."""
        return not self.schedule.done or self.to_come > 0.0 or self.wanted

    @property
    def left(self) -> float:
        """The cost of what is left, as far as it is known."""
        return self.schedule.left + self.to_come


class ReplicaSeries(Generic[Name]):
    """Checkpoints and replicas, and who holds which."""

    def __init__(self, replicas: Iterable[int]) -> None:
        self.checkpoints: dict[Name, Held] = {}
        self.gone: set[int] = set()
        self.holds: dict[int, Name | None] = dict.fromkeys(replicas)
        self._loading, self._computing = Speed(), Speed()
        self._idle: set[int] = set(self.holds)
        self._stirred: dict[Name, None] = {}
        self._changed = True

    # What is asked

    def open(self, name: Name, held: Held) -> None:
        """Take another checkpoint; the first are loaded first."""
        self.checkpoints[name] = held
        self._changed = True

    def close(self, name: Name) -> None:
        """Forget a checkpoint, and all of its units; its replicas are free."""
        held = self.checkpoints.pop(name, None)
        if held is not None:
            self.holds |= dict.fromkeys(held.holders)
            self._idle.update(held.holders)
            self._changed = True

    def ask(self, name: Name, units: Iterable[Unit]) -> None:
        """Take units of a checkpoint."""
        if (held := self.checkpoints.get(name)) is not None:
            held.schedule.add(units)
            self._stirred[name] = None
            self._changed = True

    def expect(self, name: Name, cost: float) -> None:
        """Take note of the cost of what is yet to be asked of a checkpoint."""
        if (held := self.checkpoints.get(name)) is not None:
            held.to_come = cost
            self._stirred[name] = None
            self._changed = True

    def want(self, name: Name, *, wanted: bool) -> None:
        """Take note that somebody waits for a checkpoint now, or no longer."""
        held = self.checkpoints.get(name)
        if held is not None and held.wanted != wanted:
            held.wanted = wanted
            self._changed = self._changed or held.alone

    def stuck(self, held: Held) -> bool:
        """Return whether no replica is left that could load a checkpoint."""
        return bool(held.avoids or self.gone) and all(
            one in held.avoids or one in self.gone for one in self.holds
        )

    # What is to be done

    def orders(self) -> list[UnitOrder[Name] | LoadOrder[Name]]:
        """Return what is to be done now; it counts as done.

        Only what has changed since the last call is looked at: there may be hundreds of checkpoints and replicas.
        """
        found: list[UnitOrder[Name] | LoadOrder[Name]] = []
        stirred, self._stirred = self._stirred, {}
        before = len(self._idle)
        for name in stirred:
            if (held := self.checkpoints.get(name)) is None:
                continue
            if held.schedule.waits:
                found += [UnitOrder(name, order) for order in held.schedule.orders()]
            for replica, state in held.holders.items():
                if state.ready and not state.has:
                    self._idle.add(replica)
                else:
                    self._idle.discard(replica)
        if self._idle and (self._changed or len(self._idle) > before):
            found += self._loads()
        self._changed = False
        return found

    def _loads(self) -> Iterator[LoadOrder[Name]]:
        """Let free replicas load what they should, those that hold nothing first."""
        unfinished = {name: one for name, one in self.checkpoints.items() if one.unfinished}
        alone = {name: None for name, one in unfinished.items() if one.alone}
        helped = [name for name, one in unfinished.items() if self._helps(one)]
        for replica in sorted(self._idle, key=lambda one: (self._of(self.holds[one]) is not None, one)):
            if not alone and not helped:
                return
            own = self.holds[replica]
            may = [name for name in alone if name != own and replica not in unfinished[name].avoids]
            urgent = [name for name in may if unfinished[name].wanted]
            if not urgent and own in unfinished and unfinished[own].to_come > 0.0:
                continue
            if not may:
                may = [one for one in helped if one != own and replica not in unfinished[one].avoids]
                may.sort(key=lambda name: self._seconds_left(unfinished[name]), reverse=True)
            if not (chosen := urgent or may):
                continue
            name = chosen[0]
            self._take(replica, name)
            alone.pop(name, None)
            helped = [one for one in helped if one != name] + (
                [name] if self._helps(unfinished[name]) else []
            )
            yield LoadOrder(replica, name)

    def _helps(self, held: Held) -> bool:
        """Return whether one more replica of a checkpoint would be there before the others are done."""
        if not (held.schedule.waits or held.to_come > 0.0):
            return False  # all of it is being computed
        load = held.loading.each or self._loading.each
        if load is None:
            return True
        # Nothing was computed yet, but will be by those that have loaded: then it is known.
        return self._speed(held) is not None and self._seconds_left(held) > load

    def _seconds_left(self, held: Held) -> float:
        return held.left * (self._speed(held) or 1.0) / max(1, len(held.holders))

    def _speed(self, held: Held) -> float | None:
        return held.computing.each or self._computing.each

    def _take(self, replica: int, name: Name) -> None:
        self._leave(replica)
        held = self.checkpoints[name]
        held.schedule.replicas[replica] = ReplicaState()
        held.loads += 1
        self.holds[replica] = name
        self._idle.discard(replica)

    def _leave(self, replica: int) -> None:
        held = self._of(self.holds[replica])
        if held is not None:
            held.schedule.replicas.pop(replica, None)
        self.holds[replica] = None

    # What has happened

    def loaded(self, replica: int, seconds: float = 0.0) -> list[int]:
        """Note that a replica can answer; return the requests that are given up."""
        if (held := self._stir(replica)) is None:
            return []
        held.loading.add(1, seconds)
        self._loading.add(1, seconds)
        return held.schedule.loaded(replica)

    def answered(self, name: Name, held: Held, replica: int, unit: int, answers: Answers) -> list[int]:
        """Take the answers of a unit of a checkpoint; return the requests that are answered only now."""
        self._stirred[name] = None
        return held.schedule.answered(replica if replica in held.holders else None, unit, answers)

    def measured(self, held: Held, cost: float, seconds: float) -> None:
        """Take note of the seconds in which a replica has computed so much of a checkpoint."""
        self._changed = self._changed or self._computing.each is None  # free replicas may have waited for it
        held.computing.add(cost, seconds)
        self._computing.add(cost, seconds)

    def failed(self, name: Name, held: Held, replica: int, unit: int) -> list[int]:
        """Take note of an error that a unit has raised; return the requests that are given up for it."""
        self._stirred[name] = None
        return held.schedule.failed(replica if replica in held.holders else None, unit)

    def lost(self, replica: int) -> list[int]:
        """Note that nothing is heard of a replica any more; return the requests that are given up."""
        held = self._stir(replica)
        return held.schedule.lost(replica) if held is not None else []

    def died(self, replica: int, *, outside: bool = False) -> list[int]:
        """Take note of a death; return the requests that are given up for it.

        The replica loads again what it held, unless it has died of that too often.
        """
        if (held := self._stir(replica)) is None:
            return []
        given_up = held.schedule.died(replica, outside=outside)
        if held.holders[replica].gone:
            held.avoids.add(replica)
            self._leave(replica)
            self._idle.add(replica)
        else:
            held.loads += 1
        return given_up

    def left_out(self, replica: int) -> list[int]:
        """Note that a replica can never answer again; return the requests that are given up for it."""
        self.gone.add(replica)
        held = self._stir(replica)
        given_up = held.schedule.left_out(replica) if held is not None else []
        self._leave(replica)
        self._idle.discard(replica)
        return given_up

    def _stir(self, replica: int) -> Held | None:
        """Return what a replica holds, of which something has happened to it."""
        name = self.holds[replica]
        if name is None or (held := self.checkpoints.get(name)) is None:
            return None
        self._stirred[name] = None
        self._changed = True
        self._idle.discard(replica)
        return held

    def _of(self, name: Name | None) -> Held | None:
        return None if name is None else self.checkpoints.get(name)
