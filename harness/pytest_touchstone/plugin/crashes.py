"""Faults that a run survives: workers that die, and checkpoints that fail to load.

Where there is a single checkpoint, and it fails to load, the run ends there, in one line. Of several, the others go
on. Every item of one that failed is an error in the journal. pytest shows the first of them as an error and the
others as skipped, since the same line four hundred times helps nobody. Where none can be loaded the run ends as with
a single one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.resolve import none_usable
from pytest_touchstone.checkpoints.series import FailedToLoad

MOST_CRASHES: Final = 2
"""An item is given up when this many workers have died running it."""

TOLD: Final = "touchstone"
"""The attribute of a report in which a worker tells its controller something, since only reports are sure to
arrive."""


class WorkerCrashes:
    """The number of workers that died, by item."""

    def __init__(self) -> None:
        self._crashes: Counter[str] = Counter()

    def again(self, item: str) -> bool:
        """Note that a worker died while it ran the item; return whether the item runs once more."""
        self._crashes[item] += 1
        return self._crashes[item] < MOST_CRASHES

    def why_lost(self, item: str, *, early: bool) -> str:
        """Return why no process has recorded an item; ``early`` says that the session was stopped."""
        if crashes := self._crashes[item]:
            return f"its worker died {crashes} times while running it"
        return "not run: the session was stopped early" if early else "no process has recorded it"


class FailedCheckpoints:
    """The checkpoints that failed to load, as far as this process knows."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self._shown: set[str] = set()

    def tell(self, report: pytest.TestReport, checkpoint: str, message: str, *, several: bool) -> None:
        """Attach the fault to the report of an item that needs the checkpoint."""
        if not several:
            setattr(report, TOLD, {"fatal": message})
        elif checkpoint not in self._shown:
            self._shown.add(checkpoint)
            setattr(report, TOLD, {"failed": [checkpoint, message]})
        else:
            path, line, _ = report.location
            report.outcome = "skipped"
            report.longrepr = (path, line or 0, f"Skipped: {checkpoint} failed to load, as said before")

    def rows(self, unknown: Iterable[FailedToLoad], infos: Iterable[CheckpointInfo]) -> list[dict[str, str]]:
        """Return the checkpoints that could not be recognised, then those of ``infos`` that could not be loaded."""
        paths = {info.name: str(info.path) for info in infos}
        rows = [(one.name, one.path, one.message) for one in unknown]
        rows += [(name, paths.get(name, ""), message) for name, message in self.messages.items()]
        return [dict(zip(("name", "path", "message"), row, strict=True)) for row in rows]

    def take(self, report: pytest.TestReport, checkpoints: Iterable[str]) -> None:
        """Note what a report tells, in the controller.

        Raises ``pytest.UsageError`` for faults after which no run can go on, and where none of ``checkpoints`` can be
        loaded.
        """
        told = getattr(report, TOLD, None)
        if told is None:
            return
        if "fatal" in told:
            raise pytest.UsageError(told["fatal"])
        if "stop" in told:
            raise pytest.exit.Exception(told["stop"])
        name, message = told["failed"]
        self.messages[name] = message
        if self.messages.keys() >= set(checkpoints):
            raise pytest.UsageError(none_usable(list(self.messages.values())))
