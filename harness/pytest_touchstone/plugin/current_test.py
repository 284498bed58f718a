"""``PYTEST_CURRENT_TEST``, which pytest sets three times for an item, without a trace of it left in memory.

The C library keeps every value that ``setenv`` was ever given, for good: in a run of a million items that is 350 MB.
It keeps nothing of ``putenv``, which takes the caller's memory. There are two pieces of it, so that the value that is
there is never written to.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from _pytest import runner  # private: nothing public sets the variable

NAME: Final = "PYTEST_CURRENT_TEST"

_UPDATE: Final = "_update_current_test_var"


class CurrentTest:
    """The hook of a process that runs items."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        with kept_once():
            return (yield)


@contextmanager
def kept_once() -> Iterator[None]:
    """Let pytest set the variable so meanwhile, where the system has ``putenv``."""
    plain, put = getattr(runner, _UPDATE, None), _putenv()
    if plain is None or put is None:
        yield
        return
    variable = Variable(put)

    def update(item: pytest.Item, when: str | None) -> None:
        if when is None:
            plain(item, None)
        else:
            variable.set(f"{item.nodeid} ({when})".replace("\x00", "(null)"))

    setattr(runner, _UPDATE, update)
    try:
        yield
    finally:
        setattr(runner, _UPDATE, plain)


class Variable:
    """The variable, as programs that are started find it, and as ``os.environ`` has it."""

    def __init__(self, put: Callable[[int], int]) -> None:
        """``put`` takes the address of ``NAME=VALUE``, which the environment then has."""
        self._put = put

    def set(self, value: str) -> None:
        """Set it, until it is set again or deleted."""
        environ: Any = os.environ
        key, encoded = environ.encodekey(NAME), environ.encodevalue(value)
        text = key + b"=" + encoded
        place = _MEMORY.free(len(text) + 1)
        ctypes.memmove(place, text, len(text) + 1)
        if self._put(place):
            os.environ[NAME] = value
            return
        environ._data[key] = encoded  # private: the public way calls setenv


class _Memory:
    """Two pieces of memory by turns, which live as long as the process: its environment may be one of them."""

    def __init__(self) -> None:
        self._pieces = [ctypes.create_string_buffer(1024) for _ in range(2)]
        self._left: list[Any] = []
        self._turn = 0

    def free(self, size: int) -> int:
        """Return the address of so much memory, which the environment does not have."""
        self._turn = 1 - self._turn
        piece = self._pieces[self._turn]
        if len(piece) < size:
            self._left.append(piece)
            piece = self._pieces[self._turn] = ctypes.create_string_buffer(2 * size)
        return ctypes.addressof(piece)


_MEMORY: Final = _Memory()


def _putenv() -> Callable[[int], int] | None:
    """Return the C library's function, None where there is none."""
    if sys.platform != "linux":
        return None
    found = getattr(ctypes.CDLL(None), "putenv", None)
    if found is not None:
        found.argtypes, found.restype = [ctypes.c_void_p], ctypes.c_int
    return found
