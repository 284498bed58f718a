"""The seam between the schedule and what carries units to other processes: submit, wait, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.requests import Answer, Refusal, Request


class WantedWeights(NamedTuple):
    """A checkpoint that replicas load, and the fingerprint that they must find."""

    info: CheckpointInfo
    fingerprint: str | None


@dataclass(frozen=True, slots=True)
class CheckpointLoaded:
    """A replica has loaded the checkpoint that was asked for; ``seconds`` of it, and the most ``texts`` that its
    engine continues together, None where it does not say."""

    replica: int
    seconds: float = 0.0
    texts: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A replica cannot load it, and never will: the message names the place, and what is there instead."""

    replica: int
    message: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers of a unit, in the order of its requests, and what the replica's process has spent so far.

    ``life`` names the process that has loaded: after another loading it counts anew. ``seconds`` are those that it
    computed.
    """

    replica: int
    unit: int
    answers: Sequence[Answer | Refusal]
    usage: dict[str, Any]
    life: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Failed:
    """A unit has raised an error; its replica lives on."""

    replica: int
    unit: int
    message: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The answer of a replica was lost, and perhaps the replica. ``Died`` comes next if it has died, and
    ``CheckpointLoaded`` when it can be asked again."""

    replica: int


@dataclass(frozen=True, slots=True)
class Died:
    """A replica has died, with all units that it had; it is started again, and can be asked to load.

    ``outside``: its node has died.
    """

    replica: int
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """A replica is not started again; the message says why."""

    replica: int
    message: str


Event: TypeAlias = CheckpointLoaded | Refused | Answered | Failed | Lost | Died | Gone


class ReplicaTransport(Protocol):
    """Carries units to replicas, each of which holds one checkpoint at a time."""

    @property
    def replicas(self) -> Sequence[int]:
        """The replicas, by number."""

    def load(self, replica: int, weights: WantedWeights) -> None:
        """Let a replica load a checkpoint, in place of the one that it holds; return at once."""

    def submit(self, replica: int, unit: int, requests: Sequence[Request]) -> None:
        """Send a unit to a replica that has loaded; return at once."""

    def wait(self) -> list[Event]:
        """Return what has happened since the last call, one event at least.

        Raises ``ServerError`` where nothing can happen any more.
        """

    def look(self) -> list[Event]:
        """Return what has happened since the last call, perhaps nothing; wait for nothing."""

    def close(self) -> None:
        """End the replicas."""
