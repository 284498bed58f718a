"""A baseline that is the best of many runs.

The best of some runs against the best of others.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_touchstone.statistics.best_of_many import (
    BestOfMany,
    GroupedBests,
    best_of,
    compare_composite_with_best,
    compare_with_best,
    select,
)
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.composites import SharedItems, WeightedPart
from pytest_touchstone.statistics.contrasts import MeanCovariance, covariance_of_means, sample_of
from pytest_touchstone.statistics.paired import compare_paired
from pytest_touchstone.statistics.unpaired import SummaryStatistics, compare_means
from tests.support.known import known

N = 800


def answers(accuracies: list[float], seed: int, n: int = N) -> list[list[float]]:
    """Runs that find the same items easy or hard, each with its own luck."""
    generator = np.random.default_rng(seed)
    ease = generator.random(n)
    found = []
    for accuracy in accuracies:
        chance = np.clip(accuracy + 0.8 * (ease - 0.5), 0, 1)
        found.append((generator.random(n) < chance).astype(float).tolist())
    return found


def against_best(accuracies: list[float], new: float, seed: int, draws: int = 2000) -> BestOfMany:
    *runs, last = answers([*accuracies, new], seed)
    return compare_with_best(runs, last, draws=draws)


def luck_of(selection: BestOfMany) -> float:
    """What allowing for the choice takes off the value of the best."""
    return known(selection.as_measured.baseline) - known(selection.comparison.baseline)


def test_the_best_of_one_run_is_that_run() -> None:
    found = against_best([0.6], 0.55, 1)
    baseline, new = answers([0.6, 0.55], 1)
    assert found.comparison == found.as_measured == compare_paired(baseline, new)
    assert found.comparison.baseline == found.as_measured.baseline


def test_a_lucky_maximum_is_shrunk_by_what_luck_gives() -> None:
    """The expected maximum of 11 normal values is 1.586 of their standard deviations."""
    found = [against_best([0.6] * 11, 0.6, seed) for seed in range(40)]
    own = np.mean([0.6 + 0.8 * (ease - 0.5) for ease in np.linspace(0, 1, 1001)])
    assert np.mean([one.as_measured.baseline for one in found]) > own + 0.018
    assert np.mean([one.comparison.baseline for one in found]) == pytest.approx(own, abs=0.006)
    expected = 1.586 * np.sqrt(np.mean([known(one.as_measured.stderr) ** 2 / 2 for one in found]))
    assert np.mean([luck_of(one) for one in found]) == pytest.approx(expected, rel=0.1)


def test_a_run_far_ahead_of_all_others_is_not_shrunk() -> None:
    found = against_best([0.5] * 10 + [0.75], 0.7, 3, draws=50_000)
    assert (found.chosen, found.candidates, found.runs) == (10, (10,), 11)
    assert found.comparison.baseline == pytest.approx(found.as_measured.baseline, abs=1e-3)
    assert found.comparison.p == pytest.approx(found.as_measured.p, rel=0.25)
    assert found.comparison.high == pytest.approx(found.as_measured.high, abs=2e-3)


def test_the_test_allows_for_the_choice_and_never_finds_more_than_the_plain_one() -> None:
    for seed in range(20):
        found = against_best([0.6] * 11, 0.57, seed)
        plain, fair = found.as_measured, found.comparison
        low, high, difference = known(fair.low), known(fair.high), known(fair.difference)
        assert known(fair.p) >= known(plain.p)
        assert low == plain.low
        assert high >= known(plain.high)
        assert low <= difference <= high
        assert difference == pytest.approx(known(fair.new) - known(fair.baseline))
        assert fair.baseline == pytest.approx(found.comparison.baseline)


def test_of_independent_runs_the_test_is_dunnetts_with_known_variance() -> None:
    """A one-sided comparison of three equal runs with a control: max of (Z_k - Z_0) against its own quantiles."""
    means = [0.60, 0.605, 0.61]
    plain = compare_means(SummaryStatistics(0.61, 0.01, 2500), SummaryStatistics(0.58, 0.01, 2500))
    noise = MeanCovariance(np.diag([0.01**2] * 4), 2500)
    found = select(2, means, plain, noise, draws=200_000)
    grid = np.linspace(-8, 8, 4001)
    chance = np.trapezoid(stats.norm.pdf(grid) * (1 - stats.norm.cdf(grid + 3.0) ** 3), grid)
    assert found.comparison.p == pytest.approx(2 * chance, rel=0.05)
    expected = np.trapezoid(grid * 3 * stats.norm.pdf(grid) * stats.norm.cdf(grid) ** 2, grid)
    assert luck_of(found) == pytest.approx(0.01 * expected, rel=0.02)


def test_a_new_run_above_the_best_keeps_the_plain_p() -> None:
    found = against_best([0.5] * 6, 0.7, 5)
    assert found.comparison.p == found.as_measured.p
    assert (found.comparison.difference or 0) > (found.as_measured.difference or 0) > 0


def test_items_that_share_a_text_make_the_luck_larger() -> None:
    *runs, last = answers([0.6] * 6 + [0.58], 7, n=300)
    alone = compare_with_best(runs, last)
    doubled = [one * 2 for one in runs], last * 2
    together = compare_with_best(*doubled, [*range(300)] * 2)
    assert together.comparison.baseline == pytest.approx(alone.comparison.baseline, abs=1e-3)
    apart = compare_with_best(*doubled)
    assert known(apart.comparison.baseline) > known(together.comparison.baseline)


def test_identical_runs_leave_nothing_to_allow_for() -> None:
    run = answers([0.6], 1)[0]
    found = compare_with_best([run] * 5, run)
    assert found.comparison.baseline == pytest.approx(found.as_measured.baseline, abs=1e-6)
    assert found.comparison.p == 1.0


def test_the_order_of_the_items_does_not_matter() -> None:
    *runs, last = answers([0.6] * 5 + [0.55], 9)
    order = np.random.default_rng(0).permutation(N)
    moved = [[run[place] for place in order] for run in (*runs, last)]
    assert compare_with_best(moved[:-1], moved[-1]) == compare_with_best(runs, last)


def test_the_best_by_a_composite_of_one_metric_is_the_best_by_that_metric() -> None:
    *runs, last = answers([0.6] * 6 + [0.55], 11)
    found = compare_composite_with_best([SharedItems([WeightedPart(1.0, runs, last)])])
    expected = compare_with_best(runs, last)
    assert (found.chosen, found.candidates) == (expected.chosen, expected.candidates)
    assert found.comparison.baseline == pytest.approx(expected.comparison.baseline)
    assert found.comparison.p == pytest.approx(expected.comparison.p, rel=0.1)


def test_the_noise_of_a_composite_holds_what_metrics_of_the_same_items_share() -> None:
    *runs, last = answers([0.6] * 6 + [0.6], 12)
    halves = SharedItems([WeightedPart(0.5, runs, last), WeightedPart(0.5, runs, last)])
    whole = compare_with_best(runs, last)
    together = compare_composite_with_best([halves])
    assert together.comparison.baseline == pytest.approx(whole.comparison.baseline)
    apart = compare_composite_with_best([SharedItems([part]) for part in halves.parts])
    luck = luck_of(whole)
    assert luck_of(apart) == pytest.approx(luck / np.sqrt(2), rel=0.35)
    assert known(apart.comparison.baseline) > known(together.comparison.baseline)


def test_a_drop_that_no_draw_reaches_has_a_p_as_small_as_it_is() -> None:
    plain = compare_means(SummaryStatistics(0.6, 0.01, 2500), SummaryStatistics(0.5, 0.01, 2500))
    found = select(0, [0.6, 0.6], plain, MeanCovariance(np.diag([0.01**2] * 3), 2500), draws=100)
    assert (
        0 < known(found.comparison.p) == pytest.approx(4 * stats.norm.sf(0.1 / 0.01 / np.sqrt(2)), rel=1e-6)
    )


def bests(
    firsts: list[list[float]], seconds: list[list[float]], draws: int = 4000
) -> tuple[Comparison, Comparison]:
    """The comparison allowing for both choices, and the plain one of the two measured best."""
    means = [[float(np.mean(run)) for run in side] for side in (firsts, seconds)]
    one, other = (side[own.index(max(own))] for side, own in zip((firsts, seconds), means, strict=True))
    *runs, last = [*firsts, *seconds]
    plain = compare_paired(one, other)
    noise = known(covariance_of_means(runs, last, None))
    count = len(firsts) + len(seconds)
    groups = range(len(firsts)), range(len(firsts), count)
    every = [*means[0], *means[1]]
    return GroupedBests(every, noise.covariance, [noise.units] * count, groups, draws=draws).compare(
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
    found = best_of([0.61, 0.60, 0.605], MeanCovariance(np.eye(3) * 0.01**2, 2500), draws=100_000)
    assert (found.place, found.measured, found.candidates) == (0, 0.61, (0, 1, 2))
    assert found.measured - found.shrunk == pytest.approx(0.00846, rel=0.02)


def test_the_lower_limit_of_the_best_lies_as_deep_as_the_maximum_reaches() -> None:
    """97.5 % of the maxima of three normal values lie below 2.39 standard deviations, of one below 1.96."""
    near = best_of([0.61, 0.60, 0.605], MeanCovariance(np.eye(3) * 0.01**2, 2500), draws=100_000)
    assert near.depth == pytest.approx(0.0043, abs=2e-4)
    far = best_of([0.61, 0.30, 0.30], MeanCovariance(np.eye(3) * 0.01**2, 2500))
    assert far.depth == pytest.approx(0.0, abs=1e-12)


def test_a_single_run_is_not_shrunk() -> None:
    assert best_of([0.6], MeanCovariance(np.eye(1), 100)) == (0, 0.6, 0.6, (0,), 0.0)


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
    bests = GroupedBests(means, covariance, [units] * count, groups, draws=200)
    drawn = sample_of(covariance, 200)
    for first, second in combinations(range(len(groups)), 2):
        plain = compare_means(
            *(SummaryStatistics(means[bests.places[one]], 0.02, units) for one in (first, second)), level=0.95
        )
        sides = []
        for group, other, known_ in ((first, second, plain), (second, first, plain.turned)):
            order = [*groups[group], bests.places[other]]
            own = MeanCovariance(covariance[np.ix_(order, order)], units)
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
    noise, means = MeanCovariance(root @ root.T, 400), (0.5 + generator.standard_normal(runs) / 50).tolist()
    best = means.index(max(means))
    plain = compare_means(SummaryStatistics(means[best], 0.02, 400), SummaryStatistics(0.4, 0.02, 400))
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
    assert found.comparison.baseline == pytest.approx(known(found.as_measured.baseline) - luck, abs=1e-12)
    gaps = leads(np.sqrt(2 * growth)) - own[:, -1]
    high = known(plain.difference) + np.quantile(gaps, 0.975)
    expected = max(known(plain.high), high, known(found.comparison.difference))
    assert known(found.comparison.high) == pytest.approx(expected, abs=1e-12)
    counted = 2 * (1 + int((gaps >= 0.5 - 0.4).sum())) / 501
    assert known(plain.p) <= known(found.comparison.p) <= max(1.0, counted)
