"""Keeps Python's garbage collector away from torch and transformers, and out of the way of models that are loaded.

Importing the two makes some hundred thousand objects that live as long as the process. Left alone, the collector goes
over all of them again and again while they come, whenever it collects afterwards, and several times more when pytest
and Python end, and finds nothing: a third of the time of a run that ends with a checkpoint that cannot be loaded.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Final

_LARGE: Final = (
    "torch",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
)
"""With what these import they are nearly all that loading a model imports."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Nothing is collected within the block."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@functools.cache
def import_libraries() -> None:
    """Imports them; whatever there is by then the collector leaves alone from now on. Done before any model is there,
    since a model that it leaves alone may never be freed."""
    with collector_paused():
        for name in _LARGE:
            import_module(name)
    gc.freeze()
