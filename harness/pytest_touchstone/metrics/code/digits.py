"""Numbers of any length in programs and tests."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LOCK: Final = threading.RLock()


@contextmanager
def any_digits() -> Iterator[None]:
    """Let numbers of over 4300 digits be read and written meanwhile, which Python refuses by default."""
    if not hasattr(sys, "set_int_max_str_digits"):
        yield
        return
    with _LOCK:  # the limit is the process's: no thread may restore it under another
        before = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(0)
        try:
            yield
        finally:
            sys.set_int_max_str_digits(before)
