"""The seam of our trackers: what ``touchstone track`` needs of one.

A tracker of somebody else needs none of this: it implements the hooks of ``core.hooks`` (docs/trackers.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from pytest_touchstone.reports.trackers.payload import TrackedRun

Pictures: TypeAlias = Callable[[], Mapping[str, Path]]
"""Draws the curves and bars of the whole run, by name. It is called last, since drawing takes long."""

PLACE: Final = "touchstone"
"""The experiment or project, unless another is named."""


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
    """The name in options and in ``reports.trackers.registry``."""
    title: str
    where: str
    """The words of the help on where it is."""
    place: str
    """Its word for what holds runs, such as experiment; ``--NAME-PLACE`` gives its name."""
    variable: str
    """Its own variable for that name."""

    def missing(self) -> str | None:
        """Return what must be installed or set first, None where nothing is missing; quick."""

    def send(
        self, identity: str, runs: Sequence[TrackedRun], settings: Mapping[str, Any], pictures: Pictures
    ) -> Sent:
        """Send what is not there yet; the pictures belong to the first run. Raises ``TrackerError``."""


def place_option(tracker: Tracker) -> str:
    """Return the name of the setting that names the experiment or project."""
    return f"{tracker.name}_{tracker.place}"


def place_name(tracker: Tracker, settings: Mapping[str, Any]) -> str:
    """Return the experiment or project: of the options, of the tracker's own variable, or ours."""
    return str(settings.get(place_option(tracker)) or os.environ.get(tracker.variable) or PLACE)
