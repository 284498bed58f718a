"""The checkpoints of a run, and the batches of each that are in work.

pytest calls one item after the other, in its own order, and reports them so. Each checkpoint is a lane, in which one
batch follows the other. Whoever waits for an item lets its batch go on, and with it all others in work. The next batch
of the lane is started meanwhile: the engine prepares its requests, and may answer some where it has room.

A batch is started ahead of pytest only with items that need no fixture but their checkpoint: then nobody can tell when
they were run. All others wait until pytest comes to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import JournalError
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.plugin.collection import checkpoint_of
from pytest_touchstone.plugin.driver import RunningBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTools:
    """The help that lanes need of those who know the items.

    ``open`` returns a checkpoint, loaded. ``start`` returns a batch of an item that
    pytest has come to and those that may run with it; ``start_ahead`` a batch of those of the items that may run at any
    time, None where there are none. ``begin`` asks what a batch has to ask, early or all of it. ``computing`` is told
    what is in work in this process, ``ended`` of a batch that runs no longer, and whether that was waited for.
    ``loading`` and ``answering`` stand around what the run waits for.
    """

    open: Callable[[CheckpointInfo], Engine]
    start: Callable[[pytest.Function, Engine], RunningBatch]
    start_ahead: Callable[[Sequence[pytest.Item], Engine], RunningBatch | None]
    begin: Callable[[RunningBatch, Engine, bool], None]
    computing: Callable[[Engine, Sequence[RunningBatch]], None]
    ended: Callable[[RunningBatch, Engine, bool], None]
    loading: Callable[[str], AbstractContextManager[None]]
    answering: Callable[[RunningBatch, Engine], AbstractContextManager[None]]


@dataclass(slots=True, eq=False)
class _Lane:
    """A checkpoint: the batches that may be started ahead, and those in work."""

    info: CheckpointInfo
    engine: Engine | None = None
    batches: dict[int, Sequence[pytest.Item]] = field(default_factory=dict)
    running: list[RunningBatch] = field(default_factory=list)

    @property
    def hungry(self) -> bool:
        """Return whether its next batch should start."""
        return bool(self.batches) and self.engine is not None and len(self.running) < 2


class Lanes:
    """The lanes of a run."""

    def __init__(self, batches: Iterable[Sequence[pytest.Item]], tools: LaneTools) -> None:
        """``batches`` are those that may be started ahead, in the run's order, each of one checkpoint."""
        self._tools = tools
        self._lanes: dict[str, _Lane] = {}
        for batch in batches:
            lane = self._lane(checkpoint_of(batch[0]))
            lane.batches[id(batch)] = batch
        self._current: _Lane | None = None
        self._alone = False
        self._in_work: dict[str, RunningBatch] = {}

    def runs(self, item: str) -> bool:
        """Return whether an item is in work."""
        return item in self._in_work

    def finish(self, item: pytest.Function, batch: Sequence[pytest.Item], *, alone: bool) -> None:
        """Return when an item of the batch has ended, together with others, or computed ``alone`` in this process.

        Raises ``CheckpointError`` where its checkpoint does not load, and ``ServerError`` where its engine answers no
        more.
        """
        lane, self._alone = self._come_to(checkpoint_of(item)), alone
        engine = self._loaded(lane)
        own = self._in_work.get(item.nodeid)
        if own is None:
            self._rest(lane)
            lane.batches.pop(id(batch), None)
            own = self._tools.start(item, engine)
            self._add(lane, own)
        try:
            if not own.begun:
                self._tools.begin(own, engine, False)
            self._go_on(lane)
            self._tools.computing(engine, [one for one in lane.running if one.at_work])
            with self._tools.answering(own, engine):
                while own.open:
                    own.step()
                    self._go_on(lane)
        finally:
            self._remove(lane, own, waited_for=True)
        self._end(lane)

    def close(self) -> None:
        """Close the generators of batches that have not ended."""
        for lane in self._lanes.values():
            for batch in lane.running:
                with suppress(JournalError):  # on a full disk, which the end of the loop has said
                    batch.close()
            lane.running.clear()
        self._in_work.clear()

    def _lane(self, info: CheckpointInfo) -> _Lane:
        return self._lanes.setdefault(info.name, _Lane(info))

    def _come_to(self, info: CheckpointInfo) -> _Lane:
        """Return the lane of a checkpoint; another one that was at work in this process rests meanwhile."""
        lane, former = self._lane(info), self._current
        if former is not None and former is not lane:
            self._rest(former)
        self._current = lane
        return lane

    def _rest(self, lane: _Lane) -> None:
        """Withdraw what the batches of a lane have asked early."""
        for batch in lane.running:
            batch.pause()

    def _loaded(self, lane: _Lane) -> Engine:
        """Return a lane's checkpoint when it is loaded; its memory may have been freed for another one."""
        with self._tools.loading(lane.info.name):
            lane.engine = self._tools.open(lane.info)
        return lane.engine

    def _go_on(self, first: _Lane) -> None:
        """Start what can start, and ask what the items in work have to ask."""
        while first.engine is not None and first.hungry and not self._alone:
            self._start_next(first, first.engine)
        for lane in self._lanes.values():
            for batch in lane.running:
                batch.collect()
            if lane is not first:
                self._end(lane)

    def _start_next(self, lane: _Lane, engine: Engine) -> None:
        items = lane.batches.pop(next(iter(lane.batches)))
        if (batch := self._tools.start_ahead(items, engine)) is not None:
            limited = any(one.limited for one in lane.running)
            self._add(lane, batch)
            if not limited:
                self._tools.begin(batch, engine, True)

    def _add(self, lane: _Lane, batch: RunningBatch) -> None:
        lane.running.append(batch)
        self._in_work |= dict.fromkeys(batch.items, batch)

    def _end(self, lane: _Lane) -> None:
        for batch in [one for one in lane.running if not one.open]:
            self._remove(lane, batch)

    def _remove(self, lane: _Lane, batch: RunningBatch, *, waited_for: bool = False) -> None:
        assert lane.engine is not None
        lane.running.remove(batch)
        for item in batch.items:
            del self._in_work[item]
        batch.close()
        self._tools.ended(batch, lane.engine, waited_for)
