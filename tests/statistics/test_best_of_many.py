"""A baseline that is the best of many runs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pytest_touchstone.statistics.best_of_many import (
    RunsOfBenchmark,
    RunsOfPart,
    Selection,
    compare_composite_with_best,
    compare_with_best,
    select,
)
from pytest_touchstone.statistics.contrasts import JointNoise
from pytest_touchstone.statistics.paired import compare_paired
from pytest_touchstone.statistics.unpaired import Total, compare_means
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


def against_best(accuracies: list[float], new: float, seed: int, draws: int = 2000) -> Selection:
    *runs, last = answers([*accuracies, new], seed)
    return compare_with_best(runs, last, draws=draws)


def test_the_best_of_one_run_is_that_run() -> None:
    found = against_best([0.6], 0.55, 1)
    baseline, new = answers([0.6, 0.55], 1)
    assert found.comparison == found.as_measured == compare_paired(baseline, new)
    assert found.shrunk == found.measured


def test_a_lucky_maximum_is_shrunk_by_what_luck_gives() -> None:
    """The expected maximum of 11 normal values is 1.586 of their standard deviations."""
    found = [against_best([0.6] * 11, 0.6, seed) for seed in range(40)]
    own = np.mean([0.6 + 0.8 * (ease - 0.5) for ease in np.linspace(0, 1, 1001)])
    assert np.mean([one.measured for one in found]) > own + 0.018
    assert np.mean([one.shrunk for one in found]) == pytest.approx(own, abs=0.006)
    expected = 1.586 * np.sqrt(np.mean([known(one.as_measured.stderr) ** 2 / 2 for one in found]))
    assert np.mean([one.measured - one.shrunk for one in found]) == pytest.approx(expected, rel=0.1)


def test_a_run_far_ahead_of_all_others_is_not_shrunk() -> None:
    found = against_best([0.5] * 10 + [0.75], 0.7, 3, draws=50_000)
    assert (found.chosen, found.candidates, found.runs) == (10, (10,), 11)
    assert found.shrunk == pytest.approx(found.measured, abs=1e-3)
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
        assert fair.baseline == pytest.approx(found.shrunk)


def test_of_independent_runs_the_test_is_dunnetts_with_known_variance() -> None:
    """A one-sided comparison of three equal runs with a control: max of (Z_k - Z_0) against its own quantiles."""
    means = [0.60, 0.605, 0.61]
    plain = compare_means(Total(0.61, 0.01, 2500), Total(0.58, 0.01, 2500))
    noise = JointNoise(np.diag([0.01**2] * 4), 2500)
    found = select(2, means, plain, noise, draws=200_000)
    grid = np.linspace(-8, 8, 4001)
    chance = np.trapezoid(stats.norm.pdf(grid) * (1 - stats.norm.cdf(grid + 3.0) ** 3), grid)
    assert found.comparison.p == pytest.approx(2 * chance, rel=0.05)
    expected = np.trapezoid(grid * 3 * stats.norm.pdf(grid) * stats.norm.cdf(grid) ** 2, grid)
    assert found.measured - found.shrunk == pytest.approx(0.01 * expected, rel=0.02)


def test_a_new_run_above_the_best_keeps_the_plain_p() -> None:
    found = against_best([0.5] * 6, 0.7, 5)
    assert found.comparison.p == found.as_measured.p
    assert (found.comparison.difference or 0) > (found.as_measured.difference or 0) > 0


def test_items_that_share_a_text_make_the_luck_larger() -> None:
    *runs, last = answers([0.6] * 6 + [0.58], 7, n=300)
    alone = compare_with_best(runs, last)
    doubled = [one * 2 for one in runs], last * 2
    together = compare_with_best(*doubled, [*range(300)] * 2)
    assert together.shrunk == pytest.approx(alone.shrunk, abs=1e-3)
    apart = compare_with_best(*doubled)
    assert apart.shrunk > together.shrunk


def test_identical_runs_leave_nothing_to_allow_for() -> None:
    run = answers([0.6], 1)[0]
    found = compare_with_best([run] * 5, run)
    assert found.shrunk == pytest.approx(found.measured, abs=1e-6)
    assert found.comparison.p == 1.0


def test_the_order_of_the_items_does_not_matter() -> None:
    *runs, last = answers([0.6] * 5 + [0.55], 9)
    order = np.random.default_rng(0).permutation(N)
    moved = [[run[place] for place in order] for run in (*runs, last)]
    assert compare_with_best(moved[:-1], moved[-1]) == compare_with_best(runs, last)


def test_runs_on_other_items_are_refused() -> None:
    with pytest.raises(ValueError, match="run 1 has 2 values, the new run 3"):
        compare_with_best([[1.0, 0.0, 1.0], [1.0, 0.0]], [1.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="the best of no runs"):
        compare_with_best([], [1.0])


def test_the_best_by_a_composite_of_one_metric_is_the_best_by_that_metric() -> None:
    *runs, last = answers([0.6] * 6 + [0.55], 11)
    found = compare_composite_with_best([RunsOfBenchmark([RunsOfPart(1.0, runs, last)])])
    expected = compare_with_best(runs, last)
    assert (found.chosen, found.candidates) == (expected.chosen, expected.candidates)
    assert found.shrunk == pytest.approx(expected.shrunk)
    assert found.comparison.p == pytest.approx(expected.comparison.p, rel=0.1)


def test_the_noise_of_a_composite_holds_what_metrics_of_the_same_items_share() -> None:
    *runs, last = answers([0.6] * 6 + [0.6], 12)
    halves = RunsOfBenchmark([RunsOfPart(0.5, runs, last), RunsOfPart(0.5, runs, last)])
    whole = compare_with_best(runs, last)
    together = compare_composite_with_best([halves])
    assert together.shrunk == pytest.approx(whole.shrunk)
    apart = compare_composite_with_best([RunsOfBenchmark([part]) for part in halves.parts])
    luck = whole.measured - whole.shrunk
    assert apart.measured - apart.shrunk == pytest.approx(luck / np.sqrt(2), rel=0.35)
    assert apart.shrunk > together.shrunk


def test_composites_of_runs_that_do_not_fit_are_refused() -> None:
    one, two = RunsOfPart(0.5, [[1.0, 0.0]], [1.0, 1.0]), RunsOfPart(0.5, [[1.0], [0.0]], [1.0])
    with pytest.raises(ValueError, match="1 runs of one metric but 2 of another"):
        compare_composite_with_best([RunsOfBenchmark([one]), RunsOfBenchmark([two])])
    with pytest.raises(ValueError, match="the best of no runs"):
        compare_composite_with_best([])


def test_a_drop_that_no_draw_reaches_has_a_p_as_small_as_it_is() -> None:
    plain = compare_means(Total(0.6, 0.01, 2500), Total(0.5, 0.01, 2500))
    found = select(0, [0.6, 0.6], plain, JointNoise(np.diag([0.01**2] * 3), 2500), draws=100)
    assert (
        0 < known(found.comparison.p) == pytest.approx(4 * stats.norm.sf(0.1 / 0.01 / np.sqrt(2)), rel=1e-6)
    )
