"""``ReplicatedEngine``: one checkpoint in several processes, behind the seam of engines.

The driver asks it like any other engine. Units of requests go to the replicas, and each answer is handed on as it
comes. Records and the journal stay with the driver, the only process that writes.

``ReplicatedSeries`` has the replicas that several such engines share, and puts their schedules and the transport
together: orders go out, and what happens is told to the schedules. Whoever waits for one of the engines also takes what
comes for the others.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError, ServerError
from pytest_touchstone.core.requests import Answer, Refusal, Request
from pytest_touchstone.core.text import count, one_line
from pytest_touchstone.engines.base import LOG, Done, Engine, Receiver
from pytest_touchstone.engines.registry import EnginePool, identity
from pytest_touchstone.engines.replicas import ray_replicas
from pytest_touchstone.engines.replicas.ray_cluster import target_of
from pytest_touchstone.engines.replicas.schedule import MOST_DEATHS, TEXTS, cost_of, plan_units
from pytest_touchstone.engines.replicas.series import UNKNOWN, Held, LoadOrder, ReplicaSeries, UnitOrder
from pytest_touchstone.engines.replicas.transport import (
    Answered,
    CheckpointLoaded,
    Died,
    Event,
    Failed,
    Gone,
    Lost,
    Refused,
    ReplicaTransport,
    WantedWeights,
)
from pytest_touchstone.engines.settings import ModelSettings


@dataclass(slots=True, eq=False)
class AskedRequests:
    """Requests that were asked together, numbered from ``first`` on, and for each of them who takes the answer, under
    which number; None where nobody does any more."""

    first: int
    requests: Sequence[Request]
    receivers: list[tuple[Receiver, int] | None]
    open: int
    sendings: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class CheckpointWork:
    """A checkpoint that is open: what is asked of it, and what that has cost.

    ``gathered`` is what is yet to be planned, together.
    ``held_by`` are the replicas that have ever held it; ``fault`` says why it cannot be loaded. ``texts`` is the most
    that one of them continues together, as far as they have said.
    """

    weights: WantedWeights
    held: Held = field(default_factory=Held)
    fault: str | None = None
    loaded: bool = False
    held_by: set[int] = field(default_factory=set)
    usage: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    deaths: int = 0
    units: int = 0
    cost: float = 0.0
    gathered: list[tuple[Request, Receiver, int]] = field(default_factory=list)
    asked: dict[int, AskedRequests] = field(default_factory=dict)
    next: int = 0
    texts: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The counts of units and deaths."""
        schedule = self.held.schedule
        return {
            "units": self.units,
            "resent": schedule.resent,
            "deaths": self.deaths,
            "doubles": schedule.doubles,
        }


@dataclass(slots=True)
class _Sending:
    """A unit on its way: its checkpoint, its number there, and its requests."""

    work: CheckpointWork
    unit: int
    requests: tuple[int, ...]
    asked: AskedRequests


class ReplicatedSeries:
    """Checkpoints that share the replicas of a transport: sends what the schedule orders, and tells it what happens."""

    def __init__(self, transport: ReplicaTransport) -> None:
        self._transport = transport
        self._series: ReplicaSeries[CheckpointWork] = ReplicaSeries(transport.replicas)
        self._works: list[CheckpointWork] = []
        self._sent: dict[int, _Sending] = {}
        self._numbers = itertools.count()
        self._events: deque[Event] = deque()
        self.gone = ""

    @property
    def able(self) -> int:
        """The number of replicas that may answer."""
        return len(self._series.holds) - len(self._series.gone)

    def open(self, info: CheckpointInfo, fingerprint: str | None) -> ReplicatedEngine:
        """Return another checkpoint at once; it is loaded when a replica is free."""
        work = CheckpointWork(WantedWeights(info, fingerprint))
        self._works.append(work)
        self._series.open(work, work.held)
        return ReplicatedEngine(info, self, work)

    def release(self, work: CheckpointWork) -> None:
        """Let go of a checkpoint; the replicas end with the last one."""
        if work in self._works:
            self._works.remove(work)
            self._series.close(work)
            if not self._works:
                self.close()

    def close(self) -> None:
        """End the replicas."""
        self._transport.close()

    def stuck(self, work: CheckpointWork) -> bool:
        """Return whether no replica is left for a checkpoint."""
        return self._series.stuck(work.held)

    def ask(self, work: CheckpointWork, requests: Sequence[Request], receiver: Receiver) -> None:
        """Take requests of a checkpoint; the receiver gets each answer in ``step``."""
        work.gathered.extend((request, receiver, number) for number, request in enumerate(requests))

    def forget(self, work: CheckpointWork, receivers: Collection[Receiver]) -> None:
        """Let go of what these receivers have asked. What is computed together with others' requests goes on."""
        gone = set(receivers)
        work.gathered = [one for one in work.gathered if one[1] not in gone]
        for asked in {id(one): one for one in work.asked.values()}.values():
            asked.receivers = [None if one is not None and one[0] in gone else one for one in asked.receivers]
            if not any(asked.receivers):
                self._leave(work, asked)

    def _plan(self, work: CheckpointWork) -> None:
        """Make units of what was asked since the last step."""
        gathered, work.gathered = work.gathered, []
        LOG.debug("%s, a batch of %d requests", one_line(work.weights.info.name), len(gathered))
        requests = [request for request, _, _ in gathered]
        receivers: list[tuple[Receiver, int] | None] = [
            (receiver, number) for _, receiver, number in gathered
        ]
        asked = AskedRequests(work.next, requests, receivers, len(requests))
        work.next += len(requests)
        work.asked |= dict.fromkeys(range(asked.first, work.next), asked)
        able = self.able if len(self._works) == 1 else max(1, len(work.held.holders))
        units = plan_units(requests, max(1, able), work.texts or TEXTS)
        work.cost += sum(unit.cost for unit in units)
        moved = (unit._replace(requests=tuple(asked.first + n for n in unit.requests)) for unit in units)
        self._series.ask(work, moved)

    def _leave(self, work: CheckpointWork, asked: AskedRequests) -> None:
        """Let go of requests, answered or not; a unit of them that is still computed is known until it ends."""
        numbers = range(asked.first, asked.first + len(asked.requests))
        work.held.schedule.withdraw(numbers)
        for number in numbers:
            work.asked.pop(number, None)
        computed = {unit for replica in work.held.holders.values() for unit in replica.has}
        for number in asked.sendings:
            if number in self._sent and self._sent[number].unit not in computed:
                del self._sent[number]

    def expect(self, work: CheckpointWork, items: int, to_come: int) -> None:
        """Take note of how many items have asked of a checkpoint, and how many will."""
        each = work.cost / items if items and work.cost else UNKNOWN
        self._series.expect(work, to_come * each if to_come else 0.0)

    @contextlib.contextmanager
    def waiting_for(self, work: CheckpointWork) -> Iterator[None]:
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
        for work in self._works:
            if work.gathered:
                self._plan(work)
        for order in self._series.orders():
            match order:
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
            case CheckpointLoaded(replica, seconds, texts):
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

    def _give_up(self, work: CheckpointWork, numbers: Sequence[int]) -> None:
        reasons = [Refusal(work.held.schedule.given_up[number]) for number in numbers]
        for number, reason in zip(numbers, reasons, strict=True):
            self._take(work, number, reason)

    def _take(self, work: CheckpointWork, number: int, answer: Answer | Refusal) -> None:
        if (asked := work.asked.get(number)) is None:
            return
        asked.open -= 1
        place = number - asked.first
        taken, asked.receivers[place] = asked.receivers[place], None
        if not asked.open:
            self._leave(work, asked)
        if taken is not None:
            receiver, number = taken
            receiver(number, answer)


MOST_AT_ONCE: Final = ("batch_tokens",)
"""Counts of which the replicas have a greatest value together, and no sum."""


class ReplicatedPool(EnginePool):
    """Opens checkpoints by replicas, which are started with the first; served ones in this process, since a server has
    its own replicas."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        self._series: ReplicatedSeries | None = None
        self._replicated: dict[CheckpointInfo, ReplicatedEngine] = {}

    def beside(self, info: CheckpointInfo) -> ReplicatedEngine | None:
        """Return the checkpoint at once, to be loaded beside others; None for a served one.

        Raises ``CheckpointError`` where its files cannot be read, or no replicas can be had.
        """
        if info.served:
            return None
        if self._series is None:
            assert self._settings.engine is not None
            target = target_of(self._settings.engine)
            self._series = ReplicatedSeries(ray_replicas.RayReplicas(self._settings, target))
        if info not in self._replicated:
            self._replicated[info] = self._series.open(info, identity(info))
        return self._replicated[info]

    def close(self) -> None:
        """Close all engines, and end the replicas."""
        for engine in self._replicated.values():
            engine.close()
        self._replicated.clear()
        if self._series is not None:
            self._series.close()
            self._series = None
        super().close()

    def _loaded(self, info: CheckpointInfo) -> Engine:
        if (engine := self.beside(info)) is None:
            return super()._loaded(info)
        engine.load()
        return engine


class ReplicatedEngine(Engine):
    """Answers requests by the replicas of a series."""

    def __init__(self, info: CheckpointInfo, series: ReplicatedSeries, work: CheckpointWork) -> None:
        self.info = info
        self._series, self._work = series, work

    @property
    def shared(self) -> bool:
        """Return True: the replicas are those of other checkpoints too."""
        return True

    @property
    def places(self) -> int:
        """The number of checkpoints that can be held at once."""
        return max(1, self._series.able)

    @property
    def ready(self) -> bool:
        """Return whether the checkpoint is loaded by a replica, or was."""
        return self._work.loaded

    @property
    def failed(self) -> bool:
        """Return whether it cannot be loaded, or not any more; ``load`` and ``answer`` then say why."""
        return self._work.fault is not None or self._series.stuck(self._work)

    @property
    def usage(self) -> dict[str, Any]:
        """The counts of all replicas together, those that died included, and those of units and deaths."""
        work, totals = self._work, dict[str, Any]()
        for name in dict.fromkeys(name for usage in work.usage.values() for name in usage):
            known = [usage[name] for usage in work.usage.values() if name in usage]
            if all(type(value) in (int, float) for value in known):
                totals[name] = max(known) if name in MOST_AT_ONCE else sum(known)
        totals["replicas"] = len(work.held_by)
        totals |= {name: number for name, number in work.counts.items() if number}
        if work.held.loads > len(work.held_by):
            totals["loads"] = work.held.loads
        if differing := len(work.held.schedule.differing):
            totals["differing"] = differing
            n = count(differing, "request")
            totals["notes"] = [f"{n} answered twice, by different replicas, and not alike"]
        return totals

    def load(self) -> None:
        """Return when a replica holds the checkpoint, or has held it.

        Raises ``CheckpointError`` where a replica finds another one, or none can load it, and ``ServerError`` where
        there is no place for any.
        """
        with self._series.waiting_for(self._work):
            while not self._work.loaded:
                self._step()

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request, in the order asked, each passed to ``done`` as soon as it is there.

        A request that kills every replica that computes it is refused by name. Raises ``ServerError`` where no
        replica is left: another call would find none either.
        """
        answers: dict[int, Answer | Refusal] = {}

        def take(number: int, answer: Answer | Refusal | Exception) -> None:
            assert not isinstance(answer, Exception)
            answers[number] = answer
            if done is not None:
                done(number, answer)

        self.submit(requests, take)
        try:
            with self._series.waiting_for(self._work):
                while len(answers) < len(requests):
                    self._step()
        except CheckpointError as error:
            raise _ended(error) from None
        finally:
            self.withdraw([take])
        return [answers[number] for number in range(len(requests))]

    def submit(self, requests: Sequence[Request], receiver: Receiver, *, later: bool = False) -> None:
        """Take requests, which are shared out to the replicas together with what else is submitted until then."""
        del later
        self._series.ask(self._work, requests, receiver)

    def withdraw(self, receivers: Collection[Receiver]) -> None:
        """Forget the requests of these receivers; their units that are at work are computed in vain."""
        self._series.forget(self._work, receivers)

    def collect(self, *, wait: bool) -> None:
        """Take what has happened to any checkpoint that shares the replicas; with ``wait``, wait for something.

        Raises ``ServerError`` where this one cannot be answered any more.
        """
        if not wait:
            self._series.step(block=False)
            return
        try:
            with self._series.waiting_for(self._work):
                self._step()
        except CheckpointError as error:
            raise _ended(error) from None

    def expect(self, items: int, to_come: int) -> None:
        """Take note that so many items have asked, and how many are yet to come."""
        self._series.expect(self._work, items, to_come)

    def close(self) -> None:
        """Free the replicas for others; they end with the last checkpoint."""
        self._series.release(self._work)

    def _step(self) -> None:
        """Take what happens next. Raises ``CheckpointError`` where no replica is left, or one holds another model."""
        work = self._work
        if work.fault is not None:
            raise CheckpointError(f"{self.info.name}: {work.fault}")
        if self._series.stuck(work):
            why = self._series.gone or f"each has died {MOST_DEATHS} times while it loaded"
            raise CheckpointError(f"{self.info.name}: no replica is left; {why}")
        self._series.step()


def _ended(error: CheckpointError) -> ServerError:
    return ServerError(f"{error}; what is done is kept; the same command goes on")
