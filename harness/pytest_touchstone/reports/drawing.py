"""Pictures drawn by other processes while this one goes on: to draw many takes longer than to find what they show."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.reports.plots import Files, Job, pictures


@contextmanager
def drawing(jobs: Sequence[Job]) -> Iterator[Callable[[], Files]]:
    """Begin to draw; the function returns the pictures by file name, when all are there.

    Where there is one core, or other processes cannot be made of this one, it draws them itself.
    """
    workers = min(len(jobs), len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1)
    if workers < 2 or threading.active_count() > 1:
        yield lambda: _joined(pictures(*one) for one in jobs)
        return
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, mp_context=get_context("fork"), initializer=_begin) as pool:
        waiting = [pool.submit(pictures, *one) for one in jobs]
        try:
            yield lambda: _joined(one.result() for one in waiting)
        except BrokenProcessPool:
            raise HarnessError(
                "a process that drew pictures was ended from outside; is there enough memory?"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _joined(files: Iterable[Files]) -> Files:
    return {name: data for some in files for name, data in some.items()}


def _begin() -> None:
    """Share the memory of what has been read, and leave an interruption to the process that waits."""
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
