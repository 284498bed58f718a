"""``touchstone run``: pytest on the shipped benchmarks, wherever they are installed, or on files that are given.

    touchstone run --tasks arc_easy --checkpoint PATH -n 2

is ``pytest --pyargs harness.evals --eval-tasks arc_easy --checkpoint PATH -n 2``.
"""

from __future__ import annotations

import argparse
import os
import sys

from harness.cli.command import Output
from harness.results.run_directory import DEFAULT_FILES, TASKS

USAGE = "touchstone run [--tasks NAME,...] [FILE | FOLDER | FILE::TEST ...] [any option of pytest]"

EPILOG = """Without a file the shipped benchmarks are run. All else goes to pytest as it is, such as --checkpoint PATH,
--eval-limit 50, --gate or -n 2; `pytest --help` shows them. The exit codes are pytest's."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    parser.usage, parser.epilog = USAGE, EPILOG
    parser.add_argument(
        "--tasks",
        action="append",
        default=[],
        metavar="NAME,...",
        help="the benchmarks, as --eval-tasks takes them; `touchstone benchmarks` lists them",
    )


def run(options: argparse.Namespace) -> Output:
    """Become pytest: signals and the exit code are its own."""
    tasks = [f"{TASKS}{one}" for one in options.tasks]
    # -P, since a folder `harness` in the current one is somebody else's.
    command = [sys.executable, "-P", "-m", "pytest", *DEFAULT_FILES, *tasks, *options.rest]
    os.execv(sys.executable, command)
