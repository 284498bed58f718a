"""Engines answer requests: one Protocol, whoever does the work.

``answer`` is called by the driver (``harness.drive``) with the requests of many items at once;
``prepare`` by ``harness.execution`` with those of the unit that comes next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from harness.checkpoints import CheckpointInfo
from harness.requests import Answer, Refusal, Request


class Engine(Protocol):
    """Answers requests for one loaded checkpoint."""

    @property
    def info(self) -> CheckpointInfo:
        """What the checkpoint is."""

    @property
    def effort(self) -> dict[str, Any]:
        """Plain counts of what answering has cost so far, for the run's report (see ``harness.effort``)."""

    def answer(self, requests: Sequence[Request]) -> list[Answer | Refusal]:
        """One answer a request, in the order asked; a request that cannot be answered gets a ``Refusal``."""

    def prepare(self, requests: Sequence[Request]) -> None:
        """Called with what will probably be asked soon, after what is asked now; returns at once.

        What can be done without the model may be done meanwhile; no answer may depend on it.
        """

    def close(self) -> None:
        """Frees the checkpoint's memory."""
