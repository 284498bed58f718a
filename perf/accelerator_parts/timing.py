"""Times and memory on a device: what is measured has ended when its time is taken."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from perf.measure import mebibytes

T = TypeVar("T")

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def synchronize(device: str) -> None:
    """Wait until the device has done all that it was given."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)


def timed(device: str, work: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds of some work, and its result."""
    synchronize(device)
    began = time.perf_counter()
    found = work()
    synchronize(device)
    return time.perf_counter() - began, found


def seconds_each(device: str, work: Callable[[], Any], least: float = 0.05, rounds: int = 3) -> float:
    """Return the seconds of a call among many, one behind the other without waiting: the least of some rounds.

    A round has as many calls as take ``least`` seconds.
    """
    work()
    once, _ = timed(device, work)
    calls = max(1, min(10_000, int(least / max(once, 1e-7))))

    def all_calls() -> None:
        for _ in range(calls):
            work()

    return min(timed(device, all_calls)[0] for _ in range(rounds)) / calls


def begin_peak(device: str) -> None:
    """Free what nobody needs any more; the peak of the memory begins anew."""
    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.init()  # before the first use of a device, torch 2.11 knows no peak
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR.exists():
        _CLEAR.write_text("5", encoding="ascii")  # the peak of resident memory (proc_pid_clear_refs(5))


def peak_mebibytes(device: str) -> float:
    """Return the peak of the memory on the device since ``begin_peak``; on a CPU that of this process.

    NaN where nobody knows it.
    """
    if device.startswith("cuda"):
        import torch

        return mebibytes(torch.cuda.max_memory_allocated(device))
    lines = _STATUS.read_text(encoding="ascii").splitlines() if _STATUS.exists() else []
    found = (float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
    return next(found, math.nan)
