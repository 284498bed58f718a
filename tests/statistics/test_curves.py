"""Trend and steadiness of a measure along a training.

The signal-to-noise ratio of a benchmark.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_touchstone.statistics.contrasts import MeanCovariance, covariance_of_means
from pytest_touchstone.statistics.curves import forecast, ratio_of_equals, signal_to_noise, steadiness, trend
from tests.support.known import known

MEANS = st.lists(st.floats(0, 1), min_size=3, max_size=8)


def independent_noise(errors: Sequence[float], units: int) -> MeanCovariance:
    """The noise of independent runs from the standard errors of their means, the new run's last."""
    return MeanCovariance(np.diag(np.square(np.asarray(errors, dtype=float))), units)


def test_the_trend_is_the_slope_of_the_least_squares_line() -> None:
    found = trend([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], independent_noise([0.01] * 4, 1000))
    assert found is not None
    assert found.slope == pytest.approx(0.1)
    assert found.stderr == pytest.approx(0.01 / math.sqrt(5))  # sum of squared distances: 5
    assert found.p < 1e-6


@pytest.mark.parametrize("places", [[1, 2], [2, 2, 2, 2]])
def test_there_is_no_trend_of_two_places(places: list[float]) -> None:
    assert trend(places, [0.5] * len(places), independent_noise([0.1] * len(places), 100)) is None


def test_noise_alone_gives_the_mean_of_a_half_normal() -> None:
    found = steadiness([0.5, 0.5, 0.5], independent_noise([0.03, 0.04, 0.03], 100))
    assert found is not None
    assert found.noise == pytest.approx(0.05 * math.sqrt(2 / math.pi))
    assert found.low < found.noise < found.high
    assert found.change == 0
    assert found.p == 1


def test_jumps_far_above_the_noise_are_told() -> None:
    found = steadiness([0.2, 0.8, 0.2, 0.8], independent_noise([0.01] * 4, 1000))
    assert found is not None
    assert found.p < 0.01


def test_on_the_same_items_the_noise_of_a_change_is_that_of_the_items_that_differ() -> None:
    draw = random.Random(0)
    first = [float(draw.random() < 0.6) for _ in range(400)]
    second = [1 - one if place < 8 else one for place, one in enumerate(first)]
    third = [1 - one if 8 <= place < 16 else one for place, one in enumerate(second)]
    noise = covariance_of_means([first, second], third, None)
    assert noise is not None
    paired = steadiness([sum(one) / 400 for one in (first, second, third)], noise)
    alone = steadiness([0.6, 0.6, 0.6], independent_noise([0.0245] * 3, 400))
    assert paired is not None
    assert alone is not None
    assert paired.noise < alone.noise / 4


@given(MEANS)
def test_turning_a_curve_around_turns_its_trend(means: list[float]) -> None:
    noise = independent_noise([0.01] * len(means), 500)
    places = list(range(len(means)))
    one, other = trend(places, means, noise), trend(places, means[::-1], noise)
    assert one is not None
    assert other is not None
    assert one.slope == pytest.approx(-other.slope, abs=1e-12)


@pytest.mark.parametrize("bound", [0.5, 1.0, 2.0, 4.0, 6.0])
def test_the_chance_of_so_much_change_is_told_however_small_it_is(bound: float) -> None:
    """|a| + |b| is the larger of |a + b| and |a - b|, which are independent."""
    apart = MeanCovariance(np.diag([1.0, 0.0, 1.0]), 10_000_000)
    found = steadiness([bound, 0.0, bound], apart)
    outside = math.erfc(bound)  # |a + b|, with a variance of 2, beyond twice the bound
    assert found is not None
    assert found.p == pytest.approx(outside * (2 - outside), rel=0.2)


@pytest.mark.parametrize("units", [5, 50, 300])
@pytest.mark.parametrize("bound", [1.0, 3.0, 5.0])
def test_that_chance_allows_for_the_noise_being_estimated_from_few_items(units: int, bound: float) -> None:
    """Where one mean alone is noisy, the change is its distance from the others, and the test is the t test."""
    found = steadiness([bound, 0.0, 0.0], MeanCovariance(np.diag([1.0, 0.0, 0.0]), units))
    assert found is not None
    assert found.p == pytest.approx(2 * stats.t.sf(bound, units - 1), rel=0.2)


CURVES = st.lists(st.lists(st.floats(0.1, 0.9), min_size=2, max_size=9), min_size=2, max_size=6)


def test_the_definition_on_a_small_example() -> None:
    """Means 0.5 and 0.6; deviations 0.1 and 0 with divisor n; the mean of all four is 0.55."""
    found = known(signal_to_noise([[0.4, 0.6], [0.6, 0.6]]))
    assert found.spread == pytest.approx(0.1)
    assert found.deviation == pytest.approx(0.05)
    assert found.signal == pytest.approx(0.1 / 0.55)
    assert found.noise == pytest.approx(0.05 / 0.55)
    assert found.ratio == pytest.approx(2)


@settings(deadline=None)
@given(curves=CURVES, last=st.integers(2, 6))
def test_only_the_last_checkpoints_count(curves: list[list[float]], last: int) -> None:
    assert signal_to_noise(curves, last=last) == signal_to_noise([one[-last:] for one in curves], last=last)


@settings(deadline=None)
@given(curves=CURVES, factor=st.floats(0.1, 10))
def test_the_ratio_has_no_unit_and_no_zero_point(curves: list[list[float]], factor: float) -> None:
    found = known(signal_to_noise(curves))
    moved = known(signal_to_noise([[factor * value + 3 for value in one] for one in curves]))
    if found.ratio is not None and found.deviation > 1e-6:
        assert moved.ratio == pytest.approx(found.ratio, rel=1e-4, abs=1e-6)


def test_series_of_one_checkpoint_have_no_noise_and_are_left_out() -> None:
    assert signal_to_noise([[0.5], [0.7]]) is None
    found = known(signal_to_noise([[0.5], [0.6, 0.7]]))
    assert (found.counts, found.spread, found.ratio, found.limit) == ((2,), None, None, None)
    assert not found.tells


def test_checkpoints_that_never_change_have_no_ratio_and_any_difference_tells() -> None:
    assert known(signal_to_noise([[0.5, 0.5], [0.6, 0.6]])).tells
    assert not known(signal_to_noise([[0.5, 0.5], [0.5, 0.5]])).tells


def test_equal_series_exceed_the_limit_in_five_of_a_hundred_cases() -> None:
    generator = np.random.default_rng(5)
    told = [known(signal_to_noise(generator.normal(0.6, 0.01, (4, 5)).tolist())).tells for _ in range(2000)]
    assert np.mean(told) == pytest.approx(0.05, abs=0.015)


def test_two_series_have_the_limit_of_students_t_up_to_the_way_deviations_are_averaged() -> None:
    """|mean difference| / s with the pooled s (divisor n - 1) is t(8) sqrt(2 / 5); ours has divisor n."""
    exact = stats.t.ppf(0.975, 8) * math.sqrt(2 / 5) * math.sqrt(5 / 4)
    assert ratio_of_equals((5, 5)) == pytest.approx(exact, rel=0.04)


def test_the_floor_is_the_limit_of_two_single_checkpoints() -> None:
    generator = np.random.default_rng(6)
    beyond = []
    for _ in range(2000):
        curves = generator.normal(0.6, 0.01, (3, 5))
        one, other = generator.normal(0.6, 0.01, 2)
        beyond.append(abs(one - other) > known(signal_to_noise(curves.tolist())).floor)
    assert np.mean(beyond) == pytest.approx(0.05, abs=0.015)


def test_a_forecast_is_the_last_value_with_the_interval_of_a_random_walk() -> None:
    """Four changes of 0.1 in 8 steps: a variance of 0.04 over 8 further ones."""
    found = known(forecast([2, 4, 6, 8, 10], [0.5, 0.6, 0.5, 0.6, 0.5], 18))
    assert found.value == 0.5
    assert found.high - found.value == pytest.approx(stats.t.ppf(0.975, 4) * 0.2)
    assert found.value - found.low == pytest.approx(found.high - found.value)


@pytest.mark.parametrize(
    ("places", "values", "at"),
    [
        ([1, 2, 3], [0.1, 0.2, 0.3], 4),
        ([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], 4),
        ([1, 2, 3, 4], [0.2] * 4, 5),
        ([3, 3, 3, 3], [0.1, 0.2, 0.3, 0.4], 5),
    ],
)
def test_without_four_values_that_change_or_for_no_later_place_nothing_is_forecast(
    places: list[float], values: list[float], at: float
) -> None:
    assert forecast(places, values, at) is None


@given(st.lists(st.floats(0, 1), min_size=4, max_size=9), st.floats(0.1, 10), st.floats(1.01, 100))
def test_a_forecast_does_not_hang_on_units_and_is_less_certain_further_on(
    values: list[float], unit: float, further: float
) -> None:
    places = [unit * place for place in range(1, len(values) + 1)]
    near = forecast(places, values, places[-1] + unit)
    if near is not None:
        far = known(forecast(places, values, places[-1] + further * unit))
        assert far.high - far.low == pytest.approx((near.high - near.low) * math.sqrt(further))
        plain = known(forecast(list(range(1, len(values) + 1)), values, len(values) + 1))
        assert plain == pytest.approx(near)


def test_intervals_of_forecasts_hold_the_end_of_random_walks() -> None:
    """Of 400, 95 % with a standard error of 1.1 points."""
    generator = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        walk = generator.standard_normal(9).cumsum().tolist()
        found = known(forecast(range(6), walk[:6], 8))
        held += found.low <= walk[-1] <= found.high
    assert 0.92 <= held / 400 <= 0.98
