"""The program of the process in which ``pytest_touchstone.evaluate`` has pytest run.

It is run by its path and imports nothing of this package: pytest warns of plugins that were imported before it. When
its standard input ends, because the process that started it wants so or has died, the run ends as by Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest


def main() -> int:
    """Run pytest with the arguments of this process, and return its exit code."""
    sys.path[0] = str(os.getcwd())  # noqa: PTH109 -- as `python -m pytest` does
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background begin with it ignored
    wanted = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_interrupt_at_end, args=(wanted,), daemon=True).start()
    return int(pytest.main(sys.argv[1:]))


def _interrupt_at_end(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
