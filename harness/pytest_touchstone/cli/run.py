"""``touchstone run``: pytest on the shipped benchmarks, wherever they are installed, or on files that are given.

    touchstone run --tasks arc_easy --checkpoint PATH -n 2

is ``pytest --pyargs pytest_touchstone.evals --eval-tasks arc_easy --checkpoint PATH -n 2``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pytest_touchstone.cli.command import Output
from pytest_touchstone.core.settings import settings_table
from pytest_touchstone.results.run_directory import DEFAULT_FILES, TASKS

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
    # -P, so that Python imports nothing from the current folder.
    command = [sys.executable, "-P", "-m", "pytest", *DEFAULT_FILES, *tasks, *_joined(options.rest)]
    os.execv(sys.executable, command)


def _joined(words: Sequence[str]) -> list[str]:
    """Return the words with values joined to our options: pytest takes values that are paths for what to run, finds
    its root folder from them, and so neither the project's settings nor its conftest."""
    flags = {
        flag
        for row in settings_table().values()
        if row.option and row.action != "switch"
        for flag in (row.flag, row.long_flag)
    }
    found: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in flags and rest and not rest[0].startswith("-"):
            word = f"{word}={rest.pop(0)}"
        found.append(word)
    return found
