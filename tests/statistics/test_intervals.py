"""Estimates: against SciPy, against sums written out, and what must hold for any values."""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_touchstone.statistics.intervals import (
    Estimate,
    composite_estimate,
    macro_estimate,
    mean_estimate,
    perplexity_estimate,
    quantile_estimate,
    share_limits,
)
from tests.support.lines import missing

hits = st.lists(st.integers(0, 1).map(float), min_size=1, max_size=60)
graded = st.lists(st.floats(0, 1), min_size=1, max_size=60)
Z = stats.norm.ppf(0.975)


def wilson(share: float, n: float) -> tuple[float, float]:
    """The roots of (p - share)^2 = z^2 p (1 - p) / n, as Wilson states them."""
    roots = np.roots([1 + Z**2 / n, -(2 * share + Z**2 / n), share**2])
    return float(min(roots.real)), float(max(roots.real))


def cluster_variance(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """The sandwich estimator written as its double sum over pairs of items of one cluster."""
    n, mean, count = len(values), float(np.mean(values)), len(set(clusters))
    pairs = sum(
        (a - mean) * (b - mean)
        for a, of_a in zip(values, clusters, strict=True)
        for b, of_b in zip(values, clusters, strict=True)
        if of_a == of_b
    )
    return count / (count - 1) * pairs / n**2


def limits(estimate: Estimate) -> tuple[float, float, float]:
    """Low, value, high of an estimate that has all three."""
    assert estimate.low is not None
    assert estimate.value is not None
    assert estimate.high is not None
    return estimate.low, estimate.value, estimate.high


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 1), (0, 20), (20, 20), (7, 20), (500, 1000)])
def test_the_wilson_interval_is_scipys(right: int, n: int) -> None:
    estimate = mean_estimate([1.0] * right + [0.0] * (n - right))
    expected = stats.binomtest(right, n).proportion_ci(method="wilson")
    assert limits(estimate) == pytest.approx((expected.low, right / n, expected.high), abs=1e-12)
    assert estimate.method == "Wilson"


def test_the_standard_error_has_divisor_n_minus_one() -> None:
    estimate = mean_estimate([1.0, 0.0, 0.0, 1.0, 1.0])
    assert estimate.stderr == pytest.approx(math.sqrt(0.6 * 0.4 / 4))
    assert mean_estimate([0.2, 0.9, 0.4]).stderr == pytest.approx(stats.sem([0.2, 0.9, 0.4]))


def test_the_t_interval_is_scipys() -> None:
    values = [0.1, 0.4, 0.35, 0.8, 1.95]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    estimate = mean_estimate(values)
    assert (estimate.low, estimate.high) == pytest.approx((expected.low, expected.high))
    assert estimate.method == "t"


@pytest.mark.parametrize("estimate", [mean_estimate([]), perplexity_estimate([]), mean_estimate([], [])])
def test_no_items_give_nothing_but_a_reason(estimate: Estimate) -> None:
    assert estimate == Estimate(None, None, None, None, "none", "no items were scored")


def test_one_graded_item_has_a_value_only() -> None:
    estimate = mean_estimate([0.5])
    assert (estimate.value, estimate.low, estimate.high, estimate.stderr) == (0.5, None, None, None)
    assert estimate.why == "one item: no standard error"


def test_one_hit_has_a_wilson_interval_but_no_standard_error() -> None:
    estimate = mean_estimate([1.0], ["a"])
    assert limits(estimate)[1:] == (1.0, 1.0)
    assert estimate.stderr is None
    assert estimate.why == "one item: no standard error"


@pytest.mark.parametrize("values", [[1.0, 0.0, 1.0], [0.5, 0.25, 0.1]])
def test_one_cluster_of_several_items_has_a_value_only(values: list[float]) -> None:
    estimate = mean_estimate(values, ["text"] * 3)
    assert (estimate.low, estimate.high, estimate.stderr) == (None, None, None)
    assert not missing(estimate.why or "", "3 items", "one cluster")


def test_the_cluster_standard_error_is_the_double_sum() -> None:
    values, clusters = [1.1, 1.2, 1.9, 1.8, 1.4, 1.5], ["a", "a", "b", "b", "c", "d"]
    estimate = mean_estimate(values, clusters)
    expected = math.sqrt(cluster_variance(values, clusters))
    assert estimate.stderr == pytest.approx(expected)
    low, value, high = limits(estimate)
    assert high - value == pytest.approx(stats.t.ppf(0.975, 3) * expected)
    assert value - low == pytest.approx(high - value)
    assert estimate.method == "t, 4 clusters"


def test_clusters_shrink_the_number_of_items_in_the_wilson_interval() -> None:
    values = [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    clusters = list("aabbccdd")
    estimate = mean_estimate(values, clusters)
    share = 5 / 8
    effect = cluster_variance(values, clusters) / (share * (1 - share) / 7)
    assert effect > 1
    effective = 8 / effect * (Z / stats.t.ppf(0.975, 3)) ** 2
    low, high = wilson(share, effective)
    assert (estimate.low, estimate.high) == pytest.approx((low, high))


def test_a_design_effect_below_one_is_not_credited() -> None:
    values, clusters = [1.0, 0.0] * 20, [number // 2 for number in range(40)]
    assert cluster_variance(values, clusters) == pytest.approx(0)
    estimate = mean_estimate(values, clusters)
    low, high = wilson(0.5, 40 * (Z / stats.t.ppf(0.975, 19)) ** 2)
    assert (estimate.low, estimate.high) == pytest.approx((low, high))


def test_equal_hits_in_clusters_count_as_one_hit_a_cluster() -> None:
    estimate = mean_estimate([1.0] * 12, list("aaaabbbbcccc"))
    assert (estimate.low, estimate.high) == pytest.approx(wilson(1.0, 3))


def test_items_without_a_cluster_share_nothing() -> None:
    values = [0.1, 0.5, 0.9, 0.3]
    assert mean_estimate(values, [None] * 4) == mean_estimate(values)
    assert mean_estimate(values, [None, "a", "a", None]) == mean_estimate(values, ["x", "a", "a", "y"])


def test_cluster_ids_must_match_the_values() -> None:
    with pytest.raises(ValueError, match=r"2 values .*1 cluster"):
        mean_estimate([0.0, 1.0], ["a"])


def test_perplexity_is_exp_of_minus_the_mean_with_the_interval_of_the_log() -> None:
    logprobs = [-1.0, -2.5, -0.3, -4.0]
    estimate = perplexity_estimate(logprobs)
    mean, error = float(np.mean(logprobs)), float(stats.sem(logprobs))
    margin = stats.t.ppf(0.975, 3) * error
    assert estimate.value == pytest.approx(math.exp(-mean))
    assert estimate.stderr == pytest.approx(math.exp(-mean) * error)
    assert estimate.low == pytest.approx(math.exp(-mean - margin))
    assert estimate.high == pytest.approx(math.exp(-mean + margin))


def test_perplexity_with_clusters_uses_their_standard_error() -> None:
    logprobs, clusters = [-1.0, -2.5, -0.3, -4.0], ["a", "a", "b", "c"]
    estimate = perplexity_estimate(logprobs, clusters)
    assert estimate.value is not None
    error = math.sqrt(cluster_variance(logprobs, clusters))
    assert estimate.stderr == pytest.approx(estimate.value * error)
    assert not missing(estimate.method, "log scale", "3 clusters")


def test_perplexity_of_one_item_has_no_interval() -> None:
    estimate = perplexity_estimate([-2.0])
    assert estimate == Estimate(math.exp(2), None, None, None, "none", "one item: no standard error")


def test_a_perplexity_beyond_floats_is_undefined() -> None:
    assert perplexity_estimate([-1e4, -1e4]).value is None
    wide = perplexity_estimate([-1.0, -1000.0])
    assert wide.value is not None
    assert wide.high is None
    assert "upper limit" in (wide.why or "")


def test_the_macro_mean_counts_groups_not_items() -> None:
    groups = [[0.2, 0.4], [0.9, 0.5, 0.7, 1.9], [0.1, 0.0, 0.3]]
    estimate = macro_estimate(groups)
    assert estimate.value == pytest.approx(np.mean([np.mean(group) for group in groups]))
    parts = [stats.sem(group) ** 2 / 9 for group in groups]
    error = math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(group) - 1) for part, group in zip(parts, groups, strict=True)
    )
    assert estimate.stderr == pytest.approx(error)
    low, value, high = limits(estimate)
    assert high - value == pytest.approx(stats.t.ppf(0.975, freedom) * error)
    assert value - low == pytest.approx(high - value)


def test_two_groups_have_the_degrees_of_freedom_of_welchs_test() -> None:
    first, second = [0.2, 0.4, 1.9], [0.1, 0.3, 0.35, 0.8, 0.2]
    welch = stats.ttest_ind(first, [-value for value in second], equal_var=False).confidence_interval(0.95)
    estimate = macro_estimate([first, second])
    assert (estimate.low, estimate.high) == pytest.approx((welch.low / 2, welch.high / 2))


def test_the_macro_mean_of_equal_groups_of_hits_is_nearly_the_pooled_wilson_interval() -> None:
    groups = [[1.0, 0.0] * 25] * 4
    macro, pooled = limits(macro_estimate(groups)), limits(mean_estimate([1.0, 0.0] * 100))
    assert macro == pytest.approx(pooled, abs=2e-3)


def test_groups_without_a_miss_still_have_an_interval() -> None:
    low, value, high = limits(macro_estimate([[1.0] * 4, [0.0] * 4]))
    assert (low, high) == pytest.approx(wilson(0.5, 8))
    assert value == 0.5


def test_a_macro_mean_over_an_empty_group_is_undefined() -> None:
    estimate = macro_estimate([[1.0, 0.0], []])
    assert estimate == Estimate(None, None, None, None, "none", estimate.why)
    assert "1 of 2 groups" in (estimate.why or "")
    assert macro_estimate([]).why == "no groups"


def test_a_group_of_one_item_leaves_the_macro_mean_without_standard_error() -> None:
    estimate = macro_estimate([[0.5], [0.25, 0.75]])
    assert (estimate.value, estimate.low, estimate.stderr) == (0.5, None, None)
    assert "one item" in (estimate.why or "")
    binary = macro_estimate([[1.0], [0.0, 1.0]])
    assert binary.stderr is None
    assert (binary.low, binary.high) == pytest.approx(wilson(0.75, 4 / (1 + 1 / 2)))


def test_a_composite_adds_weighted_variances() -> None:
    parts = [(0.4, mean_estimate([1.0, 0.0, 1.0, 1.0])), (0.6, mean_estimate([0.3, 0.5, 0.9]))]
    estimate = composite_estimate(parts)
    assert estimate.value == pytest.approx(0.4 * 0.75 + 0.6 * (0.3 + 0.5 + 0.9) / 3)
    variance = sum(weight**2 * (part.stderr or math.nan) ** 2 for weight, part in parts)
    assert estimate.stderr == pytest.approx(math.sqrt(variance))
    (low_a, a, _), (low_b, b, _) = (limits(part) for _, part in parts)
    low, value, _ = limits(estimate)
    assert value - low == pytest.approx(math.hypot(0.4 * (a - low_a), 0.6 * (b - low_b)))
    assert "independent" in estimate.method


def test_a_composite_of_one_part_is_that_part() -> None:
    part = mean_estimate([1.0, 0.0, 1.0, 1.0, 0.0])
    whole = composite_estimate([(1.0, part)])
    assert limits(whole) == pytest.approx(limits(part))
    assert whole.stderr == part.stderr


def test_a_negative_weight_turns_the_limits_round() -> None:
    part = mean_estimate([1.0, 1.0, 1.0, 0.0])
    low, value, high = limits(part)
    assert limits(composite_estimate([(-1.0, part)])) == pytest.approx((-high, -value, -low))


def test_a_composite_says_which_part_it_lacks() -> None:
    whole = mean_estimate([1.0, 0.0])
    assert composite_estimate([]).why == "no parts"
    assert composite_estimate([(0.5, whole), (0.5, mean_estimate([]))]).why == "no items were scored"
    single = composite_estimate([(0.5, whole), (0.5, mean_estimate([0.5]))])
    assert (single.value, single.low, single.stderr) == (0.5, None, None)
    assert single.why == "one item: no standard error"


@settings(deadline=None)
@given(hits, st.data())
def test_hits_have_an_interval_within_zero_and_one(values: list[float], data: st.DataObject) -> None:
    clusters = data.draw(st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values)))
    low, value, high = limits(mean_estimate(values))
    assert 0 <= low <= value <= high <= 1
    if len(set(clusters)) > 1:
        low, value, high = limits(mean_estimate(values, clusters))
        assert 0 <= low <= value <= high <= 1


@settings(deadline=None)
@given(graded, st.data())
def test_values_lie_within_their_limits(values: list[float], data: st.DataObject) -> None:
    clusters = data.draw(st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values)))
    logprobs = [-10 * value for value in values]
    for estimate in (
        mean_estimate(values),
        mean_estimate(values, clusters),
        perplexity_estimate(logprobs),
        perplexity_estimate(logprobs, clusters),
    ):
        assert estimate.value is not None
        assert estimate.low is None or estimate.low <= estimate.value
        assert estimate.high is None or estimate.value <= estimate.high
        assert (estimate.stderr is None or estimate.low is None) == (estimate.why is not None)


@settings(deadline=None)
@given(st.one_of(hits, graded), st.randoms(use_true_random=False), st.data())
def test_the_order_of_the_items_does_not_matter(
    values: list[float], shuffler: random.Random, data: st.DataObject
) -> None:
    clusters = data.draw(st.lists(st.sampled_from("abc"), min_size=len(values), max_size=len(values)))
    order = list(range(len(values)))
    shuffler.shuffle(order)
    moved, moved_clusters = [values[place] for place in order], [clusters[place] for place in order]
    assert mean_estimate(moved) == mean_estimate(values)
    assert mean_estimate(moved, moved_clusters) == mean_estimate(values, clusters)
    assert perplexity_estimate(moved, moved_clusters) == perplexity_estimate(values, clusters)


@settings(deadline=None)
@given(st.one_of(hits, graded))
def test_clusters_of_one_item_change_nothing(values: list[float]) -> None:
    assert mean_estimate(values, list(range(len(values)))) == mean_estimate(values)
    assert perplexity_estimate(values, list(range(len(values)))) == perplexity_estimate(values)


@settings(deadline=None)
@given(st.lists(hits, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_macro_mean_of_hits_is_bounded_and_ignores_the_order_of_groups(
    groups: list[list[float]], shuffler: random.Random
) -> None:
    estimate = macro_estimate(groups)
    low, value, high = limits(estimate)
    assert 0 <= low <= value <= high <= 1
    shuffled = [list(group) for group in groups]
    shuffler.shuffle(shuffled)
    assert macro_estimate(shuffled) == estimate


@settings(deadline=None)
@given(st.lists(hits, min_size=1, max_size=5))
def test_a_weighted_mean_of_shares_has_limits_within_zero_and_one(groups: list[list[float]]) -> None:
    parts = [(1 / len(groups), mean_estimate(group)) for group in groups]
    low, value, high = limits(composite_estimate(parts))
    assert -1e-12 <= low <= value <= high <= 1 + 1e-12


@given(graded, st.booleans())
def test_limits_of_scores_within_0_and_1_stay_there_and_enclose_the_value(
    values: list[float], clustered: bool
) -> None:
    clusters = [number // 2 for number in range(len(values))] if clustered else None
    for one in (mean_estimate(values, clusters), macro_estimate([values, values[::-1]])):
        if one.low is not None:
            low, value, high = limits(one)
            assert 0 <= low <= value <= high <= 1


@pytest.mark.parametrize("right", [0, 1, 7, 19, 20])
def test_the_limits_of_shares_lie_between_jeffreys_and_clopper_pearsons(right: int) -> None:
    n, share = 20, right / 20
    low, high = share_limits(share, share * (1 - share) / (n - 1), n)
    exact = stats.binomtest(right, n).proportion_ci(method="exact")
    jeffreys = stats.beta(right + 0.5, n - right + 0.5).ppf([0.025, 0.975])
    assert exact.low - 1e-9 <= low <= min(share, jeffreys[0]) + 1e-9
    assert max(share, jeffreys[1]) - 1e-9 <= high <= exact.high + 1e-9
    assert low == pytest.approx(stats.beta(right, n - right + 0.5).ppf(0.025) if right else 0.0)
    assert high == pytest.approx(stats.beta(right + 0.5, n - right).ppf(0.975) if right < n else 1.0)


def test_a_limit_is_about_the_quantile_of_the_bootstrap_with_half_an_item_more() -> None:
    values = [0.0] * 17 + [0.2, 0.5, 1.0]
    found, generator = mean_estimate(values), np.random.default_rng(0)
    weights = generator.dirichlet([1.0] * 20 + [0.5], 200_000)
    assert found.method == "beta"
    assert found.stderr == pytest.approx(float(stats.sem(values)))
    assert found.low == pytest.approx(np.quantile(weights @ [*values, 0.0], 0.025), abs=0.005)
    assert found.high == pytest.approx(np.quantile(weights @ [*values, 1.0], 0.975), abs=0.005)
    free = mean_estimate([*values, 1.5])
    assert (free.method, (free.low or 0.0) < 0) == ("t", True)


@pytest.mark.parametrize("n", [20, 40, 164])
def test_scores_near_1_do_not_claim_more_than_as_many_right_items(n: int) -> None:
    low, _, high = limits(mean_estimate([1.0] * (n - 1) + [0.99994]))
    least = stats.beta(n, 0.5).ppf(0.025)
    assert stats.beta(n, 1).ppf(0.025) < low < least + 1e-3
    assert high > 0.999999
    clusters = [str(number // 2) for number in range(n)]
    assert limits(mean_estimate([1.0] * (n - 1) + [0.99994], clusters))[0] < low


@given(st.floats(0, 1), st.floats(0, 0.25), st.floats(1, 1e6))
def test_limits_of_shares_are_there_for_any_moments(mean: float, variance: float, units: float) -> None:
    low, high = share_limits(mean, variance, units)
    assert 0 <= low <= mean <= high <= 1


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=60), st.floats(0, 1), st.integers(1, 5))
def test_a_quantile_is_numpys_and_its_limits_enclose_it(values: list[float], share: float, size: int) -> None:
    found = quantile_estimate(values, share, [number // size for number in range(len(values))])
    assert found.value == pytest.approx(np.quantile(values, share), rel=1e-9, abs=1e-9)
    assert found.low is None or found.low <= found.value  # type: ignore[operator]
    assert found.high is None or found.high >= found.value  # type: ignore[operator]


def test_the_interval_of_a_quantile_holds_it_as_often_as_it_says() -> None:
    draw, true = np.random.default_rng(0), float(np.log(10))
    held = 0
    for _ in range(400):
        found = quantile_estimate(list(draw.exponential(size=300)), 0.9)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= true <= found.high
    assert 0.92 <= held / 400 <= 0.98


def test_a_quantile_beyond_the_values_has_no_limit() -> None:
    found = quantile_estimate([float(one) for one in range(100)], 0.999)
    assert found.value == pytest.approx(98.901)
    assert found.high is None
    assert "100 items" in (found.why or "")
    assert quantile_estimate([], 0.5).value is None
    assert not missing(quantile_estimate([1.0, 2.0], 0.5, ["a", "a"]).why or "", "2 items", "one cluster")


def test_values_that_are_all_one_tell_nothing_of_their_range() -> None:
    found = mean_estimate([2.0] * 3)
    assert (found.value, found.low, found.high, found.stderr) == (2.0, None, None, 0.0)
    assert found.why is not None


@pytest.mark.parametrize("large", [1e155, 1e308, -1e200])
def test_means_of_scores_that_are_too_large_are_undefined(large: float) -> None:
    values = [1.0, large, 2.0]
    for found in (
        mean_estimate(values),
        perplexity_estimate(values),
        quantile_estimate(values, 0.5),
        macro_estimate([[1.0, 2.0], values]),
    ):
        assert (found.value, found.low, found.stderr) == (None, None, None)
        assert "too large" in str(found.why)


def test_a_mean_of_what_has_no_upper_limit_has_a_t_interval_though_all_lie_within_0_and_1() -> None:
    values = [0.1, 0.4, 0.2, 0.0]
    found = mean_estimate(values, bounded=False)
    half = stats.t.ppf(0.975, 3) * stats.sem(values)
    assert limits(found) == pytest.approx((np.mean(values) - half, np.mean(values), np.mean(values) + half))
