"""The curves of a study: where they peak, and what of their changes is more than noise."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.study.between import starts_of
from pytest_touchstone.compare.study.curves import JudgedCurve, judged_curves
from pytest_touchstone.compare.study.differences import MORE, NOT_MORE, UNTESTED
from pytest_touchstone.compare.study.points import Study
from pytest_touchstone.compare.study.reading import study_of
from tests.support.korean_table import row, write
from tests.support.published import published
from tests.support.runs import run
from tests.support.studies import of_totals


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """The published rows."""
    return study_of([str(published(tmp_path))], output=tmp_path)


def curve(study: Study, measure: str, series: str) -> JudgedCurve:
    found = study.once(judged_curves)
    return next(one for one in found if (one.curve.measure.label, one.curve.series.name) == (measure, series))


@pytest.mark.parametrize(
    ("series", "epoch", "peak"),
    [("mlm_v2/1536", 3.0, 0.6604), ("combined/1536", 5.0, 0.6675), ("entity_ft", 2.84, 0.6778)],
)
def test_the_published_curves_peak_where_they_do(
    study: Study, series: str, epoch: float, peak: float
) -> None:
    found = curve(study, "Real@1", series).curve
    assert (found.points[found.peak].epoch, found.at(found.peak)) == (epoch, peak)


@pytest.mark.parametrize(("series", "drop"), [("mlm_v2/1536", -0.0137), ("mlm_v2/2048", -0.0078)])
def test_the_published_drops_are_not_more_than_noise(study: Study, series: str, drop: float) -> None:
    found = curve(study, "Real@1", series)
    assert found.drop.value == pytest.approx(drop)
    assert found.drop.verdict == NOT_MORE
    assert found.curve.drop is not None
    assert (found.curve.drop.shrunk or 1) < found.curve.at(found.curve.peak)


def test_one_published_trend_of_twenty_is_more_than_noise(study: Study) -> None:
    told = [one for one in study.once(judged_curves) if one.trend.verdict == MORE]
    assert [(one.curve.measure.label, one.curve.series.name) for one in told] == [("Real@1", "combined/1536")]


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        (("0.50", "0.60", "0.70"), "rises to the end"),
        (("0.70", "0.60", "0.50"), "falls from the start"),
        (("0.50", "0.70", "0.60"), "peaks at epoch 2, then falls"),
        (("0.50", "0.70", "0.70"), "rises, level from epoch 2 on"),
        (("0.50", "0.50", "0.50"), "is level"),
    ],
)
def test_a_curve_in_words(tmp_path: Path, values: tuple[str, ...], shape: str) -> None:
    rows = [row(step=100 * (place + 1), real1=value) for place, value in enumerate(values)]
    found = study_of([str(write(tmp_path / "t.csv", *rows))], output=tmp_path)
    assert curve(found, "Real@1", "plain").curve.shape == shape


def test_a_large_drop_is_more_than_noise(tmp_path: Path) -> None:
    rows = [row(step=100 * (place + 1), real1=value) for place, value in enumerate(("0.5", "0.7", "0.5"))]
    found = study_of([str(write(tmp_path / "t.csv", *rows))], output=tmp_path)
    assert curve(found, "Real@1", "plain").drop.verdict == MORE


def test_a_large_drop_and_a_jump_are_told_among_hundreds_of_curves() -> None:
    """In 4,000 draws no chance is smaller than 2 / 4001, which times 250 is more than 0.05."""
    draw = random.Random(1)
    level = {f"s{place}": [0.5 + draw.gauss(0, 0.01) for _ in range(4)] for place in range(249)}
    study = of_totals({"up and down": [0.5, 0.9, 0.5, 0.5], **level})
    told = [
        (one.curve.series.name, name)
        for one in study.once(judged_curves)
        for name, test in one.tests.items()
        if test.verdict == MORE
    ]
    assert told == [("up and down", name) for name in ("start to peak", "peak to last", "trend", "stability")]


def test_without_numbers_of_items_nothing_is_tested_and_why_is_said(tmp_path: Path) -> None:
    rows = [row(step=100 * (place + 1), sizes=",") for place in range(3)]
    found = curve(study_of([str(write(tmp_path / "t.csv", *rows))], output=tmp_path), "Real@1", "plain")
    assert found.trend.value is None
    assert found.curve.why == "the number of items is not known (--items real_coref=N gives it)"


@given(st.lists(st.integers(0, 100), min_size=3, max_size=6))
def test_without_numbers_of_items_a_curve_falls_as_it_does_with_them(values: list[int]) -> None:
    shares = [value / 100 for value in values]
    counted, bare = (judged_curves(of_totals({"a": shares}, n))[0] for n in (1000, 0))
    for known, untested in ((counted.rise, bare.rise), (counted.drop, bare.drop)):
        assert untested.value == (None if known.value is None else pytest.approx(known.value))
        assert (untested.p, untested.low, untested.verdict) == (None, None, UNTESTED)


def test_points_of_a_run_are_compared_by_the_items_that_they_share(tmp_path: Path) -> None:
    names = [f"checkpoint-{step}" for step in (100, 200, 300)]
    for seed, name in enumerate(names):
        run(tmp_path, name, name, seed=seed)
    found = study_of([], output=tmp_path)
    assert all(one.curve.items for one in found.once(judged_curves))


def test_beginnings_at_unequal_epochs_are_interpolated_or_not_compared(study: Study) -> None:
    real1 = study.measures[0]
    found = {(one.first.name, one.second.name): one for one in starts_of(study, real1)}
    same = found["mlm_v2/1536", "mlm_v2/2048"]
    assert (same.epoch, same.between) == (0.5, None)
    made = found["mlm_v2/2048", "entity_ft"]
    assert made.between is not None
    assert [one.epoch for one in made.between] == [2.0, 2.5]
    assert made.comparison.baseline == pytest.approx(0.6463 + 0.98 * (0.6472 - 0.6463))
    assert made.comparison.difference == pytest.approx(0.6734 - (made.comparison.baseline or 0))


def test_a_series_that_ends_before_another_begins_is_not_compared_with_it(tmp_path: Path) -> None:
    rows = [row("a", 100), row("a", 200), row("b", 300), row("b", 400)]
    found = study_of([str(write(tmp_path / "t.csv", *rows))], output=tmp_path)
    (only,) = starts_of(found, found.measures[0])
    assert only.comparison.difference is None
    assert only.comparison.why == "a ends at epoch 2, and b begins at 3"
