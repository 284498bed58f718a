"""Engines answer requests: one Protocol, whoever does the work.

``answer`` is called by the driver (``harness.asking``) with the requests of many items at once;
``prepare`` by ``harness.execution`` with those of the unit that comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from harness.checkpoints import CheckpointInfo
from harness.requests import Answer, Refusal, Request

Done: TypeAlias = Callable[[int, Answer | Refusal], None]
"""Told the number of a request and its answer."""


class Engine(Protocol):
    """Answers requests for one loaded checkpoint."""

    @property
    def info(self) -> CheckpointInfo:
        """What the checkpoint is."""

    @property
    def effort(self) -> dict[str, Any]:
        """Plain counts of what answering has cost so far, for the run's report (see ``harness.effort``)."""

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """One answer a request, in the order asked; a request that cannot be answered gets a ``Refusal``.

        An engine that has some answers before the others may call ``done`` with them, in any order and in
        this thread, as soon as they are final; whoever asks takes from the list what ``done`` was not told.
        What ``done`` raises goes through, and leaves the engine able to answer; ``done`` may not ask the
        engine. No answer may depend on it.
        """

    def prepare(self, requests: Sequence[Request]) -> None:
        """Called with what will probably be asked soon, after what is asked now; returns at once.

        What can be done without the model may be done meanwhile; no answer may depend on it.
        """

    def close(self) -> None:
        """Frees the checkpoint's memory."""
