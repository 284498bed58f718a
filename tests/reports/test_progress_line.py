"""The progress line fits, says what is happening, and shows a range while the time left is not known well."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.reports.progress_line import Doing, Moment, Speedometer, doing, line, remaining
from pytest_touchstone.reports.time_left import Estimate, is_timed
from pytest_touchstone.results.live import Part, PartProgress, ProcessProgress, Workload

NAMES = st.sampled_from(["gsm8k", "mmlu_stem", "ko_lambada_wiki", "humaneval_plus"])


def state(**more) -> ProcessProgress:
    return ProcessProgress(**{"who": "main", "at": 100.0, "since": 90.0, "doing": "answering", **more})


def load(*parts: Part) -> Workload:
    return Workload(parts=parts, parameters=dict.fromkeys(part.checkpoint for part in parts))


@pytest.mark.parametrize(
    ("seconds", "factor", "text"),
    [
        (220.0, 1.1, "3:40 left"),
        (208.0, 1.732, "2 to 6 min left"),
        (60.0, 1.5, "40 to 90 s left"),
        (150.0, 1.2, "2 to 3 min left"),
        (9000.0, 1.3, "2 to 3 h left"),
        (5.0, 1.3, "4 to 6 s left"),
        (0.1, 1.5, "about 1 s left"),
        (300.0, 10.0, "30 s to 50 min left"),
    ],
)
def test_the_time_left_is_a_range_while_it_is_not_known_well(seconds, factor, text):
    assert remaining(Estimate(seconds, factor)) == text


@given(st.floats(20.0, 1e6), st.floats(1.0, 20.0))
def test_a_shown_range_is_near_the_reckoned_one(seconds, factor):
    text = remaining(Estimate(seconds, factor))
    if " to " not in text:
        return
    low, high = text.removesuffix(" left").split(" to ")
    number, unit = high.split()
    seconds_of = {"s": 1.0, "min": 60.0, "h": 3600.0}
    shortest = low.split() if " " in low else [low, unit]
    middle = math.sqrt(float(shortest[0]) * seconds_of[shortest[1]] * float(number) * seconds_of[unit])
    assert middle == pytest.approx(seconds, rel=0.3, abs=3.0)


@given(
    st.lists(
        st.builds(Doing, NAMES, st.integers(0, 99), st.integers(99, 99999), st.just("texts")), max_size=9
    ),
    st.builds(Estimate, st.floats(1.0, 1e6), st.floats(1.0, 9.0)),
    st.integers(0, 99999),
)
def test_at_80_columns_the_line_fits_with_the_time_left(some, left, done):
    text = line(Moment(done=done, total=100_000, faults=3, doing=some, speed=1840.2, left=left), 79)
    assert len(text) <= 79
    assert text.endswith(f"{remaining(left)}, 3 errors")
    assert text.isascii()


def test_what_is_happening_is_told_by_benchmark():
    one = [Doing("gsm8k", 12, 32, "texts")]
    left = Estimate(208.0, 1.732)
    assert (
        line(Moment(done=76, total=1184, doing=one, speed=1840.2, left=left), 99)
        == "touchstone: 76/1184 items, gsm8k: 12 of 32 texts, 1,840 tokens/s, 2 to 6 min left"
    )
    assert (
        line(Moment(done=76, total=1184, doing=one, speed=1840.2, left=left), 79)
        == "touchstone: 76/1184, gsm8k: 12 of 32 texts, 1,840 tokens/s, 2 to 6 min left"
    )
    several = [*one, Doing("math", 0, 8, "texts"), Doing("drop", 5, 8, "texts"), Doing("mbpp", 1, 8, "texts")]
    assert (
        line(Moment(done=76, total=1184, doing=several, speed=99.0, left=left), 79)
        == "touchstone: texts: gsm8k 12/32, 3 more benchmarks, 99 tokens/s, 2 to 6 min left"
    )


def test_before_any_work_is_timed_the_line_says_that_it_measures(tmp_path):
    part = Part(checkpoint="c", benchmark="gsm8k", items=40, requests=1.0, tokens=80.0)
    assert not is_timed(load(part), [state(parts={0: PartProgress(open=8)})])
    assert is_timed(load(part), [state(parts={0: PartProgress(ended=8, seconds=2.0)})])
    text = line(Moment(done=0, total=40, elapsed=4.0, measuring=True), 79)
    assert text == "touchstone: 0/40 items, 0:04 since the start, measuring"


def test_names_that_are_no_ascii_are_shown_all_the_same():
    text = line(Moment(done=1, total=2, doing=[Doing("한국어\x1b[2J", 1, 2, "requests")], elapsed=3.0), 79)
    assert text == "touchstone: 1/2 items, ????[2J: 1 of 2 requests, 0:03 since the start"


def test_requests_are_counted_over_the_whole_benchmark_and_all_processes():
    part = Part(checkpoint="c", benchmark="hellaswag", items=40, requests=4.0, tokens=80.0)
    mine = PartProgress(ended=8, open=8, requests=[48.4, 64.0])
    other = PartProgress(ended=4, requests=[16.0, 16.0])
    states = [state(parts={0: mine}), state(who="gw1", parts={0: other})]
    assert doing(load(part), states, 100.0) == [Doing("hellaswag", 64, 160, "requests")]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("answering", Doing("humaneval", 8, 20, "texts")),
        ("programs", Doing("humaneval", 2, 20, "programs")),
        ("grading", Doing("humaneval", 2, 20, "graded")),
    ],
)
def test_programs_and_grading_are_told_apart_from_texts(what, expected):
    part = Part(
        checkpoint="c", benchmark="humaneval", items=20, tokens=80.0, texts=1.0, limit=9, programs=True
    )
    progress = PartProgress(ended=2, open=6, texts=[8, 8], programs=[2, 8])
    assert doing(load(part), [state(doing=what, parts={0: progress})], 100.0) == [expected]


def test_loading_is_told_with_the_checkpoint_and_of_several_checkpoints_each_benchmark_s():
    parts = [
        Part(checkpoint=name, benchmark="arc", items=4, tokens=9.0) for name in ("run/step-1", "run/step-2")
    ]
    loading = state(doing="loading", checkpoint="builtin:" + "x" * 40)
    assert doing(load(*parts), [loading], 100.0) == ["loading ..xxxxxxxxxxxxxxxxxxxxxx"]
    at_work = state(parts={1: PartProgress(open=4, requests=[1.0, 4.0])})
    assert doing(load(*parts), [at_work], 100.0) == [Doing("run/step-2 arc", 1, 4, "requests")]


def test_what_holds_up_the_work_is_told_alone_and_fits_with_the_rest():
    part = Part(checkpoint="c", benchmark="arc", items=40, tokens=9.0)
    states = [
        state(who=who, parts={0: PartProgress(open=4)}, trouble="no answer for 35 s (of 120)") for who in "ab"
    ]
    told = doing(load(part), states, 100.0)
    assert (
        line(Moment(done=76, total=1184, doing=told, left=Estimate(208.0, 1.732)), 79)
        == "touchstone: 76/1184 items, no answer for 35 s (of 120), 2 to 6 min left"
    )


def test_a_process_that_has_fallen_silent_does_nothing():
    part = Part(checkpoint="c", benchmark="arc", items=4, tokens=9.0)
    assert not doing(load(part), [state(parts={0: PartProgress(open=4)})], 1000.0)


def test_the_speed_is_that_of_the_last_seconds():
    meter = Speedometer()
    assert meter.speed(0.0, [state(tokens=0)]) is None
    for second in range(1, 60):
        speed = meter.speed(float(second), [state(tokens=100 * min(second, 20))])
        assert speed == (None if second <= 1 or second > 25 else pytest.approx(100, rel=0.9))
