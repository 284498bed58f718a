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
from pytest_touchstone.results.run_directory import APART, DEFAULT_FILES, TASKS

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
    words = joined(options.rest)
    _check_files(words)
    own = _names_files(words)
    # -P, so that Python imports nothing from the current folder.
    command = [sys.executable, "-P", "-m", "pytest", *DEFAULT_FILES, *(() if own else APART), *tasks, *words]
    of_tests = () if own else ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
    os.execve(
        sys.executable, command, {name: value for name, value in os.environ.items() if name not in of_tests}
    )


PLACES = ("--rootdir", "--basetemp", "--confcutdir", "--ignore", "--ignore-glob", "--deselect", "-k", "-m")
"""Options of pytest whose value may be the name of a folder, or of a file with tests, and is nothing to run."""


def _names_files(words: Sequence[str]) -> bool:
    """Return whether a folder, or a file with tests, is to be run."""
    for before, word in pairwise(["", *words]):
        path = Path(word.partition("::")[0])
        if not word.startswith("-") and before not in PLACES and (path.suffix == ".py" or path.is_dir()):
            return True
    return False


def _check_files(words: Sequence[str]) -> None:
    """Raise ``OptionError`` for a word that can only be a file, and is none; ``@FILE`` has more words for pytest."""
    if "--pyargs" in words:
        return
    for before, word in pairwise(["", *words]):
        if before.startswith("-") or word.startswith(("-", "@")) or Path(word.partition("::")[0]).exists():
            continue
        hint = f"--tasks {word} runs that benchmark" if word in shipped_names() else "check its spelling"
        raise OptionError(f"{word}: no such file or folder; {hint}")


def joined(words: Sequence[str]) -> list[str]:
    """Return the words with values joined to our options: pytest takes values that are paths for what to run, finds
    its root folder from them, and so neither the project's settings nor its conftest."""
    rows = (row for row in settings_table().values() if row.option and row.action != "switch")
    flags = {SET} | {flag for row in rows for flag in (row.flag, row.long_flag)}
    found: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in flags and rest and not rest[0].startswith("-"):
            word = f"{word}={rest.pop(0)}"
        found.append(word)
    return found
