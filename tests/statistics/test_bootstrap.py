"""Bootstrap intervals: against SciPy's, and over clusters."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy import stats

from harness.statistics.bootstrap import bootstrap_estimate
from harness.statistics.intervals import mean_estimate


def skewed(n: int, seed: int = 1) -> list[float]:
    generator = random.Random(seed)
    return [generator.betavariate(0.4, 1.5) for _ in range(n)]


def test_the_bca_interval_is_scipys_up_to_the_draws() -> None:
    values = skewed(60)
    found = bootstrap_estimate(values, resamples=40_000)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=40_000, method="BCa", rng=np.random.default_rng(0)
    )
    width = expected.confidence_interval.high - expected.confidence_interval.low
    assert found.low == pytest.approx(expected.confidence_interval.low, abs=0.015 * width)
    assert found.high == pytest.approx(expected.confidence_interval.high, abs=0.015 * width)
    assert found.stderr == pytest.approx(expected.standard_error, rel=0.02)
    assert found.value == pytest.approx(np.mean(values))


def test_a_skewed_sample_has_the_longer_arm_on_its_long_side() -> None:
    found = bootstrap_estimate(skewed(40))
    assert found.low is not None
    assert found.value is not None
    assert found.high is not None
    assert found.high - found.value > 1.05 * (found.value - found.low)


def test_items_of_a_cluster_are_drawn_together() -> None:
    values = skewed(80)
    alone = bootstrap_estimate(values)
    tripled = bootstrap_estimate(values * 3, [*range(80)] * 3)
    assert (tripled.low, tripled.high) == pytest.approx((alone.low, alone.high), abs=1e-9)
    assert tripled.method == "BCa bootstrap, 80 clusters"
    clusters = [place % 20 for place in range(80)]
    assert bootstrap_estimate(values, clusters).stderr == pytest.approx(
        mean_estimate(values, clusters).stderr, rel=0.06
    )


def test_the_order_of_the_items_does_not_matter_and_the_seed_decides() -> None:
    values, clusters = skewed(30), [place // 3 for place in range(30)]
    order = random.Random(2).sample(range(30), 30)
    moved = bootstrap_estimate([values[i] for i in order], [clusters[i] for i in order], resamples=500)
    assert moved == bootstrap_estimate(values, clusters, resamples=500)
    assert moved != bootstrap_estimate(values, clusters, resamples=500, seed=1)


def test_what_is_undefined_is_none_with_a_reason() -> None:
    assert bootstrap_estimate([]).why == "no items were scored"
    assert bootstrap_estimate([0.5]).why == "one independent unit: nothing to resample"
    assert bootstrap_estimate([0.2, 0.4], ["a", "a"]).low is None
    assert bootstrap_estimate([1.0, 1.0, 1.0]).why == "all units have the same mean: nothing varies"


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """100 samples of 50 clusters of 2 like items; the truth is 0.4 / 1.9."""
    covered = 0
    for seed in range(100):
        values = skewed(50, seed) * 2
        found = bootstrap_estimate(values, [*range(50)] * 2, resamples=600, seed=seed)
        covered += (found.low or 0) <= 0.4 / 1.9 <= (found.high or 0)
    assert 88 <= covered <= 99
