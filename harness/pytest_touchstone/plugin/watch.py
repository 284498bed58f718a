"""Watches a process that answers, from a thread of its own, and writes how far it is (``results.live``).

The engine and the driver are not held up: the thread looks at them a few times a second. What passes between two looks
is booked by what has grown meanwhile: tokens computed for scores and prompts, steps that continued texts, or neither.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from pytest_touchstone.engines.base import Engine, EngineProgress, ReportingEngine
from pytest_touchstone.plugin.driver import RunningBatch
from pytest_touchstone.plugin.so_far import BatchSoFar, ItemSoFar
from pytest_touchstone.results.live import (
    BINS,
    STEP_TOKENS,
    Cost,
    PartProgress,
    ProcessProgress,
    Workload,
    write_progress,
    write_workload,
)

INTERVAL: Final = 0.5
"""Seconds between two looks."""

GLANCE: Final = 0.05
"""Seconds between two glances at the engine's counts, which tell when they have grown."""

SHARE: Final = 0.01
"""The most of the time that looking and writing may take; where it would be more, it is done more rarely."""

NOTHING: Final = EngineProgress()

HALVED: Final = 100
"""Steps after which the former ones count half: with the length of texts steps take longer."""

LOADED: Final = 0.2
"""Seconds from which on an engine was not there already."""


class Numbers(Protocol):
    """The numbers of items' parts."""

    def get(self, item: str, /) -> int | None:
        """Return the number of an item's part; None where it has none."""

    def __contains__(self, item: str, /) -> bool: ...

    def __getitem__(self, item: str, /) -> int: ...


class Watch:
    """Told by the main thread what the process does; its own thread sees what comes of it."""

    def __init__(self, directory: Path, who: str) -> None:
        self._directory, self._who = directory, who
        self._books: Books | None = None
        self._batch: RunningBatch | None = None
        self._engine: Engine | None = None
        self._known: WeakKeyDictionary[Engine, EngineProgress] = WeakKeyDictionary()
        self._last = time.monotonic()
        self._glanced, self._grown = NOTHING, self._last
        self._lock = threading.RLock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def planned(self) -> bool:
        """The sizes of what is asked are known."""
        return self._books is not None

    @property
    def state(self) -> ProcessProgress | None:
        """The process now; None where nothing is planned."""
        return None if self._books is None else self._books.state

    def plan(self, load: Workload, part_of: Numbers) -> None:
        """Begin to watch; ``part_of`` has the number of each item's part."""
        self._books = Books(self._who, load, part_of)
        write_workload(self._directory, load)
        self._thread = threading.Thread(target=self._run, name="touchstone-watch", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def loading(self, checkpoint: str) -> Iterator[None]:
        """Stand around the opening of a checkpoint, which may be open already."""
        if self._books is None:
            yield
            return
        self._look(doing="loading", checkpoint=checkpoint)
        began = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - began
            with self._lock:
                cost = self._books.cost(checkpoint)
                cost.load = took if cost.load is None or took > LOADED else cost.load
            self._look(doing="waiting")

    @contextlib.contextmanager
    def answering(self, batch: RunningBatch, engine: Engine, checkpoint: str) -> Iterator[None]:
        """Stand around the answering of a batch."""
        self._look(doing="answering", checkpoint=checkpoint)
        with self._lock:
            self._batch, self._engine = batch, engine
            self._glanced = _progress(engine)
        try:
            yield
        finally:
            with self._lock:
                self._look(doing="waiting")
                self._batch = self._engine = None
                if self._books is not None:
                    self._books.close(batch.so_far().items)

    def ended(self, batch: RunningBatch) -> None:
        """Take note of a batch that has ended beside the one that was watched."""
        with self._lock:
            if self._books is not None:
                self._books.close(batch.so_far().items)

    def settled(self, item: str) -> None:
        """Take note of an item that has ended without being asked."""
        with self._lock:
            if self._books is not None:
                self._books.settled(item)

    def close(self) -> None:
        """End the thread; calling it again does nothing."""
        if self._thread is not None:
            self._ending.set()
            self._thread.join(timeout=5)
            self._thread = None

    def _run(self) -> None:
        pause = INTERVAL
        while not self._rest(pause):
            began = time.thread_time()
            with contextlib.suppress(Exception):  # whoever is watched must not suffer
                self._look()
                with self._lock:
                    state = self._books.state if self._books is not None else None
                    text = None if state is None else deepcopy(state)
                if text is not None:
                    write_progress(self._directory, text)
            pause = max(INTERVAL, (time.thread_time() - began) / SHARE)

    def _rest(self, seconds: float) -> bool:
        """Wait so long, and take note of when the engine's counts grow; return whether the watch ends."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._ending.wait(min(left, GLANCE)):
                return True
            with contextlib.suppress(Exception):
                self._glance()
        return self._ending.is_set()

    def _glance(self) -> None:
        with self._lock:
            progress = _progress(self._engine)
            if (progress.tokens, progress.steps) != (self._glanced.tokens, self._glanced.steps):
                self._glanced, self._grown = progress, time.monotonic()

    def _look(self, doing: str | None = None, checkpoint: str | None = None) -> None:
        """Book the time since the last look; then the process does something else, or what it did."""
        with self._lock:
            self._glance()
            now = time.monotonic()
            seconds, self._last = now - self._last, now
            books, batch, engine = self._books, self._batch, self._engine
            if books is None:
                return
            if batch is None or engine is None:
                books.between(seconds)
            else:
                progress = _progress(engine)
                before = self._known.get(engine, NOTHING)
                self._known[engine] = progress
                seen = batch.so_far(progress.growing)
                books.look(seconds, progress, since(before, progress), seen, resting=now - self._grown)
            if doing is not None:
                books.does(doing, checkpoint)


def _progress(engine: Engine | None) -> EngineProgress:
    return engine.progress() if isinstance(engine, ReportingEngine) else NOTHING


class Books:
    """The state of a process, made of what is seen of it."""

    def __init__(self, who: str, load: Workload, part_of: Numbers) -> None:
        now = time.time()
        self.state = ProcessProgress(who=who, at=now, since=now)
        self._load, self._part_of = load, part_of
        self._former: dict[int, PartProgress] = {}
        self._latest: Counter[int] = Counter()
        self._computing = False
        self._pending = 0.0

    def cost(self, checkpoint: str) -> Cost:
        """Return the costs of a checkpoint's work."""
        return self.state.costs.setdefault(checkpoint, Cost())

    def does(self, what: str, checkpoint: str | None) -> None:
        """Take note of what the process does from now on."""
        self.state.doing, self.state.since = what, time.time()
        self._computing = False
        self.state.checkpoint = checkpoint or self.state.checkpoint

    def settled(self, item: str) -> None:
        """Count an item that has ended without being asked."""
        if (part := self._part_of.get(item)) is not None:
            self._former.setdefault(part, PartProgress()).ended += 1

    def between(self, seconds: float) -> None:
        """Book time between two batches: to the parts of the former one, unless a checkpoint is loaded."""
        self.state.at, self.state.growing, self.state.trouble = time.time(), [], ""
        if self.state.doing != "loading":
            self._book(seconds, waiting=False)
        self._show(())

    def look(
        self,
        seconds: float,
        now: EngineProgress,
        more: EngineProgress,
        batch: BatchSoFar,
        *,
        resting: float = 0.0,
    ) -> None:
        """Book time within a batch, in which the engine has done so much ``more``; its last pass ended ``resting``
        seconds ago, and the time since belongs to what it does now."""
        state = self.state
        state.at, state.trouble = time.time(), now.trouble
        state.tokens += more.tokens + more.generated
        state.growing = [
            [self._part_of[item], count] for item, count in batch.growing if item in self._part_of
        ]
        open_ = [one for one in batch.items if not one.ended]
        state.doing = _doing(open_, batch.advancing) if not (more.tokens or more.steps) else "answering"
        self._latest = self._counted(open_) or self._counted(batch.items)
        grown = bool(more.tokens or more.steps)
        if not grown and state.doing == "answering":
            self._pending += seconds  # a pass may take longer than it is from look to look
            seconds = 0.0
        elif grown:
            after = min(seconds, max(0.0, resting))
            seconds, self._pending = seconds - after + self._pending, after
        stepping = seconds * share_of_steps(more)
        if state.checkpoint is not None:
            _book_cost(self.cost(state.checkpoint), more, seconds - stepping, stepping)
        self._book(seconds - stepping, waiting=state.doing == "programs")
        self._computing |= bool(more.tokens)
        # Until the engine computes for this batch, it tells of the call before.
        self._show(batch.items, now if self._computing else NOTHING, {item for item, _ in batch.growing})

    def close(self, items: Sequence[ItemSoFar]) -> None:
        """Take a batch that has come to its end into what is known for good."""
        self._book(self._pending, waiting=False)
        self._pending = 0.0
        self._show(items)
        self._former = {number: deepcopy(part) for number, part in self.state.parts.items()}
        for part in self._former.values():
            part.open, part.partial = 0, 0.0

    def _book(self, seconds: float, *, waiting: bool) -> None:
        for part, many in self._latest.items():
            mine = self._former.setdefault(part, PartProgress())
            share = seconds * many / self._latest.total()
            if waiting:
                mine.waited += share
            else:
                mine.seconds += share

    def _counted(self, items: Iterable[ItemSoFar]) -> Counter[int]:
        return Counter(self._part_of[one.item] for one in items if one.item in self._part_of)

    def _show(
        self, items: Sequence[ItemSoFar], now: EngineProgress = NOTHING, growing: Iterable[str] = ()
    ) -> None:
        """Make the parts of the state: what is known for good, and the items of the batch under way."""
        self.state.parts = parts = dict(self._former)
        at_work, fresh = set(growing), set[int]()
        for one in items:
            if (number := self._part_of.get(one.item)) is None:
                continue
            if number not in fresh:
                fresh.add(number)
                parts[number] = deepcopy(parts.get(number, PartProgress()))
            limit = self._load.parts[number].limit
            _add(parts[number], one, now, limit, growing=one.item in at_work)


def share_of_steps(more: EngineProgress) -> float:
    """Return the share of a time that went into steps, where tokens of prompts were computed in it too."""
    stepping = more.steps * STEP_TOKENS + more.generated
    return stepping / (stepping + more.tokens) if stepping else 0.0


def since(before: EngineProgress, now: EngineProgress) -> EngineProgress:
    """Return what an engine has done in between."""
    return EngineProgress(
        tokens=max(0, now.tokens - before.tokens),
        steps=max(0, now.steps - before.steps),
        generated=max(0, now.generated - before.generated),
    )


def _doing(open_: Sequence[ItemSoFar], advancing: str | None) -> str:
    """Return what a process does while its engine rests."""
    if advancing is not None:
        return "grading"
    waiting = bool(open_) and all(one.asked.programs > one.answered.programs for one in open_)
    return "programs" if waiting else "answering"


def _book_cost(cost: Cost, more: EngineProgress, seconds: float, stepping: float) -> None:
    if more.steps:
        sums = cost.steps.setdefault(round(more.generated / more.steps).bit_length(), [0.0, 0.0, 0.0])
        added = (more.steps, more.generated, stepping)
        kept = 0.5 ** (more.steps / HALVED)
        sums[:] = [kept * one + other for one, other in zip(sums, added, strict=True)]
    if more.tokens:
        cost.tokens += more.tokens
        cost.seconds += seconds


def _add(part: PartProgress, one: ItemSoFar, now: EngineProgress, limit: int, *, growing: bool) -> None:
    """Add an item to its part; of what it waits for the engine has done as much as of the whole call."""
    scored = now.scored / now.to_score if now.to_score else 0.0
    part.ended += one.ended
    part.open += not one.ended
    share = one.share + (1.0 - one.share) * now.share
    if not one.ended:
        part.partial += float(growing or one.share == 1.0) if one.asked.texts else share
    waiting = one.asked.requests - one.answered.requests
    part.requests[0] += one.answered.requests + waiting * scored
    part.requests[1] += one.asked.requests
    for counts, done, asked in (
        (part.texts, one.answered.texts, one.asked.texts),
        (part.programs, one.answered.programs, one.asked.programs),
    ):
        counts[0] += done
        counts[1] += asked
    for length in one.lengths:
        part.lengths[BINS if length.at_limit else min(BINS - 1, BINS * length.tokens // max(1, limit))] += 1
