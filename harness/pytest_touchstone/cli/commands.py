"""The commands of ``touchstone``.

Each is a module of this folder, imported when it is named. A package adds one of its own (``cli.command``).
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, Final

from pytest_touchstone import __version__
from pytest_touchstone.cli.command import GROUP, Command, Output, Parser, form_of, say, shown
from pytest_touchstone.core.errors import ExitCode, HarnessError
from pytest_touchstone.core.files import keep_others_out
from pytest_touchstone.reports.language import ENGLISH, spoken


def _ours(name: str, text: str, module: str = "", prefix: str = "", **more: Any) -> Command:
    """A command whose functions are imported when it is used: ``--help`` must not wait for all of them."""

    def functions() -> ModuleType:
        return importlib.import_module(f"pytest_touchstone.cli.{module or name}")

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        getattr(functions(), f"{prefix}add_arguments")(parser)

    def run(options: argparse.Namespace) -> Output:
        found: Output = getattr(functions(), f"{prefix}run")(options)
        return found

    return Command(name=name, help=text, add_arguments=add_arguments, run=run, **more)


COMMANDS: Final = (
    _ours("run", "run the shipped benchmarks, or files of your own, with pytest", rest=True),
    _ours("watch", "score the checkpoints of a training as they appear, on a live page", rest=True),
    _ours("benchmarks", "list benchmarks with their tags, shots, rows and metrics"),
    _ours("validate", "check a file of --eval-config, and show what it enables", "benchmarks", "validate_"),
    _ours("migrate", "turn command lines and configs of lm-evaluation-harness into ours"),
    _ours("fetch", "download a builtin checkpoint into your cache", "show", "fetch_"),
    _ours("list", "list the runs of a results folder", "runs", "list_"),
    _ours("report", "show the tables of a run again, or make one for a paper", "runs", "report_", csv=True),
    _ours("best", "say which checkpoint is best, and what it cannot be told from", "study", "best_"),
    _ours("page", "make the page of a run again, or of several runs side by side"),
    _ours("view", "open the page of a run in a browser", "page", "view_"),
    _ours("items", "show the items of a run: prompts, answers, and which are right"),
    _ours("show", "show a checkpoint's properties"),
    _ours("rescore", "score a run's stored answers with today's scorers", csv=True),
    _ours("grade", "run the programs of a file of samples, for pass@k"),
    _ours("merge", "join the shards of a run, and judge the whole", markdown=True),
    _ours("track", "send a run to a tracker, or what that lacks of it: MLflow, W&B", "runs", "track_"),
    _ours("compare", "compare results: which differences are more than chance", markdown=True),
    _ours("study", "study the checkpoints of trainings: curves, peaks, series against series", markdown=True),
    _ours(
        "fidelity",
        "say how far a quantised or converted checkpoint is from what it was made of",
    ),
    _ours(
        "export",
        "write a run as lm-evaluation-harness, Every Eval Ever or the Hub have it",
        "items",
        "export_",
    ),
    _ours("plan", "say what a gate could decide, before anything is asked"),
    _ours("accept", "accept a drop that has failed a gate, with a reason", "baseline", "accept_"),
    _ours("import", "import published results, to compare with", "compare", "import_"),
    _ours("conformance", "compare a scorer's verdicts with recorded ones", "rescore", "conformance_"),
    Command(
        name="baseline",
        help="manage the saved results that runs are compared with",
        commands=(
            _ours("set", "give a run's checkpoint a name, for `pytest --baseline NAME`", "baseline", "set_"),
            _ours("show", "show the results of a name or a run", "baseline", "show_"),
            _ours("list", "list the saved results, the best first", "baseline", "list_"),
            _ours("rm", "remove a name, or a run's saved results", "baseline", "remove_"),
        ),
    ),
)


def run_command(given: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    umask = keep_others_out()
    try:
        options = _parser(given).parse_args(given)
        command: Command = options.command
        form_of(options)
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
    except BrokenPipeError:  # `touchstone list | head`
        sys.stderr.close()
        return 0
    finally:
        os.umask(umask)


def _parser(given: Sequence[str]) -> Parser:
    parser = Parser(prog="touchstone", description="results of benchmarks run with pytest")
    parser.add_argument("--version", action="version", version=f"pytest-touchstone {__version__}")
    ours = {one.name for one in COMMANDS}
    # Other packages are searched only when the user names one of their commands, or asks for a list of all.
    named = next((one for one in given if not one.startswith("-")), None)
    others = () if named in ours else tuple(one for one in _installed() if one.name not in ours)
    _add((*COMMANDS, *others), parser, given, "COMMAND")
    return parser


def _add(commands: Sequence[Command], parser: Parser, given: Sequence[str], metavar: str) -> None:
    """Add the commands; only those that are named get arguments, for which their modules are imported."""
    parser.commands = [one.name for one in commands]
    below = parser.add_subparsers(required=True, metavar=metavar)
    for command in commands:
        own = below.add_parser(command.name, help=command.help, description=command.help)
        if command.name not in given:
            continue
        if command.commands:
            _add(command.commands, own, given, "|".join(one.name for one in command.commands))
            continue
        if command.rest:
            # With other people's options among them, the beginning of an option's name is not that option.
            own.takes_rest, own.allow_abbrev = True, False
        else:
            own.add_argument("--json", action="store_true", help="print JSON instead of text")
        if command.markdown:
            own.add_argument("--markdown", action="store_true", help="print Markdown instead of text")
        if command.csv:
            own.add_argument("--csv", action="store_true", help="print CSV instead of text")
        command.add_arguments(own)
        own.set_defaults(command=command)


def _installed() -> list[Command]:
    """The commands of other packages, by name; raises ``HarnessError`` for an entry point that is no command."""
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
