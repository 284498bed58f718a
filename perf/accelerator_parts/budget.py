"""The time that a part of the accelerator's program may take, and the amount of work that fits into it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

LEAST = 2.0
"""The seconds below which nothing new is begun."""


class Budget:
    """So many seconds, from now on. ``clock`` returns the time in seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """Return the seconds that are left, 0 at least."""
        return max(0.0, self._end - self._clock())

    def enough(self, seconds: float = LEAST) -> bool:
        """Return whether so many seconds are left."""
        return self.left >= seconds

    def split(self, parts: int) -> Budget:
        """Return an equal share of what is left, for the next of so many parts; what it does not use is there for
        the others."""
        return Budget(self.left / max(1, parts), self._clock)


def as_many(most: int, seconds_each: float, seconds: float) -> int:
    """Return how many of things that take so long fit into the seconds: from 1 to ``most``."""
    if not seconds_each > 0:
        return most
    return max(1, int(min(most, seconds / seconds_each)))


def until(
    work: Callable[[T], object],
    things: Sequence[T],
    seconds: float,
    *,
    least: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Do the work for one thing after the other until the seconds are over; return how many are done.

    ``least`` are done whatever the time.
    """
    began = clock()
    for number, one in enumerate(things, 1):
        work(one)
        if number >= least and clock() - began >= seconds:
            return number
    return len(things)
