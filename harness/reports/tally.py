"""Counts finished items while a run goes on, by reading what the journal's shards have gained.

Works alike with and without xdist, since every process appends to a shard of its own. Only whole lines count;
of each line only the item's node id and status are looked at, which stand before everything that a benchmark
or a model wrote.
"""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path
from typing import Final

FAULTS: Final = (b"error", b"timeout", b"lost")
WINDOW: Final = 300.0
"""Seconds over which the speed is taken at least. Benchmarks of one run differ, so that of the whole of a long run
would mislead; items that ask for texts end many at a time, so that of a minute would mislead more."""

SHARE: Final = 1 / 3
"""Of a long run: the last part over which its speed is taken."""

_STEP: Final = 1 / 200
"""Of the run so far: the time between two counts that are kept."""

_HEAD: Final = re.compile(rb'"item":\s*"((?:[^"\\]|\\.)*)".*?"status":\s*"(\w+)"')


class Tally:
    """How many different items have a record, and how many of them ended in a fault."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offsets: dict[Path, int] = {}
        self._faulty: dict[bytes, bool] = {}

    @property
    def done(self) -> int:
        """Items with at least one record; an item that ran twice counts once."""
        return len(self._faulty)

    @property
    def faults(self) -> int:
        """Items whose last record says error, timeout or lost."""
        return sum(self._faulty.values())

    def update(self) -> None:
        """Reads what was appended since the last call; a shard that cannot be read is left for the next
        call."""
        for path in sorted(self._directory.glob("items-*.jsonl")):
            try:
                self._read(path)
            except OSError:
                continue

    def _read(self, path: Path) -> None:
        offset = self._offsets.get(path, 0)
        with path.open("rb") as shard:
            shard.seek(offset)
            for line in shard:
                if not line.endswith(b"\n"):
                    break  # still being written
                offset += len(line)
                if found := _HEAD.search(line):
                    self._faulty[found[1]] = found[2] in FAULTS
        self._offsets[path] = offset


class Speed:
    """Items a second over the last five minutes, or the last third of a long run; since the start where none finished
    in that time."""

    def __init__(self, now: float, done: int) -> None:
        self._first = (now, done)
        self._samples = deque([self._first])

    def rate(self, now: float, done: int) -> float | None:
        """The speed now; None while nothing has finished."""
        run = now - self._first[0]
        if now - self._samples[-1][0] >= _STEP * run:
            self._samples.append((now, done))
        while len(self._samples) > 2 and self._samples[1][0] <= now - max(WINDOW, SHARE * run):
            self._samples.popleft()
        return _rate(self._samples[0], (now, done)) or _rate(self._first, (now, done))


def _rate(before: tuple[float, int], after: tuple[float, int]) -> float | None:
    seconds, items = after[0] - before[0], after[1] - before[1]
    return items / seconds if seconds > 0 and items > 0 else None
