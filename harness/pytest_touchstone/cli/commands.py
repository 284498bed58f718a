"""The commands of ``touchstone``.

Each is a module of this folder, imported when it is named. A package adds one of its own (``cli.command``).
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import entry_points
from typing import Any, Final

from pytest_touchstone import __version__
from pytest_touchstone.cli.command import GROUP, TEXT, Command, Parser, check_language, say, shown
from pytest_touchstone.core.errors import ExitCode, HarnessError, OptionError
from pytest_touchstone.core.files import keep_others_out
from pytest_touchstone.document.language import ENGLISH, spoken

RUN: Final = "Run benchmarks"
SET_UP: Final = "Before a run"
READ: Final = "Read results"
DECIDE: Final = "Decide and share"


def _call(place: str, argument: Any) -> Any:
    return pkgutil.resolve_name(place)(argument)


def _ours(name: str, group: str, text: str, where: str = "", **more: Any) -> Command:
    """Return a command whose functions are imported when it is used: ``--help`` must not wait for all of them.

    ``where`` is their module, with the beginning of their names after a colon.
    """
    module, _, prefix = (where or name).partition(":")
    add_arguments, run = (
        partial(_call, f"pytest_touchstone.cli.{module}:{prefix}{function}")
        for function in ("add_arguments", "run")
    )
    return Command(name=name, group=group, help=text, add_arguments=add_arguments, run=run, **more)


PAGES: Final = (TEXT, "json", "markdown")
REPORTS: Final = (*PAGES, "latex", "csv", "html")
CHECKPOINT: Final = (
    _ours("show", SET_UP, "show a checkpoint's properties, without loading it", "checkpoint:show_"),
    _ours("fetch", SET_UP, "download a builtin checkpoint into your cache", "checkpoint:fetch_"),
    _ours("diff", SET_UP, "say how far a converted or quantised one is from its origin", "checkpoint:diff_"),
    _ours("noise", SET_UP, "say how much the number type changes of one", "checkpoint:noise_"),
)
BASELINE: Final = (
    _ours("list", DECIDE, "list the saved results, the best first", "baseline:list_"),
    _ours("show", DECIDE, "show the results of a name or a run", "baseline:show_"),
    _ours("set", DECIDE, "give a run's checkpoint a name, for `pytest --baseline NAME`", "baseline:set_"),
    _ours("rm", DECIDE, "remove a name, or a run's saved results", "baseline:remove_"),
    _ours("import", DECIDE, "import published results, to compare with", "compare:import_"),
    _ours("plan", DECIDE, "say what a gate could decide, before anything is asked", "plan"),
)

COMMANDS: Final = (
    _ours("run", RUN, "run the shipped benchmarks, or files of your own, with pytest", formats=(), rest=True),
    _ours("watch", RUN, "score the checkpoints of a training as they appear", formats=(), rest=True),
    _ours("merge", RUN, "join the shards of a run, and judge the whole", formats=PAGES),
    _ours("benchmarks", SET_UP, "list benchmarks and their metrics, or check a file of --eval-config"),
    Command(name="checkpoint", group=SET_UP, help="look at checkpoints before a run", commands=CHECKPOINT),
    _ours("migrate", SET_UP, "turn command lines and configs of lm-evaluation-harness into ours"),
    _ours("runs", READ, "list the runs of a results folder"),
    _ours("report", READ, "show runs again: tables for terminal or paper, or the page", formats=REPORTS),
    _ours("items", READ, "show the items of a run: prompts, answers, and which are right"),
    _ours("score", READ, "score stored answers, samples of programs or others' verdicts"),
    _ours("compare", READ, "compare results: which differences are more than chance", formats=PAGES),
    _ours("study", READ, "study trainings: curves, peaks, series against series", formats=PAGES),
    _ours("best", READ, "say which checkpoint is best, and what it cannot be told from", "study:best_"),
    Command(name="baseline", group=DECIDE, help="manage what runs are compared with", commands=BASELINE),
    _ours("accept", DECIDE, "accept a drop that has failed a gate, with a reason", "baseline:accept_"),
    _ours("export", DECIDE, "write a run as others have it, or send it to a tracker", formats=()),
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
    "grade": "score SAMPLES --benchmark NAME",
    "conformance": "score --verdicts FILE",
    "track": "export RUN --format mlflow",
    "import": "baseline import FILE",
    "plan": "baseline plan",
}
"""The commands that had another name."""


def run_command(given: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    umask = keep_others_out()
    try:
        options = _parser(given).parse_args(given)
        command: Command = options.command
        check_language(options)
        with spoken(getattr(options, "language", ENGLISH)):
            output = command.run(options)
            text = shown(output, options)
        if text:
            say(text, end="" if text.endswith("\n") else "\n")
        return output.exit_code
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


def _parser(given: Sequence[str]) -> Parser:
    parser = Parser(prog="touchstone", description="results of benchmarks run with pytest")
    parser.add_argument("--version", action="version", version=f"pytest-touchstone {__version__}")
    ours = {command.name for command in COMMANDS}
    # Other packages are searched only when the user names one of their commands, or asks for a list of all.
    named = next((word for word in given if not word.startswith("-")), None)
    others = () if named in ours else tuple(one for one in _installed() if one.name not in ours)
    if named in FORMER_COMMANDS.keys() - {command.name for command in others}:
        raise OptionError(f"{named} has another name now: touchstone {FORMER_COMMANDS[named]}")
    _add((*COMMANDS, *others), parser, given)
    return parser


def _add(commands: Sequence[Command], parser: Parser, given: Sequence[str]) -> None:
    """Add the commands; only those that are named get arguments, for which their modules are imported."""
    parser.commands = [command.name for command in commands]
    parser.usage, parser.epilog = f"{parser.prog} COMMAND ...", _overview(commands)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    below = parser.add_subparsers(required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog=parser.prog)
    for command in commands:
        own = below.add_parser(command.name, description=command.help)
        if command.name not in given:
            continue
        if command.commands:
            _add(command.commands, own, given)
            continue
        if command.rest:
            # With other people's options among them, the beginning of an option's name is not that option.
            own.takes_rest, own.allow_abbrev = True, False
        if command.formats:
            text = f"the format of what is printed (default: {command.formats[0]})"
            own.add_argument("--format", choices=command.formats, default=command.formats[0], help=text)
        command.add_arguments(own)
        own.set_defaults(command=command)


def _overview(commands: Sequence[Command]) -> str:
    """Return the list of commands, by what they are for."""
    lines = []
    for group in dict.fromkeys(command.group for command in commands):
        same = [command for command in commands if command.group == group]
        lines += ["", f"{group}:", *(f"    {command.name:12}  {command.help}" for command in same)]
    return "\n".join(lines[1:])


def _installed() -> list[Command]:
    """Return the commands of other packages, by name; raises ``HarnessError`` for an entry point that is no command."""
    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda one: one.name):
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
        found.append(command)
    return found
