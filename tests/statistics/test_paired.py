"""Two runs on the same items: against SciPy, statsmodels and enumeration, and what must hold for any values.

Items that change between checkpoints.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar

from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.intervals import mcnemar_p, supposed_share_lost, tango_interval
from pytest_touchstone.statistics.paired import (
    changed_by_chance,
    compare_flips,
    compare_paired,
    compare_with_references,
    flipped_items,
    paths,
    sign_flip_test,
    signed_ranks,
)
from tests.support.known import known
from tests.support.lines import missing

hits = st.integers(0, 1).map(float)
graded = st.floats(0, 1)
pairs = st.one_of(
    st.lists(st.tuples(hits, hits), min_size=1, max_size=40),
    st.lists(st.tuples(graded, graded), min_size=1, max_size=40),
)


def enumerated_p(totals: Sequence[float]) -> float:
    """The share of all signs that make the sum as large."""
    statistic = abs(math.fsum(totals))
    sums = [
        abs(math.fsum(sign * total for sign, total in zip(signs, totals, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(totals))
    ]
    return sum(one >= statistic - 1e-9 for one in sums) / len(sums)


def score_statistic(gained: int, lost: int, n: int, difference: float) -> float:
    """Tango's, with the share of lost items found by maximising the likelihood."""

    def misfit(share: float) -> float:
        cells = ((gained, share + difference), (lost, share), (n - gained - lost, 1 - 2 * share - difference))
        return -sum(count * math.log(max(chance, 1e-300)) for count, chance in cells if count)

    low, high = max(0.0, -difference), (1 - difference) / 2
    share = optimize.minimize_scalar(misfit, bounds=(low, high), method="bounded", options={"xatol": 1e-13}).x
    return (gained - lost - n * difference) / math.sqrt(n * (2 * share + difference * (1 - difference)))


def values(found: Comparison) -> tuple[float, float, float, float]:
    """Difference, limits and p of a comparison that has them all."""
    assert found.difference is not None
    assert found.low is not None
    assert found.high is not None
    assert found.p is not None
    return found.difference, found.low, found.high, found.p


def columns(items: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in items], [b for _, b in items]


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (0, 1), (3, 3), (1, 9), (12, 30), (140, 190)])
def test_mcnemars_p_is_that_of_statsmodels_and_of_scipys_binomial_test(gained: int, lost: int) -> None:
    table = [[50, gained], [lost, 40]]
    assert mcnemar_p(gained, lost) == pytest.approx(min(1.0, mcnemar(table, exact=True).pvalue))
    if gained + lost:
        assert mcnemar_p(gained, lost) == pytest.approx(stats.binomtest(gained, gained + lost).pvalue)


@pytest.mark.parametrize(("gained", "lost", "n"), [(5, 9, 40), (14, 2, 50), (1, 1, 12), (60, 90, 600)])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.999])
def test_tangos_limits_are_where_the_score_test_begins_to_reject(
    gained: int, lost: int, n: int, level: float
) -> None:
    z, (low, high) = stats.norm.ppf((1 + level) / 2), tango_interval(gained, lost, n, level)
    assert score_statistic(gained, lost, n, low) == pytest.approx(z, abs=1e-5)
    assert score_statistic(gained, lost, n, high) == pytest.approx(-z, abs=1e-5)


def test_at_no_difference_tangos_statistic_is_mcnemars_without_correction() -> None:
    assert supposed_share_lost(14, 5, 60, 0.0) == pytest.approx(19 / 120)
    expected = mcnemar([[20, 14], [5, 21]], exact=False, correction=False).statistic
    assert score_statistic(14, 5, 60, 0.0) ** 2 == pytest.approx(expected, rel=1e-6)


def test_where_nothing_differs_the_interval_has_a_width_all_the_same() -> None:
    z = stats.norm.ppf(0.975)
    assert tango_interval(0, 0, 200) == pytest.approx((-(z**2) / (200 + z**2), z**2 / (200 + z**2)))


def test_tangos_interval_reaches_its_ends_where_every_item_flips() -> None:
    low, high = tango_interval(10, 0, 10)
    assert high == pytest.approx(1.0)
    assert 0.4 < low < 0.8


def test_tangos_interval_covers_the_truth_as_often_as_it_says() -> None:
    """All outcomes of 60 items weighed by their chances: 10 % gained, 16 % lost."""
    n, gain, loss = 60, 0.10, 0.16
    covered = 0.0
    for gained, lost in itertools.product(range(20), range(28)):
        low, high = tango_interval(gained, lost, n)
        chance = stats.multinomial.pmf([gained, lost, n - gained - lost], n, [gain, loss, 1 - gain - loss])
        covered += chance * (low <= gain - loss <= high)
    assert 0.94 < covered < 0.965


@pytest.mark.parametrize(
    "totals",
    [[1, 1, 1, -1, 1], [2, -1, 0, 1, 3, 1], [0.5, 0.25, -0.75, 1], [0.31, 0.72, -0.11, 0.9], [0.1] * 7],
)
def test_the_permutation_test_counts_what_enumeration_counts(totals: list[float]) -> None:
    found = sign_flip_test(totals)
    assert found.how.startswith("exact")
    assert found.p == pytest.approx(enumerated_p(totals))
    expected = stats.permutation_test((totals,), np.sum, permutation_type="samples", n_resamples=2**62)
    assert found.p == pytest.approx(min(1.0, expected.pvalue))


def test_totals_of_one_size_give_mcnemars_test_for_any_number_of_units() -> None:
    found = sign_flip_test([1.0] * 190 + [-1.0] * 140)
    assert found.p == pytest.approx(mcnemar_p(190, 140), rel=1e-9)
    assert found.how == "exact, counted"


def test_many_units_of_many_sizes_are_drawn_with_one_added_to_both_counts() -> None:
    generator = random.Random(3)
    totals = [generator.gauss(0.2, 1) for _ in range(60)]
    found = sign_flip_test(totals, draws=20_000)
    assert found.how == "20000 draws"
    assert found.p == pytest.approx(stats.ttest_1samp(totals, 0).pvalue, abs=0.01)
    assert sign_flip_test([abs(total) for total in totals], draws=99).p == 1 / 100
    assert sign_flip_test(totals, draws=20_000) == found


def test_right_and_wrong_answers_are_compared_by_mcnemar_and_tango() -> None:
    baseline, new = [1.0] * 6 + [0.0] * 4, [1.0] * 4 + [0.0] * 5 + [1.0]
    found = compare_paired(baseline, new)
    assert (found.flips, found.n, found.units) == ((1, 2), 10, 10)
    assert (found.baseline, found.new) == (0.6, 0.5)
    assert values(found) == pytest.approx((-0.1, *tango_interval(1, 2, 10), 1.0))
    assert found.stderr == pytest.approx(stats.sem(np.subtract(new, baseline)))
    assert found == compare_flips(4, 1, 2, 3)


def test_items_that_share_a_text_are_flipped_together() -> None:
    baseline, new = [1, 1, 1, 0, 0, 1, 0, 1, 1.0], [0, 0, 1, 0, 1, 0, 0, 0, 1.0]
    clusters = ["a", "a", "a", "b", "b", "c", None, None, "d"]
    found = compare_paired(baseline, new, clusters)
    totals = [-2, 1, -1, 0, -1, 0]
    assert (found.n, found.units, found.flips) == (9, 6, (1, 4))
    assert found.p == pytest.approx(enumerated_p(totals))
    mean, sizes = -3 / 9, [3, 2, 1, 1, 1, 1]
    square = sum((total - size * mean) ** 2 for total, size in zip(totals, sizes, strict=True))
    assert found.stderr == pytest.approx(math.sqrt(square / 81 * 6 / 5))


def test_clusters_of_doubled_items_count_as_one_item_each() -> None:
    generator = random.Random(8)
    items = [(float(generator.random() < 0.6), float(generator.random() < 0.6)) for _ in range(300)]
    baseline, new = columns(items)
    single = compare_paired(baseline, new)
    double = compare_paired(baseline * 2, new * 2, [*range(300), *range(300)])
    assert double.p == pytest.approx(single.p)
    assert double.stderr == pytest.approx(single.stderr)
    assert values(double)[1:3] == pytest.approx(values(single)[1:3], abs=1e-3)


def test_scores_that_differ_both_ways_in_like_numbers_have_a_narrower_interval() -> None:
    """A few of the largest gains cannot be what the others' losses hide."""
    steps = [0.05 * (-1) ** place - 0.01 for place in range(100)]
    down = [-abs(step) for step in steps]
    both, lost = (compare_paired([0.5] * 100, [0.5 + step for step in some]) for some in (steps, down))
    widths = [known(one.high) - known(one.difference) for one in (both, lost)]
    assert widths[0] < 0.8 * widths[1]


def test_scores_that_are_all_the_same_keep_a_width() -> None:
    found = compare_paired([0.5] * 20, [0.5] * 20)
    assert (known(found.low), known(found.high)) == pytest.approx((-3.69 / 21, 3.69 / 21), rel=0.02)


def test_many_graded_scores_have_the_interval_and_the_p_of_t() -> None:
    generator = np.random.default_rng(5)
    baseline, new = generator.random((2, 4000))
    difference, low, high, p = values(compare_paired(baseline.tolist(), new.tolist()))
    steps = new - baseline
    assert difference == pytest.approx(steps.mean())
    assert (low, high) == pytest.approx(
        stats.t.interval(0.95, 3999, steps.mean(), stats.sem(steps)), abs=5e-4
    )
    assert p == pytest.approx(stats.ttest_1samp(steps, 0).pvalue, abs=0.05)


def test_scores_of_no_known_range_differ_as_much_as_the_largest_seen() -> None:
    baseline, new = [-2.0, -3.5, -1.0, -4.0], [-2.5, -3.0, -1.75, -4.5]
    found = compare_paired(baseline, new)
    wider = compare_paired([*baseline, -9.0, -9.0], [*new, -5.0, -13.0])
    assert known(found.low) < known(found.difference) < known(found.high)
    assert known(wider.high) - known(wider.low) > 2 * (known(found.high) - known(found.low))


def test_scores_too_large_for_a_mean_are_not_compared() -> None:
    for large in (1e155, 1e308, -1e200):
        found = compare_paired([large, 1.0, 2.0], [1.0, 1.0, 3.0])
        assert (found.difference, found.p, found.n) == (None, None, 3)
        assert "too large" in known(found.why)


def test_what_is_undefined_is_none_with_a_reason() -> None:
    nothing = compare_paired([], [])
    assert (nothing.difference, nothing.p, nothing.why) == (None, None, "no items in common")
    one = compare_paired([0.5], [0.25])
    assert (one.difference, one.p, one.low) == (-0.25, None, None)
    assert "one item" in (one.why or "")
    together = compare_paired([1.0, 0.0], [0.0, 0.0], ["a", "a"])
    assert together.p is None
    assert not missing(together.why or "", "2 items", "one cluster")
    same = compare_paired([-3.0, -2.0], [-3.0, -2.0])
    assert (same.p, same.low, same.stderr) == (1.0, None, 0.0)
    assert same.why is not None


@pytest.mark.parametrize(
    ("baseline", "new", "clusters", "message"),
    [
        ([1.0], [1.0, 0.0], None, "1 values of the baseline but 2 of the new run"),
        ([1.0], [1.0], ["a", "b"], "1 values but 2 cluster ids"),
        ([1.0, math.nan], [1.0, 0.0], None, "the baseline has the value nan at place 1"),
    ],
)
def test_lists_that_do_not_fit_are_named(
    baseline: list[float], new: list[float], clusters: list[Hashable | None] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compare_paired(baseline, new, clusters)


@settings(deadline=None)
@given(pairs, st.data())
def test_exchanging_the_runs_mirrors_the_result(
    items: list[tuple[float, float]], data: st.DataObject
) -> None:
    clusters = data.draw(
        st.none() | st.lists(st.sampled_from(["a", "b", "c", None]), min_size=len(items), max_size=len(items))
    )
    baseline, new = columns(items)
    there = compare_paired(baseline, new, clusters, draws=199)
    back = compare_paired(new, baseline, clusters, draws=199)
    assert back.p == there.p
    assert back.difference == pytest.approx(-(there.difference or 0.0))
    assert back.flips == there.turned.flips
    assert (back.low is None) == (there.low is None)
    if there.low is not None and there.high is not None:
        assert (back.low, back.high) == pytest.approx((-there.high, -there.low), abs=1e-12)


@settings(deadline=None)
@given(pairs, st.randoms(use_true_random=False), st.data())
def test_the_order_of_the_items_does_not_matter(
    items: list[tuple[float, float]], shuffler: random.Random, data: st.DataObject
) -> None:
    clusters = data.draw(
        st.lists(st.sampled_from(["a", "b", "c", None]), min_size=len(items), max_size=len(items))
    )
    order = list(range(len(items)))
    shuffler.shuffle(order)
    moved = columns([items[place] for place in order])
    assert compare_paired(*moved, draws=199) == compare_paired(*columns(items), draws=199)
    known = compare_paired(*columns(items), clusters, draws=199)
    assert compare_paired(*moved, [clusters[place] for place in order], draws=199) == known


@settings(deadline=None)
@given(pairs, st.data())
def test_limits_enclose_the_difference_and_scores_bound_them(
    items: list[tuple[float, float]], data: st.DataObject
) -> None:
    clusters = data.draw(st.lists(st.integers(0, 6), min_size=len(items), max_size=len(items)))
    for found in (compare_paired(*columns(items)), compare_paired(*columns(items), clusters)):
        assert found.difference is not None
        assert (found.low is None) == (found.high is None) == (found.p is None)
        if found.low is not None and found.high is not None:
            assert -1 <= found.low <= found.difference <= found.high <= 1
            assert found.low < found.high


RIGHT = st.sampled_from([0.0, 1.0])


@st.composite
def curves(draw: st.DrawFn) -> list[list[float]]:
    n = draw(st.integers(1, 12))
    return draw(st.lists(st.lists(RIGHT, min_size=n, max_size=n), min_size=2, max_size=6))


@settings(deadline=None)
@given(columns=curves())
def test_every_item_goes_one_way(columns: list[list[float]]) -> None:
    ways = paths(columns)
    assert sorted(place for way in ways for place in way) == list(range(len(columns[0])))
    kept, never = set(ways.kept), set(ways.never)
    assert kept == {place for place, one in enumerate(zip(*columns, strict=True)) if all(one)}
    assert never == {place for place, one in enumerate(zip(*columns, strict=True)) if not any(one)}


@settings(deadline=None)
@given(columns=curves())
def test_backwards_what_was_learned_is_lost(columns: list[list[float]]) -> None:
    ways, back = paths(columns), paths(columns[::-1])
    assert (ways.learned, ways.lost, ways.unsteady) == (back.lost, back.learned, back.unsteady)


@settings(deadline=None)
@given(columns=curves())
def test_forgotten_and_learned_make_up_the_change_of_the_score(columns: list[list[float]]) -> None:
    before, after = columns[:2]
    found = flipped_items(before, after)
    assert len(found.learned) - len(found.forgotten) == sum(after) - sum(before)
    assert found.p == mcnemar_p(len(found.learned), len(found.forgotten))
    assert all(before[place] == 1 and after[place] == 0 for place in found.forgotten)


def test_of_several_samples_the_majority_counts() -> None:
    found = flipped_items([0.6, 0.5, 1.0], [0.4, 0.75, 0.8])
    assert (found.forgotten, found.learned) == ((0,), (1,))


def test_one_sample_of_each_item_tells_nothing_of_chance() -> None:
    assert changed_by_chance([1.0, 0.0], [0.0, 0.0], 1) is None


@pytest.mark.parametrize("samples", [3, 5, 10])
def test_the_changes_of_one_model_asked_twice_are_those_expected(samples: int) -> None:
    """On 4,000 items of any difficulty the expected number is within a tenth of the one that comes about."""
    generator = np.random.default_rng(samples)
    share = generator.beta(0.6, 0.6, 4000)
    one, other = (generator.binomial(samples, share) / samples for _ in range(2))
    found = flipped_items(one.tolist(), other.tolist())
    expected = known(changed_by_chance(one.tolist(), other.tolist(), samples))
    assert expected == pytest.approx(len(found.forgotten) + len(found.learned), rel=0.1)


@given(st.lists(st.integers(-99, 99), max_size=30), st.floats(0.01, 100))
def test_signed_ranks_depend_on_signs_and_order_alone(margins: list[int], scale: float) -> None:
    found = signed_ranks(margins)
    assert signed_ranks([scale * margin**3 for margin in margins]) == found
    assert [(rank > 0.5) - (rank < 0.5) for rank in found] == [(one > 0) - (one < 0) for one in margins]
    assert signed_ranks([-margin for margin in margins]) == pytest.approx([1 - rank for rank in found])


def test_the_mean_of_signed_ranks_is_wilcoxons_statistic() -> None:
    margins = [0.3, -1.2, 2.5, 0.7, -0.1, 4.0, -3.0]
    positive = stats.wilcoxon(
        margins, alternative="greater"
    ).statistic  # the sum of the ranks of those above 0
    n = len(margins)
    signed = 2 * positive - n * (n + 1) / 2 - sum((one > 0) - (one < 0) for one in margins) / 2
    assert sum(signed_ranks(margins)) == pytest.approx(n / 2 + signed / (2 * n))


# The mean of several runs


def test_the_variance_of_a_comparison_with_references_is_the_observed_one() -> None:
    """Two items more differ by +1 and -1; Student's t with one degree less than there are items."""
    means, new = [1.0, 0.75, 0.5, 0.0, 1.0] * 8, [1.0, 1.0, 0.0, 0.0, 0.0] * 8
    differences = [*([0.0, 0.25, -0.5, 0.0, -1.0] * 8), 1.0, -1.0]
    expected = stats.ttest_1samp(differences, 0.0)
    comparison = compare_with_references(means, new)
    assert comparison.difference == pytest.approx(-0.25)
    assert comparison.p == pytest.approx(expected.pvalue)
    assert comparison.low is not None
    low, _ = expected.confidence_interval(0.95)
    center = sum(differences) / 42
    assert comparison.low == pytest.approx(-0.25 - (center - low) * 42 / 40)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
def test_exchanging_references_and_new_scores_reverses_the_sign(pairs: list[tuple[float, float]]) -> None:
    means, new = map(list, zip(*pairs, strict=True))
    one, other = compare_with_references(means, new), compare_with_references(new, means)
    assert (one.difference, one.p) == (-(other.difference or 0.0), other.p)


def test_items_of_one_text_count_together() -> None:
    means, new = [1.0] * 40, [0.0] * 8 + [1.0] * 32
    alone = compare_with_references(means, new)
    together = compare_with_references(means, new, [str(place // 8) for place in range(40)])
    assert alone.p is not None
    assert together.p is not None
    assert alone.p < 0.05 < together.p
