"""The command ``touchstone``: reads and writes results; ``touchstone run`` starts pytest.

Here is ``main`` alone, which imports the rest (``cli.commands``) when Ctrl-C is one line already. Mistakes are one
line on stderr and exit code 4.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence

from pytest_touchstone import UNSUPPORTED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Ctrl-C ends it in one line, also where a library that was being
    imported has made another error of it."""
    if UNSUPPORTED:
        print(f"touchstone: {UNSUPPORTED}", file=sys.stderr)
        return 4  # ExitCode.MISTAKE
    pressed = False

    def press(*_: object) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    here = threading.current_thread() is threading.main_thread()
    ours = here and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if ours:
            signal.signal(signal.SIGINT, press)
        from pytest_touchstone.cli.commands import run_command

        return run_command(sys.argv[1:] if arguments is None else arguments, lambda: pressed)
    except BaseException as error:
        if not (pressed or isinstance(error, KeyboardInterrupt)):
            raise
        if ours:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("touchstone: stopped", file=sys.stderr)
        return 2  # ExitCode.INTERRUPTED, whose module may be what was being imported
    finally:
        if ours and not (pressed and arguments is None):  # else the process ends
            signal.signal(signal.SIGINT, signal.default_int_handler)
