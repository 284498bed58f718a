"""Keeps Python's garbage collector out of the way of models that are loaded.

Importing torch and transformers makes some hundred thousand objects that live as long as the process. While they come
the collector goes over all of them again and again, and once more when Python ends, and finds nothing: a quarter of
the time that a run takes which ends with a checkpoint that cannot be loaded.
"""

from __future__ import annotations

import atexit
import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Nothing is collected within the block, and what is there when Python ends is left to the system."""
    _leave_the_rest()
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@functools.cache
def _leave_the_rest() -> None:
    atexit.register(gc.freeze)
