"""Verdicts: the rule case by case, corrections for many tests, and the number of items that settles one."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import NormalIndPower

from pytest_touchstone.statistics.comparison import Comparison, VerdictKind, undefined
from pytest_touchstone.statistics.paired import compare_flips, compare_paired
from pytest_touchstone.statistics.verdicts import holm, items_to_settle, judge
from tests.support.lines import missing

MIRROR = {"worse": "better", "better": "worse"}


def compared(difference: float, half: float, p: float | None) -> Comparison:
    """A comparison with this difference, half the width of its interval, and p."""
    return replace(
        compare_flips(500, 50, 50, 400),
        difference=difference,
        low=difference - half,
        high=difference + half,
        p=p,
    )


def kind(comparison: Comparison, **settings_: Any) -> VerdictKind | None:
    return judge({"one": comparison}, **settings_)["one"].verdict


@pytest.mark.parametrize(
    ("difference", "half", "p", "expected"),
    [
        (-0.03, 0.02, 0.003, "worse"),
        (-0.03, 0.04, 0.14, "inconclusive"),
        (-0.008, 0.006, 0.01, "inconclusive"),  # certain, yet perhaps within the margin
        (-0.005, 0.003, 0.001, "not worse"),  # certain, and certainly within the margin
        (0.89 - 0.9, 0.005, 0.001, "inconclusive"),  # the margin, but for rounding: -0.010000000000000009
        (0.9 - 0.89, 0.005, 0.001, "not worse"),
        (0.0, 0.009, 1.0, "not worse"),
        (0.0, 0.011, 1.0, "inconclusive"),
        (0.005, 0.003, 0.001, "not worse"),
        (0.03, 0.035, 0.09, "not worse" if 0.03 - 0.035 > -0.01 else "inconclusive"),
        (0.03, 0.02, 0.003, "better"),
        (0.02, 0.05, None, "inconclusive"),
        (0.06, 0.05, None, "not worse"),  # no test, but an interval
    ],
)
def test_a_verdict_follows_from_difference_interval_and_p(
    difference: float, half: float, p: float | None, expected: str
) -> None:
    assert kind(compared(difference, half, p)) == expected


def test_the_margin_is_each_benchmarks_own() -> None:
    both = {"large": compared(-0.03, 0.02, 0.003), "small": compared(-0.03, 0.02, 0.003)}
    found = judge(both, margins={"large": 0.06})
    assert (found["large"].verdict, found["small"].verdict) == ("not worse", "worse")
    assert judge(both, margin=0.06, margins={"small": 0.0})["small"].margin == 0.0


def test_what_is_certain_of_one_benchmark_alone_is_not_so_of_one_among_many() -> None:
    others = {f"other {number}": compared(0.0, 0.02, 0.9) for number in range(9)}
    found = judge({"fallen": compared(-0.03, 0.029, 0.02), **others})
    assert kind(compared(-0.03, 0.029, 0.02)) == "worse"
    assert (found["fallen"].verdict, found["fallen"].family) == ("inconclusive", 10)
    assert found["fallen"].p_adjusted == pytest.approx(0.2)


def test_a_benchmark_that_was_not_tested_does_not_make_the_others_uncertain() -> None:
    found = judge({"fallen": compared(-0.03, 0.029, 0.02), "untested": undefined("no items in common")})
    assert (found["fallen"].verdict, found["fallen"].family) == ("worse", 1)
    untested = found["untested"]
    assert (untested.verdict, untested.why, untested.p_adjusted) == (
        "inconclusive",
        "no items in common",
        None,
    )


def test_inconclusive_comes_with_the_number_of_items_it_would_take() -> None:
    found = judge({"one": compare_flips(1000, 180, 180, 1040)})["one"]
    assert found.verdict == "inconclusive"
    # 15 % of the items flip: (1.96 + 0.84)^2 * 0.15 / 0.01^2
    assert found.items_to_tell == pytest.approx(11_770, rel=0.01)
    assert f"about {found.items_to_tell:,} items would decide" in found.why


def test_more_items_than_there_are_is_no_advice() -> None:
    one = {"one": compare_flips(1000, 180, 180, 1040)}
    assert "about 11,861 items would decide" in judge(one, sizes={"one": 11_861})["one"].why
    told = judge(one, sizes={"one": 2400})["one"]
    assert told.items_to_tell == 11_861
    assert "would decide" not in told.why
    assert not missing(told.why, "11,861 items", "2,400", "too few")


def test_the_reason_is_written_for_a_person() -> None:
    found = judge(
        {"real_coref": compare_flips(1400, 60, 140, 800), "lambada": compare_flips(200, 60, 60, 280)}
    )
    assert found["real_coref"].why.startswith("-3.33 points [-4.5")
    assert "after Holm over 2 tests" in found["real_coref"].why
    assert not missing(found["lambada"].why, "more than 1 point")


def test_an_interval_of_another_level_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.95, .*0\.9$"):
        judge({"one": compared(0.0, 0.01, 1.0)}, alpha=0.1)


items = st.one_of(
    st.lists(st.tuples(st.integers(0, 1).map(float), st.integers(0, 1).map(float)), min_size=1, max_size=60),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30),
)
runs = st.lists(items, min_size=1, max_size=4)


def verdicts(benchmarks: list[list[tuple[float, float]]], *, back: bool = False) -> list[str]:
    found = {}
    for number, pairs in enumerate(benchmarks):
        columns = [a for a, _ in pairs], [b for _, b in pairs]
        found[str(number)] = compare_paired(*(reversed(columns) if back else columns), draws=199)
    return [str(one.verdict) for one in judge(found).values()]


@settings(deadline=None)
@given(runs)
def test_exchanging_the_runs_turns_worse_into_better(benchmarks: list[list[tuple[float, float]]]) -> None:
    there, back = verdicts(benchmarks), verdicts(benchmarks, back=True)
    for one, other in zip(there, back, strict=True):
        if "worse" in (one, other) or "better" in (one, other):
            assert other == MIRROR[one]


@settings(deadline=None)
@given(runs)
def test_identical_runs_are_never_worse(benchmarks: list[list[tuple[float, float]]]) -> None:
    same = [[(a, a) for a, _ in pairs] for pairs in benchmarks]
    assert set(verdicts(same)) <= {"not worse", "inconclusive"}
    many = [one * (1000 // len(one)) for one in same if len(one) > 1]
    assert set(verdicts(many)) <= {"not worse"}


@settings(deadline=None)
@given(runs, st.randoms(use_true_random=False))
def test_neither_the_order_of_items_nor_that_of_benchmarks_matters(
    benchmarks: list[list[tuple[float, float]]], shuffler: random.Random
) -> None:
    known = verdicts(benchmarks)
    moved = [shuffler.sample(one, len(one)) for one in benchmarks]
    assert verdicts(moved) == known
    assert verdicts(moved[::-1]) == known[::-1]


# Corrections for many tests, and how many items a comparison takes

p_values = st.lists(st.none() | st.floats(0, 1), max_size=12)


@settings(max_examples=20, deadline=None)
@given(p_values)
def test_the_correction_is_that_of_statsmodels_over_the_tests_that_were_made(ps: list[float | None]) -> None:
    known = [p for p in ps if p is not None]
    ours = holm(ps)
    assert [p is None for p in ours] == [p is None for p in ps]
    if known:
        assert [p for p in ours if p is not None] == pytest.approx(
            list(multipletests(known, method="holm")[1])
        )


def with_stderr(stderr: float, n: int) -> Comparison:
    """A comparison whose interval is as wide as a normal one of this standard error."""
    half = stats.norm.ppf(0.975) * stderr
    return replace(compare_flips(n, 0, 0, 0), difference=0.0, low=-half, high=half)


def test_the_number_of_items_is_that_of_statsmodels() -> None:
    """A paired test of differences with standard deviation 0.387: 15 % of the items flip."""
    sd = math.sqrt(0.15 - 0.03**2)
    expected = NormalIndPower(ddof=0).solve_power(effect_size=0.03 / sd, alpha=0.05, power=0.8, ratio=0)
    assert items_to_settle(with_stderr(sd / math.sqrt(500), 500), 0.03) == math.ceil(expected)


def test_so_many_items_do_find_the_difference_with_that_power() -> None:
    flips = compare_flips(1700, 120, 180, 0)
    assert flips.stderr is not None
    needed = items_to_settle(with_stderr(flips.stderr, flips.n), 0.03)
    assert needed is not None
    generator = np.random.default_rng(0)
    cells = generator.multinomial(needed, [0.06, 0.09, 0.85], size=2000)
    found = np.mean(
        [(compare_flips(int(rest), int(g), int(lost), 0).p or 1) <= 0.05 for g, lost, rest in cells]
    )
    assert 0.75 < found < 0.85


def test_more_items_are_called_for_where_they_share_texts_or_nothing_differed() -> None:
    same = compare_flips(100, 0, 0, 100)
    assert (items_to_settle(same, 0.01) or 0) > 200
    wide, narrow = compare_flips(400, 100, 100, 400), compare_flips(480, 20, 20, 480)
    assert (items_to_settle(wide, 0.01) or 0) > 4 * (items_to_settle(narrow, 0.01) or 0)
    assert items_to_settle(wide, 0.0) is None


def test_a_smaller_margin_takes_more_items_in_the_square() -> None:
    generator = random.Random(0)
    found = compare_flips(300, generator.randint(40, 60), 50, 300)
    assert items_to_settle(found, 0.01) == pytest.approx(4 * (items_to_settle(found, 0.02) or 0), rel=1e-3)
