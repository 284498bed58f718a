"""Checkpoints that turn out to be broken when they are loaded.

Where there is but one the run ends there, in one line. Of several the others go on: every item of a broken one is an
error in the journal; pytest shows the first of them as an error and the others as skipped, since the same line four
hundred times helps nobody. Where none can be loaded the run ends like that of a single one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest

from harness.checkpoints.find import none_usable
from harness.core.serialize import FATAL

UNLOADABLE: Final = "touchstone_unloadable"
"""Attribute of a report: the name of a checkpoint that cannot be loaded, and a line that says why."""


class Unloadable:
    """The checkpoints of a run that cannot be loaded, as far as this process knows."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}

    def mark(self, report: pytest.TestReport, checkpoint: str, message: str, *, several: bool) -> None:
        """Puts the fault on the report of an item that needs the checkpoint."""
        if not several:
            setattr(report, FATAL, message)
        elif checkpoint not in self.messages:
            self.messages[checkpoint] = message
            setattr(report, UNLOADABLE, [checkpoint, message])
        else:
            path, line, _ = report.location
            report.outcome = "skipped"
            report.longrepr = (path, line or 0, f"Skipped: {checkpoint} cannot be loaded, as said before")

    def take(self, report: pytest.TestReport, checkpoints: Iterable[str]) -> None:
        """Notes what a report says, in the controller. Raises ``pytest.UsageError`` when none of ``checkpoints`` can
        be loaded."""
        found = getattr(report, UNLOADABLE, None)
        if found is None:
            return
        name, message = found
        self.messages[name] = message
        if self.messages.keys() >= set(checkpoints):
            raise pytest.UsageError(none_usable(list(self.messages.values())))
