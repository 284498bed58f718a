"""The units that each replica is sent, and those whose replica dies. Pure: events in, orders out.

A replica first loads; only then it is sent units, two at most, so that it never waits. It computes them one after the
other: when it dies, the first of them is to blame, and the second goes back as it was. A unit whose replica has died
three times is halved, and its halves are halved again at their next death, until one request is left. That one may
die three times too, and is then given up by name. So one request that kills whatever computes it costs that request.

A replica that dies while it loads has no unit to blame: after three such deaths in a row it is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from harness.engines.replicas.units import Unit

IN_FLIGHT: Final = 2
"""The most units that a replica has at once."""

MOST_DEATHS: Final = 3
"""The deaths of its replica after which a unit is halved, or a single request given up."""

Answers: TypeAlias = Mapping[int, Any]


class Order(NamedTuple):
    """Send these requests, as the unit of that number, to a replica."""

    replica: int
    unit: int
    requests: tuple[int, ...]


@dataclass(slots=True)
class _Sent:
    """A unit that is not done: its requests, and the deaths that it is blamed for."""

    requests: tuple[int, ...]
    deaths: int = 0


@dataclass(slots=True)
class _Replica:
    ready: bool = False
    gone: bool = False
    failed_loads: int = 0
    has: deque[int] = field(default_factory=deque)


@dataclass(slots=True)
class Schedule:
    """The units of one call. ``given_up`` has the requests that killed every replica that computed them; ``differing``
    those that were answered twice, and not alike."""

    given_up: dict[int, int] = field(default_factory=dict)
    differing: list[int] = field(default_factory=list)
    first: int = 0
    next: int = 0
    resent: int = 0
    doubles: int = 0
    _units: dict[int, _Sent] = field(default_factory=dict)
    _waiting: deque[int] = field(default_factory=deque)
    _answers: dict[int, Any] = field(default_factory=dict)
    _replicas: dict[int, _Replica] = field(default_factory=dict)
    _open: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, units: Sequence[Unit], ready: Mapping[int, bool], first: int = 0) -> Schedule:
        """Return a schedule of these units for these replicas; a value says whether the replica is loaded.

        Units are numbered from ``first`` on, so that a late answer to those of an earlier call is known as such.
        """
        found = cls(first=first, next=first)
        for unit in units:
            found._wait(_Sent(unit.requests))
            found._open.update(unit.requests)
        found._replicas = {name: _Replica(ready=loaded) for name, loaded in ready.items()}
        return found

    @property
    def done(self) -> bool:
        """Return whether every request is answered or given up."""
        return not self._open

    @property
    def stuck(self) -> bool:
        """Return whether no replica is left for what is not answered."""
        return bool(self._open) and all(one.gone for one in self._replicas.values())

    def knows(self, unit: int) -> bool:
        """Return whether a unit is one of this call."""
        return self.first <= unit < self.next

    def ready(self) -> dict[int, bool]:
        """Return which replicas are loaded now, without those that are left out."""
        return {name: one.ready for name, one in self._replicas.items() if not one.gone}

    def orders(self) -> list[Order]:
        """Return what is to be sent now; it counts as sent. Replicas with less to do come first."""
        found = []
        while self._waiting:
            able = [
                (len(one.has), name)
                for name, one in self._replicas.items()
                if one.ready and not one.gone and len(one.has) < IN_FLIGHT
            ]
            if not able:
                break
            number = self._waiting.popleft()
            left = tuple(one for one in self._units[number].requests if one in self._open)
            if not left:
                del self._units[number]
                continue
            replica = min(able)[1]
            self._units[number].requests = left
            self._replicas[replica].has.append(number)
            found.append(Order(replica, number, left))
        return found

    def loaded(self, replica: int) -> None:
        """Note that a replica can answer."""
        one = self._replicas[replica]
        one.ready, one.failed_loads = True, 0

    def answered(self, replica: int, unit: int, answers: Answers) -> list[int]:
        """Take a unit's answers by request; return the requests that are answered only now.

        It does not matter whether the unit was sent elsewhere meanwhile, or halved.
        """
        own = self._replicas[replica].has
        if unit in own:
            own.remove(unit)
        fresh = []
        for number, answer in answers.items():
            if number in self._open:
                self._open.discard(number)
                self._answers[number] = answer
                fresh.append(number)
                continue
            self.doubles += 1
            if number in self._answers and self._answers[number] != answer:
                self.differing.append(number)
        self._units.pop(unit, None)
        return fresh

    def died(self, replica: int) -> list[int]:
        """Take note of a death; return the requests that are given up for it. The replica loads anew."""
        one = self._replicas[replica]
        held, one.has = list(one.has), deque()
        was_ready, one.ready = one.ready, False
        if not was_ready:
            one.failed_loads += 1
            one.gone = one.failed_loads >= MOST_DEATHS
        for number in reversed(held[1:]):
            self._again(number)
        return self._blame(held[0]) if held else []

    def failed(self, replica: int, unit: int) -> list[int]:
        """Take note of an error that a unit has raised; return the requests that are given up for it.

        The replica lives on. An error is not tried again: the unit is halved at once.
        """
        own = self._replicas[replica].has
        if unit in own:
            own.remove(unit)
        if (sent := self._units.get(unit)) is None:
            return []
        sent.deaths = MOST_DEATHS - 1
        return self._blame(unit)

    def _blame(self, number: int) -> list[int]:
        if (sent := self._units.get(number)) is None:
            return []
        sent.requests = tuple(one for one in sent.requests if one in self._open)
        sent.deaths += 1
        if sent.deaths < MOST_DEATHS:
            self._again(number)
            return []
        del self._units[number]
        if len(sent.requests) == 1:
            (request,) = sent.requests
            self._open.discard(request)
            self.given_up[request] = sent.deaths
            return [request]
        half = len(sent.requests) // 2
        for part in (sent.requests[:half], sent.requests[half:]):
            if part:
                # The next death halves it again; but a single request is blamed only for deaths of its own.
                self._wait(_Sent(part, deaths=0 if len(part) == 1 else MOST_DEATHS - 1))
        return []

    def _again(self, number: int) -> None:
        """Send a unit again, last of all: what is healthy comes first.

        It gets a new number, so that a late answer to the first sending does not end the second.
        """
        if (sent := self._units.pop(number, None)) is not None:
            self.resent += 1
            self._wait(sent)

    def _wait(self, sent: _Sent) -> None:
        self._units[self.next] = sent
        self._waiting.append(self.next)
        self.next += 1
