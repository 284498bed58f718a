"""Runs a server for another process, and ends it when that is gone: ``python guard.py PID COMMAND...``.

The other process, number PID, holds the writing end of the pipe that is this one's standard input. When it closes the
pipe, or dies in whatever way, the server is asked to end (SIGTERM), and killed after ``GRACE`` seconds, together with
all that it has started. The exit code is the server's. Only the standard library is imported, and nothing of ours: this
process lives as long as the server, and costs little.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

GRACE: Final = 10.0

_LOOK_EVERY: Final = 0.2

_PR_SET_CHILD_SUBREAPER: Final = 36


def main(arguments: Sequence[str]) -> int:
    """Run the command until it ends, or until it is not needed any more; return its exit code."""
    parent, command = int(arguments[0]), arguments[1:]
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda which, _: told.append(which))
    _adopt()
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        while server.poll() is None and not told and os.getppid() == parent and _needed():
            pass
    finally:
        _end(server)
    return server.returncode


def _adopt() -> None:
    """Become the parent of the server's orphans, where the system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _needed() -> bool:
    """Wait a moment; return whether the pipe is still open."""
    ready, _, _ = select.select([0], [], [], _LOOK_EVERY)
    return not ready or bool(os.read(0, 1))


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server, its process group, and what it has started outside of that."""
    if server.poll() is None:
        _signal(server.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            server.wait(GRACE)
    _signal(server.pid, signal.SIGKILL)
    server.wait()
    while orphans := _orphans():
        for pid in orphans:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _orphans() -> list[int]:
    """Return the processes that have become this one's children."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:  # not Linux
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) % 256)
