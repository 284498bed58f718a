"""Gaffke's test and interval: against exact and drawn tails, and the error rates that they hold for skewed values."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_touchstone.statistics.gaffke import BoundedMean, Spacings, spacings_of
from pytest_touchstone.statistics.intervals import moments_of
from pytest_touchstone.statistics.paired import TOO_SKEWED, compare_paired
from pytest_touchstone.statistics.verdicts import judge
from tests.support.known import known

Draw = Callable[[np.random.Generator, int], np.ndarray]

differences = st.lists(st.floats(-1, 1).map(lambda one: round(one, 6)), min_size=2, max_size=40)


def spaced(values: list[float], bound: float = 1.0) -> Spacings:
    return spacings_of([BoundedMean(moments_of(values, None), bound)])


def rare_gains(share: float, gain: float, noise: float = 0.0) -> Draw:
    """A few items gain, and the others lose a little, so that nothing is gained or lost on average."""
    loss = share * gain / (1 - share)

    def draw(generator: np.random.Generator, n: int) -> np.ndarray:
        found = np.where(generator.random(n) < share, gain, -loss)
        return found + noise * generator.standard_normal(n)

    return draw


def lognormal(sigma: float, scale: float) -> Draw:
    mean = math.exp(sigma**2 / 2)
    return lambda generator, n: np.clip(scale * (generator.lognormal(0, sigma, n) - mean), -0.5, 0.5)


SKEWED: dict[str, tuple[Draw, int]] = {
    "5 % gain 0.4": (rare_gains(0.05, 0.4), 50),
    "5 % gain 0.4, of 100": (rare_gains(0.05, 0.4), 100),
    "5 % gain 0.4, of 300": (rare_gains(0.05, 0.4), 300),
    "5 % gain 0.4, with noise": (rare_gains(0.05, 0.4, 0.02), 50),
    "1 % gain 0.5, with noise": (rare_gains(0.02, 0.5, 0.05), 100),
    "10 % gain 0.5": (rare_gains(0.1, 0.5), 50),
    "lognormal": (lognormal(1.0, 0.05), 50),
}


@pytest.mark.parametrize(
    "steps", [[1.0], [0.1] * 20 + [-0.2] * 10, [0.5, -0.5], [0.01] * 50 + [0.3], [-0.4, 0.1, 0.2, 0.1]]
)
def test_p_is_the_chance_that_drawn_weights_bring_the_mean_to_0(steps: list[float]) -> None:
    weights = np.random.default_rng(1).standard_exponential((200_000, len(steps) + 1))
    for mean in (-0.5, -1.0, -1.5):
        found = Spacings(mean, np.asarray(steps), 0.2, 10.0)
        share = float(np.mean(mean + (weights[:, :-1] - 1) @ steps + 0.2 * weights[:, -1] >= 0))
        assert found.p == pytest.approx(min(1.0, 2 * share), rel=0.05, abs=0.004)


def test_where_all_lose_alike_the_limit_is_clopper_and_pearsons() -> None:
    """Of 60 items none gains the 1 that it could: the share that does is at most Clopper and Pearson's."""
    high = known(spaced([0.0] * 60).limits(0.95)).high
    assert high == pytest.approx(stats.beta.ppf(0.975, 1, 60), rel=0.05)


@settings(deadline=None)
@given(differences, st.floats(0.5, 0.99))
def test_an_interval_leaves_out_0_just_where_p_is_small_enough(values: list[float], level: float) -> None:
    found = spaced(values)
    low, high = known(found.limits(level))
    if abs(found.p - (1 - level)) > 1e-6:
        assert (low > 0 or high < 0) == (found.p < 1 - level)


def test_a_part_of_few_items_widens_a_sum_by_its_own_weight() -> None:
    many, few = moments_of([0.01, -0.01] * 200, None), moments_of([0.0, 0.0, 0.0], None)
    both = [BoundedMean(many, 1.0), BoundedMean(few, 0.001)]
    one, two = (known(spacings_of(some).limits(0.95)) for some in (both[:1], both))
    assert two.high == pytest.approx(one.high, rel=0.2)
    assert known(spacings_of([both[0], BoundedMean(few, 1.0)]).limits(0.95)).high > 0.5


@pytest.mark.parametrize("name", SKEWED)
def test_skewed_differences_of_mean_0_are_seldom_called_worse_or_better(name: str) -> None:
    draw, n = SKEWED[name]
    generator = np.random.default_rng(7)
    counts = {"worse": 0, "better": 0}
    for _ in range(300):
        found = judge({"": compare_paired([0.5] * n, np.clip(0.5 + draw(generator, n), 0, 1).tolist())})
        if (kind := found[""].verdict) in counts:
            counts[kind] += 1
    assert max(counts.values()) <= 300 * 0.025 + 6  # three standard errors


def test_scores_of_no_known_range_have_no_p_where_few_items_weigh_against_the_loss() -> None:
    before = [-1.0] * 60
    after = [-1.05 - 0.001 * place for place in range(58)] + [1.0, 0.9]
    found = compare_paired(before, after)
    assert known(found.difference) < 0
    assert (found.p, found.why) == (None, TOO_SKEWED)
    assert compare_paired(before, [*after[:58], -9.0, -8.0]).p is not None


def test_a_loss_of_all_items_alike_is_certain_whatever_the_range() -> None:
    found = compare_paired([-1.0, -2.0, -3.0] * 20, [-1.5, -2.5, -3.5] * 20)
    assert known(found.p) < 1e-9
    assert known(found.high) < 0
