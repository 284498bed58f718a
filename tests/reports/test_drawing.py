"""Pictures drawn beside other work."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.reports import drawing as module
from pytest_touchstone.reports.drawing import drawing
from pytest_touchstone.reports.plots import Files, Job, draw_curves
from tests.reports.test_plots import CURVES

JOBS: list[Job] = [(name, draw_curves, CURVES) for name in ("one", "two", "three")]


def fake(name: str, *_: object) -> Files:
    """The number of the process in place of a picture; the process of "killed" ends."""
    if name == "killed":
        os._exit(1)
    return {f"{name}.png": str(os.getpid()).encode()}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "pictures", fake)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(threading, "active_count", lambda: 1)


@pytest.mark.skipif(sys.platform != "linux", reason="other processes draw on Linux alone")
def test_other_processes_draw_and_the_pictures_stand_in_their_order() -> None:
    with drawing(JOBS) as files:
        found = files()
    assert [*found] == ["one.png", "two.png", "three.png"]
    assert str(os.getpid()).encode() not in found.values()


def test_a_process_with_threads_draws_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    with drawing(JOBS) as files:
        assert {*files().values()} == {str(os.getpid()).encode()}


@pytest.mark.skipif(sys.platform != "linux", reason="other processes draw on Linux alone")
def test_a_process_that_is_killed_is_told_in_a_line() -> None:
    with (
        pytest.raises(HarnessError, match="ended from outside"),
        drawing([*JOBS, ("killed", draw_curves, CURVES)]) as files,
    ):
        files()


def test_a_mistake_in_the_meantime_is_not_hidden() -> None:
    with pytest.raises(HarnessError, match="no room"), drawing(JOBS):
        raise HarnessError("no room")
