"""Ctrl-C while a run ends: pytest itself would show a traceback of its own code.

It is taken over from the first Ctrl-C, or from the end of the last item. The next one ends the writing of results. It
does nothing while pytest goes on by itself, which takes a moment. One more is a plain Ctrl-C again. By then the records
of all items are on disk.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interrupts:
    """Ctrl-C from the moment at which a run ends until ``close``."""

    def __init__(self) -> None:
        self._before: Any = None
        self._armed = self._pressed = self._stoppable = False

    def arm(self) -> None:
        """Take over Ctrl-C; calling it again does nothing, and other threads cannot."""
        if self._armed or threading.current_thread() is not threading.main_thread():
            return
        self._before = signal.signal(signal.SIGINT, self._press)
        self._armed = True

    def finished(self, work: Callable[[], None]) -> bool:
        """Do some work; return whether it was done, and not ended by Ctrl-C."""
        try:
            self._stoppable = True
            if not self._pressed:
                work()
            return not self._pressed
        except KeyboardInterrupt:
            if not self._pressed:
                raise
            return False
        finally:
            self._stoppable = False

    def close(self) -> None:
        """Give Ctrl-C back."""
        if self._armed:
            self._armed = False
            signal.signal(signal.SIGINT, self._before)

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        again, self._pressed = self._pressed, True
        if self._stoppable or again:
            raise KeyboardInterrupt
