"""Interim analyses of growing data: boundaries against published ones and simulation, and what each decides."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from pytest_touchstone.statistics.comparison import undefined
from pytest_touchstone.statistics.paired import compare_flips
from pytest_touchstone.statistics.sequential import (
    FRACTIONS,
    AnalysisPlan,
    Boundaries,
    cut,
    decide_at,
    item_order,
    plan_analyses,
    spent,
    two_boundaries,
    upper_boundaries,
)


def test_the_upper_boundaries_are_the_published_ones() -> None:
    """Lan and DeMets' boundaries in O'Brien and Fleming's shape for 5 analyses at 0.025, as ldbounds and gsDesign
    print them."""
    found = upper_boundaries(FRACTIONS, 0.025).upper
    assert found == pytest.approx((4.877, 3.357, 2.680, 2.290, 2.031), abs=6e-4)
    assert upper_boundaries([0.5, 1.0], 0.025).upper == pytest.approx((2.963, 1.969), abs=6e-4)


def test_a_single_interim_analysis_is_the_ordinary_test() -> None:
    assert upper_boundaries([1.0], 0.025).upper == pytest.approx((stats.norm.ppf(0.975),))
    both = two_boundaries([1.0], 0.025, 0.1)
    assert both.drift == pytest.approx(stats.norm.ppf(0.975) + stats.norm.ppf(0.9))


def test_the_first_interim_analysis_spends_what_the_spending_function_gives() -> None:
    found = upper_boundaries(FRACTIONS, 0.05)
    expected = 2 * (1 - stats.norm.cdf(stats.norm.ppf(0.975) / math.sqrt(0.2)))
    assert spent(0.2, 0.05) == pytest.approx(expected)
    assert found.upper[0] == pytest.approx(stats.norm.isf(expected))
    assert spent(1.0, 0.05) == 0.05


def walks(boundaries: Boundaries, drift: float, paths: int = 200_000) -> tuple[list[float], list[float]]:
    """The shares of simulated paths that stop above and below at each analysis."""
    generator, alive = np.random.default_rng(1), np.ones(paths, dtype=bool)
    place, before, above, below = np.zeros(paths), 0.0, [], []
    lower = boundaries.lower or (-math.inf,) * len(boundaries.upper)
    for fraction, high, low in zip(boundaries.fractions, boundaries.upper, lower, strict=True):
        step = fraction - before
        place = place + generator.normal(drift * step, math.sqrt(step), paths)
        z, before = place / math.sqrt(fraction), fraction
        above.append(float(np.mean(alive & (z >= high))))
        below.append(float(np.mean(alive & (z < low))))
        alive &= (z < high) & (z >= low)
    return above, below


def newly_spent(fractions: Sequence[float], error: float) -> list[float]:
    total = [spent(fraction, error) for fraction in (0.0, *fractions)]
    return [after - before for before, after in pairwise(total)]


def test_simulated_walks_stop_as_often_at_each_interim_analysis_as_the_error_rates_allow() -> None:
    fractions = (0.25, 0.4, 0.7, 1.0)
    above, below = walks(upper_boundaries(fractions, 0.02), 0.0)
    assert above == pytest.approx(newly_spent(fractions, 0.02), abs=0.001)
    assert sum(below) == 0.0
    both = two_boundaries(fractions, 0.02, 0.05)
    assert both.drift is not None
    above, below = walks(both, both.drift)
    assert below == pytest.approx(newly_spent(fractions, 0.05), abs=0.002)
    assert (sum(above), sum(below)) == pytest.approx((0.95, 0.05), abs=0.002)
    assert sum(walks(both, 0.0)[0]) < 0.02 + 0.001


def test_items_are_asked_in_an_order_of_the_seeds_own_with_texts_kept_together() -> None:
    ids = [f"real/{number}" for number in range(60)]
    clusters = [f"text {number // 3}" for number in range(60)]
    order = item_order(ids, clusters, seed=1)
    assert sorted(order) == list(range(60))
    texts = [clusters[place] for place in order]
    assert [texts[place] for place in range(0, 60, 3)] == list(dict.fromkeys(texts))
    assert order != item_order(ids, clusters, seed=2)
    shuffled = random.Random(4).sample(range(60), 60)
    moved = item_order([ids[i] for i in shuffled], [clusters[i] for i in shuffled], seed=1)
    assert [ids[shuffled[place]] for place in moved] == [ids[place] for place in order]


def test_interim_analyses_are_at_the_ends_of_clusters() -> None:
    assert cut([None] * 10) == (2, 4, 6, 8, 10)
    assert cut(["a", "a", "a", "b", "b", "c", "c", "c", "c", "d"]) == (3, 5, 9, 10)
    assert cut(["a"] * 7) == (7,)
    assert cut([]) == ()


def plan(**changes: object) -> AnalysisPlan:
    return plan_analyses((400, 800, 1200, 1600, 2000), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("analysis", "gained", "lost", "expected"),
    [
        (0, 5, 45, "worse"),
        (0, 45, 5, "better"),
        (0, 10, 25, None),
        (1, 60, 40, "inconclusive"),
        (3, 2, 1, "not worse"),
        (4, 100, 120, "inconclusive"),
        (4, 100, 170, "worse"),
    ],
)
def test_an_interim_analysis_decides_or_goes_on(
    analysis: int, gained: int, lost: int, expected: str | None
) -> None:
    made = plan()
    rest = made.analyses[analysis] - gained - lost
    stop = decide_at(made, analysis, compare_flips(rest, gained, lost, 0, level=made.levels[analysis]))
    assert (stop and stop.kind) == expected
    if stop is not None:
        assert (stop.items, stop.total) == (made.analyses[analysis], 2000)


def test_giving_up_is_said_and_a_strict_gate_never_does() -> None:
    made, strict = plan(), plan(strict=True)
    better = compare_flips(700, 60, 40, 0, level=made.levels[1])
    stop = decide_at(made, 1, better)
    assert stop is not None
    assert "unlikely" in stop.why
    assert decide_at(strict, 1, better) is None


def test_what_is_given_up_goes_by_the_difference_as_measured() -> None:
    made = plan()
    level = made.levels[3]
    shrunk, measured = (compare_flips(700, 50, lost, 0, level=level) for lost in (52, 75))
    assert decide_at(made, 3, shrunk) is not None
    assert decide_at(made, 3, shrunk, measured) is None


def test_a_difference_within_the_margin_is_never_worse() -> None:
    made = plan(margin=0.05)
    found = compare_flips(1840, 40, 120, 0, level=made.levels[4])
    stop = decide_at(made, 4, found)
    assert stop is not None
    assert stop.kind != "worse"


def test_more_benchmarks_need_more_certainty_at_each_interim_analysis() -> None:
    one, ten = plan(), plan(family=10)
    assert all(a < b for a, b in zip(one.worse.upper, ten.worse.upper, strict=True))
    assert one.levels == ten.levels


def test_an_interval_of_another_level_is_refused() -> None:
    with pytest.raises(ValueError, match=r"analysis 0 .*level"):
        decide_at(plan(), 0, compare_flips(300, 50, 50, 0))


def test_nothing_to_compare_goes_on_to_the_end() -> None:
    assert decide_at(plan(), 0, undefined("no items in common")) is None
    stop = decide_at(plan(), 4, undefined("no items in common"))
    assert stop is not None
    assert (stop.kind, stop.why) == ("inconclusive", "no items in common")
