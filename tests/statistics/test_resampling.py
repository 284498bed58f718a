"""Runs are compared by a value that is made anew of drawn and exchanged items."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.metrics.macro_f1 import macro_f1, macro_f1_of_draws
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.paired import compare_paired
from pytest_touchstone.statistics.resampling import Draws, compare_resampled, of_each_draw, resampled_estimate

Items = list[tuple[float, int, int]]
QUICK = Draws(macro_f1_of_draws, 499)
CLASSES = st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=2, max_size=40)


def mean(values: Sequence[float], clusters: object = None) -> float:
    return sum(values) / len(values)


def compared(old: Items, new: Items, draws: Draws = QUICK) -> Comparison:
    found = compare_resampled([old], new, None, draws)
    assert found is not None
    return found.comparison


def runs(rows: Sequence[tuple[int, int, int]]) -> tuple[Items, Items]:
    return [(0.0, right, a) for right, a, _ in rows], [(0.0, right, b) for right, _, b in rows]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30), st.integers(0, 99))
def test_macro_f1_of_draws_is_that_of_the_items_drawn(pairs: list[tuple[int, int]], seed: int) -> None:
    items = [(0.0, *pair) for pair in pairs]
    counts = np.random.default_rng(seed).multinomial(len(items), [1 / len(items)] * len(items), size=3)
    for row, value in zip(counts, macro_f1_of_draws(items, None, counts.astype(float)), strict=True):
        drawn = [item for item, count in zip(items, row.tolist(), strict=True) for _ in range(count)]
        assert value == pytest.approx(macro_f1(drawn).value)


@settings(max_examples=25, deadline=None)
@given(CLASSES)
def test_exchanged_runs_have_the_opposite_difference_and_the_same_p(rows: list[tuple[int, int, int]]) -> None:
    old, new = runs(rows)
    there, back = compared(old, new), compared(new, old)
    assert there.difference == pytest.approx(-(back.difference or 0.0))
    assert there.p == pytest.approx(back.p)
    assert there.stderr == pytest.approx(back.stderr)


@settings(max_examples=25, deadline=None)
@given(CLASSES)
def test_an_interval_encloses_its_difference_and_leaves_out_0_where_p_is_small(
    rows: list[tuple[int, int, int]],
) -> None:
    found = compared(*runs(rows))
    assert found.p is not None
    assert 0 < found.p <= 1
    if found.low is None or found.high is None or found.difference is None:
        assert found.stderr == 0
        return
    assert found.low <= found.difference <= found.high
    assert found.p > 0.05 or not found.low <= 0 <= found.high


def test_the_mean_of_right_and_wrong_answers_has_nearly_the_test_and_interval_of_paired_answers() -> None:
    generator = np.random.default_rng(1)
    old = generator.integers(0, 2, 400).astype(float)
    new = np.where(generator.random(400) < 0.15, 1 - old, old)
    plain = compare_paired(old.tolist(), new.tolist())
    found = compare_resampled([old.tolist()], new.tolist(), None, of_each_draw(mean, 400))
    assert found is not None
    assert found.comparison.difference == pytest.approx(plain.difference)
    assert found.comparison.low == pytest.approx(plain.low, abs=0.006)
    assert found.comparison.p == pytest.approx(plain.p, abs=0.05)


def test_items_of_a_cluster_go_together() -> None:
    old, new = [1.0] * 60, [1.0] * 40 + [0.0] * 20
    clusters = [f"text {place // 10}" for place in range(60)]
    apart, together = (compare_resampled([old], new, one, of_each_draw(mean, 60)) for one in (None, clusters))
    assert apart is not None
    assert together is not None
    assert (apart.comparison.p or 1) < 0.001
    assert (together.comparison.p or 0) > 0.2
    assert together.comparison.units == 6
    one = compare_resampled([old], new, ["same"] * 60, of_each_draw(mean, 60))
    assert one is not None
    assert (one.comparison.p, one.comparison.low) == (None, None)


def test_a_cluster_that_is_drawn_twice_is_two() -> None:
    seen = []

    def count(values: Sequence[float], clusters: Sequence[str | None] | None) -> float:
        assert clusters is not None
        seen.append(len(set(clusters)))
        return mean(values)

    scores, clusters = [0.0, 1.0] * 5, [str(place // 2) for place in range(10)]
    compare_resampled([scores], scores[::-1], clusters, of_each_draw(count, 10))
    assert set(seen) == {5}


def test_the_best_of_several_equal_runs_is_shrunk() -> None:
    generator = np.random.default_rng(2)
    right = generator.integers(0, 2, 200)
    made = [np.where(generator.random(200) < 0.8, right, 1 - right).tolist() for _ in range(6)]
    *old, new = ([(0.0, int(a), b) for a, b in zip(right, one, strict=True)] for one in made)
    found = compare_resampled(old, new, None, QUICK)
    assert found is not None
    values = [macro_f1(one).value or 0.0 for one in old]
    assert found.as_measured.baseline == pytest.approx(max(values))
    assert (found.comparison.baseline or 1.0) < (found.as_measured.baseline or 0.0)
    assert (found.comparison.p or 0) >= (found.as_measured.p or 0)


def test_a_value_that_some_draws_do_not_have_is_not_tested() -> None:
    def fails(values: Sequence[float], clusters: object) -> float:
        return 1.0 if 0.0 in values else math.nan

    found = compare_resampled([[0.0, 1.0, 1.0]], [1.0, 0.0, 1.0], None, of_each_draw(fails, 3))
    assert found is not None
    assert (found.comparison.difference, found.comparison.p) == (0, None)
    assert compare_resampled([[1.0, 1.0]], [0.0, 1.0], None, of_each_draw(fails, 2)) is None


def test_the_more_items_the_fewer_calls_of_a_function() -> None:
    assert [of_each_draw(mean, n).tosses for n in (1, 1000, 5000, 1_000_000)] == [1_999, 1_000, 200, 199]


def ratio(values, clusters):
    return sum(above for above, _ in values) / sum(below for _, below in values)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=2, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
@settings(max_examples=20, deadline=None)
def test_the_interval_of_a_value_holds_it_and_stays_within_what_items_can_give(items, shared):
    clusters = ["same" if both else None for both in shared[: len(items)]]
    value = ratio(items, None)
    draws = of_each_draw(ratio, len(items))._replace(tosses=49)
    estimate = resampled_estimate(value, items, clusters, draws, method="ratio")
    ratios = [above / below for above, below in items]
    if all(shared[: len(items)]):
        assert (estimate.low, estimate.high, estimate.stderr) == (None, None, None)
        return
    assert estimate.value == value
    assert min(ratios) - 1e-9 <= estimate.low <= value <= estimate.high <= max(ratios) + 1e-9


def test_a_value_that_drawn_items_lack_has_no_interval():
    draws = of_each_draw(lambda values, clusters: 1 / (sum(values) - 3), 3)._replace(tosses=49)
    estimate = resampled_estimate(-1.0, [0, 1, 1], None, draws, method="inverse")
    assert (estimate.value, estimate.low) == (-1.0, None)
