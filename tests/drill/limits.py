"""A process with limits of time and memory, for whatever may wait, fill the memory, or crash."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

SECONDS: Final = 10
"""Of computing; whoever waits may have six times as long, since the machine may do other work."""

MOST: Final = 500 << 20
"""Bytes that may be used beyond those that were before."""


class Ended(NamedTuple):
    """How a call ended in a process of its own: with its text, in time, within the memory."""

    fault: str
    text: str


def limited(call: Callable[[], object], place: Path) -> Ended:
    """What a call prints and how it ends, within 10 s and 500 MiB beyond what is used now."""
    said, fault = place / "said", place / "fault"
    said.touch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a process with threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            os.environ["TOKENIZERS_PARALLELISM"] = (
                "false"  # its threads are not here, and it would wait for them
            )
            signal.alarm(6 * SECONDS)
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * os.sysconf("SC_PAGE_SIZE") + MOST
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            with said.open("w") as out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                call()
            code = 0
        except BaseException:
            with contextlib.suppress(BaseException):
                fault.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    told = fault.read_text() if fault.exists() else ""
    fault.unlink(missing_ok=True)
    if os.WIFSIGNALED(status):
        told = f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return Ended(told, said.read_text(errors="replace"))
