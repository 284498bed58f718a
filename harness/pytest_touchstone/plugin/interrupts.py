"""``Interrupts``: SIGTERM ends a run as Ctrl-C does, and another Ctrl-C ends the writing of its results.

pytest does the rest: it ends the run at Ctrl-C, and calls the hooks of the session's end.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import pytest

STOPPED: Final = "stopped; what is scored is kept, and the same command goes on from there"

WORKERS_ENDED: Final = (
    "workers of xdist have ended before they answered, killed from outside or for lack of memory; what is scored is "
    "kept: give the same command again, with a smaller -n where memory is short"
)


class Interrupts:
    """The handlers of a run's signals until ``close``; a thread that is not the main one has none."""

    def __init__(self) -> None:
        """Take SIGTERM over, unless somebody else has."""
        self._before: dict[signal.Signals, Any] = {}
        self._is_main = threading.current_thread() is threading.main_thread()
        if self._is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._handle(signal.SIGTERM, _press)

    def _handle(self, number: signal.Signals, handler: Any) -> None:
        if self._is_main:
            before = signal.signal(number, handler)
            self._before.setdefault(number, before)

    def arm(self) -> None:
        """Ignore Ctrl-C while pytest ends the run: it would show a traceback of its own code."""
        self._handle(signal.SIGINT, signal.SIG_IGN)

    def finished(self, work: Callable[[], None]) -> bool:
        """Do some work that Ctrl-C may end; return whether it was done."""
        try:
            self._handle(signal.SIGINT, signal.default_int_handler)
            work()
        except KeyboardInterrupt:
            return False
        finally:
            self.arm()
        return True

    def close(self) -> None:
        """Give the signals back."""
        # Python itself ends by the signal, and not with our exit code, where Ctrl-C was last seen to leave an exec,
        # such as that of an import.
        exec("")
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()


def _press(_number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does now; a process in the background ignores that."""
    __tracebackhide__ = True  # pytest then names the place that was reached
    pressed = signal.getsignal(signal.SIGINT)
    (pressed if callable(pressed) else signal.default_int_handler)(signal.SIGINT, frame)


def is_of_workers(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """Return whether xdist could not speak to a worker (``WorkerController.setup``), or has none left
    (``DSession.loop_once``, xdist 3.8)."""
    last = str(excinfo.traceback[-1].frame.f_globals.get("__name__"))
    lost = isinstance(excinfo.value, (EOFError, OSError)) and last.startswith("execnet.")
    return lost or (isinstance(excinfo.value, RuntimeError) and last == "xdist.dsession")
