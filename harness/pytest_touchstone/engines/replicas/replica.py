"""The process of a replica, an actor of Ray: it loads a checkpoint, and answers units of requests.

A node that has the path of the checkpoint, and those of its base and its tokenizer, loads from there. Otherwise the
driver puts the files that the fingerprint depends on into Ray's object store, which takes them to each node once. An
actor writes them to the node's temporary folder, under the fingerprint, and loads from there; later runs find them.
Either way the fingerprint of what is loaded is checked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.formats import format_of
from pytest_touchstone.checkpoints.info import info_from_plain
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.requests import Answer, Refusal, Request
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.registry import EnginePool, identity
from pytest_touchstone.engines.settings import ModelSettings

FOLDER: Final = "touchstone-weights"
"""The folder of sent checkpoints in a node's temporary folder."""


def roots_of(info: CheckpointInfo) -> list[Path]:
    """Return the paths that a checkpoint needs: its own, its tokenizer's, and those of its base."""
    paths = [info.path, *([info.tokenizer] if info.tokenizer is not None else [])]
    return list(dict.fromkeys([*paths, *(roots_of(info.base) if info.base is not None else [])]))


def are_here(info: CheckpointInfo) -> bool:
    """Return whether all paths of a checkpoint are on this machine."""
    return all(path.exists() for path in roots_of(info))


def files_of(info: CheckpointInfo) -> dict[str, Path]:
    """Return the files to send by the names that they get: the index of their root, and their path there.

    Raises ``CheckpointError`` for a file that cannot be found.
    """
    roots, files = roots_of(info), dict[str, Path]()
    for described in (info, *([info.base] if info.base is not None else [])):
        for path in format_of(described).files(described):
            root = max(filter(path.is_relative_to, roots), key=lambda root: len(root.parts))
            files[f"{roots.index(root)}/{path.name if path == root else path.relative_to(root)}"] = path
    return files


class WantedCheckpoint(NamedTuple):
    """A checkpoint as ``CheckpointInfo.plain`` writes it, and its expected fingerprint.

    ``sent``: the driver can send the files to a node that lacks them.
    """

    row: dict[str, Any]
    fingerprint: str | None
    sent: bool = False


class LoadOutcome(NamedTuple):
    """The end of loading: the reason of a failure or None, and whether the node lacks the files.

    ``texts`` is the maximum number of texts in a step of its engine, None if unknown.
    """

    fault: str | None = None
    lacks_files: bool = False
    texts: int | None = None


class UnitAnswers(NamedTuple):
    """The answers of a unit, the usage since the checkpoint was loaded, and a name for that loading."""

    answers: Sequence[Answer | Refusal]
    usage: dict[str, Any]
    life: str


class Replica:
    """A loaded checkpoint, or none."""

    def __init__(self, settings: ModelSettings) -> None:
        self._pool = EnginePool(settings)
        self._life = ""
        self._engine: Engine | None = None

    def alive(self) -> None:
        """Return when the process has started."""

    def load(self, wanted: WantedCheckpoint, files: Mapping[str, Any]) -> LoadOutcome:
        """Load a checkpoint in place of the former one; ``files`` has references to sent files by name.

        The fingerprint is computed here: the path may hold something else on this node.
        """
        self._engine, self._life = None, uuid.uuid4().hex
        info = info_from_plain(wanted.row)
        if wanted.sent and not are_here(info):
            folder = Path(tempfile.gettempdir()) / FOLDER / str(wanted.fingerprint)
            if not folder.is_dir():
                if not files:
                    return LoadOutcome(lacks_files=True)
                _write(folder, files)
            info = _moved(
                info, {root: _place(folder / str(n), root) for n, root in enumerate(roots_of(info))}
            )
        try:
            if (here := identity(info)) != wanted.fingerprint:
                return LoadOutcome(
                    f"{os.uname().nodename}: {info.path} has the fingerprint {(here or 'none')[:12]}, and here "
                    f"{(wanted.fingerprint or 'none')[:12]} was asked for"
                )
            self._engine = self._pool.engine(info)
        except HarnessError as error:
            return LoadOutcome(f"{os.uname().nodename}: {error}")
        return LoadOutcome(texts=self._engine.texts_together)

    def answer(self, requests: Sequence[Request]) -> UnitAnswers | None:
        """Return the answers of a unit; None if the process has restarted and holds nothing."""
        if self._engine is None:
            return None
        return UnitAnswers(self._engine.answer(requests), self._engine.usage, self._life)


def _write(folder: Path, files: Mapping[str, Any]) -> None:
    """Write files to a temporary folder first, so that ``folder`` is whole or absent."""
    import ray

    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    for name, file in files.items():
        path = partial / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(memoryview(ray.get(file)))
    with contextlib.suppress(OSError):  # another process was faster
        partial.rename(folder)
    shutil.rmtree(partial, ignore_errors=True)


def _place(folder: Path, root: Path) -> Path:
    return folder / root.name if (folder / root.name).is_file() else folder


def _moved(info: CheckpointInfo, paths: Mapping[Path, Path]) -> CheckpointInfo:
    return replace(
        info,
        path=paths[info.path],
        tokenizer=None if info.tokenizer is None else paths[info.tokenizer],
        base=None if info.base is None else _moved(info.base, paths),
    )
