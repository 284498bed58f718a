"""Which benchmarks can carry a decision."""

from __future__ import annotations

from pytest_touchstone.study.points import Study
from pytest_touchstone.study.pool import NO_ERROR, NO_SERIES, ONE_SERIES, MeasureNoise, noise, pool_of
from tests.support.known import known
from tests.support.studies import answers, of_items, of_totals


def first(study: Study) -> MeasureNoise:
    return noise(study, {measure.key: pool_of(study, measure) for measure in study.measures})[0]


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
