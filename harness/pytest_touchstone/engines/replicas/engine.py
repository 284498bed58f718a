"""``ReplicatedEngine``: one checkpoint in several processes, behind the seam of engines.

The driver asks it like any other engine. Units of requests go to the replicas, and each answer is handed on as it
comes. Records and the journal stay with the driver, the only process that writes.

``ReplicatedSeries`` has the replicas that several such engines share. Whoever waits for one of them also takes what
comes for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError, ServerError
from pytest_touchstone.core.requests import Answer, Refusal, Request
from pytest_touchstone.core.text import count
from pytest_touchstone.engines.base import Done, Engine
from pytest_touchstone.engines.registry import EnginePool, identity
from pytest_touchstone.engines.replicas.driving import Driving, Work
from pytest_touchstone.engines.replicas.schedule import MOST_DEATHS
from pytest_touchstone.engines.replicas.transport import Transport, Weights
from pytest_touchstone.engines.settings import ModelSettings

MOST_AT_ONCE: Final = ("batch_tokens",)
"""Counts of which the replicas have a greatest value together, and no sum."""


class ReplicatedSeries:
    """Opens checkpoints that share the replicas of a transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._driving = Driving(transport)

    def open(self, info: CheckpointInfo, fingerprint: str | None) -> ReplicatedEngine:
        """Return a checkpoint at once; it is loaded when a replica is free."""
        return ReplicatedEngine(info, self._driving, self._driving.open(Weights(info, fingerprint)))

    def close(self) -> None:
        """End the replicas."""
        self._transport.close()


class ReplicatedPool(EnginePool):
    """Opens checkpoints by replicas, which are started with the first; served ones in this process, since a server has
    its own replicas."""

    def __init__(self, settings: ModelSettings, start: Callable[[], ReplicatedSeries]) -> None:
        super().__init__(settings)
        self._start = start
        self._series: ReplicatedSeries | None = None
        self._replicated: dict[CheckpointInfo, ReplicatedEngine] = {}

    def beside(self, info: CheckpointInfo) -> ReplicatedEngine | None:
        """Return the checkpoint at once, to be loaded beside others; None for a served one.

        Raises ``CheckpointError`` where its files cannot be read.
        """
        if info.served:
            return None
        if self._series is None:
            self._series = self._start()
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

    def __init__(self, info: CheckpointInfo, driving: Driving, work: Work) -> None:
        self.info = info
        self._driving, self._work = driving, work

    @property
    def places(self) -> int:
        """The number of checkpoints that can be held at once."""
        return max(1, self._driving.able)

    @property
    def loaded(self) -> bool:
        """Return whether the checkpoint is loaded by a replica, or was."""
        return self._work.loaded

    @property
    def failed(self) -> bool:
        """Return whether it cannot be loaded, or not any more; ``load`` and ``answer`` then say why."""
        return self._work.fault is not None or self._driving.stuck(self._work)

    @property
    def usage(self) -> dict[str, Any]:
        """The counts of all replicas together, those that died included, and those of units and deaths."""
        work, found = self._work, dict[str, Any]()
        for name in dict.fromkeys(name for one in work.usage.values() for name in one):
            known = [one[name] for one in work.usage.values() if name in one]
            if all(type(value) in (int, float) for value in known):
                found[name] = max(known) if name in MOST_AT_ONCE else sum(known)
        found["replicas"] = len(work.held_by)
        found |= {name: number for name, number in work.counts.items() if number}
        if work.held.loads > len(work.held_by):
            found["loads"] = work.held.loads
        if differing := len(work.held.schedule.differing):
            found["differing"] = differing
            n = count(differing, "request")
            found["notes"] = [f"{n} answered twice, by different replicas, and not alike"]
        return found

    def load(self) -> None:
        """Return when a replica holds the checkpoint, or has held it.

        Raises ``CheckpointError`` where a replica finds another one, or none can load it, and ``ServerError`` where
        there is no place for any.
        """
        with self._driving.waiting_for(self._work):
            while not self._work.loaded:
                self._step()

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request, in the order asked, each passed to ``done`` as soon as it is there.

        A request that kills every replica that computes it is refused by name. Raises ``ServerError`` where no
        replica is left: another call would find none either.
        """
        found: dict[int, Answer | Refusal] = {}

        def take(number: int, answer: Answer | Refusal) -> None:
            found[number] = answer
            if done is not None:
                done(number, answer)

        asked = self._driving.ask(self._work, requests, take)
        try:
            with self._driving.waiting_for(self._work):
                while len(found) < len(requests):
                    self._step()
        except CheckpointError as error:
            raise _ended(error) from None
        finally:
            self._driving.leave(self._work, asked)
        return [found[number] for number in range(len(requests))]

    def ask(self, requests: Sequence[Request], done: Done) -> None:
        """Take requests; ``done`` is called with each answer, by whoever waits."""
        self._driving.ask(self._work, requests, done)

    def expect(self, items: int, to_come: int) -> None:
        """Take note that so many items have asked, and how many are yet to come."""
        self._driving.expect(self._work, items, to_come)

    def wait(self) -> None:
        """Take what happens next to any checkpoint that shares the replicas, and wait for it as for this one's.

        Raises ``ServerError`` where this one cannot be answered any more.
        """
        try:
            with self._driving.waiting_for(self._work):
                self._step()
        except CheckpointError as error:
            raise _ended(error) from None

    def look(self) -> None:
        """Take what has happened to any of these checkpoints, and wait for nothing."""
        self._driving.step(block=False)

    def close(self) -> None:
        """Free the replicas for others; they end with the last checkpoint."""
        self._driving.close(self._work)

    def _step(self) -> None:
        """Take what happens next. Raises ``CheckpointError`` where no replica is left, or one holds another model."""
        work = self._work
        if work.fault is not None:
            raise CheckpointError(f"{self.info.name}: {work.fault}")
        if self._driving.stuck(work):
            why = self._driving.gone or f"each has died {MOST_DEATHS} times while it loaded"
            raise CheckpointError(f"{self.info.name}: no replica is left; {why}")
        self._driving.step()


def open_alone(
    info: CheckpointInfo, transport: Transport, fingerprint: str | None = None
) -> ReplicatedEngine:
    """Return the only checkpoint of a transport's replicas, when the first of them has loaded it.

    Raises ``CheckpointError`` where a replica finds another checkpoint, or none can load it, and ``ServerError``
    where there is no place for any.
    """
    found = ReplicatedSeries(transport).open(info, fingerprint)
    try:
        found.load()
    except BaseException:
        transport.close()
        raise
    return found


def _ended(error: CheckpointError) -> ServerError:
    return ServerError(f"{error}; what is done is kept; the same command goes on")
