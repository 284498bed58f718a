"""The seam of commands: the arguments, work and output of ``touchstone NAME``.

A package adds one by an entry point in the group ``touchstone.commands``: a ``Command``, named after the entry point.

    [project.entry-points."touchstone.commands"]
    count = "my_package.count:COMMAND"

Printing, ``--json``, ``--markdown``, ``--csv``, errors and exit codes are ``cli.main``'s.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO, TypeAlias

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.text import harmless, is_log, visible, visible_json
from pytest_touchstone.results.run_directory import find_run

GROUP: Final = "touchstone.commands"

Text: TypeAlias = str | Callable[[], str]
"""The text that is printed; a function where making it takes time, so that ``--json`` can do without."""


@dataclass(frozen=True, slots=True)
class Output:
    """The findings of a command: ``data`` for ``--json``, ``text`` for people (nothing is printed for an empty one)."""

    data: Any
    text: Text = ""
    exit_code: int = 0
    markdown: Text | None = None
    csv: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command. ``run`` raises ``HarnessError`` for a mistake of the user.

    ``markdown`` and ``csv`` say which options it has besides ``--json``; ``commands`` are the members of a group, which
    has nothing else. With ``rest`` the command has no ``--json``, and ``options.rest`` are the arguments that are not
    its own.
    """

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda _: None
    run: Callable[[argparse.Namespace], Output] = lambda _: Output(None)
    markdown: bool = False
    csv: bool = False
    rest: bool = False
    commands: tuple[Command, ...] = ()


def form_of(options: argparse.Namespace) -> str | None:
    """Return the form other than text that is asked for, if any; raises ``HarnessError`` for two of them."""
    forms = [name for name in ("json", "markdown", "csv") if getattr(options, name, False)]
    if len(forms) > 1:
        raise HarnessError(f"{' and '.join(f'--{name}' for name in forms)}: give one of them")
    return forms[0] if forms else None


def shown(output: Output, options: argparse.Namespace) -> str:
    """Return the text that is printed."""
    form = form_of(options)
    if form == "json":
        return visible_json(json.dumps(output.data, ensure_ascii=False, indent=2, default=str))
    wanted: Text | None = getattr(output, form) if form else None
    text = output.text if wanted is None else wanted
    made = text if isinstance(text, str) else text()
    return made if form == "markdown" else visible(made, colours=terminal()[1])


def say(text: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Print a text; in a job's log no line of it is a command."""
    print(harmless(text) if is_log() else text, file=stream or sys.stdout, end=end)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add ``--output``, the results folder."""
    text = "the results folder (default: results)"
    parser.add_argument("--output", default=Path("results"), type=Path, metavar="DIR", help=text)


def add_items(
    parser: argparse.ArgumentParser, text: str = "items of a benchmark in a published table"
) -> None:
    """Add ``--items``, the sizes of benchmarks, for ``compare.load.parse_sizes``; ``text`` is its help."""
    parser.add_argument("--items", action="append", default=[], metavar="NAME=N", help=text)


def terminal() -> tuple[int, bool]:
    """Return the width of the terminal, and whether it wants colours."""
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return shutil.get_terminal_size((100, 24)).columns, color


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add ``RUN`` and ``--output``."""
    parser.add_argument("target", metavar="RUN", help="a run id, a run's folder, or last")
    add_output(parser)


def run_folder(options: argparse.Namespace, *files: str) -> Path:
    """Return the folder of the run that is named, by path, by id, or as ``last``; it has one of the ``files``.

    Raises ``HarnessError``.
    """
    return find_run(options.target, options.output, *files)
