"""The difference of a composite score between two runs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_touchstone.statistics.comparison import undefined
from pytest_touchstone.statistics.composites import (
    SharedItems,
    WeightedPart,
    compare_composite_totals,
    compare_composites,
)
from pytest_touchstone.statistics.paired import compare_flips, compare_paired
from pytest_touchstone.statistics.unpaired import compare_rates
from tests.support.known import known


def part(weight: float, baseline: Sequence[float], new: Sequence[float]) -> WeightedPart:
    """One metric of a baseline and the new run."""
    return WeightedPart(weight, [baseline], new)


def drawn(n: int, seed: int) -> list[float]:
    generator = random.Random(seed)
    return [float(generator.random() < 0.6) for _ in range(n)]


def test_a_composite_of_one_metric_is_the_comparison_of_that_metric() -> None:
    a, b = np.random.default_rng(1).random((2, 90)).tolist()
    clusters = [place // 3 for place in range(90)]
    found = compare_composites([SharedItems([part(1.0, a, b)], clusters)])
    expected = compare_paired(a, b, clusters)
    for name in ("baseline", "new", "difference", "stderr", "low", "high", "p"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name))


def test_metrics_of_the_same_items_are_taken_together_and_benchmarks_apart() -> None:
    """score = 0.4 real@1 + 0.3 real@5 + 0.3 lambada@1, with real@5 right wherever real@1 is."""
    real = [(drawn(200, seed), drawn(200, seed + 10)) for seed in (1, 2)]
    five = [[max(one, more) for one, more in zip(run, extra, strict=True)] for run, extra in real]
    (one_a, _), (one_b, _) = real
    last_a, last_b = drawn(60, 5), drawn(60, 6)
    found = compare_composites(
        [
            SharedItems([part(0.4, one_a, one_b), part(0.3, five[0], five[1])]),
            SharedItems([part(0.3, last_a, last_b)]),
        ]
    )
    same = 0.4 * np.subtract(one_b, one_a) + 0.3 * np.subtract(five[1], five[0])
    other = 0.3 * np.subtract(last_b, last_a)
    assert found.difference == pytest.approx(same.mean() + other.mean())
    assert found.stderr == pytest.approx(math.hypot(stats.sem(same), stats.sem(other)))
    assert (found.n, found.units) == (260, 260)
    assert 2 * stats.norm.sf(abs(known(found.difference)) / known(found.stderr)) < known(found.p) <= 1


def test_the_resampled_spread_of_a_composite_is_its_standard_error() -> None:
    generator = np.random.default_rng(4)
    a, b = generator.random((2, 120)), np.clip(generator.random((2, 120)) + 0.05, 0, 1)
    found = compare_composites(
        [
            SharedItems(
                [
                    part(0.4, a[0].tolist(), b[0].tolist()),
                    part(0.6, a[1].tolist(), b[1].tolist()),
                ]
            )
        ]
    )
    steps = 0.4 * (b[0] - a[0]) + 0.6 * (b[1] - a[1])
    means = steps[generator.integers(120, size=(20_000, 120))].mean(axis=1)
    assert found.stderr == pytest.approx(means.std(), rel=0.03)
    assert (found.low, found.high) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.02)


def test_totals_of_the_same_items_are_taken_as_wholly_dependent() -> None:
    one, five = compare_rates(0.6604, 2400, 0.6613, 2400), compare_rates(0.8158, 2400, 0.8163, 2400)
    last = compare_rates(0.3433, 600, 0.3533, 600)
    found = compare_composite_totals([[(0.4, one), (0.3, five)], [(0.3, last)]])
    errors = [known(part.stderr) for part in (one, five, last)]
    assert found.difference == pytest.approx(0.4 * 0.0009 + 0.3 * 0.0005 + 0.3 * 0.01)
    assert found.stderr == pytest.approx(math.hypot(0.4 * errors[0] + 0.3 * errors[1], 0.3 * errors[2]))
    assert found.p == pytest.approx(
        2 * stats.norm.sf(known(found.difference) / known(found.stderr)), abs=1e-3
    )
    down = math.hypot(
        0.4 * (0.0009 - known(one.low)) + 0.3 * (0.0005 - known(five.low)), 0.3 * (0.01 - known(last.low))
    )
    assert known(found.difference) - known(found.low) == pytest.approx(down)
    assert found.baseline == pytest.approx(0.4 * 0.6604 + 0.3 * 0.8158 + 0.3 * 0.3433)


def test_what_is_undefined_is_none_with_a_reason() -> None:
    assert compare_composites([]).why == "no parts"
    assert "no items" in compare_composites([SharedItems([part(1.0, [], [])])]).why
    single = compare_composites([SharedItems([part(1.0, [0.0], [1.0])])])
    assert (single.difference, single.p) == (1.0, None)
    assert "one unit" in single.why
    assert compare_composite_totals([[(0.4, undefined("no items in common"))]]).why == "no items in common"


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=25), st.floats(0.1, 1))
def test_exchanging_the_runs_mirrors_the_composite(items: list[tuple[float, float]], weight: float) -> None:
    a, b = [one for one, _ in items], [one for _, one in items]
    there = compare_composites([SharedItems([part(weight, a, b), part(0.5, b, a)])])
    back = compare_composites([SharedItems([part(weight, b, a), part(0.5, a, b)])])
    assert there.p == back.p
    assert (there.low, there.high) == pytest.approx((-(back.high or 0), -(back.low or 0)), abs=1e-12)


def test_identical_runs_have_a_composite_without_difference_and_with_a_width() -> None:
    a = drawn(300, 3)
    found = compare_composites([SharedItems([part(0.4, a, a), part(0.6, a, a)])])
    assert (found.difference, found.p) == (0.0, 1.0)
    assert found.low is not None
    assert -0.013 < found.low < 0


def test_a_part_of_few_items_that_agree_is_as_uncertain_as_its_own_interval() -> None:
    few, many = compare_flips(3, 0, 0, 0), compare_flips(50, 5, 3, 41)
    found = compare_composite_totals([[(0.5, few)], [(0.5, many)]])
    assert known(found.difference) - known(found.low) > -known(few.low) / 2
    assert known(found.high) - known(found.difference) > known(few.high) / 2


@pytest.mark.parametrize("gained", [0, 4, 9, 30])
def test_the_test_of_a_sum_agrees_with_its_interval(gained: int) -> None:
    found = compare_composite_totals(
        [[(0.5, compare_flips(20, gained, 6, 40))], [(0.5, compare_flips(9, 3, 2, 9))]]
    )
    low, high = known(found.low), known(found.high)
    assert (low > 0 or high < 0) == (known(found.p) < 0.05)
