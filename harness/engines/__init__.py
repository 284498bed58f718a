"""Engines answer requests: one Protocol, whoever does the work.

``answer`` is called by the driver (``harness.drive``) with the requests of many items at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from harness.checkpoints import CheckpointInfo
from harness.requests import Answer, Refusal, Request


class Engine(Protocol):
    """Answers requests for one loaded checkpoint."""

    @property
    def info(self) -> CheckpointInfo:
        """What the checkpoint is."""

    def answer(self, requests: Sequence[Request]) -> list[Answer | Refusal]:
        """One answer a request, in the order asked; a request that cannot be answered gets a ``Refusal``."""

    def close(self) -> None:
        """Frees the checkpoint's memory."""
