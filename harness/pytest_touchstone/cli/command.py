"""The commands of ``touchstone``, and the extension point by which packages add commands.

Our commands are modules of this folder, imported when they are named. A package adds one by an entry point in the group
``touchstone.commands``: a ``Command``, named after the entry point.

    [project.entry-points."touchstone.commands"]
    count = "my_package.count:COMMAND"

Printing, ``--format``, errors and exit codes are those of ``run_command``. One thing has one spelling, and an option of
several commands is declared here, once: ``-o`` is what is written, ``--output`` the results folder.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pkgutil
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO, TypeAlias, TypedDict

from pytest_touchstone import __version__
from pytest_touchstone.core.errors import ExitCode, HarnessError, OptionError
from pytest_touchstone.core.files import restrict_umask, shown_path, write_atomic, write_json
from pytest_touchstone.core.settings import parse_option, settings_table
from pytest_touchstone.core.text import (
    escape_ci_commands,
    escape_invisible,
    escape_invisible_json,
    is_ci_log,
    join_choices,
    similar_names,
)
from pytest_touchstone.document.language import ENGLISH, languages, use_language
from pytest_touchstone.results.run_directory import find_run

GROUP: Final = "touchstone.commands"

TEXT: Final = "text"

Text: TypeAlias = str | Callable[[], str]
"""The text that is printed; a function where making it takes time, so that JSON can do without."""


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a command: ``data`` for JSON, ``text`` for people. Nothing is printed for an empty text."""

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


# Our commands


RUN: Final = "Run benchmarks"
SET_UP: Final = "Before a run"
READ: Final = "Read results"
DECIDE: Final = "Decide and share"

PAGES: Final = (TEXT, "json", "markdown")
REPORTS: Final = (*PAGES, "latex", "csv", "html")


def _call(dotted_name: str, argument: Any) -> Any:
    return pkgutil.resolve_name(dotted_name)(argument)


def _command(name: str, group: str, text: str, where: str = "", **more: Any) -> Command:
    """Return a command of this package. Functions are imported on use, so that ``--help`` is fast.

    ``where`` is the module, with the prefix of the function names after a colon.
    """
    module, _, prefix = (where or name).partition(":")
    add_arguments, run = (
        functools.partial(_call, f"pytest_touchstone.cli.{module}:{prefix}{function}")
        for function in ("add_arguments", "run")
    )
    return Command(name=name, group=group, help=text, add_arguments=add_arguments, run=run, **more)


CHECKPOINT: Final = (
    _command("show", SET_UP, "show a checkpoint's properties, without loading it", "checkpoint:show_"),
    _command("fetch", SET_UP, "download a builtin checkpoint into your cache", "checkpoint:fetch_"),
    _command(
        "diff", SET_UP, "say how far a converted or quantised one is from its origin", "checkpoint:diff_"
    ),
    _command("noise", SET_UP, "say how much the number type changes of one", "checkpoint:noise_"),
)
BASELINE: Final = (
    _command("list", DECIDE, "list the saved results, the best first", "baseline:list_"),
    _command("show", DECIDE, "show the results of a name or a run", "baseline:show_"),
    _command("save", DECIDE, "write the answers of several runs as a file to commit", "baseline:save_"),
    _command("set", DECIDE, "give a run's checkpoint a name, for `pytest --baseline NAME`", "baseline:set_"),
    _command("rm", DECIDE, "remove a name, or a run's saved results", "baseline:remove_"),
    _command("import", DECIDE, "import published results, to compare with", "baseline:import_"),
    _command("plan", DECIDE, "say what a gate could decide, before anything is asked", "baseline:plan_"),
)

COMMANDS: Final = (
    _command(
        "run", RUN, "run the shipped benchmarks, or files of your own, with pytest", formats=(), rest=True
    ),
    _command("watch", RUN, "score the checkpoints of a training as they appear", formats=(), rest=True),
    _command("merge", RUN, "join the shards of a run, and judge the whole", formats=PAGES),
    _command("benchmarks", SET_UP, "list benchmarks and their metrics, or check a file of --eval-config"),
    Command(name="checkpoint", group=SET_UP, help="look at checkpoints before a run", commands=CHECKPOINT),
    _command(
        "proof",
        SET_UP,
        "damage a checkpoint on purpose: which faults would a suite notice?",
        formats=PAGES,
    ),
    _command("migrate", SET_UP, "turn command lines and configs of lm-evaluation-harness into ours"),
    _command("runs", READ, "list the runs of a results folder", "report:list_"),
    _command("report", READ, "show runs again: tables for terminal or paper, or the page", formats=REPORTS),
    _command("items", READ, "show the items of a run: prompts, answers, and which are right"),
    _command("score", READ, "score a file of answers, a run again, or other verdicts", rest=True),
    _command("compare", READ, "compare results: which differences are more than chance", formats=PAGES),
    _command("study", READ, "study trainings: curves, peaks, series against series", formats=PAGES),
    _command(
        "best",
        READ,
        "say which checkpoint is best, and what it cannot be told apart from",
        "study:best_",
        formats=PAGES,
    ),
    Command(name="baseline", group=DECIDE, help="manage what runs are compared with", commands=BASELINE),
    _command("accept", DECIDE, "accept a drop that has failed a gate, with a reason", "baseline:accept_"),
    _command("export", DECIDE, "write a run as others have it, or send it to a tracker", formats=()),
)

FORMER_COMMANDS: Final = {
    "validate": "benchmarks --config FILE",
    "fetch": "checkpoint fetch NAME",
    "show": "checkpoint show PATH",
    "fidelity": "checkpoint diff REFERENCE CANDIDATE",
    "noise": "checkpoint noise PATH",
    "list": "runs",
    "page": "report RUN --format html",
    "view": "report RUN --open",
    "rescore": "score RUN",
    "grade": "score BENCHMARK FILE",
    "conformance": "score --verdicts FILE",
    "track": "export RUN --format mlflow",
    "import": "baseline import FILE",
    "plan": "baseline plan",
}
"""The commands that had another name."""

FORMER_OPTIONS: Final = {f"--{form}": f"--format {form}" for form in ("json", "markdown", "csv")}
"""Options that have another name now."""


# Running one


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    umask = restrict_umask()
    try:
        options = parser_for(arguments).parse_args(arguments)
        language, form = getattr(options, "language", ENGLISH), getattr(options, "format", None) or TEXT
        if form not in (TEXT, "html") and language != ENGLISH:
            raise HarnessError(
                f"--language {language}: is for text and pages, and --format {form} is always English; "
                "give one of them"
            )
        with use_language(language):
            output = options.command.run(options)
            text = format_output(output, options)
        if text:
            say(text, end="" if text.endswith("\n") else "\n")
        return int(output.exit_code)
    except HarnessError as error:
        say(f"touchstone: {error}", sys.stderr)
        return ExitCode.MISTAKE
    except UnicodeEncodeError as error:
        say(
            f"touchstone: output in {error.encoding} cannot show all letters; set PYTHONIOENCODING=utf-8",
            sys.stderr,
        )
        return ExitCode.MISTAKE
    except BrokenPipeError:  # `touchstone runs | head`
        sys.stderr.close()
        return 0
    finally:
        os.umask(umask)


def format_output(output: Output, options: argparse.Namespace) -> str:
    """Return the output of a command in the requested format."""
    form = getattr(options, "format", None) or TEXT
    if form == "json":
        return escape_invisible_json(json.dumps(output.data, ensure_ascii=False, indent=2, default=str))
    text: Text | None = getattr(output, form, None)
    text = output.text if text is None else text
    text = text if isinstance(text, str) else text()
    return text if form == "markdown" else escape_invisible(text, colours=terminal()["color"])


def say(text: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Print a text. In a CI log no line of the text acts as a workflow command."""
    print(escape_ci_commands(text) if is_ci_log() else text, file=stream or sys.stdout, end=end)


class Terminal(TypedDict):
    """The options of ``document.render_text`` for a terminal."""

    width: int
    color: bool


def terminal() -> Terminal:
    """Return the terminal's width, and whether to use colours."""
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return {"width": shutil.get_terminal_size((100, 24)).columns, "color": color}


def parser_for(arguments: Sequence[str]) -> Parser:
    """Return the parser of all commands. Only the named ones have their arguments."""
    parser = Parser(prog="touchstone", description="results of benchmarks run with pytest")
    parser.add_argument("--version", action="version", version=f"pytest-touchstone {__version__}")
    ours = {command.name for command in COMMANDS}
    # Other packages are searched only when the user names one of their commands, or asks for a list of all.
    named = next((word for word in arguments if not word.startswith("-")), None)
    others = [] if named in ours else [command for command in _plugin_commands() if command.name not in ours]
    if named in FORMER_COMMANDS.keys() - {command.name for command in others}:
        raise OptionError(f"{named} has another name now: touchstone {FORMER_COMMANDS[named]}")
    _add((*COMMANDS, *others), parser, arguments)
    return parser


def _add(commands: Sequence[Command], parser: Parser, arguments: Sequence[str]) -> None:
    """Add the commands to a parser. Only the named ones are imported and get arguments."""
    lines = []
    for group in dict.fromkeys(command.group for command in commands):
        members = [command for command in commands if command.group == group]
        lines += ["", f"{group}:", *(f"    {command.name:12}  {command.help}" for command in members)]
    parser.commands = [command.name for command in commands]
    parser.usage, parser.epilog = f"{parser.prog} COMMAND ...", "\n".join(lines[1:])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    subparsers = parser.add_subparsers(
        required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog=parser.prog
    )
    for command in commands:
        subparser = subparsers.add_parser(command.name, description=command.help)
        if command.name not in arguments:
            continue
        if command.commands:
            _add(command.commands, subparser, arguments)
            continue
        if command.rest:
            # With other people's options among them, the beginning of an option's name is not that option.
            subparser.takes_rest, subparser.allow_abbrev = True, False
        if command.formats:
            usual = command.formats[0]
            text = f"the format of what is printed (default: {usual})"
            subparser.add_argument("--format", choices=command.formats, default=usual, help=text)
        command.add_arguments(subparser)
        subparser.set_defaults(command=command)


def _plugin_commands() -> list[Command]:
    """Return the commands of other packages by name. Raises ``HarnessError`` for an invalid entry point."""
    commands = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            command = entry.load()
        except Exception as error:
            raise HarnessError(
                f"command {entry.name} ({entry.value}): {type(error).__name__}: {error}"
            ) from error
        if not isinstance(command, Command):
            raise HarnessError(
                f"command {entry.name} ({entry.value}): no pytest_touchstone.cli.command.Command"
            )
        commands.append(command)
    return commands


# Options of several commands


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add ``--output``, the results folder."""
    text = "the results folder (default: results)"
    parser.add_argument("--output", default=Path("results"), type=Path, metavar="DIR", help=text)


def add_language(parser: argparse.ArgumentParser) -> None:
    """Add ``--language``, the language of text output."""
    text = "the language of headings, verdicts and advice: %(choices)s (default: en)"
    parser.add_argument("--language", choices=languages(), default=ENGLISH, metavar="NAME", help=text)


def add_items(
    parser: argparse.ArgumentParser, text: str = "items of a benchmark in a published table"
) -> None:
    """Add ``--items``, the sizes of benchmarks, for ``compare.load.parse_sizes``; ``text`` is its help."""
    parser.add_argument("--items", action="append", default=[], metavar="NAME=N", help=text)


def add_target(parser: argparse.ArgumentParser, text: str, metavar: str = "DIR") -> None:
    """Add ``-o``, the path to write to; ``text`` is the help."""
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
    """Add an option with a value that ``parse`` reads, as ``core.settings.parse_option`` does."""

    def read(value: str) -> Any:
        return parse_option(flag, value, parse, **limits)

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


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add ``RUN`` and ``--output``."""
    parser.add_argument("target", metavar="RUN", help="a run id, a run's folder, or last")
    add_output(parser)


def run_folder(options: argparse.Namespace, *files: str) -> Path:
    """Return the folder of a run that has one of the ``files``. The run is named by path, by id or as ``last``.

    Raises ``HarnessError``.
    """
    return find_run(options.target, options.output, *files)


# Mistakes


SENTENCES: Final = (
    (r"the following arguments are required: (?P<what>[^,]+).*", "{what} is missing"),
    (r"argument (?P<what>\S+): expected .*argument", "{what} needs a value"),
    (r"argument (?P<what>\S+): ignored explicit argument (?P<value>.*)", "{what} takes no value: {value}"),
    (r"argument (?P<what>\S+): (?P<rest>.*)", "{what}: {rest}"),
)
"""The sentences of argparse, and what is said in their place."""


class Parser(argparse.ArgumentParser):
    """The parser of a command, or of a group with ``commands``.

    With ``takes_rest``, unknown arguments are kept in ``rest``.
    """

    commands: Sequence[str] = ()
    takes_rest: bool = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but reject unknown arguments. A group without arguments prints its help."""
        if self.commands and not args:
            self.print_help()
            self.exit()
        options, unknown = super().parse_known_args(args, namespace)
        if self.takes_rest:
            options.rest, unknown = unknown, []
        if unknown:
            self._refuse(unknown[0])
        return options, unknown

    def _refuse(self, word: str) -> NoReturn:
        """Raise ``OptionError`` for an argument that is unknown here."""
        name = word.partition("=")[0]
        if not name.startswith("-"):
            self.error(f"{word!r} is one argument too many")
        if name in FORMER_OPTIONS:
            self.error(f"unknown option {name}: it is {FORMER_OPTIONS[name]} now")
        near = similar_names(name, dict.fromkeys(re.findall(r"--[a-z][a-z-]*", self.format_help())), most=2)
        self.error(f"unknown option {name}" + (f": did you mean {join_choices(near)}?" if near else ""))

    def error(self, message: str) -> NoReturn:
        """Raise ``OptionError`` with one line."""
        if self.commands and (wrong := re.search(r"invalid choice: '([^']*)'", message)):
            near = similar_names(wrong[1], self.commands)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.commands)}"
            message = f"{wrong[1]!r} is no command: {hint}"
        for form, sentence in SENTENCES:
            if match := re.fullmatch(form, message):
                message = sentence.format(**match.groupdict())
                break
        raise OptionError(f"{message} ({self.prog} --help)")
