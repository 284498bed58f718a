"""A series of checkpoints played on replicas that the product's own ``ReplicaSeries`` shares out.

Checkpoints are lanes, as in ``pytest_touchstone.plugin.lanes``: as many are in work as there are replicas, and the
next batch of each begins when half of the former is done. The driver is one thread. It takes answers and sends units;
when nothing is due, it reports the items of batches that have ended, in their order, and looks at what has come all 50
ms.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pytest_touchstone.engines.replicas.schedule import Unit
from pytest_touchstone.engines.replicas.series import UNKNOWN, Held, LoadOrder, ReplicaSeries, UnitOrder
from pytest_touchstone.plugin.driver import LOOK_EVERY
from pytest_touchstone.plugin.lanes import NEXT_AT
from simulations.scaling import Costs, Played, Replicas, unit_sizes


@dataclass(slots=True, eq=False)
class _Lane:
    """A checkpoint: its batches as tokens of items, how many of them have begun and have ended, what is left of each,
    its units, and the tokens to come after each batch."""

    batches: Sequence[np.ndarray]
    held: Held = field(default_factory=Held)
    opened: bool = False
    begun: int = 0
    ended: int = 0
    left: list[int] = field(default_factory=list)
    units: dict[int, tuple[int, int, float]] = field(default_factory=dict)
    next: int = 0
    to_come: Sequence[float] = ()

    def __post_init__(self) -> None:
        each = [float(one.sum()) for one in self.batches]
        self.to_come = [*reversed([0.0, *itertools.accumulate(reversed(each))])]


@dataclass(slots=True)
class _Replica:
    speed: float
    dies_at: float
    epoch: int = 0
    queue: deque[tuple[_Lane, int, tuple[int, ...]]] = field(default_factory=deque)


class SeriesPlayer:
    """Plays the batches of checkpoints to their end."""

    def __init__(
        self, checkpoints: Sequence[Sequence[np.ndarray]], replicas: Replicas, costs: Costs, seed: int
    ) -> None:
        self._of, self._costs = replicas, costs
        self._draw = np.random.default_rng(seed)
        slow = self._draw.random(replicas.count) < replicas.slow_share
        self._replicas = [
            _Replica(replicas.speed * (replicas.slow if one else 1.0), self._life(0.0)) for one in slow
        ]
        self._lanes = [_Lane(one) for one in checkpoints]
        self._series: ReplicaSeries[int] = ReplicaSeries(range(replicas.count))
        self._events: list[tuple[float, int, int, int, bool]] = []
        self._order = itertools.count()
        self._reported = (0, 0)
        self._backlog = 0
        self._first_unfinished = 0
        self.now = self.busy = self.worked = 0.0
        self.units = self.again = self.loads = 0

    def play(self) -> Played:
        """Return the run when every item is reported."""
        self._open()
        while True:
            while self._events and self._events[0][0] <= self.now:
                self._happen(heapq.heappop(self._events))
            self._send()
            if self._backlog:
                most = (
                    max(1, int(LOOK_EVERY / self._costs.item_before)) if self._costs.item_before else math.inf
                )
                told = int(min(self._backlog, most))
                self._backlog -= told
                self._work(told * self._costs.item_before)
            elif self._events:
                self.now = max(self.now, self._events[0][0])
            else:
                break
            if not self._backlog and self._reported[0] == len(self._lanes):
                break
        items = sum(len(batch) for lane in self._lanes for batch in lane.batches)
        return Played(
            wall=self.now,
            idle=1 - self.busy / (self.now * len(self._replicas)),
            driver=self.worked / self.now,
            units=self.units,
            again=self.again,
            journal=items * self._costs.journal_bytes,
            loads=self.loads,
        )

    def _open(self) -> None:
        """Open the first lanes that are not done, and begin their batches."""
        while self._first_unfinished < len(self._lanes) and self._done(self._lanes[self._first_unfinished]):
            self._first_unfinished += 1
        places = len(self._replicas)
        for number in range(self._first_unfinished, len(self._lanes)):
            lane = self._lanes[number]
            if self._done(lane):
                continue
            if places == 0:
                return
            places -= 1
            if not lane.opened:
                lane.opened = True
                self._series.open(number, lane.held)
                self._series.expect(number, UNKNOWN)

    @staticmethod
    def _done(lane: _Lane) -> bool:
        return lane.ended == len(lane.batches)

    def _feed(self, number: int) -> None:
        """Begin the next batch of a checkpoint that is loaded, where it is time."""
        lane = self._lanes[number]
        while lane.begun < len(lane.batches) and (
            lane.begun == lane.ended
            or (
                lane.begun == lane.ended + 1
                and lane.left[lane.ended] <= NEXT_AT * len(lane.batches[lane.ended])
            )
        ):
            tokens = lane.batches[lane.begun]
            units = []
            for count, cost in unit_sizes(tokens, max(1, len(lane.held.holders))):
                lane.units[lane.next] = (lane.begun, count, cost)
                units.append(Unit((lane.next,), cost))
                lane.next += 1
            lane.left.append(len(tokens))
            lane.begun += 1
            self._series.ask(number, units)
            self._series.expect(number, float(lane.to_come[lane.begun]))

    def _send(self) -> None:
        for order in self._series.orders():
            match order:
                case LoadOrder(replica, _):
                    self._load(replica, 0.0)
                case UnitOrder(number, (replica, unit, requests)):
                    self.units += 1
                    one = self._replicas[replica]
                    one.queue.append((self._lanes[number], unit, requests))
                    if len(one.queue) == 1:
                        self._compute(replica, self.now + self._costs.latency)

    def _load(self, replica: int, after: float) -> None:
        self.loads += 1
        seconds = after + self._of.gigabytes * self._costs.load_per_gb
        self._later(self.now + seconds, replica)

    def _compute(self, replica: int, begins: float) -> None:
        one = self._replicas[replica]
        lane, _, (request,) = one.queue[0]
        self._later(begins + lane.units[request][2] / one.speed, replica)

    def _later(self, at: float, replica: int) -> None:
        """Let a replica end what it does, unless it dies before."""
        one = self._replicas[replica]
        dies = one.dies_at < at
        heapq.heappush(
            self._events, (one.dies_at if dies else at, next(self._order), replica, one.epoch, dies)
        )

    def _happen(self, event: tuple[float, int, int, int, bool]) -> None:
        at, _, replica, epoch, dies = event
        one = self._replicas[replica]
        if epoch != one.epoch:
            return
        if dies:
            one.epoch += 1
            one.dies_at = self._life(at)
            self.again += len(one.queue)
            one.queue.clear()
            self._series.died(replica)
            if self._series.holds[replica] is not None:
                self._load(replica, self._of.restart)
            return
        if not one.queue:
            seconds = self._of.gigabytes * self._costs.load_per_gb
            self._series.loaded(replica, seconds)
            number = self._series.holds[replica]
            if number is not None:
                self._feed(number)
            return
        lane, unit, (request,) = one.queue.popleft()
        if one.queue:
            self._compute(replica, at)
        self._take(replica, lane, unit, request)

    def _take(self, replica: int, lane: _Lane, unit: int, request: int) -> None:
        number = (
            self._lanes.index(lane) if self._series.holds[replica] is None else self._series.holds[replica]
        )
        assert number is not None
        batch, items, cost = lane.units[request]
        took = cost / self._replicas[replica].speed
        self._series.measured(lane.held, cost, took)
        fresh = self._series.answered(number, lane.held, replica, unit, {request: 1})
        moved = items * self._costs.item_bytes / self._costs.network
        self._work(self._costs.unit + items * self._costs.item_after + moved)
        if not fresh:
            return
        self.busy += took
        lane.left[batch] -= items
        while lane.ended < lane.begun and not lane.left[lane.ended]:
            lane.ended += 1
        self._feed(number)
        if self._done(lane):
            self._open()
        self._report()

    def _report(self) -> None:
        """Let the driver report the batches that have ended, as far as those before them have."""
        number, batch = self._reported
        while number < len(self._lanes) and batch < self._lanes[number].ended:
            self._backlog += len(self._lanes[number].batches[batch])
            batch += 1
            if batch == len(self._lanes[number].batches):
                number, batch = number + 1, 0
        self._reported = number, batch

    def _life(self, now: float) -> float:
        return now + float(self._draw.exponential(self._of.dies_every))

    def _work(self, seconds: float) -> None:
        self.now += seconds
        self.worked += seconds
