"""What it costs to have chosen the best of several checkpoints."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_touchstone.compare.standings import ALL, best_checkpoint
from pytest_touchstone.study.advice import recommend
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.pool import pools_of
from pytest_touchstone.study.selection_bias import SelectionEstimate, selection_estimates, standings_in
from tests.support.compared import ran
from tests.support.entries import right
from tests.support.known import known
from tests.support.studies import answers, of_items, of_totals, placed, study_of_candidates


def cost(study: Study, benchmark: str = "b") -> SelectionEstimate:
    return next(one for one in selection_estimates(study) if one.standing.benchmark == benchmark)


def test_of_equal_checkpoints_the_lead_is_luck_and_the_interval_holds_the_truth() -> None:
    costs = [cost(of_items({"a": answers([0.6] * 11, 400, seed)})) for seed in range(20)]
    assert np.mean([one.measured - 0.6 for one in costs]) > 0.02
    assert np.mean([one.expected for one in costs]) == pytest.approx(0.6, abs=0.01)
    assert sum(one.low <= 0.6 <= one.high for one in costs) >= 18
    assert all(one.low < one.expected < one.measured < one.high for one in costs)


def test_a_checkpoint_far_ahead_owes_nothing_to_luck() -> None:
    one = cost(of_items({"a": answers([0.4, 0.5, 0.8], 1000, 1)}))
    assert one.standing.checkpoint == "a/3"
    assert one.luck == pytest.approx(0.0, abs=1e-3)


def test_over_all_items_benchmarks_count_by_their_items_and_luck_is_smaller() -> None:
    runs = [
        {"a": few["b"], "b": many["b"]}
        for few, many in zip(answers([0.6] * 8, 100, 1), answers([0.5] * 8, 900, 2), strict=True)
    ]
    study = of_items({"s": runs})
    whole = cost(study, ALL)
    scores = [np.concatenate([one["a"], one["b"]]).mean() for one in runs]
    assert whole.measured == pytest.approx(max(scores))
    assert whole.standing.checkpoint == f"s/{1 + int(np.argmax(scores))}"
    assert whole.luck < cost(study, "a").luck


def test_of_what_is_better_when_lower_luck_has_made_it_too_low() -> None:
    generator = np.random.default_rng(4)
    bits = generator.normal(0.9, 0.2, (8, 200))
    how = {"bpb": {"by": "mean", "of": "bpb", "higher_is_better": False, "unit": "bits"}}
    study = study_of_candidates(
        [
            placed(ran(f"s/{place}", {"b": {"bpb": row.tolist()}}, aggregate=how), "s", float(place), place)
            for place, row in enumerate(bits)
        ]
    )
    one = cost(study)
    assert one.measured == pytest.approx(bits.mean(axis=1).min())
    assert one.low < one.measured < one.expected < one.high
    assert one.measure.difference_unit.name == "bits"


def test_nothing_is_said_of_totals_or_of_one_checkpoint() -> None:
    assert selection_estimates(of_totals({"a": [0.5, 0.6, 0.55]})) == []
    assert selection_estimates(of_items({"a": answers([0.5], 100, 1)})) == []


def test_an_error_rate_is_expected_within_an_interval_that_holds_it() -> None:
    how = {"error_rate": {"by": "mean", "of": "error_rate", "higher_is_better": False}}
    for errors in ((16, 12), (12, 0)):
        study = of_items({"a": [{"b": {"error_rate": right(count, 40)}} for count in errors]}, aggregate=how)
        one = cost(study)
        assert one.measured == pytest.approx(min(errors) / 40)
        assert 0 <= one.low <= one.measured <= one.expected <= one.high <= 1
        assert math.copysign(1, one.measured) == math.copysign(1, one.low) == 1


def test_a_benchmark_of_three_items_hardly_widens_all_items() -> None:
    runs = answers([0.6, 0.68], 800, 3)
    alone = cost(of_items({"s": [{**one, "c": right(90, 200)} for one in runs]}), ALL)
    beside = cost(
        of_items({"s": [{**one, "c": right(90, 200), "few": [1.0, 1.0, 1.0]} for one in runs]}), ALL
    )
    assert beside.high - beside.low < 1.1 * (alone.high - alone.low)


def test_best_and_study_expect_the_same_of_a_composite() -> None:
    parts = (("b", "acc", 0.5), ("c", "acc", 0.5))
    runs = [
        {**one, "c": other["b"]}
        for one, other in zip(answers([0.9, 0.95], 60, 1), answers([0.97, 0.99], 40, 2), strict=True)
    ]
    composites = [{"name": "mine", "parts": [[weight, name, metric] for name, metric, weight in parts]}]
    study = of_items({"s": runs}, composites=composites)
    best = best_checkpoint(study.compute_once(standings_in))
    assert best is not None
    mine = next(one for one in selection_estimates(study) if one.standing == best)
    chosen = known(recommend(study, next(iter(study.compute_once(pools_of).values()))))
    expected = known(chosen.expected)
    assert (expected.value, expected.low, expected.high) == pytest.approx(
        (mine.expected, mine.low, mine.high)
    )
