"""Schedules of interim analyses are plain data in the run's folder."""

from __future__ import annotations

from pathlib import Path

from harness.compare.sequential import InterimSchedule
from harness.plugin.sequential import read_schedules, write_schedules

SCHEDULE = InterimSchedule(["i1", "i2", "i3", "i4"], ["b/1", "b/2", "b/3", "b/4"], ["r"] * 4, (1, 3, 4))


def test_schedules_come_back_from_a_folder_as_they_were(tmp_path: Path) -> None:
    assert read_schedules(tmp_path) == {}
    write_schedules(tmp_path, {("step-1", "b"): SCHEDULE})
    assert read_schedules(tmp_path) == {("step-1", "b"): SCHEDULE}
