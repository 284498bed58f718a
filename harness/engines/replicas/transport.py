"""The seam between the schedule and what carries units to other processes: submit, wait, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from harness.core.requests import Answer, Refusal, Request


@dataclass(frozen=True, slots=True)
class Loaded:
    """A replica has loaded the checkpoint that was asked for; ``seconds`` of it."""

    replica: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Refused:
    """A replica cannot load it, and never will: the message names the place, and what is there instead."""

    replica: int
    message: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers of a unit, in the order of its requests, and what the replica's process has spent so far.

    ``life`` names the process: one that is started again counts anew.
    """

    replica: int
    unit: int
    answers: Sequence[Answer | Refusal]
    usage: dict[str, Any]
    life: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """A unit has raised an error; its replica lives on."""

    replica: int
    unit: int
    message: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The answer of a replica was lost, and perhaps the replica. ``Died`` comes next if it has died, and ``Loaded``
    when it can be asked again."""

    replica: int


@dataclass(frozen=True, slots=True)
class Died:
    """A replica has died, with all units that it had; it is started again, and says when it is ``Loaded``.

    ``outside``: its node has died.
    """

    replica: int
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """A replica is not started again; the message says why."""

    replica: int
    message: str


Event: TypeAlias = Loaded | Refused | Answered | Failed | Lost | Died | Gone


class Transport(Protocol):
    """Carries units to replicas of one checkpoint."""

    @property
    def replicas(self) -> Sequence[int]:
        """The replicas, by number; each begins to load at once."""

    def submit(self, replica: int, unit: int, requests: Sequence[Request]) -> None:
        """Send a unit; return at once."""

    def wait(self) -> list[Event]:
        """Return what has happened since the last call, one event at least.

        Raises ``ServerError`` where nothing can happen any more.
        """

    def drop(self, replica: int) -> None:
        """End a replica that only dies; nothing more is heard of it."""

    def close(self) -> None:
        """End the replicas."""
