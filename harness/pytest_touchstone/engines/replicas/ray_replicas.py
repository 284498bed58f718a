"""Replicas of a checkpoint as actors of Ray, which places, starts and restarts them and carries what is said.

Ray restarts an actor that died as often as it takes, and calls nothing twice: a lost unit is the schedule's to send
again. What Ray says of a call that failed leaves open whether the actor has died: it says "unavailable" of both
(Ray 2.60). So the actor is then asked for the name of its process, by a call that Ray does repeat. Another name than
before means a death, and a node that is gone means that the node was the cause.

An actor holds one checkpoint at a time. It loads in a call of its own, not in its constructor. Ray starts an actor
again whose constructor dies, without end, and tells the driver nothing of it. Of a call that dies, it tells.

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
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.info import info_from_plain
from pytest_touchstone.checkpoints.registry import format_of
from pytest_touchstone.core.errors import HarnessError, ServerError
from pytest_touchstone.core.requests import Request
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.registry import EnginePool, identity
from pytest_touchstone.engines.replicas.ray_cluster import RayTarget, has_room, lives, share_of, start
from pytest_touchstone.engines.replicas.transport import (
    Answered,
    CheckpointLoaded,
    Died,
    Event,
    Failed,
    Gone,
    Lost,
    Refused,
    WantedWeights,
)
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


LOOK: Final = 5.0
"""Seconds without news after which the nodes are looked at."""

MOST_LOOKS: Final = 24
"""The looks in a row that find no node with room for a replica before the run ends: two minutes for one to come."""

MOST_ASKED: Final = 30
"""The times in a row that an actor may fail to say that it lives."""

AGAIN: Final = 1.0
"""Seconds before an actor is asked again whether it lives."""


class _Call(NamedTuple):
    """A call under way: of which replica, what it was asked, and its unit, or the checkpoint that it is to load."""

    replica: int
    asked: str
    unit: int = -1
    wanted: WantedCheckpoint | None = None


class _Loading(NamedTuple):
    """A checkpoint that a replica is to hold, and the files to send to a node that lacks them."""

    wanted: WantedCheckpoint
    files: Sequence[SentFile]


class _Life(NamedTuple):
    """A process of a replica, and its node."""

    name: str
    node: str


class RayReplicas:
    """The transport of Ray: an actor for each replica, and the calls under way."""

    def __init__(self, settings: ModelSettings, target: RayTarget, kind: type[Replica] = Replica) -> None:
        """Raises ``CheckpointError`` where there is no Ray, or no cluster at the address."""
        self._ray = start(target)
        share = share_of(self._ray, settings, target)
        self._needs = share.needs
        actor = self._ray.remote(**share.needs, max_restarts=-1, max_task_retries=0)(kind)
        own = replace(settings, threads=share.threads, engine=None)
        self._actors = [actor.remote(own) for _ in range(share.replicas)]
        self._wanted: dict[int, _Loading] = {}
        self._stored: dict[str, Any] = {}
        self._calls: dict[Any, _Call] = {}
        self._lives: dict[int, _Life] = {}
        self._doubtful: dict[int, int] = {}
        self._looks = 0
        self._ended_any = False
        for number in self.replicas:
            self._ask_whether_alive(number)

    @property
    def replicas(self) -> Sequence[int]:
        """The replicas, by number."""
        return range(len(self._actors))

    def load(self, replica: int, weights: WantedWeights) -> None:
        """Let an actor load a checkpoint, once it lives."""
        info = weights.info
        files = files_of(info) if weights.fingerprint else []
        wanted = WantedCheckpoint(info.plain(), weights.fingerprint, bool(files))
        self._wanted[replica] = _Loading(wanted, files)
        if replica in self._lives and not any(
            one.replica == replica and one.asked == "alive" for one in self._calls.values()
        ):
            self._load(replica)

    def submit(self, replica: int, unit: int, requests: Sequence[Request]) -> None:
        """Send a unit to an actor."""
        self._calls[self._actors[replica].answer.remote(list(requests))] = _Call(replica, "answer", unit)

    def wait(self) -> list[Event]:
        """Return what the calls that have ended say. Raises ``ServerError`` where no node is left for a replica."""
        while not (found := self._said(LOOK)):
            if not self._ended_any:
                self._look_at_nodes()
        return found

    def look(self) -> list[Event]:
        """Return what the calls that have ended say, without waiting for any."""
        return self._said(0)

    def _said(self, seconds: float) -> list[Event]:
        """Return what the calls say that end within so many seconds, none where none does."""
        found: list[Event] = []
        if not self._calls and seconds:
            raise ServerError("no replica of Ray is at work, and none is to be; the same command goes on")
        if not self._calls:
            return found
        ended, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=seconds)
        self._ended_any = bool(ended)
        if ended:
            self._looks = 0
            more, _ = self._ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)
            for call in dict.fromkeys([*ended, *more]):
                found += self._ended(call)
        return found

    def _drop(self, replica: int) -> None:
        """End an actor for good."""
        self._calls = {call: one for call, one in self._calls.items() if one.replica != replica}
        with contextlib.suppress(Exception):
            self._ray.kill(self._actors[replica], no_restart=True)

    def close(self) -> None:
        """End the actors for good."""
        self._calls.clear()
        for actor in self._actors:
            with contextlib.suppress(Exception):  # one that is dead already, or a cluster that is gone
                self._ray.kill(actor, no_restart=True)

    def _ask_whether_alive(self, replica: int) -> None:
        alive = self._actors[replica].alive.options(max_task_retries=-1)
        self._calls[alive.remote()] = _Call(replica, "alive")

    def _load(self, replica: int) -> None:
        wanted = self._wanted[replica].wanted
        call = self._actors[replica].load.remote(wanted)
        self._calls[call] = _Call(replica, "load", wanted=wanted)

    def _send_files(self, replica: int) -> None:
        """Send the checkpoint's files, each through the object store, which takes it to a node once."""
        import numpy as np

        wanted, files = self._wanted[replica]
        for path, name in files:
            key = f"{wanted.fingerprint} {name}"
            if key not in self._stored:
                self._stored[key] = self._ray.put(
                    np.memmap(path, np.uint8, "r") if path.stat().st_size else b""
                )
            call = self._actors[replica].receive.remote(wanted, name, self._stored[key])
            self._calls[call] = _Call(replica, "receive")
        self._load(replica)

    def _look_at_nodes(self) -> None:
        """Raise ``ServerError`` where every replica waits for a node, and none has come for a while."""
        waiting = {one.replica for one in self._calls.values() if one.asked == "alive"}
        if waiting != {one.replica for one in self._calls.values()} or has_room(self._ray, self._needs):
            self._looks = 0
            return
        self._looks += 1
        if self._looks >= MOST_LOOKS:
            needs = " and ".join(f"{number} {name[4:-1].upper()}" for name, number in self._needs.items())
            raise ServerError(
                f"no node of Ray's cluster has room for a replica (it needs {needs}), and none has come for "
                f"{LOOK * MOST_LOOKS:.0f} s; what is done is kept; the same command goes on"
            )

    def _ended(self, call: Any) -> list[Event]:
        if (one := self._calls.pop(call, None)) is None:
            return []
        try:
            said = self._ray.get(call)
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            return self._failed(one, error)
        match one.asked:
            case "alive":
                return self._heard(one.replica, _Life(*said))
            case "load":
                return self._loaded(one, said)
            case "answer":
                return [_answered(one, said)] if said.has_loaded else self._unheard(one)
        return []

    def _loaded(self, one: _Call, said: Load) -> list[Event]:
        if one.wanted is not self._wanted[one.replica].wanted:
            return []  # it was to load another one meanwhile
        if said.lacks_files:
            self._send_files(one.replica)
            return []
        if said.fault is not None:
            return [Refused(one.replica, said.fault)]
        return [CheckpointLoaded(one.replica, said.seconds, said.texts)]

    def _failed(self, one: _Call, error: Exception) -> list[Event]:
        errors = self._ray.exceptions
        if isinstance(error, errors.RayTaskError):  # raised by the actor's own code; it lives on
            if one.asked == "answer":
                return [Failed(one.replica, one.unit, _last_line(error))]
            return self._gone(one.replica, _last_line(error))
        if isinstance(error, (errors.LocalRayletDiedError, ConnectionError)):
            raise ServerError(
                f"the cluster of Ray is not reached any more ({_first_line(error)}); what is done is kept; the "
                "same command goes on"
            ) from error
        return self._unheard(one, error)

    def _unheard(self, one: _Call, error: Exception | None = None) -> list[Event]:
        """Ask an actor whether it lives, of which a call has failed; calls that fail after that say nothing new."""
        replica = one.replica
        if one.asked != "alive":
            if replica in self._doubtful:
                return []
            self._doubtful[replica] = 0
            self._ask_whether_alive(replica)
            return [Lost(replica)]
        self._doubtful[replica] = self._doubtful.get(replica, 0) + 1
        if isinstance(error, self._ray.exceptions.ActorDiedError) or self._doubtful[replica] >= MOST_ASKED:
            return self._gone(replica, _first_line(error) if error is not None else "it is not heard of")
        time.sleep(AGAIN)
        self._ask_whether_alive(replica)
        return []

    def _heard(self, replica: int, life: _Life) -> list[Event]:
        before = self._lives.get(replica)
        self._lives[replica] = life
        self._doubtful.pop(replica, None)
        if before is not None and before.name != life.name:
            return [Died(replica, outside=not lives(self._ray, before.node))]
        if replica in self._wanted:
            self._load(replica)
        return []

    def _gone(self, replica: int, why: str) -> list[Event]:
        self._drop(replica)
        return [Gone(replica, why)]


def _answered(one: _Call, said: Computed) -> Answered | Failed:
    if said.error is not None:
        return Failed(one.replica, one.unit, said.error)
    return Answered(one.replica, one.unit, said.answers, said.usage, said.life, said.seconds)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _last_line(error: Exception) -> str:
    """Return the exception at the end of a traceback."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
