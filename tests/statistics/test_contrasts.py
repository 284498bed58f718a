"""Weighted sums of means, and values between checkpoints."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.statistics.contrasts import (
    ContrastTerm,
    MeanCovariance,
    between_weights,
    contrast,
    covariance_of_means,
    interpolation_variance,
    noise_of_sum,
)
from pytest_touchstone.statistics.intervals import t_quantile
from pytest_touchstone.statistics.paired import compare_paired
from tests.support.known import known

PLACES = st.lists(st.floats(0, 100), min_size=2, max_size=8, unique_by=lambda one: round(one, 2))


def scores(n: int, seed: int, runs: int = 2) -> list[list[float]]:
    generator = np.random.default_rng(seed)
    ease = generator.random(n)
    return [np.clip(ease + 0.3 * generator.standard_normal(n), 0, 1).tolist() for _ in range(runs)]


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(5, 200))
def test_a_difference_has_the_error_of_the_paired_comparison_and_a_t_interval(seed: int, n: int) -> None:
    before, after = scores(n, seed)
    noise = known(covariance_of_means([before], after, None))
    means = [float(np.mean(before)), float(np.mean(after))]
    found = contrast(
        means, noise.covariance, [ContrastTerm(1, 1.0), ContrastTerm(0, -1.0)], units=noise.units
    )
    paired = compare_paired(before, after, draws=99)
    assert found.value == pytest.approx(known(paired.difference), abs=1e-12)
    assert found.stderr == pytest.approx(known(paired.stderr), abs=1e-9)
    half = t_quantile(n - 1, 0.95) * np.hypot(known(paired.stderr), np.sqrt(2) / (n + 2))
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half), abs=1e-9)


def test_a_benchmark_of_few_items_counts_by_its_share_in_a_sum() -> None:
    many, few = (known(covariance_of_means([scores(n, 1)[0]], scores(n, 1)[1], None)) for n in (400, 3))
    whole = noise_of_sum([many, MeanCovariance(few.covariance * 1e-6, few.units)])
    assert whole.units == pytest.approx(many.units, abs=5)
    assert noise_of_sum([many]).units == many.units
    assert noise_of_sum([few, MeanCovariance(many.covariance * 0, many.units)]).units == few.units


def test_items_that_all_score_alike_still_leave_an_interval() -> None:
    found = contrast([0.5, 0.5], np.zeros((2, 2)), [ContrastTerm(0, 1.0), ContrastTerm(1, -1.0)], units=100)
    assert found.value == 0
    assert found.stderr == 0
    assert known(found.high) == pytest.approx(t_quantile(99, 0.95) * np.sqrt(2) / 102)


def test_without_noise_or_with_one_unit_there_is_a_value_and_no_interval() -> None:
    weights = [ContrastTerm(0, 1.0)]
    assert contrast([0.4], None, weights, units=100).low is None
    assert contrast([0.4], np.ones((1, 1)), weights, units=1).p is None


@settings(deadline=None)
@given(at=PLACES, share=st.floats(0, 1))
def test_between_checkpoints_of_a_straight_line_lies_the_line(at: list[float], share: float) -> None:
    ordered = sorted(at)
    wanted = ordered[0] + share * (ordered[-1] - ordered[0])
    weights = known(between_weights(range(len(ordered)), ordered, wanted))
    assert sum(weight for _, weight in weights) == pytest.approx(1)
    assert sum(weight * ordered[place] for place, weight in weights) == pytest.approx(wanted, abs=1e-9)


def test_nothing_lies_beyond_the_checkpoints() -> None:
    assert between_weights([0, 1], [1.0, 2.0], 2.5) is None
    assert between_weights([0, 1], [1.0, 2.0], 2.0) == [ContrastTerm(1, 1.0)]


def test_a_straight_line_has_no_error_of_its_own_and_a_bent_one_has() -> None:
    quiet = np.zeros((4, 4))
    at = [0.0, 1.0, 2.0, 3.0]
    assert interpolation_variance([0.0, 0.1, 0.2, 0.3], quiet, range(4), at) == pytest.approx(0, abs=1e-30)
    assert interpolation_variance([0.0, 0.1, 0.0, 0.1], quiet, range(4), at) == pytest.approx(0.01)


def test_misses_that_the_noise_of_the_items_explains_are_no_error_of_the_line() -> None:
    noisy = 0.01 * np.eye(3)  # the middle one and half of either neighbour: 0.015
    assert interpolation_variance([0.0, 0.1, 0.0], noisy, range(3), [0.0, 1.0, 2.0]) == 0
    assert interpolation_variance([0.0, 0.2, 0.0], noisy, range(3), [0.0, 1.0, 2.0]) == pytest.approx(0.025)


def test_two_checkpoints_do_not_tell_how_straight_the_line_is() -> None:
    assert interpolation_variance([0.0, 0.1], np.eye(2), range(2), [0.0, 1.0]) is None


@settings(deadline=None)
@given(
    weights=st.lists(st.floats(-1, 1), min_size=3, max_size=3),
    shared=st.floats(0, 1),
    errors=st.lists(st.floats(0.001, 0.1), min_size=3, max_size=3),
)
def test_totals_are_given_no_smaller_error_than_any_shared_luck_would(
    weights: list[float], shared: float, errors: list[float]
) -> None:
    chosen = [ContrastTerm(place, weight) for place, weight in enumerate(weights)]
    share = shared * np.outer(errors, errors) + (1 - shared) * np.diag(np.square(errors))
    of_items = contrast([0.0] * 3, share, chosen, units=100)
    of_totals = contrast([0.0] * 3, np.zeros((3, 3)), chosen, errors=errors, units=100)
    assert known(of_totals.stderr) >= known(of_items.stderr) - 1e-12
