"""The number of calls that may be under way: additive increase, multiplicative decrease.

The limit doubles with each round of replies until the first sign of overload, and then grows by one per round. Signs
are 429, 5xx, time-outs, and a latency that has risen against the best one seen. One overload makes many calls fail that
were sent before it showed: together they are one episode, and the limit decreases once. Only a call that was sent after
the decrease can begin another episode.

Latency is compared per unit of work, since a long text takes longer than a short one on an idle server too. A server
that computes in batches answers each call more slowly the more there are, while it answers more of them per second.
So only a rise by several times counts, and it costs less than a refusal.

Pure: all times are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Final

FIRST: Final = 8
"""The limit at the beginning."""

AFTER_REFUSAL: Final = 0.5
AFTER_RISE: Final = 0.8
"""The factors of the two kinds of decrease."""

RISE: Final = 4.0
"""The latency, in multiples of the best one, that is a sign of overload."""

FORGETTING: Final = 1.02
"""The factor by which the best latency grows per window, since the work that is asked for changes in kind."""

LEAST_WINDOW: Final = 8
"""The fewest replies of which a latency is taken, by their median."""


def work_of(usage: Mapping[str, int]) -> float:
    """Return the units of work that a call took, roughly: one for each token generated and for 64 of the prompt."""
    return 1.0 + usage.get("completion_tokens", 0) + usage.get("prompt_tokens", 0) / 64


class Limiter:
    """The limit now, from 1 to ``most``, and the time until which nothing may be sent."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(min(FIRST, most))
        self._doubling = True
        self._decreased = float("-inf")
        self._held = float("-inf")
        self._best: float | None = None
        self._window: list[float] = []

    @property
    def limit(self) -> int:
        """The number of calls that may be under way."""
        return int(self._limit)

    @property
    def held_until(self) -> float:
        """The time before which the server wants no call."""
        return self._held

    def answered(self, begun: float, now: float, work: float = 1.0) -> None:
        """Note a reply to a call that was sent at ``begun``."""
        if begun < self._decreased:
            return  # it has seen the overload that is over
        self._limit = min(self._most, self._limit + (1.0 if self._doubling else 1.0 / self._limit))
        self._window.append((now - begun) / work)
        if len(self._window) >= max(LEAST_WINDOW, self.limit):
            self._look(now)

    def overloaded(self, begun: float, now: float, *, hold: float | None = None) -> None:
        """Note that a call that was sent at ``begun`` met an overload.

        ``hold`` is the time before which the server wants no call, as far as it has said so.
        """
        if hold is not None:
            self._held = max(self._held, hold)
        if begun >= self._decreased:
            self._decrease(now, AFTER_REFUSAL)

    def _look(self, now: float) -> None:
        latency = median(self._window)
        self._window.clear()
        if self._best is not None and latency > RISE * self._best:
            self._decrease(now, AFTER_RISE)
        self._best = latency if self._best is None else min(latency, self._best * FORGETTING)

    def _decrease(self, now: float, factor: float) -> None:
        self._limit = max(1.0, self._limit * factor)
        self._doubling = False
        self._decreased = now
        self._window.clear()
