"""How far a process is, for the progress line and for others (``results.live``), and about how much work items are."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any, Final

from pytest_touchstone.core.requests import (
    FillMask,
    Generate,
    Judge,
    Loglikelihood,
    PseudoLoglikelihood,
    Request,
    RollingLoglikelihood,
    RunProgram,
)
from pytest_touchstone.core.text import rough_tokens
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.transformers.prefix_tree import common
from pytest_touchstone.plugin.batches import batch_key
from pytest_touchstone.plugin.planned import Planned
from pytest_touchstone.results.live import ProcessProgress, write_progress

INTERVAL: Final = 0.5
"""Seconds between two writings of a process's state."""


class ProgressWriter:
    """Is told by the main thread what the process does; a thread of its own writes that."""

    def __init__(self, directory: Path, who: str, *, writes: bool = True) -> None:
        self._directory, self._writes = directory, writes
        self._state = ProcessProgress(who=who)
        self._sizes: Mapping[str, float] = {}
        self._doing: tuple[str, Engine | None, int] = ("", None, 0)  # the tokens are those of former engines
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def planned(self) -> bool:
        """Return whether the sizes of items are known."""
        return bool(self._sizes)

    def plan(self, items: Sequence[Planned], sizes: Mapping[str, float]) -> None:
        """Begin to write, for a run of these items and their ``sizes_of``."""
        self._sizes, self._state.items = sizes, len(items)
        self._state.work = sum(sizes[batch_key(item.nodeid)] for item in items)
        if self._writes:  # with -q nobody looks, and a thread cannot always be had
            self._thread = threading.Thread(target=self._run, name="touchstone-progress-writer", daemon=True)
            self._thread.start()

    @contextmanager
    def doing(self, what: str, engine: Engine | None = None) -> Iterator[None]:
        """Stand around what the process does, such as the answering of a batch by an engine."""
        tokens = engine.progress().tokens if engine is not None else 0
        self._doing = (what, engine, self._state.tokens - tokens)
        if engine is not None:
            self._state.done = self._state.done or 1.0  # next to nothing: the time of answering begins
        try:
            yield
        finally:
            self.look()
            self._doing = ("", None, self._state.tokens)

    def ended(self, item: str) -> None:
        """Take note of an item that has ended."""
        self._state.ended += 1
        self._state.done += self._sizes.get(batch_key(item), 0.0)

    def look(self) -> None:
        """Take over what the engine tells of its work."""
        self._state.doing, engine, tokens = self._doing
        if engine is not None:
            progress = engine.progress()
            self._state.tokens = tokens + progress.tokens
            self._state.doing = progress.trouble or self._state.doing

    def close(self) -> None:
        """End the thread; calling it again does nothing."""
        if self._thread is not None:
            self._ending.set()
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._ending.wait(INTERVAL):
            with suppress(Exception):  # whoever is watched must not suffer
                self.look()
                write_progress(self._directory, self._state)


# About how much work items are


STARTED: Final = 8
"""Items of a part that are started."""

SIZING_SECONDS: Final = 1.0
"""The most that all of it may take; parts that come too late have the usual size."""

USUAL_TOKENS: Final = 100.0
"""Of an item that is not started."""

USUAL_LIMIT: Final = 256
"""New tokens that a text has at most, as far as nothing is known of its length."""

GENERATED: Final = 2
"""A generated token takes about as long as so many tokens of a prompt."""

PARAMETERS: Final = 100_000_000
"""Of a checkpoint that does not say."""


def sizes_of(items: Iterable[Planned], limit: int | None) -> dict[str, float]:
    """Return about how much work an item is, by its ``batch_key``, in tokens times parameters.

    The first questions of a few items of each key are measured; where nobody may start one, items have the usual size.
    ``limit`` is the person's of new tokens.
    """
    members: dict[str, list[Planned]] = {}
    for item in items:
        members.setdefault(batch_key(item.nodeid), []).append(item)
    until = monotonic() + SIZING_SECONDS
    return {key: _size(some, limit, until) for key, some in members.items()}


def _size(items: Sequence[Planned], limit: int | None, until: float) -> float:
    questions = [asked for item in spread(items) if monotonic() < until and (asked := item.first_requests())]
    usual = USUAL_TOKENS + GENERATED * USUAL_LIMIT * (Generate in items[0].spec.asks)
    tokens = size_of(list(chain(*questions)), limit) / len(questions) if questions else usual
    return tokens * (items[0].info.parameters or PARAMETERS)


def size_of(requests: Sequence[Request], limit: int | None = None) -> float:
    """Return about how many tokens are computed for requests; the beginning that two texts share counts once, and that
    of all of them not at all. The ``limit`` of new tokens goes before the requests' own."""
    texts = sorted(map(request_text, requests))
    distinct = [text[common(before, text) :] for before, text in pairwise(texts)] or texts
    generated = [request for request in requests if isinstance(request, Generate)]
    new = sum(one.different * min(limit or one.max_new_tokens, USUAL_LIMIT) for one in generated)
    return len(texts) * (1.0 + fmean(map(rough_tokens, distinct))) + GENERATED * new


def spread(items: Sequence[Any], most: int = STARTED) -> list[Any]:
    """Return as many items, spread evenly."""
    step = len(items) / most
    return list(items) if step <= 1 else [items[int(number * step)] for number in range(most)]


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
