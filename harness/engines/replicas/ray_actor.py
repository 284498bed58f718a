"""An actor's side of Ray: a process that holds one checkpoint.

It loads in a call of its own, not in its constructor. Ray starts an actor again whose constructor dies, without end,
and tells the driver nothing of it. Of a call that dies, it tells.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.checkpoints.info import info_from_plain
from harness.core.errors import HarnessError
from harness.core.requests import Request
from harness.engines.base import Engine
from harness.engines.replicas.weights import Received, are_here
from harness.engines.settings import ModelSettings


class Computed(NamedTuple):
    """The answers of a unit, the usage of the process so far, an error in place of both, and the process's name.

    One that has not loaded computes nothing: it was started anew before the driver knew of a death.
    """

    answers: list[Any]
    usage: dict[str, Any]
    error: str | None
    life: str
    has_loaded: bool = True


class Load(NamedTuple):
    """The end of loading: the reason why it cannot answer, None where it can; whether the node lacks its files; the
    seconds it took."""

    fault: str | None = None
    lacks_files: bool = False
    seconds: float = 0.0


class Replica:
    """A loaded checkpoint, or the reason why there is none."""

    def __init__(
        self, row: dict[str, Any], settings: ModelSettings, fingerprint: str | None, sent: bool = False
    ) -> None:
        """``sent``: the driver can send the files to a node that lacks them."""
        self._row, self._settings, self._fingerprint, self._sent = row, settings, fingerprint, sent
        self._life = uuid.uuid4().hex
        self._engine: Engine | None = None

    def alive(self) -> tuple[str, str]:
        """Return the name of this process, another after each death, and its node."""
        return self._life, node_here()

    def load(self) -> Load:
        """Load the checkpoint, unless that is done.

        The fingerprint is found here: the path may hold something else on this node.
        """
        from harness.engines.registry import identity, open_engine

        began = time.monotonic()
        if self._engine is None:
            info = info_from_plain(self._row)
            if self._sent and not are_here(info):
                received = self._received()
                received.finish()
                if not received.there:
                    return Load(lacks_files=True)
                info = received.moved(info)
            try:
                own = identity(info)
                if own != self._fingerprint:
                    return Load(
                        f"{os.uname().nodename}: {info.path} has the fingerprint {(own or 'none')[:12]}, and here "
                        f"{(self._fingerprint or 'none')[:12]} was asked for"
                    )
                self._engine = open_engine(info, self._settings)
            except HarnessError as error:
                return Load(f"{os.uname().nodename}: {error}")
        return Load(seconds=time.monotonic() - began)

    def receive(self, name: str, data: Any) -> None:
        """Write a file of the checkpoint, of which this node lacks a path."""
        self._received().write(name, data)

    def _received(self) -> Received:
        return Received(str(self._fingerprint), self._life)

    def answer(self, requests: Sequence[Request]) -> Computed:
        """Return the answers of a unit, or the error that it has raised; the driver finds out of which request."""
        if self._engine is None:
            return Computed([], {}, None, self._life, has_loaded=False)
        try:
            return Computed(list(self._engine.answer(requests)), self._engine.usage, None, self._life)
        except Exception as error:
            return Computed([], {}, f"{type(error).__name__}: {error}", self._life)


def node_here() -> str:
    """Return Ray's id of the node that this process is on."""
    import ray

    return str(ray.get_runtime_context().get_node_id())
