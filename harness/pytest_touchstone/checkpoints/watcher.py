"""Checkpoints as a training leaves them behind: each is given once it is whole.

A trainer writes for minutes, may be killed in the middle, and removes or renames what it wrote. A checkpoint is whole
where

- no file in it has changed for some seconds, by its size and the time of its last change, and
- its format can describe it: each shard that an index names is there, and has the length that its header says.

A folder that is named as temporary (``tmp-checkpoint-500``, ``.checkpoint-500``, ``checkpoint-500.tmp``) is not looked
at: trainers rename it once they are done.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from pytest_touchstone.checkpoints.formats import format_of
from pytest_touchstone.checkpoints.info import CheckpointInfo, clean_name
from pytest_touchstone.checkpoints.resolve import expand_pattern, training_progress
from pytest_touchstone.core.errors import CheckpointError

MOST_FILES: Final = 10_000
"""The files of a folder that are looked at."""

_TEMPORARY: Final = re.compile(r"\.|_*te?mp[-_.]|.*[-_.](te?mp|part|partial|incomplete)$", re.IGNORECASE)

FileState: TypeAlias = tuple[str, int, int]
"""A file's name within its checkpoint, its bytes, and the time of its last change in nanoseconds. A change of links or
rights is none, nor is a folder's new name."""


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """A complete checkpoint under the name of its results.

    ``content`` has the states of the files that its answers depend on.
    """

    name: str
    path: Path
    step: float | None
    content: tuple[FileState, ...]

    @property
    def stamp(self) -> str:
        """Eight hexadecimal digits that are others once the checkpoint is elsewhere, or written anew."""
        return hashlib.sha256(repr((str(self.path), self.content)).encode()).hexdigest()[:8]

    @property
    def newness(self) -> tuple[float, int]:
        """A key that orders checkpoints by step, else by the time of writing."""
        written = max((changed for *_, changed in self.content), default=0)
        return (-1.0 if self.step is None else self.step, written)

    def changed(self) -> bool:
        """Return whether one of the files has changed; a removed file does not count."""
        states = ((_state(self.path / recorded[0], recorded[0]), recorded) for recorded in self.content)
        return any(state not in (None, recorded) for state, recorded in states)


@dataclass(slots=True)
class _WatchedPath:
    """The files of a path since their last change, and their inspection."""

    files: tuple[FileState, ...]
    since: float
    arrival: CompletedCheckpoint | None = None
    refusal: str = ""


@dataclass(slots=True)
class CheckpointWatcher:
    """A poll of a pattern for complete checkpoints.

    ``inspect`` describes a checkpoint from its headers, and raises ``CheckpointError`` where it is incomplete.
    ``settle`` is in seconds. ``last_change`` is the time at which a path was last seen to be new, written to, or gone.
    """

    pattern: str
    settle: float
    inspect: Callable[[Path], CheckpointInfo]
    last_change: float
    _seen: dict[Path, _WatchedPath] = field(default_factory=dict)

    def look(self, now: float) -> list[CompletedCheckpoint]:
        """Return the complete checkpoints, the newest first."""
        files_by_path: dict[Path, tuple[FileState, ...]] = {}
        with suppress(
            CheckpointError, OSError
        ):  # what is removed meanwhile is not there: the next look sees the rest
            for path in expand_pattern(self.pattern)[0]:
                absolute = Path(os.path.abspath(path))  # noqa: PTH100 -- links stay
                if not _TEMPORARY.match(path.name) and (files := _files(absolute)):
                    files_by_path[absolute] = files
        for path in self._seen.keys() - files_by_path.keys():
            del self._seen[path]
            self.last_change = now
        for path, files in files_by_path.items():
            seen = self._seen.get(path)
            if seen is None or seen.files != files:
                self._seen[path] = _WatchedPath(files, now)
                self.last_change = now
            elif seen.arrival is None and now - seen.since >= self.settle:
                self._inspect(path, seen)
        whole = [seen.arrival for seen in self._seen.values() if seen.arrival is not None]
        return sorted(whole, key=lambda checkpoint: checkpoint.newness, reverse=True)

    def refused(self) -> dict[Path, str]:
        """Return the paths that are no longer written to but incomplete, each with the reason."""
        return {path: seen.refusal for path, seen in self._seen.items() if seen.refusal}

    def at_rest(self) -> bool:
        """Return whether every path has been inspected since its last change."""
        return all(seen.arrival or seen.refusal for seen in self._seen.values())

    def there(self) -> int:
        """Return the number of paths, complete or not."""
        return len(self._seen)

    def _inspect(self, path: Path, seen: _WatchedPath) -> None:
        try:
            info = self.inspect(path)
            files = ((file, os.path.relpath(file, info.path)) for file in format_of(info).files(info))
            states = (_state(file, name) for file, name in files)
            content = tuple(sorted(state for state in states if state is not None))
        except (CheckpointError, OSError) as error:
            seen.refusal = str(error)
            return
        if _files(path) == seen.files:
            seen.arrival, seen.refusal = (
                CompletedCheckpoint(clean_name(info.name), path, training_progress(info), content),
                "",
            )


def _state(file: Path, name: str) -> FileState | None:
    """Return the state of a file; None where it is not there."""
    with suppress(OSError):
        stat = file.stat()
        return name, stat.st_size, stat.st_mtime_ns
    return None


def _files(path: Path) -> tuple[FileState, ...]:
    """Return the files of a folder, or the file itself; none where it is not there."""
    if path.is_file():
        return tuple(filter(None, [_state(path, path.name)]))
    states = []
    for folder, _, names in os.walk(path):
        for name in names:
            file = Path(folder, name)
            if (state := _state(file, os.path.relpath(file, path))) is not None:
                states.append(state)
            if len(states) >= MOST_FILES:
                return tuple(sorted(states))
    return tuple(sorted(states))
