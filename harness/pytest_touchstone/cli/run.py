"""``touchstone run``: pytest on the shipped benchmarks, wherever they are installed, or on files that are given.

    touchstone run --tasks arc_easy --checkpoint PATH -n 2

is ``pytest --pyargs pytest_touchstone.evals --eval-tasks arc_easy --checkpoint PATH -n 2``, but apart from the
repository in which it is typed: the configuration of pytest there, conftests and installed plug-ins are for its own
tests and benchmarks. Of its pyproject.toml only [tool.touchstone] is read. ``-p NAME`` loads another plug-in.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from pytest_touchstone.cli.command import Output
from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.settings import SET, settings_table
from pytest_touchstone.core.tasks import shipped_names
from pytest_touchstone.results.run_directory import DEFAULT_FILES, ISOLATION_ARGUMENTS, TASKS

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


PLACES = ("--rootdir", "--basetemp", "--confcutdir", "--ignore", "--ignore-glob", "--deselect", "-k", "-m")
"""Options of pytest whose value may be the name of a folder, or of a file with tests, and is nothing to run."""


def run(options: argparse.Namespace) -> Output:
    """Become pytest, which handles signals and sets the exit code; raises ``OptionError`` for a wrong path."""
    words = join_option_values(options.rest)
    files = False  # whether a folder, or a file with tests, is to be run
    for before, word in pairwise(["", *words]):
        if word.startswith("-"):
            continue
        path = Path(word.partition("::")[0])
        files = files or (before not in PLACES and (path.suffix == ".py" or path.is_dir()))
        is_file = not before.startswith("-") and not word.startswith("@")  # @FILE has more words for pytest
        if is_file and "--pyargs" not in words and not path.exists():
            hint = f"--tasks {word} runs that benchmark" if word in shipped_names() else "check its spelling"
            raise OptionError(f"{word}: no such file or folder; {hint}")
    tasks = [f"{TASKS}{tasks}" for tasks in options.tasks]
    # -P, so that Python imports nothing from the current folder.
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        *DEFAULT_FILES,
        *(() if files else ISOLATION_ARGUMENTS),
        *tasks,
        *words,
    ]
    of_tests = () if files else ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
    environment = {name: value for name, value in os.environ.items() if name not in of_tests}
    os.execve(sys.executable, command, environment)


def join_option_values(words: Sequence[str]) -> list[str]:
    """Return the arguments with option values joined by ``=``.

    Pytest would take separate values that are paths for files to run. It would find its root folder from them, and miss
    the project's settings and its conftest.
    """
    rows = (row for row in settings_table().values() if row.option and row.action != "switch")
    flags = {SET} | {flag for row in rows for flag in (row.flag, row.long_flag)}
    arguments: list[str] = []
    for word in words:
        if arguments and arguments[-1] in flags and not word.startswith("-"):
            arguments[-1] += f"={word}"
        else:
            arguments.append(word)
    return arguments
