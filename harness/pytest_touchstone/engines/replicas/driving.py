"""The schedule of a series and its transport together: orders go out, and what happens is told to the schedule."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_touchstone.core.requests import Answer, Refusal, Request
from pytest_touchstone.engines.base import Done
from pytest_touchstone.engines.replicas.series import UNKNOWN, Held, LoadOrder, Series, UnitOrder
from pytest_touchstone.engines.replicas.transport import (
    Answered,
    Died,
    Event,
    Failed,
    Gone,
    Loaded,
    Lost,
    Refused,
    Transport,
    Weights,
)
from pytest_touchstone.engines.replicas.units import TEXTS, cost_of, plan_units

COUNTS: Final = ("units", "resent", "deaths", "doubles")


@dataclass(slots=True, eq=False)
class Asked:
    """Requests that were asked together, numbered from ``first`` on, and who takes their answers."""

    first: int
    requests: Sequence[Request]
    done: Done
    open: int
    sendings: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Work:
    """A checkpoint that is open: what is asked of it, and what that has cost.

    ``held_by`` are the replicas that have ever held it; ``fault`` says why it cannot be loaded. ``texts`` is the most
    that one of them continues together, as far as they have said.
    """

    weights: Weights
    held: Held = field(default_factory=Held)
    fault: str | None = None
    loaded: bool = False
    held_by: set[int] = field(default_factory=set)
    usage: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    deaths: int = 0
    units: int = 0
    cost: float = 0.0
    asked: dict[int, Asked] = field(default_factory=dict)
    next: int = 0
    texts: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The counts of units and deaths."""
        schedule = self.held.schedule
        return dict(zip(COUNTS, (self.units, schedule.resent, self.deaths, schedule.doubles), strict=True))


@dataclass(slots=True)
class _Sending:
    """A unit on its way: its checkpoint, its number there, and its requests."""

    work: Work
    unit: int
    requests: tuple[int, ...]
    asked: Asked


class Driving:
    """Sends what the schedule orders, and tells it what happens."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._series: Series[Work] = Series(transport.replicas)
        self._works: list[Work] = []
        self._sent: dict[int, _Sending] = {}
        self._numbers = itertools.count()
        self._events: deque[Event] = deque()
        self.gone = ""

    @property
    def able(self) -> int:
        """The number of replicas that may answer."""
        return len(self._series.holds) - len(self._series.gone)

    def open(self, weights: Weights) -> Work:
        """Take another checkpoint."""
        work = Work(weights)
        self._works.append(work)
        self._series.open(work, work.held)
        return work

    def close(self, work: Work) -> None:
        """Let go of a checkpoint; the replicas end with the last one."""
        if work in self._works:
            self._works.remove(work)
            self._series.close(work)
            if not self._works:
                self._transport.close()

    def stuck(self, work: Work) -> bool:
        """Return whether no replica is left for a checkpoint."""
        return self._series.stuck(work.held)

    def ask(self, work: Work, requests: Sequence[Request], done: Done) -> Asked:
        """Take requests of a checkpoint; ``done`` gets each answer in ``step``."""
        asked = Asked(work.next, requests, done, len(requests))
        if not requests:
            return asked
        work.next += len(requests)
        work.asked |= dict.fromkeys(range(asked.first, work.next), asked)
        able = self.able if len(self._works) == 1 else max(1, len(work.held.holders))
        units = plan_units(requests, max(1, able), work.texts or TEXTS)
        work.cost += sum(one.cost for one in units)
        moved = (one._replace(requests=tuple(asked.first + n for n in one.requests)) for one in units)
        self._series.ask(work, moved)
        return asked

    def leave(self, work: Work, asked: Asked) -> None:
        """Let go of requests, answered or not; a unit of them that is still computed is known until it ends."""
        numbers = range(asked.first, asked.first + len(asked.requests))
        work.held.schedule.withdraw(numbers)
        for one in numbers:
            work.asked.pop(one, None)
        computed = {unit for one in work.held.holders.values() for unit in one.has}
        for number in asked.sendings:
            if number in self._sent and self._sent[number].unit not in computed:
                del self._sent[number]

    def expect(self, work: Work, items: int, to_come: int) -> None:
        """Take note of how many items have asked of a checkpoint, and how many will."""
        each = work.cost / items if items and work.cost else UNKNOWN
        self._series.expect(work, to_come * each if to_come else 0.0)

    @contextlib.contextmanager
    def waiting_for(self, work: Work) -> Iterator[None]:
        """Put a checkpoint before others meanwhile."""
        self._series.want(work, wanted=True)
        try:
            yield
        finally:
            self._series.want(work, wanted=False)

    def step(self, *, block: bool = True) -> None:
        """Send what can be sent, and take what has happened; with ``block``, wait for something to happen."""
        self._send()
        self._events.extend(self._transport.wait() if block else self._transport.look())
        while self._events:  # what is not taken now for an exception is taken in the next step
            self._happened(self._events.popleft())
        if not block:
            self._send()

    def _send(self) -> None:
        for one in self._series.orders():
            match one:
                case LoadOrder(replica, work):
                    work.held_by.add(replica)
                    self._transport.load(replica, work.weights)
                case UnitOrder(work, (replica, unit, numbers)):
                    asked = work.asked[numbers[0]]
                    number = next(self._numbers)
                    self._sent[number] = _Sending(work, unit, numbers, asked)
                    asked.sendings.append(number)
                    work.units += 1
                    requests = [asked.requests[n - asked.first] for n in numbers]
                    self._transport.submit(replica, number, requests)

    def _happened(self, event: Event) -> None:
        series, given_up = self._series, list[int]()
        work = series.holds[event.replica]
        match event:
            case Answered() | Failed():
                self._ended(event)
            case Loaded(replica, seconds, texts):
                if work is not None:
                    work.loaded = True
                    work.texts = max(work.texts or 0, texts or 0) or None
                given_up = series.loaded(replica, seconds)
            case Refused(_, message):
                if work is not None:
                    work.fault = message
                    series.close(work)
            case Lost(replica):
                given_up = series.lost(replica)
            case Died(replica, outside):
                given_up = series.died(replica, outside=outside)
                if work is not None:
                    work.deaths += 1
                if (kept := series.holds[replica]) is not None:
                    self._transport.load(replica, kept.weights)
            case Gone(replica, message):
                self.gone = message
                given_up = series.left_out(replica)
        if work is not None:
            self._give_up(work, given_up)

    def _ended(self, event: Answered | Failed) -> None:
        """Take the answers of a unit, or its error."""
        if (sending := self._sent.get(event.unit)) is None:
            return
        work, known = sending.work, sending.requests[0] in sending.work.asked
        if not known:
            del self._sent[event.unit]
        if isinstance(event, Failed):
            for number in self._series.failed(work, work.held, event.replica, sending.unit):
                self._take(work, number, Refusal(event.message))
            return
        work.usage[event.replica, event.life] = event.usage
        told = dict(zip(sending.requests, event.answers, strict=True)) if known else {}
        if event.seconds and known:
            first = sending.asked.first
            cost = sum(cost_of(sending.asked.requests[number - first]) for number in told)
            self._series.measured(work.held, cost, event.seconds)
        for number in self._series.answered(work, work.held, event.replica, sending.unit, told):
            self._take(work, number, told[number])

    def _give_up(self, work: Work, numbers: Sequence[int]) -> None:
        reasons = [Refusal(work.held.schedule.given_up[number]) for number in numbers]
        for number, reason in zip(numbers, reasons, strict=True):
            self._take(work, number, reason)

    def _take(self, work: Work, number: int, answer: Answer | Refusal) -> None:
        if (asked := work.asked.get(number)) is None:
            return
        asked.open -= 1
        if not asked.open:
            self.leave(work, asked)
        asked.done(number - asked.first, answer)
