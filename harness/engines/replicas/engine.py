"""``ReplicatedEngine``: one checkpoint in several processes, behind the seam of engines.

The driver asks it like any other engine. Units of requests go to the replicas, and each answer is handed on as it
comes. Records and the journal stay with the driver, the only process that writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from harness.checkpoints import CheckpointInfo
from harness.core.errors import CheckpointError, ServerError
from harness.core.requests import Answer, Refusal, Request
from harness.core.text import count
from harness.engines.base import Done
from harness.engines.replicas.schedule import MOST_DEATHS, ReplicaState, Schedule
from harness.engines.replicas.transport import (
    Answered,
    Died,
    Event,
    Failed,
    Gone,
    Loaded,
    Lost,
    Refused,
    Transport,
)
from harness.engines.replicas.units import plan_units

Take: TypeAlias = Callable[[int, Answer | Refusal], None]

MOST_AT_ONCE: Final = ("batch_tokens",)
"""Counts of which the replicas have a greatest value together, and no sum."""


class ReplicatedEngine:
    """Answers requests by the replicas that a transport reaches."""

    def __init__(self, info: CheckpointInfo, transport: Transport) -> None:
        """Return when the first replica has loaded.

        Raises ``CheckpointError`` where a replica finds another checkpoint, or none can load it, and ``ServerError``
        where there is no place for any.
        """
        self.info = info
        self._transport = transport
        self._replicas = {number: ReplicaState() for number in transport.replicas}
        self._usage: dict[tuple[int, str], dict[str, Any]] = {}
        self._counts = dict.fromkeys(("units", "resent", "deaths", "doubles", "differing"), 0)
        self._sent: dict[int, tuple[int, ...]] = {}
        self._next = 0
        self._gone = ""
        try:
            self._begin()
        except BaseException:
            transport.close()
            raise

    @property
    def usage(self) -> dict[str, Any]:
        """The counts of all replicas together, those that died included, and those of units and deaths."""
        found: dict[str, Any] = {}
        for name in dict.fromkeys(name for one in self._usage.values() for name in one):
            known = [one[name] for one in self._usage.values() if name in one]
            if all(type(value) in (int, float) for value in known):
                found[name] = max(known) if name in MOST_AT_ONCE else sum(known)
        found["replicas"] = sum(not one.gone for one in self._replicas.values())
        found |= {name: number for name, number in self._counts.items() if number}
        if self._counts["differing"]:
            n = count(self._counts["differing"], "request")
            found["notes"] = [f"{n} answered twice, by different replicas, and not alike"]
        return found

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request, in the order asked, each passed to ``done`` as soon as it is there.

        A request that kills every replica that computes it is refused by name. Raises ``ServerError`` where no
        replica is left: another call would find none either.
        """
        able = sum(not one.gone for one in self._replicas.values())
        schedule = Schedule.of(plan_units(requests, max(1, able)), self._replicas, first=self._next)
        self._sent = {}  # what is still to come of an earlier call is none of this one's
        found: dict[int, Answer | Refusal] = {}

        def take(number: int, answer: Answer | Refusal) -> None:
            found[number] = answer
            if done is not None:
                done(number, answer)

        try:
            while not schedule.done:
                self._send(schedule, requests)
                self._step(schedule, take)
        except CheckpointError as error:
            raise ServerError(f"{error}; what is done is kept; the same command goes on") from None
        finally:
            self._sent = {}
            self._next = schedule.next
            counts = {"resent": schedule.resent, "doubles": schedule.doubles}
            for name, number in (counts | {"differing": len(schedule.differing)}).items():
                self._counts[name] += number
        return [found[number] for number in range(len(requests))]

    def prepare(self, requests: Sequence[Request]) -> None:
        """Do nothing: what comes next is planned when it is asked."""

    def close(self) -> None:
        """End the replicas."""
        self._transport.close()

    def _begin(self) -> None:
        schedule = Schedule.of([], self._replicas)
        while not any(one.ready for one in self._replicas.values()):
            self._step(schedule, _take_nothing)

    def _send(self, schedule: Schedule, requests: Sequence[Request]) -> None:
        for order in schedule.orders():
            self._sent[order.unit] = order.requests
            self._counts["units"] += 1
            self._transport.submit(order.replica, order.unit, [requests[number] for number in order.requests])

    def _step(self, schedule: Schedule, take: Take) -> None:
        """Take what happens next. Raises ``CheckpointError`` where no replica is left, or one holds another model."""
        if schedule.stuck:
            why = self._gone or f"each has died {MOST_DEATHS} times while it loaded"
            raise CheckpointError(f"{self.info.name}: no replica is left; {why}")
        for event in self._transport.wait():
            for number in self._happened(event, schedule, take):
                take(number, Refusal(schedule.given_up[number]))

    def _happened(self, event: Event, schedule: Schedule, take: Take) -> list[int]:
        """Tell the schedule of an event; return the requests that are given up for it."""
        match event:
            case Loaded(replica):
                return schedule.loaded(replica)
            case Refused(_, message):
                raise CheckpointError(f"{self.info.name}: {message}")
            case Answered(replica, unit, answers, usage, life):
                self._usage[replica, life] = usage
                asked = self._sent.get(unit, ()) if schedule.knows(unit) else ()
                told = dict(zip(asked, answers, strict=True)) if asked else {}
                for number in schedule.answered(replica, unit, told):
                    take(number, told[number])
            case Failed(replica, unit, message):
                for number in schedule.failed(replica, unit):
                    take(number, Refusal(message))
            case Lost(replica):
                return schedule.lost(replica)
            case Died(replica, outside):
                self._counts["deaths"] += 1
                given_up = schedule.died(replica, outside=outside)
                if schedule.replicas[replica].gone:
                    self._transport.drop(replica)
                return given_up
            case Gone(replica, message):
                self._gone = message
                return schedule.left_out(replica)
        return []


def _take_nothing(number: int, answer: Answer | Refusal) -> None:
    """Nothing is asked while replicas load."""
    del number, answer
