"""The signal-to-noise ratio of a benchmark."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_touchstone.statistics.curves import ratio_of_equals, signal_to_noise
from tests.support.known import known

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


def test_one_last_checkpoint_is_refused() -> None:
    with pytest.raises(ValueError, match="no deviation"):
        signal_to_noise([[0.1, 0.2]], last=1)


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
