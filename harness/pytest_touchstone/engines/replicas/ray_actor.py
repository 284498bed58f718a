"""An actor's side of Ray: a process that holds one checkpoint at a time, and the files that it loads.

It loads in a call of its own, not in its constructor. Ray starts an actor again whose constructor dies, without end,
and tells the driver nothing of it. Of a call that dies, it tells.

A node that has the path of the checkpoint, and those of its base and its tokenizer, loads from there. Otherwise the
driver puts the files that the fingerprint depends on into Ray's object store, which takes them to each node once. An
actor writes them to the node's temporary folder, under the fingerprint, and loads from there; later runs find them.
Either way the fingerprint of what is loaded is checked.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.info import info_from_plain
from pytest_touchstone.checkpoints.registry import format_of
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.requests import Request
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.registry import EnginePool, identity
from pytest_touchstone.engines.settings import ModelSettings

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


class Computed(NamedTuple):
    """The answers of a unit, the usage since the checkpoint was loaded, an error in place of both, a name for that
    loading, and the seconds that were computed.

    A process that has not loaded computes nothing: it was started anew before the driver knew of a death.
    """

    answers: list[Any]
    usage: dict[str, Any]
    error: str | None
    life: str
    has_loaded: bool = True
    seconds: float = 0.0


class Load(NamedTuple):
    """The end of loading: the reason why it cannot answer, None where it can; whether the node lacks its files; the
    seconds it took.

    ``texts`` is the most that its engine continues together, None where it does not say.
    """

    fault: str | None = None
    lacks_files: bool = False
    seconds: float = 0.0
    texts: int | None = None


class WantedCheckpoint(NamedTuple):
    """A checkpoint, as ``CheckpointInfo.plain`` writes it, and the fingerprint that must be found.

    ``sent``: the driver can send the files to a node that lacks them.
    """

    row: dict[str, Any]
    fingerprint: str | None
    sent: bool = False


class Replica:
    """A loaded checkpoint, or none."""

    def __init__(self, settings: ModelSettings) -> None:
        self._pool = EnginePool(settings)
        self._life = uuid.uuid4().hex
        self._loads = 0
        self._holds: WantedCheckpoint | None = None
        self._engine: Engine | None = None

    def alive(self) -> tuple[str, str]:
        """Return the name of this process, another after each death, and its node."""
        return self._life, node_here()

    def load(self, wanted: WantedCheckpoint) -> Load:
        """Load a checkpoint in place of the former one, unless that is done.

        The fingerprint is found here: the path may hold something else on this node.
        """
        began = time.monotonic()
        if self._engine is None or self._holds != wanted:
            self._engine, self._holds = None, wanted
            self._loads += 1
            info = info_from_plain(wanted.row)
            if wanted.sent and not are_here(info):
                received = self._received(wanted)
                received.finish()
                if not received.there:
                    return Load(lacks_files=True)
                info = received.moved(info)
            try:
                own = identity(info)
                if own != wanted.fingerprint:
                    return Load(
                        f"{os.uname().nodename}: {info.path} has the fingerprint {(own or 'none')[:12]}, and here "
                        f"{(wanted.fingerprint or 'none')[:12]} was asked for"
                    )
                self._engine = self._pool.engine(info)
            except HarnessError as error:
                return Load(f"{os.uname().nodename}: {error}")
        return Load(seconds=time.monotonic() - began, texts=self._engine.texts_together)

    def receive(self, wanted: WantedCheckpoint, name: str, data: Any) -> None:
        """Write a file of a checkpoint, of which this node lacks a path."""
        self._received(wanted).write(name, data)

    def _received(self, wanted: WantedCheckpoint) -> Received:
        return Received(str(wanted.fingerprint), self._life)

    def answer(self, requests: Sequence[Request]) -> Computed:
        """Return the answers of a unit, or the error that it has raised; the driver finds out of which request."""
        life = f"{self._life}.{self._loads}"
        if self._engine is None:
            return Computed([], {}, None, life, has_loaded=False)
        began = time.monotonic()
        try:
            answers = list(self._engine.answer(requests))
            return Computed(answers, self._engine.usage, None, life, seconds=time.monotonic() - began)
        except Exception as error:
            return Computed([], {}, f"{type(error).__name__}: {error}", life)


def node_here() -> str:
    """Return Ray's id of the node that this process is on."""
    import ray

    return str(ray.get_runtime_context().get_node_id())
