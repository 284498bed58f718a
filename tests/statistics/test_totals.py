"""Runs of which totals are known, corrections for many tests, and how many items a comparison takes."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import NormalIndPower
from statsmodels.stats.proportion import confint_proportions_2indep, proportions_ztest

from harness.statistics.comparison import Comparison
from harness.statistics.paired import compare_flips
from harness.statistics.unpaired import Total, compare_means, compare_rates
from harness.statistics.verdicts import count_tests, holm, items_to_settle

p_values = st.lists(st.none() | st.floats(0, 1), max_size=12)


@pytest.mark.parametrize(
    ("right_a", "n_a", "right_b", "n_b"),
    [(7, 20, 11, 25), (0, 10, 3, 12), (10, 10, 12, 12), (1585, 2400, 2169, 3200)],
)
def test_two_shares_are_compared_as_statsmodels_does(right_a: int, n_a: int, right_b: int, n_b: int) -> None:
    found = compare_rates(right_a / n_a, n_a, right_b / n_b, n_b)
    expected = confint_proportions_2indep(right_b, n_b, right_a, n_a, method="newcomb", compare="diff")
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-12)
    if right_a + right_b < n_a + n_b:
        assert found.p == pytest.approx(proportions_ztest([right_b, right_a], [n_b, n_a])[1])
        table = [[right_a, n_a - right_a], [right_b, n_b - right_b]]
        assert found.p == pytest.approx(stats.chi2_contingency(table, correction=False).pvalue)
    else:
        assert found.p == 1.0


def test_published_rows_are_compared_though_their_rates_are_rounded() -> None:
    """Real@1 of the published study: entity_ft 1600 against mlm_v2 390, and mlm_v2 390 against combined 1188."""
    found = compare_rates(0.6604, 2400, 0.6778, 3200)
    assert found.difference == pytest.approx(0.0174)
    assert found.p == pytest.approx(0.1705, abs=1e-4)
    assert (found.low, found.high) == pytest.approx((-0.0075, 0.0424), abs=1e-4)
    assert compare_rates(0.6604, 2400, 0.6613, 2400).p == pytest.approx(0.948, abs=1e-3)


def test_two_means_are_compared_as_scipys_welch_test_does() -> None:
    one, two = Total(0.52, 0.012, 400), Total(0.49, 0.02, 150)
    found = compare_means(one, two)
    expected = stats.ttest_ind_from_stats(
        two.mean, two.stderr * math.sqrt(two.n), two.n, one.mean, one.stderr * math.sqrt(one.n), one.n, False
    )
    assert found.p == pytest.approx(expected.pvalue)
    values_a = np.random.default_rng(1).normal(size=30)
    values_b = np.random.default_rng(2).normal(1, 3, size=20)
    whole = stats.ttest_ind(values_b, values_a, equal_var=False)
    found = compare_means(*(Total(v.mean(), stats.sem(v), len(v)) for v in (values_a, values_b)))
    limits = whole.confidence_interval(0.95)
    assert (found.p, found.low, found.high) == pytest.approx((whole.pvalue, limits.low, limits.high))


def test_totals_that_say_too_little_leave_test_and_interval_undefined() -> None:
    assert compare_rates(0.0, 0, 0.5, 10).difference is None
    single = compare_means(Total(0.5, 0.0, 1), Total(0.4, 0.1, 10))
    assert (single.p, single.low, single.why) == (None, None, "a run has one item: no standard error")
    certain = compare_means(Total(0.5, 0.0, 10), Total(0.5, 0.0, 10))
    assert (certain.p, certain.why) == (None, "both standard errors are 0: nothing to test with")
    with pytest.raises(ValueError, match="give a rate from 0 to 1, not per cent"):
        compare_rates(66.04, 2400, 67.78, 3200)


@given(st.integers(1, 50), st.integers(1, 50), st.data())
def test_exchanging_two_tables_mirrors_the_result(n_a: int, n_b: int, data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, n_a)) / n_a, data.draw(st.integers(0, n_b)) / n_b
    there, back = compare_rates(a, n_a, b, n_b), compare_rates(b, n_b, a, n_a)
    assert there.p == pytest.approx(back.p)
    assert (there.low, there.high) == pytest.approx((-(back.high or 0), -(back.low or 0)))


@settings(max_examples=20, deadline=None)
@given(p_values)
def test_the_correction_is_that_of_statsmodels_over_the_tests_that_were_made(ps: list[float | None]) -> None:
    known = [p for p in ps if p is not None]
    assert count_tests(ps) == len(known)
    ours = holm(ps)
    assert [p is None for p in ours] == [p is None for p in ps]
    if known:
        assert [p for p in ours if p is not None] == pytest.approx(
            list(multipletests(known, method="holm")[1])
        )


def test_numbers_that_are_no_p_are_refused() -> None:
    with pytest.raises(ValueError, match=r"1\.2 is no p-value"):
        holm([0.3, 1.2])


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
