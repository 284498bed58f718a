"""The command ``touchstone``: reads and writes results; ``touchstone run`` starts pytest.

Here is ``main`` alone, which imports the rest (``cli.command``) when Ctrl-C is one line already. Mistakes are one
line on stderr and exit code 4.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pytest_touchstone import UNSUPPORTED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Ctrl-C ends it in one line."""
    if UNSUPPORTED:
        print(f"touchstone: {UNSUPPORTED}", file=sys.stderr)
        return 4  # ExitCode.MISTAKE
    try:
        from pytest_touchstone.cli.command import run_command

        return run_command(sys.argv[1:] if arguments is None else arguments)
    except (KeyboardInterrupt, RuntimeError) as error:
        # Python 3.11 wraps what interrupts the making of a class in a RuntimeError.
        if not any(isinstance(cause, KeyboardInterrupt) for cause in (error, error.__cause__)):
            raise
        print("touchstone: stopped", file=sys.stderr)
        return 2  # ExitCode.INTERRUPTED, whose module may be what was being imported
