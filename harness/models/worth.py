"""Whether guessing ahead pays: both ways are tried, timed, and the faster one is gone on with.

How much longer a pass takes with guesses depends on the machine, the model and the number of rows; how many tokens it
brings, on the text. So what passes take is kept by the number of rows, in classes of powers of two, and what they bring
is kept for all. Now and then the slower way is tried again. No text depends on any of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

TRIED: Final = 6
"""Passes after which it is known how long they take."""

_KEPT: Final = 12
"""Passes whose times are kept; the median counts, since some are held up by other processes."""

_ROWS: Final = 256
"""Passes of a row, the latest, over which the mean of tokens is taken."""

_PAUSE: Final = 64
"""Passes before the slower way is tried again; twice as many each time that it is slower still."""

_LONGEST: Final = 1024


@dataclass(slots=True)
class _Class:
    """Seconds of passes with guesses and without; passes since the slower way was tried, and until it will be."""

    with_: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    without: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    since: int = 0
    pause: int = _PAUSE
    guessed: bool | None = None


class Worth:
    """Says for each pass whether to guess, and is told what passes took and brought."""

    def __init__(self) -> None:
        self._classes: dict[int, _Class] = {}
        self._brought: deque[tuple[int, int]] = deque()
        self._rows = self._tokens = 0

    def guesses(self, rows: int) -> bool:
        """Whether the next pass, of so many rows, should be one with guesses."""
        one = self._classes.setdefault(rows.bit_length(), _Class())
        if len(one.with_) < TRIED:
            return True
        if len(one.without) < TRIED:
            return False
        better = median(one.with_) * self._rows < median(one.without) * self._tokens
        if better != one.guessed:
            one.guessed, one.since, one.pause = better, 0, _PAUSE
        one.since += 1
        if one.since > one.pause:
            one.since, one.pause = 0, min(_LONGEST, 2 * one.pause)
            (one.without if better else one.with_).clear()
            return not better
        return better

    def took(self, rows: int, seconds: float, tokens: int | None) -> None:
        """Told of each pass; ``tokens`` that one with guesses brought, None for one without."""
        one = self._classes.setdefault(rows.bit_length(), _Class())
        (one.without if tokens is None else one.with_).append(seconds)
        if tokens is None:
            return
        self._brought.append((rows, tokens))
        self._rows, self._tokens = self._rows + rows, self._tokens + tokens
        while self._rows - self._brought[0][0] >= _ROWS:
            gone = self._brought.popleft()
            self._rows, self._tokens = self._rows - gone[0], self._tokens - gone[1]
