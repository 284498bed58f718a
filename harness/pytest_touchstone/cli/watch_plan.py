"""What a watch was asked for: its options, and which of them its runs are given."""

from __future__ import annotations

import argparse
import glob
import hashlib
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints.info import CheckpointInfo
from pytest_touchstone.checkpoints.resolve import StepFilter, find
from pytest_touchstone.cli.command import Parser
from pytest_touchstone.cli.run import joined
from pytest_touchstone.core.errors import CheckpointError, HarnessError
from pytest_touchstone.core.files import file_name, shown_path, unwritable
from pytest_touchstone.core.settings import SET, of_environment, of_project, of_words, settings_table

POLL: Final = 10.0
"""Seconds between two looks."""

OURS: Final = ("checkpoint", "run_id", "shard", "dry_run")
"""The settings that a watch gives its runs itself, or that score nothing."""

JUDGED: Final = frozenset(("gate", "gate_mode", "gate_config", "baseline"))
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Until(NamedTuple):
    """An end: a step that is scored, or seconds without anything new."""

    step: int | None = None
    idle: float | None = None


def until(text: str) -> Until:
    """Read a value of --until. Raises ``argparse.ArgumentTypeError``."""
    name, _, value = text.partition("=")
    if name == "step" and value.isdecimal():
        return Until(step=int(value))
    if name == "idle" and (found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", value)):
        return Until(idle=float(found[1]) * UNITS[found[2] or "s"])
    raise argparse.ArgumentTypeError(
        f"invalid {text!r}: expected step=N or idle=TIME, such as 90s, 30m or 2h"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A watch: ``name`` is ``watch-SERIES-KEY``, ``words`` what each run is given, ``trial`` those that say whether the
    options are right before there is a checkpoint."""

    pattern: str
    name: str
    output: Path
    page: Path
    words: tuple[str, ...]
    trial: tuple[str, ...]
    poll: float
    inspect: Callable[[Path], CheckpointInfo]
    steps: StepFilter | None = None
    until: tuple[Until, ...] = ()
    on_worse: tuple[str, ...] = ()
    stop_file: Path | None = None

    def command(self, *more: str) -> list[str]:
        """Return the command of a run."""
        return [sys.executable, "-P", "-m", "pytest_touchstone.cli", "run", *more]


def plan_of(options: argparse.Namespace) -> Plan:
    """Return what the options ask for. Raises ``HarnessError`` for a mistake in them."""
    if re.match(r"\w[\w+.-]*:", options.pattern):
        raise HarnessError(f"{options.pattern}: expected checkpoints on disk, such as 'runs/a/checkpoint-*'")
    if urls := [command for command in options.on_worse if re.match(r"https?://", command)]:
        raise HarnessError(
            f"--on-worse: give a command that sends it, such as 'curl -d \"$WATCH_RUN\" {urls[0]}'"
        )
    if options.poll <= 0:
        raise HarnessError(f"--poll {options.poll:g}: expected seconds above 0")
    given, others = _settings(options.rest)
    for name in OURS:
        if name in given:
            flag = settings_table()[name].flag
            raise HarnessError(f"{flag}: a watch has its own, or has no use for it; leave it out")
    known = of_project(Path("pyproject.toml"))[0] | of_environment(os.environ)[0] | given
    output = Path(known.get("output", "results"))
    words = [
        *(f"--eval-tasks={one}" for one in options.tasks),
        *joined(options.rest),
        f"--eval-output={output}",
    ]
    if options.on_worse or options.stop_file:
        words.append("--gate")
    elif not JUDGED & known.keys():
        words.append("--baseline=best")
    name = f"watch-{_series(options.pattern)}-{_key(options, known, others)}"
    page = options.page or output / f"{name}.html"
    for flag, path in (
        ("--eval-output", output / name),
        ("--page", page),
        ("--stop-file", options.stop_file),
    ):
        if path is not None and (why := "is a folder" if path.is_dir() else unwritable(path.parent)):
            raise HarnessError(f"{flag} {shown_path(path)}: {why}; choose another")
    return Plan(
        pattern=options.pattern,
        name=name,
        output=output,
        page=page,
        words=tuple(words),
        trial=tuple(word for word in words if not _is_of_checkpoints(word)),
        poll=options.poll,
        inspect=partial(_inspected, known),
        steps=known.get("steps"),
        until=tuple(options.until),
        on_worse=tuple(options.on_worse),
        stop_file=options.stop_file,
    )


def _settings(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the values of our settings among the options of a run, and the other words. Raises ``OptionError``."""
    parser = Parser(prog="touchstone watch", add_help=False, allow_abbrev=False)
    parser.takes_rest = True
    rows = {name: row for name, row in settings_table().items() if row.option and not row.key}
    parser.add_argument(SET, dest="keys", action="append", default=[])
    for name, row in rows.items():
        action = {"value": "store", "append": "append", "switch": "store_true"}[row.action]
        flags = dict.fromkeys((row.flag, row.long_flag))
        parser.add_argument(*flags, dest=name, action=action, default=argparse.SUPPRESS)
    found = vars(parser.parse_args(words))
    others, keys = found.pop("rest"), of_words(found.pop("keys"))

    def read(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(rows[name].read(one) for one in value)
        return rows[name].read(value) if isinstance(value, str) else value

    return keys | {name: read(name, value) for name, value in found.items()}, others


def _is_of_checkpoints(word: str) -> bool:
    """Return whether a word is an option that only some checkpoints take."""
    rows = (row for row in settings_table().values() if row.affects == "checkpoints" or row.name == "seq_len")
    return any(f"{word}=".startswith(f"{flag}=") for row in rows for flag in (row.flag, row.long_flag))


def _series(pattern: str) -> str:
    """Return the name of the folder in which the checkpoints lie, as far as a pattern says it."""
    parts = Path(os.path.abspath(pattern)).parts  # noqa: PTH100 -- links stay
    fixed = list(itertools.takewhile(lambda part: not glob.has_magic(part), parts))
    return file_name(fixed[-1])[:40] if len(fixed) > 1 else "all"


def _key(options: argparse.Namespace, known: Mapping[str, Any], others: Sequence[str]) -> str:
    """Return six hexadecimal digits of what is watched, and of the settings that results depend on."""
    depends = {name: value for name, value in known.items() if settings_table()[name].affects != "speed"}
    facts = [os.path.abspath(options.pattern), options.tasks, sorted(depends.items()), others]  # noqa: PTH100
    return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()[:6]


def _inspected(known: Mapping[str, Any], path: Path) -> CheckpointInfo:
    """Describe a checkpoint from its headers. Raises ``CheckpointError``."""
    found = find(
        str(path),
        seq_len=known.get("seq_len"),
        base_model=known.get("base_model"),
        trust_remote_code=bool(known.get("trust_remote_code")),
    ).infos
    if [one.path for one in found] != [path]:
        raise CheckpointError(f"{path}: is gone, or no checkpoint itself")
    return found[0]
