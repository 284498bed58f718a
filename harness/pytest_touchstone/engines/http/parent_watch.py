"""Runs a server for another process, and ends it when that is gone: ``python parent_watch.py PID COMMAND...``.

The other process, number PID, holds the writing end of the pipe that is this one's standard input. When it closes the
pipe, or dies in whatever way, the server is asked to end (SIGTERM), and killed after ``GRACE`` seconds, together with
all that it has started: vLLM's workers may have process groups of their own, and would hold their GPU for ever. The
exit code is the server's, or as in a shell 128 + N where signal N ended it. Only the standard library is imported, and
nothing of ours: this process lives as long as the server, and costs little.
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
    """Run the command until it ends or its parent does; return its exit code, 128 + N after signal N."""
    parent, command = int(arguments[0]), arguments[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if sys.platform == "linux":  # the parent of the server's orphans
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        # A process that the other one has forked holds the pipe, too.
        while server.poll() is None and os.getppid() == parent:
            if select.select([0], [], [], _LOOK_EVERY)[0]:
                break
    finally:
        if server.poll() is None:
            _signal(server.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                server.wait(GRACE)
        _signal(server.pid, signal.SIGKILL)
        server.wait()
        with suppress(OSError):  # not Linux
            while orphans := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                for pid in map(int, orphans):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
