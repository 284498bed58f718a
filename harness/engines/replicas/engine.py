"""``ReplicatedEngine``: one checkpoint in several processes, behind the seam of engines.

The driver asks it like any other engine. Units of requests go to the replicas, and each answer is handed on as it
comes. Records and the journal stay with the driver, the only process that writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from harness.checkpoints import CheckpointInfo
from harness.core.errors import CheckpointError
from harness.core.requests import Answer, Refusal, Request
from harness.core.text import count
from harness.engines.base import Done
from harness.engines.replicas.schedule import MOST_DEATHS, Schedule
from harness.engines.replicas.transport import Answered, Died, Event, Failed, Loaded, Refused, Transport
from harness.engines.replicas.units import plan_units

Take: TypeAlias = Callable[[int, Answer | Refusal], None]

MOST_AT_ONCE: Final = ("batch_tokens",)
"""Counts of which the replicas have a greatest value together, and no sum."""


class ReplicatedEngine:
    """Answers requests by the replicas that a transport reaches."""

    def __init__(self, info: CheckpointInfo, transport: Transport) -> None:
        """Raises ``CheckpointError`` where a replica finds another checkpoint, or none can load it."""
        self.info = info
        self._transport = transport
        self._ready = dict.fromkeys(transport.replicas, False)
        self._usage: dict[int, dict[str, Any]] = {}
        self._counts = dict.fromkeys(("units", "resent", "deaths", "doubles", "differing"), 0)
        self._sent: dict[int, tuple[int, ...]] = {}
        self._next = 0
        self._errors: dict[int, str] = {}

    @property
    def usage(self) -> dict[str, Any]:
        """The counts of all replicas together, and those of units and deaths."""
        found: dict[str, Any] = {}
        for name in dict.fromkeys(name for one in self._usage.values() for name in one):
            known = [one[name] for one in self._usage.values() if name in one]
            if all(type(value) in (int, float) for value in known):
                found[name] = max(known) if name in MOST_AT_ONCE else sum(known)
        found["replicas"] = len(self._ready)
        found |= {name: number for name, number in self._counts.items() if number}
        if self._counts["differing"]:
            n = count(self._counts["differing"], "request")
            found["notes"] = [f"{n} answered twice, by different replicas, and not alike"]
        return found

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request, in the order asked, each passed to ``done`` as soon as it is there.

        A request that kills every replica that computes it is refused by name.
        """
        schedule = Schedule.of(plan_units(requests, len(self._ready)), self._ready, first=self._next)
        found: dict[int, Answer | Refusal] = {}

        def take(number: int, answer: Answer | Refusal) -> None:
            found[number] = answer
            if done is not None:
                done(number, answer)

        try:
            while not schedule.done:
                self._send(schedule, requests)
                if schedule.stuck:
                    raise CheckpointError(
                        f"{self.info.name}: no replica is left; each has died {MOST_DEATHS} times while it loaded"
                    )
                for event in self._transport.wait():
                    self._happened(event, schedule, take)
        finally:
            self._ready, self._next = schedule.ready(), schedule.next
            counts = {"resent": schedule.resent, "doubles": schedule.doubles}
            for name, number in (counts | {"differing": len(schedule.differing)}).items():
                self._counts[name] += number
        return [found[number] for number in range(len(requests))]

    def prepare(self, requests: Sequence[Request]) -> None:
        """Do nothing: what comes next is planned when it is asked."""

    def close(self) -> None:
        """End the replicas."""
        self._transport.close()

    def _send(self, schedule: Schedule, requests: Sequence[Request]) -> None:
        for order in schedule.orders():
            self._sent[order.unit] = order.requests
            self._counts["units"] += 1
            self._transport.submit(order.replica, order.unit, [requests[number] for number in order.requests])

    def _happened(self, event: Event, schedule: Schedule, take: Take) -> None:
        match event:
            case Loaded(replica):
                schedule.loaded(replica)
            case Refused(_, message):
                raise CheckpointError(f"{self.info.name}: {message}")
            case Answered(replica, unit, answers, usage):
                self._usage[replica] = usage
                told = (
                    dict(zip(self._sent.get(unit, ()), answers, strict=True)) if schedule.knows(unit) else {}
                )
                for number in schedule.answered(replica, unit, told):
                    take(number, told[number])
            case Failed(replica, unit, message):
                for number in schedule.failed(replica, unit):
                    take(number, Refusal(message))
            case Died(replica):
                self._counts["deaths"] += 1
                given_up = schedule.died(replica)
                if replica not in schedule.ready():
                    self._transport.drop(replica)
                for number in given_up:
                    take(number, Refusal(f"the process that computes it has died, {MOST_DEATHS} times"))
