"""Replicas of a checkpoint as actors of Ray, which places, starts and restarts them and carries what is said.

Ray restarts an actor that died as often as it takes, and calls nothing twice: a lost unit is the schedule's to send
again. What Ray says of a call that failed leaves open whether the actor has died: it says "unavailable" of both
(Ray 2.60). So the actor is then asked for the name of its process, by a call that Ray does repeat. Another name than
before means a death, and a node that is gone means that the node was the cause.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pytest_touchstone.core.errors import ServerError
from pytest_touchstone.core.requests import Request
from pytest_touchstone.engines.replicas.ray_actor import (
    Computed,
    Load,
    Replica,
    SentFile,
    WantedCheckpoint,
    files_of,
)
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
