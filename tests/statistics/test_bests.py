"""The best of some runs against the best of others."""

from __future__ import annotations

import numpy as np
import pytest

from harness.statistics.best_of_many import Noise, best_of, compare_bests, compare_with_best, noise_of
from harness.statistics.comparison import Comparison
from harness.statistics.paired import compare_paired
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
    return compare_bests(means[0], means[1], plain, noise, draws=draws), plain


def test_turned_round_everything_has_the_other_sign() -> None:
    first, second = answers([0.6] * 9, 1), answers([0.62] * 4, 2)
    one, other = bests(first, second)[0], bests(second, first)[0]
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
    found = best_of([0.61, 0.60, 0.605], Noise(np.eye(3) * 0.01**2, 2500), draws=100_000)
    assert (found.place, found.measured, found.candidates) == (0, 0.61, (0, 1, 2))
    assert found.measured - found.shrunk == pytest.approx(0.00846, rel=0.02)


def test_a_single_run_is_not_shrunk() -> None:
    assert best_of([0.6], Noise(np.eye(1), 100)) == (0, 0.6, 0.6, (0,))


def test_a_difference_far_beyond_luck_has_a_p_that_many_pairs_leave_told() -> None:
    found, plain = bests(answers([0.5] * 6, 5), answers([0.8] * 6, 6), draws=500)
    assert known(found.p) < 1e-6 < 2 / 501
    assert known(found.p) >= known(plain.p)
