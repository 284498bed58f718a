"""The units that each replica is sent, and those whose replica dies. Pure: events in, orders out.

Requests are sorted by their texts, so that those with a common beginning come to one replica, which computes it once.
The longest come first, since what is long and begins late ends late, and units grow smaller towards the end, so that
all replicas end at about the same time. Units of texts stay as large as an engine continues texts together.

A replica first loads; only then it is sent units, two at most, so that it never waits. It computes them one after the
other. When it dies, the first of them is probably to blame, but not surely: the answer to it may have been on its
way. So both go back, and from then on each is sent alone, to a replica that has nothing else.

A unit that is blamed for three deaths is halved, and its halves are halved again at their next death, until one
request is left. That one has deaths of its own, each while it was all that the replica had, and is given up by name
at the third. So one request that kills whatever computes it costs that request.

A death together with the node, or an answer that was lost while the replica lives on, is hardly ever a request's
doing. It counts a third: a request that takes its node along is found too, only later.

When a replica is lost, it may be open whether it has died: that is known once it is heard of again. Its units are sent
anew at once, and the blame follows.

A replica that dies while it loads has no unit to blame: after three such deaths in a row it is left out.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from pytest_touchstone.core.requests import (
    FillMask,
    Generate,
    Judge,
    Loglikelihood,
    PseudoLoglikelihood,
    Request,
    RollingLoglikelihood,
    RunProgram,
)
from pytest_touchstone.core.text import CHARACTERS_PER_TOKEN

LEAST: Final = 2000.0
"""The least cost of a unit, in tokens, but for the last: below it, sending it costs more than it evens out."""

TEXTS: Final = 64
"""The texts that an engine continues together which does not say how many it does."""

SHARE: Final = 4
"""A unit is this part of what is left for each replica."""

GENERATED: Final = 10.0
"""The cost of a new token in tokens of a prompt."""

COMMON: Final = 64
"""The characters at the beginning in which requests agree that are kept together."""


class Unit(NamedTuple):
    """A unit: the numbers of its requests, and what they cost."""

    requests: tuple[int, ...]
    cost: float


def cost_of(request: Request) -> float:
    """Return about how many tokens a request makes a model compute."""
    match request:
        case Loglikelihood(context, continuation):
            return 1 + (len(context) + len(continuation)) / CHARACTERS_PER_TOKEN
        case RollingLoglikelihood(text) | FillMask(text):
            return 1 + len(text) / CHARACTERS_PER_TOKEN
        case PseudoLoglikelihood(text):
            return (1 + len(text) / CHARACTERS_PER_TOKEN) ** 2
        case Generate(prompt):
            return (
                1
                + len(prompt) / CHARACTERS_PER_TOKEN
                + GENERATED * request.different * request.max_new_tokens
            )
        case RunProgram() | Judge():
            return 1.0


def plan_units(requests: Sequence[Request], replicas: int, together: int = TEXTS) -> list[Unit]:
    """Return every request in one unit, the units in the order in which they are to be sent.

    An engine continues so many texts ``together``. A unit that has any has as many at least, but for the last, if there
    are so many for each replica. A step takes about as long for few texts as for many, and a unit takes as many steps
    as its longest text, so smaller units would even out nothing.
    """
    costs = [cost_of(one) for one in requests]
    left, found, unit, size, texts = math.fsum(costs), [], [], 0.0, 0
    least = min(together, math.ceil(sum(map(_texts, requests)) / replicas))
    for number in _ordered(requests, costs):
        unit.append(number)
        size += costs[number]
        texts += _texts(requests[number])
        if size >= max(LEAST, left / (SHARE * replicas)) and not 0 < texts < least:
            found.append(Unit(tuple(unit), size))
            left, unit, size, texts = left - size, [], 0.0, 0
    return found + ([Unit(tuple(unit), size)] if unit else [])


def _ordered(requests: Sequence[Request], costs: Sequence[float]) -> list[int]:
    """Return the requests' numbers: families with a common beginning, those with the longest member first."""
    families: dict[tuple[str, str], list[int]] = {}
    for number in sorted(range(len(requests)), key=lambda one: (_text(requests[one]), one), reverse=True):
        one = requests[number]
        families.setdefault((type(one).__name__, _text(one)[:COMMON]), []).append(number)
    ordered = sorted(families.values(), key=lambda own: (-max(costs[one] for one in own), own[0]))
    return [number for own in ordered for number in own]


def _texts(request: Request) -> int:
    return request.different if isinstance(request, Generate) else 0


def _text(request: Request) -> str:
    match request:
        case Loglikelihood(context, _):
            return context
        case RollingLoglikelihood(text) | FillMask(text) | PseudoLoglikelihood(text):
            return text
        case Generate(prompt):
            return prompt
        case RunProgram() | Judge():
            return ""


IN_FLIGHT: Final = 2
"""The most units that a replica has at once."""

MOST_DEATHS: Final = 3
"""The deaths of its replica after which a unit is halved, or a single request given up."""

OUTSIDE: Final = 3
"""So many deaths together with a node, or lost answers, count as one death."""

_LIMIT: Final = MOST_DEATHS * OUTSIDE

Answers: TypeAlias = Mapping[int, Any]


class Order(NamedTuple):
    """Send these requests, as the unit of that number, to a replica."""

    replica: int
    unit: int
    requests: tuple[int, ...]


@dataclass(slots=True, eq=False)
class _Sent:
    """A unit that is not done: its requests, and what it is blamed for, in thirds of a death.

    ``alone``: it was there when a replica was lost, and is sent to a replica that has nothing else.
    """

    requests: tuple[int, ...]
    blame: int = 0
    deaths: int = 0
    losses: int = 0
    alone: bool = False
    waits_as: int | None = None

    @property
    def reason(self) -> str:
        """The reason for which it is given up."""
        if self.deaths >= MOST_DEATHS:
            return f"the process that computes it has died, {self.deaths} times"
        return (
            f"the process that computes it has died, {self.deaths} times, and was lost with its node, or its "
            f"answer on the way, {self.losses} times"
        )


class _Doubt(NamedTuple):
    """The unit that a lost replica computed, and whether it was all that it had."""

    sent: _Sent
    was_alone: bool


@dataclass(slots=True)
class ReplicaState:
    """A replica as the schedule knows it: ``has`` are the numbers of its units, the first of which it computes.

    ``away``: nothing is heard of it.
    """

    ready: bool = False
    loads: bool = True
    away: bool = False
    gone: bool = False
    failed_loads: int = 0
    has: deque[int] = field(default_factory=deque)
    alone: bool = False
    doubt: _Doubt | None = None

    def takes(self, most: int) -> bool:
        """Return whether it can be sent a unit, and then has so many at most."""
        return self.ready and not self.gone and len(self.has) < most and not (self.alone and self.has)


@dataclass(slots=True)
class Schedule:
    """The units of one checkpoint. ``given_up`` has the requests that killed every replica that computed them, and why;
    ``differing`` those that were answered twice, and not alike."""

    replicas: dict[int, ReplicaState]
    given_up: dict[int, str] = field(default_factory=dict)
    differing: list[int] = field(default_factory=list)
    next: int = 0
    resent: int = 0
    doubles: int = 0
    _units: dict[int, _Sent] = field(default_factory=dict)
    _waiting: deque[int] = field(default_factory=deque)
    _suspects: deque[int] = field(default_factory=deque)
    _answers: dict[int, Any] = field(default_factory=dict)
    _open: dict[int, float] = field(default_factory=dict)
    _cost: float = 0.0

    @classmethod
    def of(cls, units: Sequence[Unit], replicas: Mapping[int, ReplicaState], first: int = 0) -> Schedule:
        """Return a schedule of these units for these replicas, as an earlier schedule has left them.

        Units are numbered from ``first`` on, so that those of an earlier schedule are none of this one's: a replica
        may still compute them, and their answers come late.
        """
        found = cls(dict(replicas), next=first)
        for state in found.replicas.values():
            state.doubt = None  # its unit is none of these
        found.add(units)
        return found

    def add(self, units: Iterable[Unit]) -> None:
        """Take more units, whose requests have new numbers."""
        for unit in units:
            self._cost = self.left + unit.cost
            self._wait(_Sent(unit.requests))
            self._open.update(dict.fromkeys(unit.requests, unit.cost / len(unit.requests)))

    def withdraw(self, requests: Iterable[int]) -> None:
        """Let go of requests: what is still open of them is not sent any more, and nothing is kept of the others."""
        for one in requests:
            self._end(one)
            self._answers.pop(one, None)
            self.given_up.pop(one, None)

    @property
    def done(self) -> bool:
        """Return whether every request is answered or given up."""
        return not self._open

    @property
    def left(self) -> float:
        """The cost of what is neither answered nor given up."""
        return self._cost if self._open else 0.0

    @property
    def waits(self) -> bool:
        """Return whether a unit waits to be sent."""
        return any(self._left(self._units[one]) for queue in (self._waiting, self._suspects) for one in queue)

    @property
    def stuck(self) -> bool:
        """Return whether no replica is left."""
        return all(one.gone for one in self.replicas.values())

    def orders(self) -> list[Order]:
        """Return what is to be sent now; it counts as sent. Replicas with less to do come first.

        What may have killed a replica is sent when nothing else waits.
        """
        found = []
        for queue, most in ((self._waiting, IN_FLIGHT), (self._suspects, 1)):
            while queue:
                able = [(len(one.has), name) for name, one in self.replicas.items() if one.takes(most)]
                if not able:
                    break
                number = queue.popleft()
                sent = self._units[number]
                sent.waits_as = None
                sent.requests = self._left(sent)
                if not sent.requests:
                    del self._units[number]
                    continue
                replica = self.replicas[min(able)[1]]
                replica.has.append(number)
                replica.alone = sent.alone
                found.append(Order(min(able)[1], number, sent.requests))
        return found

    def loaded(self, replica: int) -> list[int]:
        """Note that a replica can answer; return the requests that are given up.

        If it was lost before, it has not died: then only its answer was lost.
        """
        one = self.replicas[replica]
        one.ready, one.loads, one.away, one.failed_loads = True, False, False, 0
        return self._resolve(one, outside=True)

    def answered(self, replica: int | None, unit: int, answers: Answers) -> list[int]:
        """Take a unit's answers by request; return the requests that are answered only now.

        It does not matter whether the unit was sent elsewhere meanwhile, or halved.
        """
        self._ends(replica, unit)
        fresh = []
        for number, answer in answers.items():
            if number in self._open:
                self._end(number)
                self._answers[number] = answer
                fresh.append(number)
                continue
            self.doubles += 1
            if number in self._answers and self._answers[number] != answer:
                self.differing.append(number)
        self._units.pop(unit, None)
        return fresh

    def lost(self, replica: int) -> list[int]:
        """Note that nothing is heard of a replica any more; return the requests that are given up.

        ``loaded`` or ``died`` tells what has become of it.
        """
        one = self.replicas[replica]
        one.ready, one.away = False, True
        held, was_alone = [self._units.pop(number, None) for number in one.has], len(one.has) == 1
        one.has.clear()
        if held and held[0] is not None:
            one.doubt = _Doubt(held[0], was_alone)
        given_up = []
        for sent in reversed(held):
            if sent is not None:
                sent.alone = True
                given_up += self._again(sent)
        return given_up

    def died(self, replica: int, *, outside: bool = False) -> list[int]:
        """Take note of a death; return the requests that are given up for it. The replica loads anew.

        ``outside``: the node has died with it.
        """
        one = self.replicas[replica]
        given_up = self.lost(replica)
        if one.loads:
            one.failed_loads += 1 if outside else OUTSIDE
            one.gone = one.gone or one.failed_loads >= _LIMIT
        one.loads, one.away = True, False
        return given_up + self._resolve(one, outside=outside)

    def left_out(self, replica: int) -> list[int]:
        """Note that a replica can never answer again; return the requests that are given up for it."""
        self.replicas[replica].gone = True
        return self.lost(replica)

    def failed(self, replica: int | None, unit: int) -> list[int]:
        """Take note of an error that a unit has raised; return the requests that are given up for it.

        The replica lives on. An error is not tried again: the unit is halved at once.
        """
        self._ends(replica, unit)
        if (sent := self._units.pop(unit, None)) is None:
            return []
        sent.blame = _LIMIT
        return self._again(sent)

    def _end(self, request: int) -> None:
        self._cost -= self._open.pop(request, 0.0)

    def _ends(self, replica: int | None, unit: int) -> None:
        """Note that a replica is done with a unit; one that holds another checkpoint by now has none of these."""
        if replica is not None and unit in (own := self.replicas[replica].has):
            own.remove(unit)

    def _resolve(self, one: ReplicaState, *, outside: bool) -> list[int]:
        """Blame what a lost replica computed, now that it is known what has become of it.

        It may have been answered or given up since, or be computed by another replica just now.
        """
        doubt, one.doubt = one.doubt, None
        if doubt is None or not (left := self._left(doubt.sent)):
            return []
        sent = doubt.sent
        if len(left) > 1 or doubt.was_alone:
            sent.blame += 1 if outside else OUTSIDE
            sent.losses += outside
            sent.deaths += not outside
        if sent.blame < _LIMIT or sent.waits_as is None:
            return []
        self._suspects.remove(sent.waits_as)
        del self._units[sent.waits_as]
        sent.waits_as = None
        return self._again(sent)

    def _again(self, sent: _Sent) -> list[int]:
        """Send a unit again, or its halves where it is blamed enough; return the request that is given up instead."""
        sent.requests = self._left(sent)
        if not sent.requests:
            return []
        if sent.blame < _LIMIT:
            self.resent += 1
            self._wait(sent)
            return []
        ended, sent.requests = sent.requests, ()  # another replica may still be in doubt for it
        if len(ended) == 1:
            (request,) = ended
            self._end(request)
            self.given_up[request] = sent.reason
            return [request]
        half = len(ended) // 2
        for part in (ended[:half], ended[half:]):
            # The next death halves it again; but a single request is blamed only for deaths of its own.
            blame = 0 if len(part) == 1 else _LIMIT - OUTSIDE
            self._wait(_Sent(part, blame, alone=sent.alone))
        return []

    def _left(self, sent: _Sent) -> tuple[int, ...]:
        return tuple(one for one in sent.requests if one in self._open)

    def _wait(self, sent: _Sent) -> None:
        """Put a unit in its queue.

        It gets a new number, so that a late answer to an earlier sending does not end this one.
        """
        self._units[self.next] = sent
        sent.waits_as = self.next
        (self._suspects if sent.alone else self._waiting).append(self.next)
        self.next += 1
