"""Runs of which only totals are known: against statsmodels and SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import confint_proportions_2indep, proportions_ztest

from pytest_touchstone.statistics.unpaired import SummaryStatistics, compare_means, compare_rates


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
    one, two = SummaryStatistics(0.52, 0.012, 400), SummaryStatistics(0.49, 0.02, 150)
    found = compare_means(one, two)
    expected = stats.ttest_ind_from_stats(
        two.mean, two.stderr * math.sqrt(two.n), two.n, one.mean, one.stderr * math.sqrt(one.n), one.n, False
    )
    assert found.p == pytest.approx(expected.pvalue)
    values_a = np.random.default_rng(1).normal(size=30)
    values_b = np.random.default_rng(2).normal(1, 3, size=20)
    whole = stats.ttest_ind(values_b, values_a, equal_var=False)
    found = compare_means(*(SummaryStatistics(v.mean(), stats.sem(v), len(v)) for v in (values_a, values_b)))
    limits = whole.confidence_interval(0.95)
    assert (found.p, found.low, found.high) == pytest.approx((whole.pvalue, limits.low, limits.high))


def test_totals_that_say_too_little_leave_test_and_interval_undefined() -> None:
    assert compare_rates(0.0, 0, 0.5, 10).difference is None
    single = compare_means(SummaryStatistics(0.5, 0.0, 1), SummaryStatistics(0.4, 0.1, 10))
    assert (single.p, single.low) == (None, None)
    assert "one item" in (single.why or "")
    certain = compare_means(SummaryStatistics(0.5, 0.0, 10), SummaryStatistics(0.5, 0.0, 10))
    assert certain.p is None
    assert "both standard errors are 0" in (certain.why or "")
    with pytest.raises(ValueError, match=r"from 0 to 1"):
        compare_rates(66.04, 2400, 67.78, 3200)


@given(st.integers(1, 50), st.integers(1, 50), st.data())
def test_exchanging_two_tables_mirrors_the_result(n_a: int, n_b: int, data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, n_a)) / n_a, data.draw(st.integers(0, n_b)) / n_b
    there, back = compare_rates(a, n_a, b, n_b), compare_rates(b, n_b, a, n_a)
    assert there.p == pytest.approx(back.p)
    assert (there.low, there.high) == pytest.approx((-(back.high or 0), -(back.low or 0)))
