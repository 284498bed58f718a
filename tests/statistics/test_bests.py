"""The best of some runs against the best of others."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.statistics.best_of_many import Bests, best_of, compare_with_best, select
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.contrasts import JointNoise, noise_of, sample_of
from pytest_touchstone.statistics.paired import compare_paired
from pytest_touchstone.statistics.unpaired import Total, compare_means
from tests.statistics.test_best_of_many import answers
from tests.support.known import known


def bests(
    firsts: list[list[float]], seconds: list[list[float]], draws: int = 4000
) -> tuple[Comparison, Comparison]:
    """The comparison allowing for both choices, and the plain one of the two measured best."""
    means = [[float(np.mean(run)) for run in side] for side in (firsts, seconds)]
    one, other = (side[own.index(max(own))] for side, own in zip((firsts, seconds), means, strict=True))
    *runs, last = [*firsts, *seconds]
    plain = compare_paired(one, other)
    noise = known(noise_of(runs, last, None))
    count = len(firsts) + len(seconds)
    groups = range(len(firsts)), range(len(firsts), count)
    every = [*means[0], *means[1]]
    return Bests(every, noise.covariance, [noise.units] * count, groups, draws=draws).compare(
        0, 1, plain
    ), plain


def test_turned_round_everything_has_the_other_sign() -> None:
    first, second = answers([0.6] * 9, 1), answers([0.62] * 4, 2)
    one, other = (bests(*sides, draws=40_000)[0] for sides in ((first, second), (second, first)))
    assert known(one.difference) == pytest.approx(-known(other.difference), abs=1e-3)
    assert known(one.low) == pytest.approx(-known(other.high), abs=2e-3)
    assert known(one.high) == pytest.approx(-known(other.low), abs=2e-3)
    assert known(one.p) == pytest.approx(known(other.p), abs=0.02)


def test_of_one_run_each_it_is_the_plain_comparison() -> None:
    found, plain = bests(answers([0.6], 1), answers([0.65], 2))
    assert found.p == plain.p
    for one, other in (
        (found.low, plain.low),
        (found.difference, plain.difference),
        (found.high, plain.high),
    ):
        assert known(one) == pytest.approx(known(other), abs=1e-9)


def test_the_side_with_more_runs_is_shrunk_more_and_no_p_is_smaller_than_the_plain_one() -> None:
    for seed in range(10):
        runs = answers([0.6] * 12, seed)
        found, plain = bests(runs[:11], runs[11:])
        assert known(found.baseline) < known(plain.baseline)
        assert known(found.new) == pytest.approx(known(plain.new), abs=1e-9)
        assert known(found.p) >= known(plain.p)
        assert known(found.low) <= known(found.difference) <= known(found.high)


def test_the_test_of_the_higher_side_is_the_one_that_allows_for_its_luck() -> None:
    runs = answers([0.64] * 8 + [0.6], 4)
    found, _ = bests(runs[:8], runs[8:], draws=10_000)
    against = compare_with_best(runs[:8], runs[8]).comparison
    assert known(found.p) == pytest.approx(known(against.p), abs=0.01)
    assert known(found.high) == pytest.approx(known(against.high), abs=3e-3)


def test_the_best_alone_is_shrunk_by_what_luck_gives() -> None:
    """The expected maximum of three normal values is 0.846 of their standard deviation."""
    found = best_of([0.61, 0.60, 0.605], JointNoise(np.eye(3) * 0.01**2, 2500), draws=100_000)
    assert (found.place, found.measured, found.candidates) == (0, 0.61, (0, 1, 2))
    assert found.measured - found.shrunk == pytest.approx(0.00846, rel=0.02)


def test_a_single_run_is_not_shrunk() -> None:
    assert best_of([0.6], JointNoise(np.eye(1), 100)) == (0, 0.6, 0.6, (0,))


def test_a_difference_far_beyond_luck_has_a_p_that_many_pairs_leave_told() -> None:
    found, plain = bests(answers([0.5] * 6, 5), answers([0.8] * 6, 6), draws=500)
    assert known(found.p) < 1e-6 < 2 / 501
    assert known(found.p) >= known(plain.p)


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    units=st.integers(3, 500),
)
def test_what_is_known_once_of_a_series_gives_what_each_pair_alone_does(
    seed: int, sizes: list[int], units: int
) -> None:
    """Each pair as ``select`` compares it, with the same draws."""
    generator = np.random.default_rng(seed)
    count = sum(sizes)
    root = generator.standard_normal((count, count)) / 100
    means, covariance = (0.5 + generator.standard_normal(count) / 50).tolist(), root @ root.T
    ends = np.cumsum(sizes).tolist()
    groups = [list(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
    bests = Bests(means, covariance, [units] * count, groups, draws=200)
    drawn = sample_of(covariance, 200)
    for first, second in combinations(range(len(groups)), 2):
        plain = compare_means(
            *(Total(means[bests.places[one]], 0.02, units) for one in (first, second)), level=0.95
        )
        sides = []
        for group, other, known_ in ((first, second, plain), (second, first, plain.turned)):
            order = [*groups[group], bests.places[other]]
            own = JointNoise(covariance[np.ix_(order, order)], units)
            runs = [means[place] for place in groups[group]]
            best = runs.index(max(runs))
            one = select(best, runs, known_, own, sample=drawn.of(order)).comparison
            sides.append(one if len(runs) > 1 else known_)
        upper, lower = sides
        found = bests.compare(first, second, plain)
        assert found.p == max(known(upper.p), known(lower.p))
        assert known(found.difference) == pytest.approx(
            known(lower.baseline) - known(upper.baseline), abs=1e-12
        )
        assert known(found.high) == pytest.approx(max(known(upper.high), known(found.difference)), abs=1e-12)
        assert known(found.low) == pytest.approx(min(-known(lower.high), known(found.difference)), abs=1e-12)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), runs=st.integers(2, 5))
def test_the_luck_and_the_interval_are_those_of_the_draws(seed: int, runs: int) -> None:
    """As the rule is written: of each draw, less what all have in common, the largest."""
    generator = np.random.default_rng(seed)
    root = generator.standard_normal((runs + 1, runs + 1)) / 100
    noise, means = JointNoise(root @ root.T, 400), (0.5 + generator.standard_normal(runs) / 50).tolist()
    best = means.index(max(means))
    plain = compare_means(Total(means[best], 0.02, 400), Total(0.4, 0.02, 400))
    drawn = sample_of(noise.covariance, 500)
    found = select(best, means, plain, noise, sample=drawn)
    own = (drawn.values - drawn.values.mean(axis=0)).T
    behind = max(means) - np.asarray(means)
    errors = np.sqrt(
        [
            max(
                0.0,
                noise.covariance[one, one] + noise.covariance[best, best] - 2 * noise.covariance[best, one],
            )
            for one in range(runs)
        ]
    )
    growth = np.log(400)

    def leads(reach: float) -> np.ndarray:
        away = np.where(behind <= reach * errors, 0.0, behind)
        largest: np.ndarray = (own[:, :-1] - away).max(axis=1)
        return largest

    luck = max(0.0, float(leads(np.sqrt(2 * np.log(growth))).mean()))
    assert found.shrunk == pytest.approx(found.measured - luck, abs=1e-12)
    gaps = leads(np.sqrt(2 * growth)) - own[:, -1]
    high = known(plain.difference) + np.quantile(gaps, 0.975)
    expected = max(known(plain.high), high, known(found.comparison.difference))
    assert known(found.comparison.high) == pytest.approx(expected, abs=1e-12)
    counted = 2 * (1 + int((gaps >= 0.5 - 0.4).sum())) / 501
    assert known(plain.p) <= known(found.comparison.p) <= max(1.0, counted)
