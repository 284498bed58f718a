"""The time, which tests may let pass more quickly."""

from __future__ import annotations

import time


class Clock:
    """The time. ``speed`` above 1 lets tests wait in less than real time."""

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed

    def now(self) -> float:
        """Return seconds from some moment on."""
        return time.monotonic() * self._speed

    def wall(self) -> float:
        """Return seconds since 1970."""
        return time.time()

    def real(self, seconds: float) -> float:
        """Return the true seconds in which this clock moves on by so many."""
        return seconds / self._speed
