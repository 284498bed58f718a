"""What the progress line is told (``results.live``): the sizes of what a run will ask, and, a few times per second, the
state of a process that answers.

A thread of its own looks at the engine and the driver, which are not held up. The time between two looks is booked by
what has grown meanwhile: tokens of scores and prompts, generated tokens, or programs that have run.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import pytest

from pytest_touchstone.core.requests import (
    NOT_OF_CHECKPOINTS,
    REQUEST_KINDS,
    FillMask,
    Generate,
    Judge,
    Loglikelihood,
    PseudoLoglikelihood,
    Request,
    RollingLoglikelihood,
    RunProgram,
)
from pytest_touchstone.engines.base import Engine, EngineProgress
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.prefix_tree import common
from pytest_touchstone.plugin.batches import batch_key
from pytest_touchstone.plugin.collection import checkpoint_of, given_of, result_of
from pytest_touchstone.plugin.dispatch import CAUGHT
from pytest_touchstone.plugin.driver import BatchSoFar, ItemSoFar, RunningBatch
from pytest_touchstone.results.live import (
    PartProgress,
    ProcessProgress,
    Workload,
    WorkloadPart,
    rough_tokens,
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


# The sizes of what is asked


STARTED: Final = 8
"""Items of a part that are started."""

SIZING_SECONDS: Final = 1.0
"""The most that all of it may take; parts that come too late have no sizes."""

USUAL_LIMIT: Final = 256
"""New tokens of a text at most, where it is not known before it is asked for."""

Start: TypeAlias = Callable[[], Any]
"""Starts an item's generator."""


def workload_of(
    items: Iterable[pytest.Item],
    starting: Callable[[pytest.Item], Start | None],
    settings: ModelSettings,
    left_out: Container[str] = (),
) -> tuple[Workload, PartOf]:
    """Return the sizes of what the items will ask, and what tells the number of each item's part.

    A few items of each part are started as far as their first question, whose texts are measured. Nothing of it is
    answered, and the generators are closed again. Only shipped benchmarks are started, which have no effects; other
    people's functions, and what raises, are left without a size until their items are asked.

    ``starting`` gives what starts an item, None where it cannot be started yet. Items that are ``left_out`` of these
    have no part.
    """
    members: dict[str, list[pytest.Item]] = {}
    for item in items:
        members.setdefault(batch_key(item.nodeid), []).append(item)
    numbers = {key: number for number, key in enumerate(members)}
    until = time.monotonic() + SIZING_SECONDS
    parts = tuple(_part(some, starting, settings.max_new_tokens, until) for some in members.values())
    infos = [checkpoint_of(some[0]) for some in members.values()]
    load = Workload(parts=parts, parameters={info.name: info.parameters for info in infos})
    return load, lambda item: None if item in left_out else numbers.get(batch_key(item))


def _part(
    items: Sequence[pytest.Item],
    starting: Callable[[pytest.Item], Start | None],
    limit: int | None,
    until: float,
) -> WorkloadPart:
    """Return the part of items that are alike; without sizes where it is too late for them."""
    given = given_of(items[0])
    assert given is not None
    asks = given.loaded.spec.asks
    starts = (starting(one) for one in spread(items))
    questions = (question(start) for start in starts if start is not None and time.monotonic() < until)
    asking = given.loaded.asking  # of the demonstration
    asked = [[asking.request(one) for one in question] for question in questions if question]
    unknown = {"texts": 1.0, "limit": limit or USUAL_LIMIT} if Generate in asks else {}
    return WorkloadPart(
        checkpoint=checkpoint_of(items[0]).name,
        benchmark=result_of(items[0], given),
        items=len(items),
        programs=RunProgram in asks,
        **(
            size_of(asked, limit, apart=bool({FillMask, PseudoLoglikelihood} & set(asks)))
            if asked
            else unknown
        ),
    )


def size_of(
    questions: Sequence[Sequence[Request]], limit: int | None = None, *, apart: bool = False
) -> dict[str, Any]:
    """Return the sizes per item of a part, from the first questions of some of its items; none of them is empty.

    The ``limit`` of new tokens goes before the requests' own.
    """
    generated = [one for question in questions for one in question if isinstance(one, Generate)]
    texts = [sorted({request_text(one) for one in question}) for question in questions]
    shared = 0 if apart or len(questions) < 2 else common(min(map(min, texts)), max(map(max, texts)))
    prefix = min(texts[0])[:shared]
    own = [_distinct(some, shared, apart=apart) for some in texts]
    many = len(questions)
    return {
        "tokens": sum(own) / many,
        "shared": float(rough_tokens(prefix)),
        "texts": sum(one.different for one in generated) / many,
        "limit": max(
            (limit or max(one.max_new_tokens, one.turns_max_new_tokens or 0) for one in generated), default=0
        ),
    }


def _distinct(texts: Sequence[str], shared: int, *, apart: bool) -> int:
    """Return the tokens of an item's texts, in order, behind the ``shared`` characters, and one where each ends.

    Whatever two of them begin with counts once, unless they are computed ``apart``.
    """
    before = ["", *texts]
    known = [shared if apart else max(shared, common(*pair)) for pair in zip(before, texts, strict=False)]
    return sum(rough_tokens(text[at:]) + 1 for text, at in zip(texts, known, strict=True))


def spread(items: Sequence[Any], most: int = STARTED) -> list[Any]:
    """Return as many items, spread evenly."""
    step = len(items) / most
    return list(items) if step <= 1 else [items[int(number * step)] for number in range(most)]


def question(start: Start) -> list[Request]:
    """Return an item's first question to the model; nothing where there is none."""
    generator: Generator[Any, Any, Any] | None = None
    try:
        generator = start()
        yielded = next(generator)
        asked = [yielded] if isinstance(yielded, REQUEST_KINDS) else list(yielded)
        return [
            one for one in asked if isinstance(one, REQUEST_KINDS) and not isinstance(one, NOT_OF_CHECKPOINTS)
        ]
    except (*CAUGHT, StopIteration):
        return []  # told when it is the item's turn
    finally:
        if generator is not None:
            with suppress(*CAUGHT):
                generator.close()


def request_text(request: Request) -> str:
    """Return the text of a request that goes through the model."""
    match request:
        case Loglikelihood(context, continuation):
            return context + continuation
        case RollingLoglikelihood(text) | FillMask(text) | PseudoLoglikelihood(text):
            return text
        case Generate(prompt):
            return prompt
        case RunProgram() | Judge():
            return ""
