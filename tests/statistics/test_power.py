"""Power: against enumeration of all tables with the gate's own test and interval, against statsmodels, and by shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestPower

from pytest_touchstone.statistics.best_of_many import compare_with_best
from pytest_touchstone.statistics.paired import compare_flips, compare_paired
from pytest_touchstone.statistics.power import (
    Design,
    binary_design,
    chance_not_worse,
    composite_design,
    design_of_comparison,
    items_for_drop,
    items_for_not_worse,
    mean_design,
    pooled_design,
    power_of_drop,
    reference_design,
    smallest_drop,
)
from pytest_touchstone.statistics.verdicts import judge
from tests.support.known import known


def enumerated(n: int, flips: float, drop: float, family: int, margin: float) -> tuple[float, float]:
    """The chances of "worse" and of a lower limit above the margin, over the tables that n items can give."""
    worse = calm = 0.0
    for flipped in range(*map(int, stats.binom.interval(1 - 1e-6, n, flips))):
        for lost in range(*map(int, stats.binom.interval(1 - 1e-6, flipped, (flips + drop) / (2 * flips)))):
            chance = stats.binom.pmf(flipped, n, flips)
            chance *= stats.binom.pmf(lost, flipped, (flips + drop) / (2 * flips))
            one = compare_flips(0, flipped - lost, lost, n - flipped)
            others = {f"other {place}": replace(one, p=1.0) for place in range(family - 1)}
            verdict = judge({"one": one, **others}, margin=margin)["one"]
            worse += chance * (verdict.verdict == "worse")
            calm += chance * (one.low is not None and one.low > -margin)
    return worse, calm


@pytest.mark.parametrize(
    ("n", "flips", "drop", "family", "margin"),
    [(100, 0.3, 0.1, 1, 0.01), (150, 0.2, 0.12, 3, 0.05), (120, 0.2, 0.0, 1, 0.1), (300, 0.1, 0.06, 1, 0.01)],
)
def test_the_power_for_right_or_wrong_answers_is_that_of_the_gates_own_verdicts(
    n: int, flips: float, drop: float, family: int, margin: float
) -> None:
    worse, calm = enumerated(n, flips, drop, family, margin)
    design = binary_design(n, flips)
    assert power_of_drop(design, drop, family=family, margin=margin) == pytest.approx(worse, abs=0.03)
    assert chance_not_worse(design, drop=drop, margin=margin) == pytest.approx(calm, abs=0.03)


def test_the_power_for_many_graded_scores_is_almost_the_t_tests() -> None:
    expected = TTestPower().power(0.02 / 0.4, 4000, 0.05, alternative="two-sided")
    assert expected - 0.03 < power_of_drop(Design(items=4000, spread=0.4), 0.02) < expected


@pytest.mark.parametrize(("n", "spread"), [(100, 0.3), (300, 0.1)])
@pytest.mark.parametrize("bounded", [True, False])
def test_the_power_for_graded_scores_is_that_of_their_comparison(
    n: int, spread: float, bounded: bool
) -> None:
    drop = known(smallest_drop(Design(items=n, spread=spread, bounded=bounded)))
    generator, start = np.random.default_rng(3), 0.5 if bounded else -3.0
    found = 0
    for _ in range(200):
        after = start - drop + spread * generator.standard_normal(n)
        new = np.clip(after, 0, 1) if bounded else after
        one = compare_paired([start] * n, new.tolist())
        found += known(one.p) <= 0.05 and known(one.difference) < -0.01
    assert found / 200 == pytest.approx(0.8, abs=0.1)


def test_graded_scores_that_never_differed_may_do_so() -> None:
    assert chance_not_worse(Design(items=200, spread=0.0)) == 0
    assert chance_not_worse(Design(items=500, spread=0.0)) == 1


def test_clusters_count_as_fewer_items() -> None:
    assert power_of_drop(binary_design(1000, 0.2, effect=2.0), 0.05) == power_of_drop(
        binary_design(500, 0.2), 0.05
    )


def test_less_is_told_against_the_best_of_several_than_the_gate_finds() -> None:
    draw = np.random.default_rng(5)
    found = 0
    for _ in range(100):
        runs, new = draw.random((4, 400)) < 0.7, draw.random(400) < 0.64
        selection = compare_with_best(runs.astype(float).tolist(), new.astype(float).tolist())
        found += known(selection.comparison.p) <= 0.05 and known(selection.comparison.difference) < -0.01
    assert power_of_drop(binary_design(400, 0.44), 0.06) <= found / 100 + 0.1


@settings(deadline=None, max_examples=40)
@given(
    st.integers(50, 3000),
    st.floats(0.02, 0.5),
    st.integers(1, 20),
)
def test_a_larger_drop_is_seen_more_often_and_the_smallest_one_with_the_power_asked(
    n: int, flips: float, family: int
) -> None:
    design = binary_design(n, flips)
    powers = [round(power_of_drop(design, drop, family=family), 9) for drop in (0.0, 0.02, 0.05, 0.1, 0.3)]
    assert powers == pytest.approx(sorted(powers), abs=1e-12)
    assert all(0 <= one <= 1 for one in powers)
    found = smallest_drop(design, family=family)
    assert found is not None
    assert power_of_drop(design, found, family=family) >= 0.8
    assert power_of_drop(design, found - 0.001, family=family) < 0.8


@settings(deadline=None, max_examples=20)
@given(st.floats(0.02, 0.3), st.floats(0.02, 0.1))
def test_so_many_items_have_the_power_asked_and_half_of_them_have_not(flips: float, drop: float) -> None:
    design = binary_design(100, flips)
    some = items_for_drop(design, drop)
    assert some is not None
    assert power_of_drop(replace(design, items=some), drop) >= 0.8
    assert power_of_drop(replace(design, items=some // 2), drop) < 0.8
    calm = items_for_not_worse(design)
    assert calm is not None
    assert chance_not_worse(replace(design, items=calm)) >= 0.8
    assert chance_not_worse(replace(design, items=calm // 2)) < 0.8


def test_no_number_of_items_finds_a_drop_within_the_margin() -> None:
    assert items_for_drop(binary_design(100, 0.2), 0.01) is None
    assert items_for_not_worse(binary_design(100, 0.2), drop=0.01) is None
    assert smallest_drop(binary_design(4, 0.5)) is None


def test_the_design_of_a_comparison_has_its_flips_spread_and_clusters() -> None:
    draw = np.random.default_rng(8)
    old, new = ((draw.random(300) < 0.6).astype(float).tolist() for _ in range(2))
    flipped = sum(a != b for a, b in zip(old, new, strict=True))
    design = known(design_of_comparison(compare_paired(old, new)))
    assert (design.flips, design.effect) == ((flipped + 0.5) / 301, 1.0)
    graded = draw.random(300).tolist()
    design = known(design_of_comparison(compare_paired(old, graded)))
    assert design.flips is None
    assert design.spread == pytest.approx(np.std(np.subtract(graded, old), ddof=1))
    threes = [f"text {place // 3}" for place in range(300)]
    alike = [value for value in new[:100] for _ in range(3)]
    clustered = known(design_of_comparison(compare_paired([0.0] * 300, alike, threes)))
    assert clustered.effective == pytest.approx(100, rel=0.02)


def test_designs_of_one_benchmark_are_averaged_and_those_of_several_added_up() -> None:
    one, other = binary_design(100, 0.1), binary_design(100, 0.3)
    assert mean_design([one, other]).flips == pytest.approx(0.2)
    whole = pooled_design([one, replace(other, items=300)])
    assert whole.items == 400
    assert whole.flips == pytest.approx(0.25)
    mixed = pooled_design([one, Design(items=50, spread=0.3, effect=2.0)])
    assert mixed.flips is None
    assert mixed.spread**2 * mixed.effect / mixed.items == pytest.approx(
        (100 * one.spread**2 + 2 * 50 * 0.09) / 150**2
    )


def test_a_sum_of_benchmarks_is_as_uncertain_as_its_parts_together() -> None:
    parts = [replace(binary_design(n, 0.2, effect=2.0), spread=0.15) for n in (100, 400)]
    whole = composite_design(parts)
    assert whole.items == 500
    assert whole.error == pytest.approx(np.hypot(parts[0].error, parts[1].error))


@pytest.mark.parametrize(
    ("noise", "runs", "items"),
    [(0.0, 1, 690), (0.0, 4, 690), (0.05, 1, 1270), (0.05, 4, 1060), (0.1, 4, 1420)],
)
def test_items_for_a_loss_of_three_points_of_an_engine(noise: float, runs: int, items: int) -> None:
    """(1.96 + 1.28)^2 (noise (1 + 1 / runs) / 2 + 2 * 0.03) / 0.03^2, and an item for the continuity correction."""
    found = items_for_drop(reference_design(1000, noise, runs), 0.03, power=0.9)
    assert found == pytest.approx(items, rel=0.12)
