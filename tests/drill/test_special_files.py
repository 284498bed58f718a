"""Wherever a path is taken, what is no usual file is refused in one line, soon, and without much memory.

The places are found: every reader of the drill, every argument of a command and every setting that is a path.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import gzip
import os
import resource
import shutil
import signal
import socket
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.cli.command import Command, Parser
from pytest_touchstone.cli.commands import COMMANDS
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.settings import settings_table
from tests.drill.conftest import Drill
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

SECONDS: Final = 10
MOST: Final = 500 << 20
"""Bytes that may be used beyond those that were before."""


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


# In a process with limits


class Ended(NamedTuple):
    """How a call ended in a process of its own: with its text, in time, within the memory."""

    fault: str
    text: str


def limited(call: Callable[[], object], place: Path) -> Ended:
    """What a call prints and how it ends, within 10 s and 500 MiB beyond what is used now."""
    said, fault = place / "said", place / "fault"
    said.touch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a process with threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * os.sysconf("SC_PAGE_SIZE") + MOST
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            with said.open("w") as out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                call()
            code = 0
        except BaseException:
            with contextlib.suppress(BaseException):
                fault.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    told = fault.read_text() if fault.exists() else ""
    fault.unlink(missing_ok=True)
    if os.WIFSIGNALED(status):
        told = f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return Ended(told, said.read_text(errors="replace"))


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


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that all is in."""
    folder = tmp_path_factory.mktemp("special")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")
    gc.freeze()  # nothing that is there is looked at, and copied, in the processes
    yield folder
    gc.unfreeze()


def some(all_of: Sequence[Any], seeds: range, whole: bool, at: int) -> list[Any]:
    """All in the whole drill; else as many as there are seeds, others for each place."""
    return list(all_of) if whole else [all_of[(at + seed) % len(all_of)] for seed in seeds]


# Readers


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_no_reader_waits_or_fills_the_memory(name: str, drill: Drill, place: Path) -> None:
    reader = READERS[name]
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

    for kind in some(list(SPECIAL), drill.seeds(1, 1), drill.whole, list(READERS).index(name)):
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
            "RUNS",
            "RUN_ID",
            "WHAT",
            "SAMPLES",
            "REFERENCE",
            "CANDIDATE",
        ),
        *("CHECKPOINT", "NAME|PATH", "NAME|RUN_ID", "PATH|URL", "TEXT|FILE", "COMMAND ... | FILE"),
    )
)
"""What stands for a path in the help of an argument or a setting, among other things."""

PLAIN: Final = frozenset(
    (
        *(
            "NAME",
            "NAME,...",
            "NAME[,NAME]",
            "NAME=N",
            "ORG/NAME",
            "ITEM",
            "BENCHMARK",
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
        *("CMD|URL", "step=N|idle=2h"),
    )
)
"""What stands for anything else."""

WRITTEN: Final = frozenset(
    (("watch", "page"), ("watch", "stop_file"), ("page", "file"), ("grade", "output"), ("export", "folder"))
) | {(name, "to") for name in ("rescore", "merge")}
"""Arguments that are written to: what is no usual file there may be what is meant (``/dev/stdout``)."""

ENDLESS: Final = ("watch", "view", "track", "fetch", "run", "noise", "fidelity")
"""Commands that load models, begin other programs or ask servers; ``show`` reads what they do."""


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
    and (one.command[0], one.action.dest) not in WRITTEN
    and one.command[0] not in ENDLESS
}
"""Those that may be a path."""

GOOD: Final[dict[str, tuple[str, ...]]] = {
    "RUN": (str(RUN),),
    "BENCHMARK": ("humaneval",),
    "SAMPLES": ("samples.jsonl",),
    "DIR": (str(RUN),),
    "PATH": ("fake:causal",),
    "RUN_ID": (RUN.name,),
    "WHAT": (),
    "FILE": ("asked.toml",),
    "NAME|RUN_ID": ("main",),
    "COMMAND ... | FILE": (),
}
OF_MADE: Final = {"RUN": ("results/one",), "RUN_ID": ("one",)}
"""The words of the commands that compute anew what a run has: a made-up one has no text to score."""

MORE: Final = {"accept": ("--benchmark", "gsm8k", "--because", "x"), "export": ("--no-samples", "-o", "out")}


def words_of(argument: Argument, value: str) -> list[str]:
    """A command line with the value as that argument, and right ones for all that it needs besides."""
    found = list(argument.command)
    for one in (each for each in ACTIONS if each.command == argument.command):
        action = one.action
        if action.dest == argument.action.dest and not action.option_strings:
            found.append(value)
        elif not action.option_strings and action.nargs not in ("?", "*"):
            good = GOOD | OF_MADE if argument.command[0] == "rescore" else GOOD
            found += good[str(action.metavar)]
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


@pytest.mark.parametrize("name", ARGUMENTS)
def test_no_command_waits_or_fills_the_memory(name: str, drill: Drill, place: Path) -> None:
    argument = ARGUMENTS[name]
    lines(place, *SAMPLES, name="samples.jsonl")
    run(place / "results", "one", "checkpoint-100")
    (place / "asked.toml").write_text("[benchmarks.gsm8k]\n")

    def call(kind: str, path: Path) -> None:
        if kind == "one without permission":
            without_rights()
        code = main(words_of(argument, str(path)))
        print(f"\nexit code {code}")

    kinds = list(SPECIAL)
    for kind in some(kinds, drill.seeds(1, 1), drill.whole, list(ARGUMENTS).index(name)):
        path = place / "special.json"
        put(kind, path)
        ended = limited(partial(call, kind, path), place)
        assert not ended.fault, f"{kind}: {ended.fault}\n{ended.text}"
        code = ended.text.rpartition("exit code ")[2].strip()
        assert code in ("0", "4"), f"{kind}: {ended.text}"
        told = ended.text.rpartition("\nexit code ")[0]
        check_harmless(told)
        assert code == "0" or (told and all(len(line) < LONGEST for line in told.splitlines())), kind
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
        assert code in ("0", "4"), f"{kind}: {ended.text}"
        for word in ("Traceback", "INTERNALERROR"):
            assert word not in ended.text, f"{kind}: {ended.text}"
        drill.figure("special files as settings of runs", 1)
