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
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO, TypeAlias

from pytest_touchstone.core.errors import HarnessError, OptionError
from pytest_touchstone.core.text import alike, either, harmless, is_log, visible, visible_json
from pytest_touchstone.reports.language import ENGLISH, languages
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
    """Return the form other than text that is asked for, if any; raises ``HarnessError`` for two of them, and for one
    in another language than English."""
    forms = [name for name in ("json", "markdown", "csv") if getattr(options, name, False)]
    if len(forms) > 1:
        raise HarnessError(f"{' and '.join(f'--{name}' for name in forms)}: give one of them")
    form = forms[0] if forms else getattr(options, "format", None) and "format"
    if form and getattr(options, "language", ENGLISH) != ENGLISH:
        raise HarnessError(
            f"--language {options.language}: is for text, and --{form} is always English; give one of them"
        )
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


def add_language(parser: argparse.ArgumentParser) -> None:
    """Add ``--language``, of what is drawn for a terminal."""
    text = "the language of headings, verdicts and advice: %(choices)s (default: en)"
    parser.add_argument("--language", choices=languages(), default=ENGLISH, metavar="NAME", help=text)


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


FORMS: Final = (
    (r"the following arguments are required: (?P<what>[^,]+).*", "{what} is missing"),
    (r"argument (?P<what>\S+): expected .*argument", "{what} needs a value"),
    (r"argument (?P<what>\S+): ignored explicit argument (?P<value>.*)", "{what} takes no value: {value}"),
    (r"argument (?P<what>\S+): (?P<rest>.*)", "{what}: {rest}"),
)
"""The sentences of argparse, and what is said in their place."""


class Parser(argparse.ArgumentParser):
    """The parser of a command, or of a group with ``commands``; with ``takes_rest`` unknown arguments are kept, as
    ``rest``."""

    commands: Sequence[str] = ()
    takes_rest: bool = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but refuse what is unknown here, where the known options are; without any argument
        a group shows its help."""
        if self.commands and not args:
            self.print_help()
            self.exit()
        found, unknown = super().parse_known_args(args, namespace)
        if self.takes_rest:
            found.rest, unknown = unknown, []
        if unknown:
            self.error(self._unknown(unknown[0]))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Raise ``OptionError`` with one line."""
        raise OptionError(f"{self._sentence(message)} ({self.prog} --help)")

    def _sentence(self, message: str) -> str:
        if self.commands and (wrong := re.search(r"invalid choice: '([^']*)'", message)):
            return self._no_command(wrong[1])
        for form, said in FORMS:
            if match := re.fullmatch(form, message):
                return said.format(**match.groupdict())
        return message

    def _no_command(self, name: str) -> str:
        near = alike(name, self.commands)
        rest = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.commands)}"
        return f"{name!r} is no command: {rest}"

    def _unknown(self, given: str) -> str:
        name = given.partition("=")[0]
        if not name.startswith("-"):
            return f"{given!r} is one argument too many"
        near = alike(name, dict.fromkeys(re.findall(r"--[a-z][a-z-]*", self.format_help())), most=2)
        return f"unknown option {name}" + (f": did you mean {either(near)}?" if near else "")
