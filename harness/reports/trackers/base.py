"""The seam of our trackers: what ``touchstone track`` needs of one.

A tracker of somebody else needs none of this: it implements the hooks of ``harness.core.hooks`` (docs/trackers.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness.reports.trackers.payload import TrackedRun


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome: where it is, the number of the tracker's runs, of those that are new, and of numbers and files that
    were sent now."""

    where: str
    runs: int
    new: int
    numbers: int
    files: int


class Tracker(Protocol):
    """A tracker."""

    name: str
    """The name in options and in ``harness.reports.trackers.registry``."""
    title: str

    def missing(self) -> str | None:
        """Return what must be installed or set first, None where nothing is missing; quick."""

    def send(self, identity: str, runs: Sequence[TrackedRun], settings: Mapping[str, Any]) -> Sent:
        """Send what is not there yet. Raises ``TrackerError``."""
