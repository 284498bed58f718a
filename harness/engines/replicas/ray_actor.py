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
from harness.engines.settings import ModelSettings


class Computed(NamedTuple):
    """The answers of a unit, the usage of the process so far, an error in place of both, and the process's name."""

    answers: list[Any]
    usage: dict[str, Any]
    error: str | None
    life: str


class Replica:
    """A loaded checkpoint, or the reason why there is none."""

    def __init__(self, row: dict[str, Any], settings: ModelSettings, fingerprint: str | None) -> None:
        self._row, self._settings, self._fingerprint = row, settings, fingerprint
        self._life = uuid.uuid4().hex
        self._engine: Engine | None = None

    def alive(self) -> tuple[str, str]:
        """Return the name of this process, another after each death, and its node."""
        return self._life, node_here()

    def load(self) -> tuple[str | None, float]:
        """Load the checkpoint, once; return why it cannot answer, None where it can, and the seconds it took.

        The fingerprint is found here: the path may hold something else on this node.
        """
        from harness.engines.registry import identity, open_engine

        began = time.monotonic()
        if self._engine is None:
            info = info_from_plain(self._row)
            try:
                own = identity(info)
                if own != self._fingerprint:
                    fault = (
                        f"{os.uname().nodename}: {info.path} has the fingerprint {(own or 'none')[:12]}, and "
                        f"here {(self._fingerprint or 'none')[:12]} was asked for"
                    )
                    return fault, 0.0
                self._engine = open_engine(info, self._settings)
            except HarnessError as error:
                return f"{os.uname().nodename}: {error}", 0.0
        return None, time.monotonic() - began

    def answer(self, requests: Sequence[Request]) -> Computed:
        """Return the answers of a unit, or the error that it has raised; the driver finds out of which request."""
        try:
            if self._engine is None:
                raise RuntimeError("it was asked before it had loaded")
            return Computed(list(self._engine.answer(requests)), self._engine.usage, None, self._life)
        except Exception as error:
            return Computed([], {}, f"{type(error).__name__}: {error}", self._life)


def node_here() -> str:
    """Return Ray's id of the node that this process is on."""
    import ray

    return str(ray.get_runtime_context().get_node_id())
