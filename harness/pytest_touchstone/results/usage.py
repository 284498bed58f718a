"""The usage of a run: tokens, padding, time to the first answer, memory; process by process.

Every process keeps ``effort-WHO.json`` in the run's folder up to date: a list with one entry for each time that it
loaded a checkpoint, with the fields of ``Usage``. Memory and the age of a process are Linux's own counts, None
elsewhere.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

_PROC = Path("/proc/self")

NOTE_EVERY: Final = 2.0
"""The number of seconds between two notes of the usage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One process and a checkpoint as it loaded it.

    ``engine`` has the engine's own counts. Causal and masked models have ``tokens`` computed, ``padding`` (tokens
    among them that only filled rows up), ``distinct`` tokens asked for, ``logits`` (positions whose logits were
    computed), ``batch_tokens`` (the most at once), and ``notes``. ``devices`` are the accelerators
    that hold the weights, if any do.

    A served model has ``requests``, ``retries``, ``prompt_tokens`` and ``completion_tokens`` as the server counts them,
    ``cost`` where there is a price, ``troubles``, ``notes``, and ``drift`` where its answers have changed meanwhile.

    ``speculative`` is there if extra heads proposed tokens. It has ``lengths`` (how often a pass of a row gave 1, 2,
    ... tokens), ``mean_length``, ``asked`` and ``right`` (proposals of each extra head), and ``accuracy``. ``slow``
    is there if a slow way had to be taken. It is a list of ``way`` (``SLOW_WAYS``), ``reason``, and tokens or logits
    ``computed`` and ``enough``.

    ``first_answer`` is in seconds from the start of the process. ``peak_bytes`` is the most memory that it had
    resident.
    """

    who: str
    checkpoint: str
    engine: dict[str, Any]
    first_answer: float | None = None
    peak_bytes: int | None = None


class UsageMeter:
    """The usage of this process, with an entry for each engine.

    So the counts of a checkpoint that is loaded again add up.
    """

    def __init__(self, who: str, write: Callable[[Sequence[Usage]], None]) -> None:
        """``who`` is this process's name; ``write`` is called with all entries now and then."""
        self._who, self._write = who, write
        self._entries: list[Usage] = []
        self._number_of: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._latest = 0
        self._noted = time.monotonic()

    def begin(self, engine: object, checkpoint: str) -> None:
        """Note that an engine has answered something; the first time counts."""
        self._latest = self._number_of.setdefault(engine, len(self._entries))
        if self._latest == len(self._entries):
            self._entries.append(
                Usage(who=self._who, checkpoint=checkpoint, engine={}, first_answer=process_age())
            )

    def count(self, engine: object, checkpoint: str, counts: dict[str, Any]) -> None:
        """Take an engine's own counts, as plain data, over all its answers so far."""
        self.begin(engine, checkpoint)
        self._entries[self._latest] = replace(self._entries[self._latest], engine=counts)
        if time.monotonic() - self._noted > NOTE_EVERY:
            self.note()

    def note(self) -> None:
        """Write all entries; memory is read only now, since that takes longer than a batch of trivial items."""
        if not self._entries:
            return
        self._entries[self._latest] = replace(self._entries[self._latest], peak_bytes=peak_bytes())
        self._write(list(self._entries))
        self._noted = time.monotonic()


def process_age() -> float | None:
    """Return the seconds since this process was started."""
    try:
        fields = (_PROC / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks = int(fields[19])  # field 22 of proc_pid_stat(5), after boot
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def peak_bytes() -> int | None:
    """Return the most memory that this process has had resident."""
    try:
        status = (_PROC / "status").read_text(encoding="utf-8")
    except OSError:
        return None
    peak = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
    return int(peak[1]) * 1024 if peak else None
