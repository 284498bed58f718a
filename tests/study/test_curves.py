"""The curves of a study: where they peak, and what of their changes is more than noise."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.study.curves import DROP, KINDS, RISE, TREND, Curve, curves_of
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.pool import MORE, NOT_MORE, UNTESTED
from pytest_touchstone.study.reading import load_study
from pytest_touchstone.study.series_comparison import compare_series
from tests.support.known import known
from tests.support.korean_table import row, write
from tests.support.published import published
from tests.support.runs import run
from tests.support.studies import of_totals


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """The published rows."""
    return load_study([str(published(tmp_path))], output=tmp_path)


def curve(study: Study, measure: str, series: str) -> Curve:
    found = study.compute_once(curves_of)
    return next(one for one in found if (one.measure.label, one.series.name) == (measure, series))


@pytest.mark.parametrize(
    ("series", "epoch", "peak"),
    [("mlm_v2/1536", 3.0, 0.6604), ("combined/1536", 5.0, 0.6675), ("entity_ft", 2.84, 0.6778)],
)
def test_the_published_curves_peak_where_they_do(
    study: Study, series: str, epoch: float, peak: float
) -> None:
    found = curve(study, "Real@1", series)
    assert (found.points[found.peak].epoch, found.at(found.peak)) == (epoch, peak)


@pytest.mark.parametrize(("series", "drop"), [("mlm_v2/1536", -0.0137), ("mlm_v2/2048", -0.0078)])
def test_the_published_drops_are_not_more_than_noise(study: Study, series: str, drop: float) -> None:
    found = curve(study, "Real@1", series)
    assert found.tests[DROP].value == pytest.approx(drop)
    assert found.tests[DROP].verdict == NOT_MORE
    assert known(found.tests[DROP].less_luck) < found.at(found.peak)


def test_one_published_trend_of_twenty_is_more_than_noise(study: Study) -> None:
    told = [one for one in study.compute_once(curves_of) if one.tests[TREND].verdict == MORE]
    assert [(one.measure.label, one.series.name) for one in told] == [("Real@1", "combined/1536")]


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
    found = load_study([str(write(tmp_path / "t.csv", *rows))], output=tmp_path)
    assert curve(found, "Real@1", "plain").shape == shape


def test_a_large_drop_is_more_than_noise(tmp_path: Path) -> None:
    rows = [row(step=100 * (place + 1), real1=value) for place, value in enumerate(("0.5", "0.7", "0.5"))]
    found = load_study([str(write(tmp_path / "t.csv", *rows))], output=tmp_path)
    assert curve(found, "Real@1", "plain").tests[DROP].verdict == MORE


def test_a_large_drop_and_a_jump_are_told_among_hundreds_of_curves() -> None:
    """In 4,000 draws no chance is smaller than 2 / 4001, which times 250 is more than 0.05."""
    draw = random.Random(1)
    level = {f"s{place}": [0.5 + draw.gauss(0, 0.01) for _ in range(4)] for place in range(249)}
    study = of_totals({"up and down": [0.5, 0.9, 0.5, 0.5], **level})
    told = [
        (one.series.name, name)
        for one in study.compute_once(curves_of)
        for name, test in one.tests.items()
        if test.verdict == MORE
    ]
    assert told == [("up and down", name) for name in KINDS]


def test_without_numbers_of_items_nothing_is_tested_and_why_is_said(tmp_path: Path) -> None:
    rows = [row(step=100 * (place + 1), sizes=",") for place in range(3)]
    found = curve(load_study([str(write(tmp_path / "t.csv", *rows))], output=tmp_path), "Real@1", "plain")
    assert found.tests[TREND].value is None
    assert "--items real_coref=N" in (found.why or "")


@given(st.lists(st.integers(0, 100), min_size=3, max_size=6))
def test_without_numbers_of_items_a_curve_falls_as_it_does_with_them(values: list[int]) -> None:
    shares = [value / 100 for value in values]
    counted, bare = (curves_of(of_totals({"a": shares}, n))[0] for n in (1000, 0))
    for kind in (RISE, DROP):
        tested, untested = counted.tests[kind], bare.tests[kind]
        assert untested.value == (None if tested.value is None else pytest.approx(tested.value))
        assert (untested.p, untested.low, untested.verdict) == (None, None, UNTESTED)


def test_points_of_a_run_are_compared_by_the_items_that_they_share(tmp_path: Path) -> None:
    names = [f"checkpoint-{step}" for step in (100, 200, 300)]
    for seed, name in enumerate(names):
        run(tmp_path, name, name, seed=seed)
    found = load_study([], output=tmp_path)
    assert all(one.items for one in found.compute_once(curves_of))


def test_beginnings_at_unequal_epochs_are_interpolated_or_not_compared(study: Study) -> None:
    starts = study.compute_once(compare_series)[0].starts
    found = {tuple(series.name for series in one.series): one for one in starts}
    same = found["mlm_v2/1536", "mlm_v2/2048"]
    assert (same.epochs, same.how) == ((0.5,), "common")
    assert list(same.gaps) == pytest.approx([0.6531 - 0.6558])
    made = found["mlm_v2/2048", "entity_ft"]
    assert (made.epochs, made.how) == ((2.49,), "interpolated")
    assert list(made.gaps) == pytest.approx([0.6734 - (0.6463 + 0.98 * (0.6472 - 0.6463))])


def test_a_series_that_ends_before_another_begins_is_not_compared_with_it(tmp_path: Path) -> None:
    rows = [row("a", 100), row("a", 200), row("b", 300), row("b", 400)]
    found = load_study([str(write(tmp_path / "t.csv", *rows))], output=tmp_path)
    (only,) = found.compute_once(compare_series)[0].starts
    assert (only.contrast, only.why) == (None, "their epochs do not overlap")


def test_the_first_place_within_a_point_of_the_peak_is_found() -> None:
    (found,) = curves_of(of_totals({"a": [0.50, 0.58, 0.595, 0.60, 0.55]}, n=10_000))
    assert (found.within, found.peak, found.last) == (3, 3, 4)
    assert found.tests[TREND].value == pytest.approx(0.012)
