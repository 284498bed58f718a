"""Series: the checkpoints that one training has left behind, their folders and their order.

A folder that is no checkpoint itself but holds some (up to three levels down) stands for all of them, also where a
glob matches it. Nothing within a checkpoint is one (an optimizer's state, ``global_step500``), unless it has the files
of one.

A series is a folder. Within it those with a number at the end of their names come first (``checkpoint-100``,
``checkpoint_epoch_3.pt``); those with the same stem are ordered by step. Then come the others (``final``,
``checkpoint_best.pt``), and last a model in the series' own folder.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints.builtin import step_of
from pytest_touchstone.checkpoints.config_files import step_in
from pytest_touchstone.checkpoints.formats.distributed import is_inner
from pytest_touchstone.checkpoints.formats.llama import SIDE
from pytest_touchstone.checkpoints.info import CheckpointInfo
from pytest_touchstone.checkpoints.registry import formats
from pytest_touchstone.core.errors import CheckpointError

_DEEPEST: Final = 3
"""The number of levels below a folder that are searched."""

_QUANTISED: Final = re.compile(r"[._-](I?Q\d\w*|B?F16|F32)\.gguf$", re.IGNORECASE)
"""The part of a GGUF file's name that says how its numbers are stored."""

_HASH: Final = re.compile(r"[0-9a-f]{40}")
"""The name of a Hub snapshot's folder."""


class FailedToLoad(NamedTuple):
    """Something that should be a checkpoint and failed to load, with a line that says why."""

    name: str
    source: str
    path: str
    message: str


class Matches(NamedTuple):
    """The paths that a pattern or folder stands for, and those that it matches but are no checkpoints."""

    paths: list[Path]
    others: list[Path]


def expand(pattern: str) -> Matches:
    """The matches of a glob, folders of checkpoints resolved. Raises ``CheckpointError`` where that is nothing."""
    # pathlib refuses absolute patterns, hence the module glob.
    matches = [Path(path) for path in glob.glob(str(Path(pattern).expanduser()), recursive=True)]  # noqa: PTH207
    recursive = "**" in Path(pattern).parts
    paths: list[Path] = []
    others: list[Path] = []
    for path in matches:
        if path.is_file():
            if is_checkpoint(path) and not (recursive and is_checkpoint(path.parent)):
                paths.append(path)
        elif is_checkpoint(path) or (_is_named(path) and not is_checkpoint(path.parent)):
            paths.append(path)
        elif not recursive and (held := held_by(path)):
            paths += held
        elif not recursive:
            others.append(path)
    if not paths:
        seen = "" if others or matches else "; check the pattern (and quote it)"
        raise CheckpointError(
            f"{pattern}: matches no folder{' of a checkpoint' if others else ''} and no .gguf or .pt file"
            f"{seen or '; give the folders that hold config.json'}"
        )
    return Matches(paths, others)


def is_checkpoint(path: Path) -> bool:
    """Return whether a format knows the folder or file, whole or not; a trainer's other files are none, nor is a part
    of a checkpoint."""
    if (path.is_file() and SIDE.match(path.name)) or is_inner(path):
        return False
    return any(one.detect(path) for one in formats())


def ordered(infos: Iterable[CheckpointInfo]) -> Iterator[tuple[str, CheckpointInfo]]:
    """The checkpoints by series and step, each with its series' folder; a served model has none."""
    known = list(infos)
    parents = {_absolute(info.path.parent) for info in known if not info.served}
    places = [("" if info.served else _series(info.path, parents), info) for info in known]
    return iter(sorted(places, key=lambda place: _key(*place)))


def step(info: CheckpointInfo) -> float | None:
    """The progress of a checkpoint: the trainer's step, else the number at the end of its name, else its epoch."""
    if info.global_step is not None:
        return info.global_step
    if info.served:
        return None  # the number in its name is its version or size
    number = number_of(info.path)
    return info.epoch if number is None else number


def number_of(path: Path) -> int | None:
    """The number at the end of a name; None without one. How the numbers of a GGUF file are stored is none."""
    number = step_of(Path(_QUANTISED.sub("", path.name)))
    return None if number < 0 or _HASH.fullmatch(path.name) else number


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts names by the values of the numbers in them."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", text)]


def once(paths: Sequence[Path]) -> list[Path]:
    """The paths in the same order, each once, however it is written."""
    return list({_absolute(path): path for path in reversed(paths)}.values())[::-1]


def held_by(folder: Path, deeper: int = _DEEPEST) -> list[Path]:
    """The checkpoints below a folder that is none itself; empty where there are none."""
    found: list[Path] = []
    whole = is_checkpoint(folder)
    for path in sorted(folder.iterdir(), key=lambda one: natural(one.name)):
        if path.name.startswith("."):
            continue
        if path.is_file():
            if not whole and is_checkpoint(path):
                found.append(path)
        elif path.is_dir():
            if is_checkpoint(path) or _is_named(path):
                found.append(path)
            if deeper > 1 and not _is_named(path):
                found += held_by(path, deeper - 1)
    return found


def _is_named(folder: Path) -> bool:
    """Return whether a folder is named as trainers name a checkpoint's, so that an empty one is noticed."""
    return step_in(folder.name) is not None


def _absolute(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 -- Path.resolve would follow links


def _series(path: Path, parents: set[str]) -> str:
    """The folder of the series: its own where others lie below it."""
    return str(path if _absolute(path) in parents else path.parent)


def _key(series: str, info: CheckpointInfo) -> tuple[Any, ...]:
    name = info.path.name
    numbered = number_of(info.path) is not None
    alike = re.sub(r"\d+(\.\w+)?$", "", _QUANTISED.sub("", name)) if numbered else ""
    place = step(info)
    own = _absolute(Path(series)) == _absolute(info.path)
    far = float("inf") if place is None else place
    return natural(_absolute(Path(series))), own, not numbered, alike, far, natural(name), info.seq_len
