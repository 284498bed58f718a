"""The state of a process that answers, written a few times per second for the progress line (``results.live``).

A thread of its own looks at the engine and the driver, which are not held up. The time between two looks is booked by
what has grown meanwhile: tokens of scores and prompts, generated tokens, or programs that have run.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from pytest_touchstone.engines.base import Engine, EngineProgress
from pytest_touchstone.plugin.driver import RunningBatch
from pytest_touchstone.plugin.so_far import BatchSoFar, ItemSoFar
from pytest_touchstone.results.live import (
    PartProgress,
    ProcessProgress,
    Workload,
    write_progress,
    write_workload,
)

INTERVAL: Final = 0.5
"""Seconds between two looks."""

SHARE: Final = 0.01
"""The most of the time that looking and writing may take; where it would be more, it is done more rarely."""

STEP_TOKENS: Final = 24
"""A step that continues texts takes about as long as so many tokens of a prompt, besides one for each text: all weights
are read for it."""

NOTHING: Final = EngineProgress()

PartOf: TypeAlias = Callable[[str], int | None]
"""The number of an item's part; None where it has none."""


class ProgressWriter:
    """Told by the main thread what the process does; its own thread sees what comes of it."""

    def __init__(self, directory: Path, who: str) -> None:
        self._directory = directory
        self._state = ProcessProgress(who=who, at=time.time())
        self._part_of: PartOf | None = None
        self._ended: dict[int, PartProgress] = {}
        self._batch: RunningBatch | None = None
        self._engine: Engine | None = None
        self._known: WeakKeyDictionary[Engine, EngineProgress] = WeakKeyDictionary()
        self._asked_at = self._pending = 0.0
        self._last = time.monotonic()
        self._lock = threading.RLock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def planned(self) -> bool:
        """The sizes of what is asked are known."""
        return self._part_of is not None

    @property
    def state(self) -> ProcessProgress:
        """The process at the last look."""
        return self._state

    def plan(self, load: Workload, part_of: PartOf) -> None:
        """Begin to look; ``part_of`` has the number of each item's part."""
        self._part_of = part_of
        write_workload(self._directory, load)
        self._thread = threading.Thread(target=self._run, name="touchstone-progress-writer", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def loading(self, checkpoint: str) -> Iterator[None]:
        """Stand around the opening of a checkpoint, which may be open already."""
        self.look(doing="loading", checkpoint=checkpoint)
        began = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._state.loads.setdefault(checkpoint, time.monotonic() - began)
                self.look(doing="waiting")

    @contextlib.contextmanager
    def answering(self, batch: RunningBatch, engine: Engine, checkpoint: str) -> Iterator[None]:
        """Stand around the answering of a batch."""
        self.look(doing="answering", checkpoint=checkpoint)
        with self._lock:
            self._batch, self._engine = batch, engine
            self._asked_at = engine.progress().tokens
        try:
            yield
        finally:
            with self._lock:
                self.look(doing="waiting")
                self._batch = self._engine = None
                self.ended(batch)

    def ended(self, batch: RunningBatch) -> None:
        """Take note of a batch that has ended, perhaps beside the one that was watched."""
        with self._lock:
            self._ended = self._with(self._ended, batch.so_far())
            self._state.parts = self._ended

    def skipped(self, item: str) -> None:
        """Take note of an item that has ended without being asked."""
        with self._lock:
            if self._part_of is not None and (part := self._part_of(item)) is not None:
                before = self._ended.get(part, PartProgress())
                self._ended = {**self._ended, part: before.plus(PartProgress(ended=1, skipped=1))}

    def close(self) -> None:
        """End the thread; calling it again does nothing."""
        if self._thread is not None:
            self._ending.set()
            self._thread.join(timeout=5)
            self._thread = None

    def _run(self) -> None:
        pause = INTERVAL
        while not self._ending.wait(pause):
            began = time.thread_time()
            with contextlib.suppress(Exception), self._lock:  # whoever is watched must not suffer
                self.look()
                write_progress(self._directory, self._state)
            pause = max(INTERVAL, (time.thread_time() - began) / SHARE)

    def look(self, doing: str | None = None, checkpoint: str | None = None) -> None:
        """Book the time since the last look; then the process does something else, or what it did."""
        with self._lock:
            state, batch, engine = self._state, self._batch, self._engine
            now = time.monotonic()
            seconds, self._last = now - self._last, now
            state.at, state.trouble, state.open = time.time(), "", []
            if batch is None or engine is None:
                if state.doing != "loading":
                    self._book("computing", seconds)
                state.parts = self._ended
            else:
                self._look_at(batch, engine, seconds)
            if doing is not None:
                if doing == "waiting" and self._pending:  # of an engine that does not tell what it does
                    texts = any(part.texts for part in state.parts.values())
                    self._book("generating" if texts else "computing", self._pending)
                    self._pending = 0.0
                state.doing, state.checkpoint = doing, checkpoint or state.checkpoint

    def _look_at(self, batch: RunningBatch, engine: Engine, seconds: float) -> None:
        state, progress = self._state, engine.progress()
        before = self._known.get(engine, NOTHING)
        self._known[engine] = progress
        tokens, steps = progress.tokens - before.tokens, progress.steps - before.steps
        generated = progress.generated - before.generated
        seen = batch.so_far(progress.growing)
        state.trouble = progress.trouble
        state.tokens += tokens + generated
        state.doing = "answering" if tokens or steps else _doing(seen)
        if state.doing == "programs":
            self._book("programs", seconds)
        elif tokens or steps:
            stepping = steps * STEP_TOKENS + generated
            share = stepping / (stepping + tokens)
            self._book("generating", (seconds + self._pending) * share)
            self._book("computing", (seconds + self._pending) * (1.0 - share))
            self._pending = 0.0
        elif state.doing == "grading":
            self._book("computing", seconds)
        else:  # a pass may take longer than it is from look to look
            self._pending += seconds
        # Until the engine computes for this batch, it tells of the call before.
        share = progress.share if progress.tokens != self._asked_at else 0.0
        state.parts = self._with(self._ended, seen, share)
        parts = [self._part(item.item) for item in seen.items if not item.ended]
        state.open = list(dict.fromkeys(part for part in parts if part is not None))

    def _part(self, item: str) -> int | None:
        return None if self._part_of is None else self._part_of(item)

    def _book(self, kind: str, seconds: float) -> None:
        by_kind = self._state.seconds.setdefault(self._state.checkpoint, {})
        by_kind[kind] = by_kind.get(kind, 0.0) + seconds

    def _with(
        self, parts: dict[int, PartProgress], batch: BatchSoFar, share: float = 0.0
    ) -> dict[int, PartProgress]:
        """Return the parts with a batch's items, where the engine has computed a share of what they wait for."""
        growing: dict[str, list[int]] = {}
        for name, tokens in batch.growing:
            growing.setdefault(name, []).append(tokens)
        parts = dict(parts)
        for item in batch.items:
            if (part := self._part(item.item)) is not None:
                progress = progress_of(item, growing.get(item.item, ()), share)
                parts[part] = parts.get(part, PartProgress()).plus(progress)
        return parts


def progress_of(item: ItemSoFar, growing: Sequence[int], share: float) -> PartProgress:
    """Return what an item adds to its part: the tokens of its ``growing`` texts, and of what it waits for the engine
    has computed a ``share``."""
    asked = item.asked.requests + item.asked.texts
    answered = item.answered.requests + item.answered.texts
    whole = item.ended or asked == answered or bool(growing)
    computed = 1.0 if whole else (answered + (asked - answered) * share) / asked
    return PartProgress(
        ended=int(item.ended),
        computed=computed,
        texts=item.answered.texts,
        stopped=sum(not length.at_limit for length in item.lengths),
        growing=len(growing),
        grown=sum(growing),
        tokens=sum(length.tokens for length in item.lengths) + sum(growing),
        programs=item.answered.programs,
    )


def _doing(batch: BatchSoFar) -> str:
    """Return what a process does while its engine rests."""
    if batch.advancing is not None:
        return "grading"
    open_ = [item for item in batch.items if not item.ended]
    waiting = bool(open_) and all(item.asked.programs > item.answered.programs for item in open_)
    return "programs" if waiting else "answering"
