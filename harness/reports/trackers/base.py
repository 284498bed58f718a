"""The seam of our trackers: what ``touchstone track`` needs of one.

A tracker of somebody else needs none of this: it implements the hooks of ``harness.core.hooks`` (docs/trackers.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from harness.core.errors import HarnessError
from harness.reports.trackers.payload import TrackedRun


class TrackerError(HarnessError):
    """A tracker took nothing, or only a part; the message says why."""


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


@contextmanager
def defaults(environ: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment that are not set, for a while."""
    added = {name: value for name, value in values.items() if name not in environ}
    environ.update(added)
    try:
        yield
    finally:
        for name in added:
            environ.pop(name, None)
