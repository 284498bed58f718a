"""An actor's side of Ray: a process that holds one checkpoint at a time.

It loads in a call of its own, not in its constructor. Ray starts an actor again whose constructor dies, without end,
and tells the driver nothing of it. Of a call that dies, it tells.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from pytest_touchstone.checkpoints.info import info_from_plain
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.requests import Request
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.registry import EnginePool, identity
from pytest_touchstone.engines.replicas.weights import Received, are_here
from pytest_touchstone.engines.settings import ModelSettings


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


class Wanted(NamedTuple):
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
        self._holds: Wanted | None = None
        self._engine: Engine | None = None

    def alive(self) -> tuple[str, str]:
        """Return the name of this process, another after each death, and its node."""
        return self._life, node_here()

    def load(self, wanted: Wanted) -> Load:
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

    def receive(self, wanted: Wanted, name: str, data: Any) -> None:
        """Write a file of a checkpoint, of which this node lacks a path."""
        self._received(wanted).write(name, data)

    def _received(self, wanted: Wanted) -> Received:
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
