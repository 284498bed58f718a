"""Courses are plain data, and their breaks lie where one looks."""

from __future__ import annotations

import json

from harness.compare.sequential import LookSchedule
from harness.plugin.ordering import breaks_of, schedules_from_json, schedules_json

COURSE = LookSchedule(["i1", "i2", "i3", "i4"], ["b/1", "b/2", "b/3", "b/4"], ["r"] * 4, (1, 3, 4))


def test_courses_come_back_from_json_as_they_were() -> None:
    courses = {("step-1", "b"): COURSE}
    assert schedules_from_json(json.loads(json.dumps(schedules_json(courses)))) == courses


def test_a_unit_breaks_after_each_look_but_the_last() -> None:
    assert breaks_of({("step-1", "b"): COURSE}) == ["i2", "i4"]
