"""Times and memory on a device: what is measured has ended when its time is taken."""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from perf.measure import mebibytes

T = TypeVar("T")


def synchronize(device: str) -> None:
    """Wait until the device has done all that it was given."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    elif device == "mps":
        torch.mps.synchronize()


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
    """Free what nobody needs any more; the peak of the device's memory begins anew."""
    import torch

    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_mebibytes(device: str) -> float:
    """Return the peak of the memory on the device since ``begin_peak``; on a CPU that of this process, ever."""
    import torch

    if device.startswith("cuda"):
        return mebibytes(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return mebibytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
