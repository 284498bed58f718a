"""What a run's answers cost: tokens, padding, time to the first answer, memory; process by process.

Every process keeps ``effort-WHO.json`` in the run's folder up to date, a list with one entry a checkpoint: the
fields of ``Effort``. Memory and the age of a process are Linux's own counts, None elsewhere.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROC = Path("/proc/self")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """One process and checkpoint. ``engine`` is what the engine says of itself: of causal and masked models
    ``tokens`` computed, ``padding`` (tokens among them that only filled rows up), ``distinct`` tokens asked
    for, ``logits`` (positions whose logits were computed), ``batch_tokens`` (the most at once), ``notes``.

    ``first_answer``: seconds from the start of the process to its first answers. ``peak_bytes``: the most
    memory it had resident. ``proportional_bytes``: its share of memory now, where pages that several
    processes share count in equal parts.
    """

    who: str
    checkpoint: str
    engine: dict[str, Any]
    first_answer: float | None = None
    peak_bytes: int | None = None
    proportional_bytes: int | None = None


def process_age() -> float | None:
    """Seconds since this process was started."""
    try:
        fields = (_PROC / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf(
            "SC_CLK_TCK"
        )  # field 22 of proc_pid_stat(5), in ticks after boot
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def peak_bytes() -> int | None:
    """The most memory this process has had resident."""
    return _kilobytes("status", "VmHWM:")


def proportional_bytes() -> int | None:
    """This process's share of the memory it uses (Pss)."""
    return _kilobytes("smaps_rollup", "Pss:")


def _kilobytes(file: str, name: str) -> int | None:
    try:
        for line in (_PROC / file).read_text(encoding="utf-8").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None
