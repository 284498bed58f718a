"""The time left is what is left to do by what work has cost: it counts down, and its range narrows."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf.time_left import replayed, rows_of, table
from pytest_touchstone.reports.text_lengths import HAZARDS, Growing, hazards, lengths_of, steps_seconds
from pytest_touchstone.reports.time_left import Costs, Estimate, time_left, total
from pytest_touchstone.results.live import (
    BINS,
    STEP_TOKENS,
    Cost,
    Part,
    PartProgress,
    ProcessProgress,
    Workload,
)

NOTHING = [0.0] * (BINS + 1)
TOKEN = 0.001
"""Seconds that a token takes in these runs."""


def step_seconds(rows: float) -> float:
    return TOKEN * (STEP_TOKENS + rows)


def scoring(items: int = 100, **more) -> Part:
    return Part(
        **{"checkpoint": "c", "benchmark": "arc", "items": items, "requests": 4.0, "tokens": 50.0, **more}
    )


def generating(items: int = 8, **more) -> Part:
    return scoring(
        **{"items": items, "benchmark": "gsm8k", "requests": 1.0, "texts": 1.0, "limit": 160, **more}
    )


def load(*parts: Part, **more) -> Workload:
    names = dict.fromkeys(part.checkpoint for part in parts)
    pools = tuple(((number, part.items),) for number, part in enumerate(parts) if part.texts)
    return Workload(**{"parts": parts, "pools": pools, "parameters": dict.fromkeys(names, 10**8), **more})


def state(**more) -> ProcessProgress:
    costs = {"c": Cost(load=2.0)}
    return ProcessProgress(
        **{"who": "main", "at": 0.0, "since": 0.0, "doing": "answering", "costs": costs, **more}
    )


def scored(items: int, part: Part, token: float = TOKEN) -> PartProgress:
    return PartProgress(ended=items, seconds=items * (part.tokens or 0) * token)


# Scores


def test_before_anything_is_known_the_range_is_wide_and_then_it_narrows():
    part = scoring(400)
    factors = [
        time_left(load(part), [state(parts={0: scored(done, part)} if done else {})]).factor
        for done in (0, 40, 200)
    ]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] > 2
    assert factors[-1] < 1.25


@given(done=st.integers(20, 99), items=st.integers(100, 10_000), token=st.floats(1e-5, 1.0))
def test_scores_take_as_long_as_those_before_did_per_token(done, items, token):
    part = scoring(items)
    left = time_left(load(part), [state(parts={0: scored(done, part, token)})])
    assert left.seconds == pytest.approx((items - done) * 50 * token, rel=0.45, abs=0.2 + 0.005 * items)


def test_a_benchmark_that_has_not_begun_is_reckoned_by_its_tokens_not_its_items():
    known = scoring(50)
    short, long = (
        time_left(load(known, scoring(100, tokens=tokens)), [state(parts={0: scored(50, known)})])
        for tokens in (10.0, 1000.0)
    )
    assert long.seconds == pytest.approx(100 * 1000 * TOKEN, rel=0.1)
    assert short.seconds == pytest.approx(100 * 10 * TOKEN, rel=0.6)


def test_reading_probabilities_costs_more_and_less_so_in_a_large_model():
    def left(parameters: int) -> float:
        parts = scoring(tokens=50.0), scoring(benchmark="wino", tokens=50.0, read=50.0)
        work = load(*parts, parameters={"c": parameters})
        return time_left(work, [state(parts={0: scored(100, parts[0])})]).seconds

    assert left(10**8) == pytest.approx(1.4 * 100 * 50 * TOKEN, rel=0.05)
    assert left(10**10) == pytest.approx(1.04 * 100 * 50 * TOKEN, rel=0.05)


def test_a_prefix_that_all_share_is_counted_once():
    known, shared = scoring(50), scoring(100, shared=900.0)
    states = [state(parts={0: scored(50, known)})]
    with_, without = time_left(load(known, shared), states), time_left(load(known, scoring(100)), states)
    assert with_.seconds - without.seconds == pytest.approx(900 * TOKEN, rel=0.3)


def test_a_larger_checkpoint_is_expected_to_take_longer():
    known, other = scoring(50), scoring(100, checkpoint="large")
    costs = {"c": Cost(load=0.0)}
    both = Workload(parts=(known, other), parameters={"c": 10**8, "large": 10**9})
    left = time_left(both, [state(parts={0: scored(50, known)}, costs=costs)])
    assert left.seconds == pytest.approx(10 * 100 * 50 * TOKEN, rel=0.3)


def test_what_is_computed_within_a_batch_counts_before_the_batch_has_ended():
    part = scoring(100)
    lefts = [
        time_left(
            load(part),
            [
                state(
                    parts={
                        0: PartProgress(
                            ended=20, open=64, partial=partial, seconds=(20 + partial) * 50 * TOKEN
                        )
                    }
                )
            ],
        )
        for partial in (0.0, 32.0, 64.0)
    ]
    assert [one.seconds for one in lefts] == pytest.approx(
        [80 * 50 * TOKEN, 48 * 50 * TOKEN, 16 * 50 * TOKEN], rel=0.2
    )


def test_nothing_is_left_when_everything_has_ended():
    part = scoring(100)
    assert time_left(load(part), [state(parts={0: scored(100, part)})]).seconds == 0


def test_two_processes_take_half_as_long_and_never_less_than_their_own_texts():
    part = scoring(1000)
    states = [state(parts={0: scored(100, part)}), state(who="gw1", parts={0: scored(100, part)})]
    one, two = time_left(load(part), states[:1]), time_left(load(part), states, 2)
    assert two.seconds == pytest.approx(one.seconds * 800 / 900 / 2, rel=0.05)
    texts = generating(1)
    own = state(parts={0: PartProgress(open=1, texts=[0, 1])}, growing=[[0, 10]])
    alone = time_left(load(texts), [own])
    assert time_left(load(texts), [own, state(who="gw1")], 2).seconds == pytest.approx(
        alone.seconds, rel=0.05
    )


# Texts


def test_texts_that_go_on_together_take_as_long_as_the_longest():
    lengths = lengths_of(NOTHING, (), [0.0] * BINS, 160)
    eight = steps_seconds([Growing(8.0, lengths)], 64, step_seconds)
    assert eight == pytest.approx(160 * step_seconds(8), rel=0.01)
    apart = steps_seconds([Growing(8.0, lengths)], 1, step_seconds)
    assert apart == pytest.approx(8 * 160 * step_seconds(1), rel=0.05)


@given(
    texts=st.integers(1, 500),
    rows=st.integers(1, 64),
    begun=st.integers(0, 159),
    guess=st.sampled_from(HAZARDS),
)
def test_steps_are_at_least_those_of_one_text_and_at_most_those_of_all_one_by_one(texts, rows, begun, guess):
    lengths = lengths_of(NOTHING, (), hazards([], guess), 160)
    one = Growing(1.0, lengths, begun)
    seconds = steps_seconds([one._replace(texts=float(texts))], rows, step_seconds)
    assert seconds >= steps_seconds([one], 1, step_seconds) * 0.99
    assert seconds <= texts * (160 - begun) * step_seconds(1) * 1.01


def test_lengths_are_learned_from_texts_that_have_ended_and_from_those_that_go_on():
    short = [float(100 * (place == 2)) for place in range(BINS + 1)]
    known = lengths_of(short, (), hazards([], HAZARDS[1]), 160)
    assert known.beyond(20) > 0.8
    assert known.beyond(31) < 0.05
    outlived = lengths_of([0.0, 0.0, 9.0, *NOTHING[3:]], [29] * 9, hazards([], HAZARDS[1]), 160)
    assert outlived.beyond(30) / outlived.beyond(20) == pytest.approx(0.5, abs=0.05)
    growing = lengths_of(NOTHING, [150] * 100, hazards([], HAZARDS[1]), 160)
    assert growing.beyond(140) > 0.9
    assert growing.beyond(160) == 0


def test_lengths_of_a_benchmark_that_has_not_begun_are_believed_by_the_number_of_others_that_have():
    short = [float(100 * (place == 2)) for place in range(BINS + 1)]
    shares = [
        lengths_of(NOTHING, (), hazards([short] * many, HAZARDS[1]), 160).beyond(80) for many in (0, 1, 3, 9)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.35
    assert shares[-1] < 0.1


@given(
    st.lists(st.integers(0, 9), min_size=BINS + 1, max_size=BINS + 1),
    st.lists(st.integers(0, 160), max_size=9),
)
def test_survival_only_falls(ended, growing):
    lengths = lengths_of(ended, growing, hazards([ended], HAZARDS[1]), 160)
    points = [lengths.beyond(tokens) for tokens in range(161)]
    assert points == sorted(points, reverse=True)
    assert points[0] == 1.0
    assert points[-1] == 0.0


@given(st.integers(1, 64))
def test_a_step_costs_what_steps_with_as_many_texts_have_cost(rows):
    costs = Costs(TOKEN, 9.0, {rows.bit_length(): [1000.0, 1000.0 * rows, 1000 * 0.5]})
    assert costs.step(rows) == pytest.approx(0.5, rel=0.1)


def test_a_run_of_texts_replayed_step_by_step_counts_down_to_its_end():
    """Eight texts, of which two go on to the limit: the middle is never far off, and the truth is in the range."""
    ends = [20, 40, 60, 80, 100, 120, 160, 160]
    part = generating(8, tokens=100.0)
    whole = sum(step_seconds(sum(end > step for end in ends)) for step in range(160))
    spent, off = 0.0, []
    costs = Cost(tokens=800, seconds=800 * TOKEN, load=1.0)
    for step in range(160):
        alive = [end for end in ends if end > step]
        sums = costs.steps.setdefault(len(alive).bit_length(), [0.0, 0.0, 0.0])
        seconds = step_seconds(len(alive))
        sums[:] = [one + more for one, more in zip(sums, (1, len(alive), seconds), strict=True)]
        spent += seconds
        still = [end for end in ends if end > step + 1]
        lengths = [0] * (BINS + 1)
        for end in ends:
            if end <= step + 1:
                lengths[BINS if end == 160 else end * BINS // 160] += 1
        progress = PartProgress(
            ended=8 - len(still),
            open=len(still),
            partial=float(len(still)),
            texts=[8 - len(still), 8],
            seconds=0.8,
            lengths=lengths,
        )
        now = state(parts={0: progress}, growing=[[0, step + 1] for _ in still], costs={"c": costs})
        left, truth = time_left(load(part), [now]), whole - spent
        if 0.2 < spent / whole < 0.8:
            off.append(abs(left.seconds - truth) / truth)
            assert left.low <= truth * 1.15
            assert truth <= left.high * 1.15
    assert max(off) < 0.3


def test_texts_of_an_engine_that_tells_of_no_steps_are_reckoned_like_scores():
    part = generating(100, tokens=10.0)
    progress = PartProgress(ended=50, texts=[50, 50], seconds=100.0, lengths=[50] + [0] * BINS)
    left = time_left(load(part), [state(parts={0: progress})])
    assert left.seconds == pytest.approx(100.0, rel=0.2)


# Loading and programs


def test_checkpoints_still_to_be_loaded_are_reckoned_once_a_model():
    parts = [scoring(10, checkpoint=name) for name in "bcde"]
    costs = {"b": Cost(load=60.0), "c": Cost(load=30.0, tokens=500, seconds=0.5)}
    now = [state(parts={1: scored(10, parts[1])}, costs=costs)]
    alone = time_left(load(*parts), now)
    together = time_left(load(*parts, models={"d": "m", "e": "m"}), now)
    assert alone.seconds - together.seconds == pytest.approx(27, rel=0.1)


def test_a_small_checkpoint_is_loaded_quickly_where_a_large_one_has_been_and_imports_are_done():
    parts = [scoring(10), scoring(0, checkpoint="small"), scoring(1, checkpoint="small")]
    sizes = {"c": 10**8, "small": 10**6}
    parameters = {"parameters": sizes}
    now = [state(parts={0: scored(10, parts[0])}, costs={"c": Cost(load=20.0, tokens=500, seconds=0.5)})]
    seconds = [
        time_left(load(*parts[:many], **parameters), states, len(states)).seconds
        for many, states in ((3, now), (2, now), (3, [*now, replace(now[0], who="gw1", costs={})]))
    ]
    assert seconds[0] - seconds[1] < 0.5
    assert seconds[2] == pytest.approx(12, rel=0.1)  # imports, in a process that has loaded nothing


def test_programs_take_as_long_as_was_waited_for_others():
    part = generating(100, programs=True, limit=0)
    done = PartProgress(ended=50, programs=[50, 50], waited=100.0, seconds=0.1)
    left = time_left(load(part), [state(parts={0: done})])
    assert left.seconds == pytest.approx(100, rel=0.2)


def test_programs_of_a_benchmark_that_has_not_begun_take_as_long_as_those_of_others():
    parts = [generating(100, benchmark=name, programs=True, limit=0, tokens=1.0) for name in ("one", "other")]
    for waited in (0.0, 50.0):
        done = PartProgress(ended=100, programs=[100, 100], texts=[100, 100], waited=waited, seconds=0.1)
        left = time_left(load(*parts), [state(parts={0: done})])
        assert left.seconds == pytest.approx(waited, rel=0.1, abs=3)


# Whole runs


@pytest.mark.parametrize("run", ["one_process", "two_workers", "scoring"])
def test_of_a_recorded_run_the_time_left_is_known_within_three_tenths(run: str):
    """What ``python -m perf time_left --json`` wrote of a run, thinned out to a few looks."""
    told = json.loads((Path(__file__).parent / "recorded" / f"{run}.json").read_text(encoding="utf-8"))
    rows = rows_of(replayed(told["looks"]), told["seconds"])
    assert [row.share for row in rows] == [0.25, 0.5, 0.75]
    assert all(abs(row.error or 9.0) < 0.3 for row in rows), table(rows)


# Sums


@given(st.lists(st.builds(Estimate, st.floats(0, 1e6), st.floats(1, 10)), max_size=9))
def test_a_sum_is_no_less_sure_than_its_least_sure_part(parts):
    found = total(parts)
    assert found.seconds == pytest.approx(sum(one.seconds for one in parts))
    assert 1.0 <= found.factor <= max((one.factor for one in parts), default=1.0) + 1e-9


@given(
    parts=st.lists(
        st.builds(
            Part,
            checkpoint=st.sampled_from("cd"),
            benchmark=st.sampled_from("ab"),
            items=st.integers(0, 1000),
            requests=st.floats(0, 9),
            tokens=st.none() | st.floats(0, 1e4),
            shared=st.floats(0, 1e4),
            texts=st.floats(0, 9),
            limit=st.integers(0, 2048),
            programs=st.booleans(),
        ),
        max_size=4,
    ),
    progress=st.builds(
        PartProgress,
        ended=st.integers(0, 2000),
        open=st.integers(0, 99),
        partial=st.floats(0, 99),
        texts=st.just([3, 9]),
        seconds=st.floats(0, 1e4),
        waited=st.floats(0, 1e4),
        lengths=st.just([1] * (BINS + 1)),
    ),
    growing=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4096)), max_size=5),
    costs=st.builds(
        Cost, tokens=st.integers(0, 10**9), seconds=st.floats(0, 1e5), load=st.none() | st.floats(0, 99)
    ),
    processes=st.integers(1, 4),
)
def test_whatever_the_files_say_the_time_left_is_a_number(parts, progress, growing, costs, processes):
    now = state(
        parts={number: replace(progress) for number in range(len(parts))},
        growing=[[number, tokens] for number, tokens in growing if number < len(parts)],
        costs={"c": costs},
    )
    left = time_left(load(*parts), [now], processes)
    assert math.isfinite(left.seconds)
    assert left.seconds >= 0
    assert 1.0 <= left.factor < 1e6
