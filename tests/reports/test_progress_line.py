"""The progress line fits, and says what is happening."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.reports.progress import doing, line, remaining
from pytest_touchstone.results.live import PartProgress, ProcessProgress, Workload, WorkloadPart


def state(parts=None, **more) -> ProcessProgress:
    parts = parts or {}
    made = {"who": "main", "at": 100.0, "doing": "answering", "open": list(parts), "parts": parts, **more}
    return ProcessProgress(**made)


def load(*parts: WorkloadPart) -> Workload:
    return Workload(parts=parts, parameters=dict.fromkeys(part.checkpoint for part in parts))


ARC = WorkloadPart(checkpoint="c", benchmark="arc", items=40, tokens=9.0)
CODE = WorkloadPart(
    checkpoint="c", benchmark="humaneval", items=20, tokens=9.0, texts=1.0, limit=100, programs=True
)


def test_what_is_happening_is_told_by_benchmark_in_as_many_characters_as_there_are():
    some = ["gsm8k: 12 of 32 texts"]
    then = ["1,840 tokens/s", "about 3:40 left"]
    assert (
        line((76, 1184), some, then, 0, 99)
        == "touchstone: 76/1184 items, gsm8k: 12 of 32 texts, 1,840 tokens/s, about 3:40 left"
    )
    assert (
        line((76, 1184), some, then, 2, 72)
        == "touchstone: 76/1184, gsm8k: 12 of 32 texts, about 3:40 left, 2 errors"
    )
    several = [*some, "math: 0 of 8 texts", "drop: 5 of 8 texts", "mbpp: 1 of 8 texts"]
    assert (
        line((76, 1184), several, then, 0, 99)
        == "touchstone: 76/1184, gsm8k: 12 of 32 texts; 3 more, 1,840 tokens/s, about 3:40 left"
    )
    assert (
        line((76, 1184), several, then, 0, 59)
        == "touchstone: 76/1184, gsm8k: 12 of 32 texts, about 3:40 left"
    )
    assert line((76, 1184), several, then, 0, 40) == "touchstone: 76/1184, about 3:40 left"


@given(
    st.lists(st.text(max_size=60), max_size=9), st.integers(0, 99999), st.floats(0.0, 1e6), st.integers(0, 99)
)
def test_at_80_columns_the_line_fits_with_the_time_left(what, done, left, faults):
    text = line((done, 100_000), what, ["1,840 tokens/s", remaining(left)], faults, 79)
    assert len(text) <= 79
    assert remaining(left) in text
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("answering", "humaneval: 8 of 20 texts"),
        ("programs", "humaneval: 2 of 20 items, programs run"),
        ("grading", "humaneval: 2 of 20 graded"),
    ],
)
def test_programs_and_grading_are_told_apart_from_texts(what, told):
    assert doing(load(CODE), [state({0: PartProgress(ended=2, texts=8)}, doing=what)], 100.0) == [told]


def test_items_are_counted_over_the_whole_benchmark_and_all_processes():
    states = [
        state({0: PartProgress(ended=8, computed=8.4)}),
        state({0: PartProgress(computed=4)}, who="gw1"),
    ]
    assert doing(load(ARC), states, 100.0) == ["arc: 12 of 40 items"]
    assert not doing(load(ARC), states, 1000.0)  # processes that have fallen silent


def test_loading_is_told_with_the_checkpoint_and_of_several_checkpoints_each_benchmark_s():
    parts = [
        WorkloadPart(checkpoint=name, benchmark="arc", items=4, tokens=9.0) for name in ("run/1", "run/2")
    ]
    loading = state(doing="loading", checkpoint="builtin:" + "x" * 40)
    at_work = state({1: PartProgress(computed=1)}, who="gw1")
    told = ["loading ..xxxxxxxxxxxxxxxxxxxxxx", "run/2 arc: 1 of 4 items"]
    assert doing(load(*parts), [loading, at_work], 100.0) == told


def test_what_holds_up_the_work_is_told_alone():
    states = [state({0: PartProgress()}, who=who, trouble="no answer for 35 s") for who in "ab"]
    assert doing(load(ARC), states, 100.0) == ["no answer for 35 s"]
