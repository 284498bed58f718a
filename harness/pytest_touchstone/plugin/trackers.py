"""Our trackers as implementations of ``core.hooks``: at the end of a run, ``touchstone track`` is started.

It runs in a process of its own with a limit of time. So nothing of a tracker's client is in pytest's process, and
whatever it does, the run ends with its results and its exit code.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from pytest_touchstone.core.files import shown_path
from pytest_touchstone.reports.trackers.payload import Tracker
from pytest_touchstone.reports.trackers.sending import trackers
from pytest_touchstone.results.summary import Summary

SECONDS: Final = 60.0
"""The time that a run waits for a tracker."""


def tracking(name: str) -> Tracking:
    """Return a tracker's hooks; raise ``pytest.UsageError`` where something must be installed or set first."""
    (tracker,) = (one for one in trackers() if one.name == name)
    if (lacking := tracker.missing()) is not None:
        raise pytest.UsageError(f"--{name}: {lacking}")
    return Tracking(tracker)


class Tracking:
    """Sends a finished run to a tracker."""

    def __init__(self, tracker: Tracker, seconds: float = SECONDS) -> None:
        self._tracker = tracker
        self._seconds = seconds

    @pytest.hookimpl(trylast=True)  # the run's files are there by then
    def pytest_touchstone_run_finished(self, summary: Summary) -> str:
        folder = Path(summary.directory)
        command = [
            sys.executable,
            "-P",
            "-m",
            "pytest_touchstone.cli",
            "track",
            str(folder),
            f"--{self._tracker.name}",
        ]
        try:
            done = subprocess.run(
                [*command, "--json"],
                stdin=subprocess.DEVNULL,  # a client without a key asks for none
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return self._failed(folder, f"not done after {self._seconds:g} s", "sends the rest")
        except OSError as error:
            return self._failed(folder, str(error), "sends it")
        if done.returncode:
            ours = [line for line in done.stderr.splitlines() if line.startswith("touchstone: ")]
            last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
            return self._failed(folder, ours[-1].removeprefix("touchstone: ") if ours else last, "sends it")
        found: str = json.loads(done.stdout)["text"]
        return found

    def _failed(self, folder: Path, why: str, later: str) -> str:
        why = why.removeprefix(f"{self._tracker.title}: ")
        return (
            f"warning: {self._tracker.title} does not have all of this run: {why}; "
            f"`touchstone track {shown_path(folder)} --{self._tracker.name}` {later}"
        )
