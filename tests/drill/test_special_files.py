"""Wherever a path is taken, what is no usual file is refused in one line, soon, and without much memory.

The places are found: every reader of the drill, every argument of a command and every setting that is a path.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gzip
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.cli.command import COMMANDS, Command, Parser
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.settings import settings_table
from tests.drill.conftest import Drill
from tests.drill.limits import limited
from tests.drill.models import MODELS
from tests.drill.readers import (
    LONGEST,
    READERS,
    RUN,
    SAMPLES,
    check_harmless,
    check_refusal,
    lines,
)
from tests.support.project import ALONE, Project
from tests.support.runs import run
from tests.support.tiny import tiny_causal

# What is no usual file


def bomb(path: Path) -> None:
    """A file of a megabyte that unpacks to one GiB."""
    with path.open("wb") as file:
        for _ in range(1024):
            file.write(ZEROS)


ZEROS: Final = gzip.compress(bytes(1 << 20))


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def plugged(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def locked(path: Path) -> None:
    path.write_text("{}")
    path.chmod(0)


SPECIAL: Final[dict[str, Callable[[Path], object]]] = {
    "a pipe": os.mkfifo,
    "a socket": plugged,
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a terabyte of nothing": sparse,
    "a packed gigabyte": bomb,
    "one without permission": locked,
}


def put(kind: str, path: Path) -> None:
    """Put something special in the place of a file."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    SPECIAL[kind](path)


def without_rights() -> None:
    """Root may read only what its owner may; all else that it needs, it could not import as another user."""
    if os.geteuid() == 0:
        system = ctypes.CDLL(None, use_errno=True)
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # capset(2), version 3
        rights = (ctypes.c_uint32 * 6)()
        assert system.capget(header, rights) == 0
        for at in (0, 1, 2):  # effective, permitted, inheritable: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            rights[at] &= ~0b110
        assert system.capset(header, rights) == 0


def some(all_of: Sequence[Any], seeds: range, whole: bool, at: int) -> list[Any]:
    """All in the whole drill; else as many as there are seeds, others for each place."""
    return list(all_of) if whole else [all_of[(at + seed) % len(all_of)] for seed in seeds]


# Readers

ALL_READERS: Final = READERS | {f"{name}, loaded": one for name, one in MODELS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_READERS)
def test_no_reader_waits_or_fills_the_memory(name: str, drill: Drill, place: Path) -> None:
    reader = ALL_READERS[name]
    (place / "given").mkdir()
    path = reader.example(place / "given")
    reader.read(path)

    def call(kind: str) -> None:
        if kind == "one without permission":
            without_rights()
        try:
            reader.read(path)
        except HarnessError as error:
            check_refusal(error)

    every = drill.whole and name in READERS
    for kind in some(list(SPECIAL), drill.seeds(1, 2), every, list(ALL_READERS).index(name)):
        put(kind, path)
        ended = limited(partial(call, kind), place)
        assert not ended.fault, f"{kind}: {ended.fault}"
        drill.figure("special files in the places of others", 1)


# Arguments of commands

PATHS: Final = frozenset(
    (
        *(
            "PATH",
            "FILE",
            "DIR",
            "PATTERN",
            "RUN",
            "RUN|FILE",
            "RUNS",
            "BENCHMARKS",
            "RUN_ID",
            "WHAT",
            "REFERENCE",
            "CANDIDATE",
        ),
        *(
            "CHECKPOINT",
            "NAME|PATH|PACKAGE",
            "NAME|RUN_ID",
            "NAME|RUN_ID|FILE",
            "PATH|URL",
            "TEXT|FILE",
            "COMMAND ... | FILE",
        ),
    )
)
"""What stands for a path in the help of an argument or a setting, among other things."""

PLAIN: Final = frozenset(
    (
        *(
            "ENGINE",
            "NAME",
            "NAME,...",
            "NAME[,NAME]",
            "NAME=N",
            "ORG/NAME",
            "ITEM",
            "BENCHMARK",
            "CLASS,...",
            "METRIC",
            "SCORER",
            "EXPERIMENT",
        ),
        *(
            "N",
            "P",
            "D",
            "S",
            "T",
            "K,...",
            "N/COUNT",
            "IN,OUT",
            "PORT",
            "SECONDS",
            "POINTS",
            "SHARE",
            "NATS",
            "SIZE",
            "PLACE",
        ),
        *(
            "STEPS",
            "DRAW",
            "WHEN",
            "WHICH",
            "HOW",
            "WHERE",
            "KIND",
            "MODE",
            "DTYPE",
            "DEVICE",
            "TOKEN",
            "TEXT",
            "ID",
            "URL",
        ),
        *("CMD", "step=N|idle=2h"),
    )
)
"""What stands for anything else."""

WRITTEN: Final = frozenset(("page", "stop_file", "to"))
"""Arguments that are written to: what is no usual file there may be what is meant (``/dev/stdout``)."""

HEAVY: Final = ("diff", "noise")
"""Commands that load models, and take seconds for each."""

ENDLESS: Final = ("watch", "run")
"""Commands that begin other programs, and have tests of their own."""


class Argument(NamedTuple):
    """An argument of a command that may be a path."""

    command: tuple[str, ...]
    action: argparse.Action

    @property
    def shown(self) -> str:
        """The command and the argument."""
        return " ".join((*self.command, (*self.action.option_strings, self.action.dest)[0]))


def actions(commands: Sequence[Command] = COMMANDS, front: tuple[str, ...] = ()) -> Iterator[Argument]:
    """Every argument of every command."""
    for one in commands:
        if one.commands:
            yield from actions(one.commands, (*front, one.name))
            continue
        parser = Parser()
        one.add_arguments(parser)
        for action in parser._actions:
            yield Argument((*front, one.name), action)


ACTIONS: Final = tuple(actions())

ARGUMENTS: Final = {
    one.shown: one
    for one in ACTIONS
    if (one.action.metavar in PATHS or one.action.type is Path)
    and one.action.dest not in WRITTEN
    and one.command[0] not in ENDLESS
}
"""Those that may be a path."""

GOOD: Final[dict[str, tuple[str, ...]]] = {
    "RUN": ("kept",),
    "BENCHMARK": ("humaneval",),
    "DIR": ("kept",),
    "PATH": ("fake:causal",),
    "RUN_ID": (RUN.name,),
    "WHAT": (),
    "FILE": ("asked.toml",),
    "NAME|RUN_ID": ("main",),
    "NAME|RUN_ID|FILE": ("main",),
    "BENCHMARKS": (),
    "COMMAND ... | FILE": (),
    "CHECKPOINT": ("fake:causal",),
    "REFERENCE": ("model",),
    "CANDIDATE": ("model",),
}
MORE: Final = {
    "accept": ("--benchmark", "gsm8k", "--because", "x"),
    "export": ("--no-samples", "-o", "out"),
}


def words_of(argument: Argument, value: str) -> list[str]:
    """A command line with the value as that argument, and right ones for all that it needs besides."""
    found = list(argument.command)
    for one in (each for each in ACTIONS if each.command == argument.command):
        action = one.action
        if action.dest == argument.action.dest and not action.option_strings:
            found.append(value)
        elif not action.option_strings and action.nargs not in ("?", "*"):
            found += GOOD[str(action.metavar)]
    if argument.command == ("score",):
        # A made-up run has no text to score; special files as runs are those of other commands.
        found[1:1] = ["results/one"] if argument.action.option_strings else ["humaneval"]
    if argument.action.option_strings:
        found += [argument.action.option_strings[-1], value]
    more = MORE.get(argument.command[0], ())
    return found + [
        word
        for word in more
        if not argument.action.option_strings
        or "-o" not in argument.action.option_strings
        or word not in ("-o", "out")
    ]


def test_every_argument_and_setting_is_a_path_or_known_to_be_none() -> None:
    arguments = {str(one.action.metavar) for one in ACTIONS if one.action.metavar is not None}
    settings = {row.metavar for row in settings_table().values() if row.metavar is not None}
    assert (arguments | settings) - PATHS - PLAIN == set()
    assert len(ARGUMENTS) > 40
    typed = {one.shown for one in ACTIONS if one.action.type is Path}
    assert typed <= {one.shown for one in ACTIONS if one.action.metavar in PATHS}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if one.command[-1] in HEAVY else ())
        for name, one in ARGUMENTS.items()
    ],
)
def test_no_command_waits_or_fills_the_memory(name: str, drill: Drill, place: Path) -> None:
    argument = ARGUMENTS[name]
    lines(place, *SAMPLES, name="samples.jsonl")
    run(place / "results", "one", "checkpoint-100")
    shutil.copytree(RUN, place / "kept")  # some commands write into it
    (place / "asked.toml").write_text("[benchmarks.gsm8k]\n")
    if argument.command[-1] in HEAVY:
        tiny_causal(place / "model")

    def call(kind: str, path: Path) -> None:
        if kind == "one without permission":
            without_rights()
        code = main(words_of(argument, str(path)))
        print(f"\nexit code {code}")

    kinds = list(SPECIAL)
    every = drill.whole and argument.command[-1] not in HEAVY
    for kind in some(kinds, drill.seeds(1, 2), every, list(ARGUMENTS).index(name)):
        path = place / "special.json"
        put(kind, path)
        ended = limited(partial(call, kind, path), place)
        assert not ended.fault, f"{kind}: {ended.fault}\n{ended.text}"
        code = ended.text.rpartition("exit code ")[2].strip()
        assert code in ("0", "4", "9"), f"{kind}: {ended.text}"
        told = ended.text.rpartition("\nexit code ")[0]
        check_harmless(told)
        assert code == "0" or (told and all(len(line) < LONGEST for line in told.splitlines())), kind
        drill.figure("special files as arguments of commands", 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPECIAL)
def test_no_watch_and_no_run_waits_for_what_is_no_checkpoint_or_test(
    kind: str, drill: Drill, place: Path
) -> None:
    put(kind, place / "test_special.py")

    def watch() -> None:
        words = ["watch", str(place / "test_special.py"), "--until", "idle=1s", "--poll", "0.1"]
        print(f"\nexit code {main(words)}")

    def run() -> None:
        words = [*ALONE, "--checkpoint", "fake:causal", str(place / "test_special.py")]
        print(f"\nexit code {int(pytest.main(words))}")

    for call in (watch, run):
        ended = limited(call, place)
        assert not ended.fault, f"{call.__name__}: {ended.fault}\n{ended.text}"
        code = ended.text.rpartition("exit code ")[2].strip()
        # What is no checkpoint may become one: a watch waits for it.
        assert code == "4" or (code == "0") == (call is watch), ended.text
        for word in ("Traceback", "INTERNALERROR"):
            assert word not in ended.text, ended.text
        drill.figure("special files as arguments of commands", 1)


# Settings


def settings() -> list[str]:
    return [name for name, row in settings_table().items() if row.option and row.metavar in PATHS]


@pytest.mark.parametrize("name", settings())
def test_no_run_waits_or_fills_the_memory(
    name: str, drill: Drill, place: Path, pytester: pytest.Pytester
) -> None:
    project = Project(pytester)
    row = settings_table()[name]
    for kind in some(list(SPECIAL), drill.seeds(1, 1), drill.whole, settings().index(name)):
        path = place / "special.json"
        put(kind, path)
        words = [] if name == "checkpoint" else ["--checkpoint", "fake:causal"]
        more = [] if name == "data" else ["--eval-data", str(project.path / "data")]

        def call(path: Path = path, words: list[str] = words, more: list[str] = more) -> None:
            code = pytest.main([*ALONE, *words, *more, row.flag, str(path), "--eval-limit", "2", "--gate"])
            print(f"\nexit code {int(code)}")

        with contextlib.chdir(project.path):
            ended = limited(call, place)
        assert not ended.fault, f"{kind}: {ended.fault}\n{ended.text}"
        code = ended.text.rpartition("exit code ")[2].strip()
        # Another prompt before is nothing to compare with; that nobody reads there shows when it is written.
        unread = name == "markdown" and kind in ("a pipe", "a socket")
        other = "9" if name == "system" else "1" if unread else "0"
        assert code in ("0", "4", other), f"{kind}: {ended.text}"
        for word in ("Traceback", "INTERNALERROR"):
            assert word not in ended.text, f"{kind}: {ended.text}"
        drill.figure("special files as settings of runs", 1)
