"""Batches in work beside each other, also those of other checkpoints, for engines that share their replicas.

pytest calls one item after the other, in its own order, and reports them so. Each checkpoint is a lane, in which one
batch follows the other; the first lanes that are not done are in work, as many as there are replicas. Whoever waits
for an item lets all of these go on, and between two items there is a look at what has come. So replicas compute while
pytest reports, and each of them may hold another checkpoint.

An item is taken only if it needs no fixture but its checkpoint, as within a batch: then nobody can tell when it was
run. All others are left to the former way, one batch at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.plugin.collection import checkpoint_of
from pytest_touchstone.plugin.dispatch import Answered, ProgramRunner, SharedClock, SharedDispatcher
from pytest_touchstone.plugin.driver import (
    ItemState,
    Recorder,
    RunningBatch,
    advance,
    fail,
    fail_for_programs,
)

LOOK_EVERY: Final = 0.05
"""Seconds from one look at what has come to the next, while pytest reports."""

NEXT_AT: Final = 0.5
"""The next batch of a checkpoint begins when no more than this share of the former one is open."""


class BesideBatch:
    """A batch whose items ask an engine that others ask too."""

    def __init__(
        self,
        batch: RunningBatch,
        engine: Engine,
        journal: Recorder,
        sandbox: ProgramRunner | None,
        clock: SharedClock,
    ) -> None:
        self.batch = batch
        self.open = len(batch.running)
        self._engine, self._journal, self._sandbox = engine, journal, sandbox
        self._asking = SharedDispatcher(engine, sandbox, self._take, clock)
        for state in batch.running:
            if state.failure is not None:
                fail(state, state.failure, journal)
            self._ask(state)

    @property
    def asks(self) -> bool:
        """Return whether the model is asked something that it has not answered."""
        return self._asking.asks

    def collect(self, *, seconds: float = 0.0) -> None:
        """Take the programs that have ended, and ask what there is to ask; wait so long for a program at most."""
        self._asking.collect(seconds=seconds)

    def close(self) -> None:
        """Close generators that have not ended, and withdraw their programs."""
        self._asking.close()
        self.batch.close()

    def _take(self, state: ItemState, number: int, answer: Answered, seconds: float) -> None:
        state.answers[number] = answer
        state.seconds += seconds
        if len(state.answers) == len(state.requests):
            self.batch.advancing = state.job.item
            advance(state, self._engine, self._journal)
            self.batch.advancing = None
            self._ask(state)

    def _ask(self, state: ItemState) -> None:
        if state.outcome is None and (
            self._sandbox is not None or not fail_for_programs(state, self._journal)
        ):
            self._asking.ask(state, state.asked)
        else:
            self.open -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTools:
    """The help that lanes need of those who know the items.

    ``open`` returns a checkpoint that loads beside others, None where it is none of that kind. ``start`` returns a
    batch of those of the items that may run now, None where there are none; ``ended`` takes it when it has ended.
    ``loading`` and ``answering`` stand around what the run waits for.
    """

    open: Callable[[CheckpointInfo], Engine | None]
    start: Callable[[Sequence[pytest.Item], Engine, SharedClock], BesideBatch | None]
    ended: Callable[[BesideBatch, Engine], None]
    loading: Callable[[str], AbstractContextManager[None]]
    answering: Callable[[RunningBatch, Engine], AbstractContextManager[None]]


@dataclass(slots=True, eq=False)
class _Lane:
    """A checkpoint: the batches that are yet to begin, and those in work; how many items have begun and are to come."""

    info: CheckpointInfo
    engine: Engine | None = None
    batches: dict[int, Sequence[pytest.Item]] = field(default_factory=dict)
    running: list[BesideBatch] = field(default_factory=list)
    begun: int = 0
    to_come: int = 0

    @property
    def works(self) -> bool:
        """Return whether there is something left that can be done."""
        return bool(self.batches or self.running) and not (self.engine is not None and self.engine.failed)

    @property
    def hungry(self) -> bool:
        """Return whether its next batch should begin."""
        if not self.batches or self.engine is None or not self.engine.ready or len(self.running) > 1:
            return False
        return not self.running or self.running[0].open <= NEXT_AT * len(self.running[0].batch.running)


class Lanes:
    """The checkpoints of a run, and the batches of each that are in work."""

    def __init__(self, batches: Iterable[Sequence[pytest.Item]], tools: LaneTools) -> None:
        """``batches`` are all of the run, in its order, each of one checkpoint."""
        self._tools = tools
        self._lanes: dict[str, _Lane] = {}
        for batch in batches:
            info = checkpoint_of(batch[0])
            lane = self._lanes.setdefault(info.name, _Lane(info))
            lane.batches[id(batch)] = batch
            lane.to_come += len(batch)
        self._kept: _Lane | None = None
        self._in_work: dict[str, BesideBatch] = {}
        self._clock = SharedClock()
        self._looked = 0.0

    def runs(self, item: str) -> bool:
        """Return whether an item is in work here."""
        return item in self._in_work

    def keep(self, checkpoint: str) -> None:
        """Let a checkpoint stay loaded until the run comes to another: some of its items are not for here."""
        before, self._kept = self._kept, self._lanes.get(checkpoint)
        for lane in (before, self._kept):
            if lane is not None and before is not self._kept:
                self._expect(lane)

    def finish(self, item: pytest.Item, batch: Sequence[pytest.Item]) -> bool:
        """Return when the item's batch has ended; False where it is not for here, or its checkpoint does not load.

        Raises ``ServerError`` where no replica is left.
        """
        lane = self._lanes.get(checkpoint_of(item).name)
        if lane is None:
            return False
        if self._kept is not None and self._kept is not lane:
            self.keep("")
        self._clock.go_on()
        engine = self._loaded(lane)
        if engine is None:
            return False
        while item.nodeid not in self._in_work and id(batch) in lane.batches:
            self._begin_batch(lane, engine)
        if (own := self._in_work.get(item.nodeid)) is None:
            return False
        with self._tools.answering(own.batch, engine):
            while own.open:
                self._go_on(lane)
                if own.asks:
                    engine.wait()
                elif own.open:
                    engine.look()
                    own.collect(seconds=LOOK_EVERY)
        self._end(lane)
        return True

    def look(self) -> None:
        """Take what has come meanwhile, if the last look is a while ago."""
        if time.monotonic() - self._looked < LOOK_EVERY:
            return
        if (lane := next((one for one in self._lanes.values() if one.running), None)) is not None:
            assert lane.engine is not None
            self._clock.go_on()
            lane.engine.look()
            self._go_on(None)
        self._looked = time.monotonic()

    def close(self) -> None:
        """Close the generators of batches that have not ended."""
        for lane in self._lanes.values():
            for batch in lane.running:
                batch.close()
            lane.running.clear()
        self._in_work.clear()

    def _loaded(self, lane: _Lane) -> Engine | None:
        """Return a lane's checkpoint when it is loaded, None where that cannot be; others load beside it."""
        self._begin(lane)
        with self._tools.loading(lane.info.name):
            while lane.engine is not None and not lane.engine.failed:
                if lane.engine.ready:
                    return lane.engine
                lane.engine.wait()
                self._go_on(lane)
        return None

    def _go_on(self, first: _Lane | None) -> None:
        """Begin what can begin, and ask what the items in work have to ask."""
        self._begin(first)
        for lane in self._lanes.values():
            for batch in lane.running:
                batch.collect()
            if lane is not first:
                self._end(lane)

    def _begin(self, first: _Lane | None) -> None:
        """Open the next checkpoints where replicas may hold more, and begin the next batches of those in work."""
        places = 1
        lanes = [one for one in self._lanes.values() if one is not first and one.works]
        for number, lane in enumerate([*([first] if first is not None else []), *lanes]):
            if number >= places:
                return
            if lane.engine is None:
                try:
                    lane.engine = self._tools.open(lane.info)
                except CheckpointError:
                    lane.batches.clear()  # it is told when pytest comes to one of its items
                if lane.engine is None:
                    continue
                self._expect(lane)
            places = lane.engine.places
            while lane.hungry:
                self._begin_batch(lane, lane.engine)

    def _begin_batch(self, lane: _Lane, engine: Engine) -> None:
        items = lane.batches.pop(next(iter(lane.batches)))
        lane.to_come -= len(items)
        batch = self._tools.start(items, engine, self._clock)
        if batch is not None:
            lane.running.append(batch)
            lane.begun += len(batch.batch.running)
            self._in_work |= dict.fromkeys(batch.batch.items, batch)
            batch.collect()
        self._expect(lane)

    def _expect(self, lane: _Lane) -> None:
        if lane.engine is not None:
            kept = 1 if lane is self._kept else 0
            lane.engine.expect(0 if kept else lane.begun, lane.to_come + kept)

    def _end(self, lane: _Lane) -> None:
        for batch in [one for one in lane.running if not one.open]:
            assert lane.engine is not None
            lane.running.remove(batch)
            for item in batch.batch.items:
                del self._in_work[item]
            batch.close()
            self._tools.ended(batch, lane.engine)
