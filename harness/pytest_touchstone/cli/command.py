"""The seam of commands: the arguments, work and output of ``touchstone NAME``.

A package adds one by an entry point in the group ``touchstone.commands``: a ``Command``, named after the entry point.

    [project.entry-points."touchstone.commands"]
    count = "my_package.count:COMMAND"

Printing, ``--format``, errors and exit codes are ``cli.main``'s. One thing has one spelling: ``-o`` is what is written,
``--output`` the results folder.
"""

from __future__ import annotations

import argparse
import functools
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
from pytest_touchstone.core.files import shown_path, write_atomic, write_json
from pytest_touchstone.core.settings import read_as, settings_table
from pytest_touchstone.core.text import alike, either, harmless, is_log, visible, visible_json
from pytest_touchstone.document.language import ENGLISH, languages
from pytest_touchstone.results.run_directory import find_run

GROUP: Final = "touchstone.commands"

TEXT: Final = "text"

Text: TypeAlias = str | Callable[[], str]
"""The text that is printed; a function where making it takes time, so that JSON can do without."""


@dataclass(frozen=True, slots=True)
class Output:
    """The findings of a command: ``data`` for JSON, ``text`` for people (nothing is printed for an empty one)."""

    data: Any
    text: Text = ""
    exit_code: int = 0
    markdown: Text | None = None
    csv: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command. ``run`` raises ``HarnessError`` for a mistake of the user.

    ``formats`` are those of ``--format``, the usual one first; a command without any has no such option, or its own.
    ``commands`` are the members of a group, which has nothing else. With ``rest``, ``options.rest`` are the arguments
    that are not its own.
    """

    name: str
    help: str
    group: str = "Of other packages"
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda _: None
    run: Callable[[argparse.Namespace], Output] = lambda _: Output(None)
    formats: tuple[str, ...] = (TEXT, "json")
    rest: bool = False
    commands: tuple[Command, ...] = ()


def check_language(options: argparse.Namespace) -> None:
    """Raise ``HarnessError`` for another language than English in what is not for people."""
    form = getattr(options, "format", None) or TEXT
    if form not in (TEXT, "html") and getattr(options, "language", ENGLISH) != ENGLISH:
        raise HarnessError(
            f"--language {options.language}: is for text and pages, and --format {form} is always English; "
            "give one of them"
        )


def shown(output: Output, options: argparse.Namespace) -> str:
    """Return what is printed."""
    form = getattr(options, "format", None) or TEXT
    if form == "json":
        return visible_json(json.dumps(output.data, ensure_ascii=False, indent=2, default=str))
    wanted: Text | None = getattr(output, form, None)
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


def add_target(parser: argparse.ArgumentParser, text: str, metavar: str = "DIR") -> None:
    """Add ``-o``, what is written; ``text`` is its help."""
    parser.add_argument("-o", dest="to", type=Path, metavar=metavar, help=text)


def write(path: Path, content: Any, name: str = "FILE") -> None:
    """Write what ``-o`` names, a text or plain data. Raises ``HarnessError``."""
    try:
        (write_atomic if isinstance(content, str) else write_json)(path, content)
    except OSError as error:
        raise HarnessError(
            f"cannot write {shown_path(path)}: {error.strerror}; give another -o {name}"
        ) from None


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add ``--data`` and ``--root``, the places of a run's benchmarks, for ``plugin.replay``."""
    parser.add_argument("--data", metavar="DIR", help="folder of datasets (default: the run's)")
    text = "the folder pytest ran in (default: the run's)"
    parser.add_argument("--root", type=Path, metavar="DIR", help=text)


def add_value(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
    flag: str,
    parse: Callable[..., Any],
    text: str,
    *,
    metavar: str = "N",
    default: str | None = None,
    **limits: Any,
) -> None:
    """Add an option whose value ``parse`` makes of its text, as ``core.settings.read_as`` does."""

    def read(value: str) -> Any:
        return read_as(flag, value, parse, **limits)

    parser.add_argument(flag, type=read, default=default, metavar=metavar, help=text)


def add_settings(parser: argparse.ArgumentParser | argparse._ArgumentGroup, *names: str) -> None:
    """Add settings of runs by their names; None stands for one that is not given."""
    for name in names:
        row = settings_table()[name]
        flag, text = f"--{name.replace('_', '-')}", row.help.replace("%", "%%")
        if row.action == "switch":
            parser.add_argument(flag, action="store_true", help=text)
        else:
            read = functools.partial(row.read, flag=flag)
            parser.add_argument(flag, type=read, metavar=row.metavar, help=text)


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


FORMER_OPTIONS: Final = {f"--{form}": f"--format {form}" for form in ("json", "markdown", "csv")}
"""Options that have another name now."""


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
        if name in FORMER_OPTIONS:
            return f"unknown option {name}: it is {FORMER_OPTIONS[name]} now"
        if not name.startswith("-"):
            return f"{given!r} is one argument too many"
        near = alike(name, dict.fromkeys(re.findall(r"--[a-z][a-z-]*", self.format_help())), most=2)
        return f"unknown option {name}" + (f": did you mean {either(near)}?" if near else "")
