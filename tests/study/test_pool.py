"""Differences of two checkpoints by columns that are made once, and which benchmarks can carry a decision."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.compare.metric import compare_metric
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.pool import (
    NO_ERROR,
    NO_SERIES,
    ONE_SERIES,
    MeasureNoise,
    column_of,
    compare_points,
    measure_noise,
)
from tests.support.compared import ran
from tests.support.known import known
from tests.support.studies import answers, of_items, of_totals, placed, study_of_candidates


def first(study: Study) -> MeasureNoise:
    return measure_noise(study)[0]


def test_series_far_apart_on_many_items_can_be_decided() -> None:
    runs = answers([0.5] * 5 + [0.7] * 5, 2000, 1)
    found = first(of_items({"a": runs[:5], "z": runs[5:]}))
    assert found.verdict == "can decide"
    assert 0.19 < known(known(found.found).spread) < 0.21
    assert known(found.items) < 0.012


def test_equal_series_are_too_noisy() -> None:
    runs = answers([0.6] * 10, 2000, 2)
    assert first(of_items({"a": runs[:5], "z": runs[5:]})).verdict == "too noisy"


def test_steady_series_on_few_items_have_too_few_of_them() -> None:
    """Each answers alike at all of its checkpoints, but their lead is one item in forty."""
    (one, other) = [1.0] * 20 + [0.0] * 20, [1.0] * 21 + [0.0] * 19
    found = first(of_items({"a": [{"b": one}] * 4, "z": [{"b": other}] * 4}))
    assert found.verdict == "too few items"
    assert known(found.found).ratio is None


def test_no_evidence_where_there_is_nothing_to_compare() -> None:
    runs = answers([0.6] * 3, 100, 3)
    assert first(of_items({"a": runs[:1], "z": runs[1:2]})).why == NO_SERIES
    assert first(of_items({"a": runs})).why == ONE_SERIES


def test_no_evidence_where_the_number_of_items_is_not_known() -> None:
    found = first(of_totals({"a": [0.5, 0.501, 0.5], "z": [0.6, 0.601, 0.6]}, n=0))
    assert (found.verdict, found.why, found.items) == ("no evidence", NO_ERROR, None)


ERROR = {"error": {"by": "mean", "of": "acc", "higher_is_better": False}}

VALUES = st.sampled_from([0.0, 1.0]) | st.sampled_from([0.0, 0.25, 1.0]) | st.none()


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(VALUES, VALUES, st.none() | st.sampled_from("xyz")), min_size=2, max_size=12),
    lower=st.booleans(),
)
def test_it_is_the_one_that_any_two_results_have(
    rows: list[tuple[float | None, float | None, str | None]], lower: bool
) -> None:
    before, after, clusters = (list(column) for column in zip(*rows, strict=True))
    if all(value is None for value in before) or all(value is None for value in after):
        return
    more = {"clusters": clusters, "aggregate": ERROR if lower else {}}
    study = study_of_candidates(
        [
            placed(ran(f"a/{place}", {"b": scores}, **more), "a", float(place))
            for place, scores in enumerate((before, after), start=1)
        ]
    )
    first, second = study.points
    for measure in study.measures:
        one, other = (point.candidate.entries["b"] for point in (first, second))
        expected = compare_metric(one, other, measure.metric, primary=True, level=study.level).comparison
        assert compare_points(study, first, second, measure) == expected


def test_a_column_is_made_once_and_counts_no_flips_of_scores_that_lack_an_item() -> None:
    study = study_of_candidates([placed(ran("a/1", {"b": {"acc": [1.0, 0.0], "f1": [0.5, None]}}), "a", 1.0)])
    entry = study.points[0].candidate.entries["b"]
    assert known(column_of(study, entry, "acc")) is column_of(study, entry, "acc")
    assert known(column_of(study, entry, "acc")).flips
    assert not known(column_of(study, entry, "f1")).flips
