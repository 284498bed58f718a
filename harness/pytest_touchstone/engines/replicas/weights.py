"""The files of a checkpoint, for nodes that do not have its paths.

A node that has the path of the checkpoint, and those of its base and its tokenizer, loads from there. Otherwise the
driver puts the files that the fingerprint depends on into Ray's object store, which takes them to each node once. An
actor writes them to the node's temporary folder, under the fingerprint, and loads from there; later runs find them.
Either way the fingerprint of what is loaded is checked.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.registry import format_of

FOLDER: Final = "touchstone-weights"
"""The folder of sent checkpoints in a node's temporary folder."""


class SentFile(NamedTuple):
    """A file of a checkpoint, and its name where it is written: the number of its folder, and its name there."""

    path: Path
    name: str


def roots_of(info: CheckpointInfo) -> list[Path]:
    """Return the paths that a checkpoint needs: its own, its tokenizer's, and those of its base."""
    own = [info.path, *([info.tokenizer] if info.tokenizer is not None else [])]
    return list(dict.fromkeys([*own, *(roots_of(info.base) if info.base is not None else [])]))


def are_here(info: CheckpointInfo) -> bool:
    """Return whether all paths of a checkpoint are on this machine."""
    return all(path.exists() for path in roots_of(info))


def files_of(info: CheckpointInfo) -> list[SentFile]:
    """Return the files to send. Raises ``CheckpointError`` for a file that cannot be found."""
    roots = roots_of(info)
    found: dict[Path, str] = {}
    one: CheckpointInfo | None = info
    while one is not None:
        for path in format_of(one).files(one):
            number, root = max(
                ((n, root) for n, root in enumerate(roots) if path.is_relative_to(root)),
                key=lambda pair: len(pair[1].parts),
            )
            name = path.name if path == root else str(path.relative_to(root))
            found[path] = f"{number}/{name}"
        one = one.base
    return [SentFile(path, name) for path, name in found.items()]


class Received:
    """Sent files on a node: first in a folder of this process, then, when all are there, in that of the checkpoint."""

    def __init__(self, fingerprint: str, process: str) -> None:
        self._folder = Path(tempfile.gettempdir()) / FOLDER / fingerprint
        self._own = self._folder.with_name(f"{fingerprint}.{process}")

    @property
    def there(self) -> bool:
        """Return whether the checkpoint is there, whole."""
        return self._folder.is_dir()

    def write(self, name: str, data: Any) -> None:
        """Write a file."""
        path = self._own / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(memoryview(data))

    def finish(self) -> None:
        """Make what was written the checkpoint, unless another process was faster."""
        if self._own.is_dir():
            try:
                self._own.rename(self._folder)
            except OSError:
                shutil.rmtree(self._own, ignore_errors=True)

    def moved(self, info: CheckpointInfo) -> CheckpointInfo:
        """Return the checkpoint as it is here."""
        places = {root: self._place(number, root) for number, root in enumerate(roots_of(info))}
        return _moved(info, places)

    def _place(self, number: int, root: Path) -> Path:
        folder = self._folder / str(number)
        return folder / root.name if (folder / root.name).is_file() else folder


def _moved(info: CheckpointInfo, places: Mapping[Path, Path]) -> CheckpointInfo:
    return replace(
        info,
        path=places[info.path],
        tokenizer=None if info.tokenizer is None else places[info.tokenizer],
        base=None if info.base is None else _moved(info.base, places),
    )
