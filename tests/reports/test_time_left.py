"""The time left is the work left by the time that such work has taken, and nothing is said before."""

from __future__ import annotations

import pytest

from pytest_touchstone.reports.time_left import time_left
from pytest_touchstone.results.live import PartProgress, ProcessProgress, Workload, WorkloadPart

ARC = WorkloadPart(checkpoint="c", benchmark="arc", items=40, tokens=9.0)
CODE = WorkloadPart(
    checkpoint="c", benchmark="humaneval", items=20, tokens=9.0, texts=1.0, limit=100, programs=True
)


def state(parts=None, **more) -> ProcessProgress:
    return ProcessProgress(**{"who": "main", "at": 100.0, "parts": parts or {}, **more})


def load(*parts: WorkloadPart) -> Workload:
    return Workload(parts=parts, parameters=dict.fromkeys(part.checkpoint for part in parts))


def test_nothing_is_said_of_the_time_left_before_some_work_was_timed():
    assert time_left(load(ARC), []) is None
    assert time_left(load(ARC), [state({0: PartProgress()}, seconds={"c": {"computing": 9.0}})]) is None


def test_the_time_left_is_the_work_left_by_the_time_that_such_work_has_taken():
    half = state({0: PartProgress(computed=20)}, seconds={"c": {"computing": 10.0}}, loads={"c": 3.0})
    assert time_left(load(ARC), [half]) == pytest.approx(10.0)
    assert time_left(load(ARC), [half, state(who="gw1", loads={"c": 3.0})], 2) == pytest.approx(5.0)
    # The other process has still to load its checkpoint, a second checkpoint has four times the work for each.
    other = WorkloadPart(checkpoint="d", benchmark="arc", items=40, tokens=39.0)
    assert time_left(load(ARC, other), [half]) == pytest.approx(10.0 + 20.0 * 4 + 3.0)


def test_larger_checkpoints_are_taken_to_be_slower_until_they_are_timed():
    other = WorkloadPart(checkpoint="d", benchmark="arc", items=40, tokens=9.0)
    sizes = Workload(parts=(ARC, other), parameters={"c": 10, "d": 30})
    done = state({0: PartProgress(ended=40, computed=40)}, seconds={"c": {"computing": 10.0}})
    assert time_left(sizes, [done]) == pytest.approx(30.0)
    begun = state(
        {0: PartProgress(ended=40, computed=40), 1: PartProgress(computed=20)},
        seconds={"c": {"computing": 10.0}, "d": {"computing": 7.0}},
    )
    assert time_left(sizes, [begun]) == pytest.approx(7.0)


def test_texts_are_as_long_as_those_that_have_ended_and_no_longer_than_their_limit():
    def left(**progress) -> float:
        told = {"computed": 20, **progress}
        part = WorkloadPart(checkpoint="c", benchmark="gsm8k", items=20, tokens=9.0, texts=1.0, limit=100)
        done = state({0: PartProgress(**told)}, seconds={"c": {"generating": 1.0}})
        return time_left(load(part), [done]) or 0.0

    assert left(texts=10, stopped=10, tokens=100) == pytest.approx(1.5, rel=0.3)
    assert left(texts=10, stopped=0, tokens=1000) == pytest.approx(1.0, rel=0.1)
    assert left(growing=20, grown=1800, tokens=1800) == pytest.approx(200 / 1800, rel=0.1)


def test_programs_have_a_time_of_their_own():
    run = state(
        {0: PartProgress(ended=10, computed=20, texts=20, tokens=200, programs=10)},
        seconds={"c": {"programs": 5.0}},
    )
    assert time_left(load(CODE), [run]) == pytest.approx(5.0)
