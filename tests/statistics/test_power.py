"""Power: against enumeration of all tables with the gate's own test and interval, against statsmodels, and by shape.

The power of tests that Holm corrects together: against closed forms, and against verdicts on drawn answers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestPower

from pytest_touchstone.statistics.paired import compare_flips, compare_paired
from pytest_touchstone.statistics.power import (
    Design,
    PlannedTest,
    all_of,
    any_of,
    binary_design,
    chance_not_worse,
    composite_design,
    design_of,
    design_of_comparison,
    items_for_drop,
    items_for_not_worse,
    mean_design,
    pooled_design,
    power_of_drop,
    powers_together,
    smallest_drop,
)
from pytest_touchstone.statistics.verdicts import judge
from tests.support.known import known


def enumerated(n: int, flips: float, drop: float, family: int, margin: float) -> tuple[float, float]:
    """The chances of "worse" and of a lower limit above the margin, over every table that n items can give."""
    worse = calm = 0.0
    for flipped in range(n + 1):
        for lost in range(flipped + 1):
            chance = stats.binom.pmf(flipped, n, flips)
            chance *= stats.binom.pmf(lost, flipped, (flips + drop) / (2 * flips))
            one = compare_flips(0, flipped - lost, lost, n - flipped)
            others = {f"other {place}": replace(one, p=1.0) for place in range(family - 1)}
            verdict = judge({"one": one, **others}, margin=margin)["one"]
            worse += chance * (verdict.kind == "worse")
            calm += chance * (one.low is not None and one.low > -margin)
    return worse, calm


@pytest.mark.parametrize(
    ("n", "flips", "drop", "family", "margin"),
    [(25, 0.3, 0.1, 1, 0.01), (30, 0.2, 0.15, 3, 0.05), (24, 0.2, 0.0, 1, 0.2), (20, 0.1, 0.1, 1, 0.1)],
)
def test_the_power_for_right_or_wrong_answers_is_that_of_the_gates_own_verdicts(
    n: int, flips: float, drop: float, family: int, margin: float
) -> None:
    worse, calm = enumerated(n, flips, drop, family, margin)
    design = binary_design(n, flips)
    assert power_of_drop(design, drop, family=family, margin=margin) == pytest.approx(worse, abs=1e-9)
    assert chance_not_worse(design, drop=drop, margin=margin) == pytest.approx(calm, abs=1e-9)


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


def test_a_normal_approximation_of_many_items_continues_the_enumeration_of_fewer() -> None:
    few, many = binary_design(19_990, 0.1), binary_design(20_010, 0.1)
    assert power_of_drop(few, 0.008, margin=0) == pytest.approx(
        power_of_drop(many, 0.008, margin=0), abs=0.01
    )
    assert chance_not_worse(few, drop=0.004) == pytest.approx(chance_not_worse(many, drop=0.004), abs=0.01)


def test_equal_runs_are_found_worse_than_the_best_of_many_as_rarely_as_the_level_says() -> None:
    for runs in (2, 11):
        assert power_of_drop(
            Design(items=2400, spread=0.5, flips=0.25, runs=runs), 0.0, margin=0.0
        ) == pytest.approx(0.025, abs=1e-3)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(50, 3000),
    st.floats(0.02, 0.5),
    st.integers(1, 20),
    st.sampled_from([1, 4]),
)
def test_a_larger_drop_is_seen_more_often_and_the_smallest_one_with_the_power_asked(
    n: int, flips: float, family: int, runs: int
) -> None:
    design = binary_design(n, flips, runs=runs)
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


@settings(deadline=None, max_examples=30)
@given(st.integers(20, 200), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_a_design_is_the_same_from_two_runs_and_from_their_comparison(
    n: int, seed: int, binary: bool, clustered: bool
) -> None:
    draw = np.random.default_rng(seed)
    columns = draw.random((2, n)) < 0.6 if binary else draw.random((2, n))
    old, new = (column.astype(float).tolist() for column in columns)
    clusters = [f"text {place // 3}" for place in range(n)] if clustered else None
    one = design_of(old, new, clusters)
    other = design_of_comparison(compare_paired(old, new, clusters))
    assert other is not None
    assert other.flips == one.flips
    if binary:
        assert other.effective == pytest.approx(one.effective, rel=1e-6)
    else:  # a comparison has the clusters in its error, also where they are less alike than by chance
        error = other.spread / other.items**0.5
        if one.effect > 1 or not clustered:
            assert error == pytest.approx(one.spread * (one.effect / one.items) ** 0.5)
        else:
            assert error <= one.spread / one.items**0.5 * (1 + 1e-9)


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


def test_chances_of_several_benchmarks_are_combined_as_independent() -> None:
    assert any_of([0.5, 0.5]) == 0.75
    assert all_of([0.5, 0.5]) == 0.25


@pytest.mark.parametrize(
    ("design", "drop", "family"),
    [
        (Design(items=0, spread=0.1), 0.1, 1),
        (Design(items=9, spread=0.1), 1.1, 1),
        (Design(items=9, spread=0.1), 0.1, 0),
    ],
)
def test_what_is_no_design_is_refused(design: Design, drop: float, family: int) -> None:
    with pytest.raises(ValueError, match="give at least one item"):
        power_of_drop(design, drop, family=family)
    with pytest.raises(ValueError, match="share of flips"):
        binary_design(10, 1.5)


ONE = PlannedTest(binary_design(400, 0.2), 0.08)


def first_step(one: PlannedTest, family: int) -> float:
    return power_of_drop(one.design, one.drop, family=family, margin=one.margin)


def test_of_two_equal_tests_each_has_the_second_step_where_the_other_is_found() -> None:
    half, whole = first_step(ONE, 2), first_step(ONE, 1)
    assert powers_together([ONE, ONE]) == pytest.approx([half + (whole - half) * half] * 2, abs=0.01)


def test_a_test_made_of_another_one_alone_falls_with_it_so_the_second_step_adds_nothing() -> None:
    same = replace(ONE, made_of={0: 1.0})
    assert powers_together([ONE, same]) == pytest.approx([first_step(ONE, 2)] * 2, abs=0.01)


def test_where_nothing_else_is_lost_only_the_first_step_counts() -> None:
    others = [replace(ONE, drop=0.0)] * 4
    assert powers_together([ONE, *others])[0] == pytest.approx(first_step(ONE, 5), abs=0.01)
    assert powers_together([ONE]) == [first_step(ONE, 1)]


def test_many_tests_are_found_no_less_often_than_at_the_first_step_and_no_more_than_alone() -> None:
    found = powers_together([replace(ONE, drop=0.06)] * 30)
    once = replace(ONE, drop=0.06)
    assert first_step(once, 30) - 0.01 < min(found)
    assert max(found) < first_step(once, 1) + 0.01


@pytest.mark.parametrize(
    ("sizes", "drops"), [((300,) * 3, (0.08,) * 3), ((200, 300, 400, 500), (0.12, 0.06, 0.08, 0.0))]
)
def test_the_power_is_that_of_the_gates_own_verdicts_on_drawn_answers(
    sizes: tuple[int, ...], drops: tuple[float, ...]
) -> None:
    runs, flips = 1_000, 0.2
    draw = np.random.default_rng(7)
    worse = np.zeros(len(sizes))
    for _ in range(runs):
        found = {}
        for place, (n, drop) in enumerate(zip(sizes, drops, strict=True)):
            flipped = draw.binomial(n, flips)
            lost = draw.binomial(flipped, (flips + drop) / (2 * flips))
            found[place] = compare_flips(0, int(flipped - lost), int(lost), int(n - flipped))
        worse += [one.kind == "worse" for one in judge(found).values()]
    tests = [PlannedTest(binary_design(n, flips), drop) for n, drop in zip(sizes, drops, strict=True)]
    assert powers_together(tests) == pytest.approx(
        list(worse / runs), abs=0.045
    )  # 3 standard errors of 1,000


def test_a_sum_of_benchmarks_that_finds_the_drop_helps_each_of_them() -> None:
    third = replace(ONE.design, spread=ONE.design.spread / 3)
    made = replace(ONE, design=composite_design([third] * 3), made_of=dict.fromkeys(range(3), 1.0))
    *own, whole = powers_together([ONE] * 3 + [made])
    assert min(own) > first_step(ONE, 4) + 0.03
    assert whole > max(own)
