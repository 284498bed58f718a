"""The time that a benchmark may take, from its first question on; each process has its own clock."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pytest_touchstone.core.errors import RequestError


class TimeUp(BaseException):
    """Raised through an engine when a benchmark is past its time; the driver catches it."""


@dataclass(slots=True, eq=False)
class TimeLimit:
    """A limit in seconds; ``until`` is its end, None until the first question."""

    seconds: float
    until: float | None = None

    def begin(self) -> None:
        """Start the clock; calling it again does nothing."""
        if self.until is None:
            self.until = time.monotonic() + self.seconds

    def past(self) -> bool:
        """Return whether the time is over."""
        return self.until is not None and time.monotonic() >= self.until

    def error(self, benchmark: str) -> RequestError:
        """Return what an item is told that comes too late."""
        return RequestError(
            f"benchmark {benchmark} is past its timeout of {self.seconds:g} s (--eval-config); it has no answer"
        )
