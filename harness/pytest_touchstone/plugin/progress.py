"""How far a process is, for the progress line and for others (``results.live``), and about how much work items are."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pytest_touchstone.core.requests import (
    Generate,
)
from pytest_touchstone.engines.base import Engine
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

    def plan(self, items: Sequence[Planned]) -> None:
        """Begin to write, for a run of these items."""
        self._sizes = {batch_key(item.nodeid): work_of(item) for item in items}
        self._state.items, self._state.work = len(items), sum(map(work_of, items))
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


USUAL_TOKENS: Final = 100.0
"""The tokens of an item's questions, about."""

TEXT_TOKENS: Final = 512.0
"""The same for a text that is generated: each of its tokens takes about as long as two of a prompt."""

PARAMETERS: Final = 100_000_000
"""Of a checkpoint that does not say."""


def work_of(item: Planned) -> float:
    """Return about how much work an item is, in tokens times parameters, by what its benchmark asks."""
    tokens = USUAL_TOKENS + TEXT_TOKENS * (Generate in item.spec.asks)
    return tokens * (item.info.parameters or PARAMETERS)
