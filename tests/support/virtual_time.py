"""An event loop in which no time is waited for: it jumps to the next moment at which something is due."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    """Waits by moving the clock."""

    moved = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing is due: this would wait for ever"
        found = super().select(0)
        if not found:
            self.moved += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with a time of its own, from 0 on."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.moved


def run(loop: VirtualLoop, main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in no time."""
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()
