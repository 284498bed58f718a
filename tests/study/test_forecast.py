"""The end of a curve, forecast from its beginning, as a reader sees it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_touchstone.study.curve_sections import forecast_section
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.reading import load_study
from pytest_touchstone.study.sections import render_study
from tests.support.compared import ran
from tests.support.known import known
from tests.support.lines import missing
from tests.support.published import published
from tests.support.studies import of_totals, placed, study_of_candidates

SIX = [0.40, 0.41, 0.405, 0.42, 0.412, 0.419]


def shown(study: Study, at: float | None = None) -> str:
    return render_study([known(forecast_section(study, at))], width=80, color=False)


def test_a_single_curve_has_its_forecast_in_a_sentence() -> None:
    section = known(forecast_section(of_totals({"a": SIX})))
    assert not missing(section.line, "first 4 of 6 checkpoints", "42.00 % at epoch 6")
    assert "between 37." in section.line
    assert section.line.endswith("; known: 41.90 %")


def test_of_the_published_rows_all_ends_are_within_their_intervals_which_are_wide(tmp_path: Path) -> None:
    section = known(forecast_section(load_study([str(published(tmp_path))], output=tmp_path)))
    assert not missing(section.line, "16 of 16 ends", "5.7 points")
    assert {one["holds"] for one in section.data["past"]} == {True}


def test_a_place_to_come_is_forecast_from_all_checkpoints() -> None:
    section = known(forecast_section(of_totals({"a": SIX, "b": SIX[:3]}), 9))
    (one,) = section.data["coming"]
    assert (one["series"], one["from"], one["at"], one["value"], one["known"]) == ("a", 6, 9, 0.419, None)
    assert "Forecast at 9" in shown(of_totals({"a": SIX}), 9)


def test_of_fewer_than_five_checkpoints_nothing_is_said_unless_it_is_asked_for() -> None:
    study = of_totals({"a": SIX[:4]})
    assert forecast_section(study) is None
    assert not missing(shown(study, 9), "at 9", "five checkpoints")


@pytest.mark.parametrize("place", [2, 6])
def test_a_place_that_is_known_is_not_forecast(place: int) -> None:
    assert "Nothing can be forecast" in shown(of_totals({"a": SIX}), place)


def test_no_limit_of_a_share_is_beyond_all_or_nothing() -> None:
    section = known(forecast_section(of_totals({"a": [0.02, 0.6, 0.3, 0.97, 0.99, 0.98]}), 12))
    assert (section.data["coming"][0]["low"], section.data["coming"][0]["high"]) == (0.0, 1.0)


def test_bits_are_forecast_in_bits() -> None:
    how = {"bpb": {"by": "mean", "of": "bpb", "higher_is_better": False, "unit": "bits"}}
    levels = np.array([0.9, 0.85, 0.83, 0.82, 0.81])
    rows = [{"b": {"bpb": [level - 0.1, level + 0.1]}} for level in levels.tolist()]
    study = study_of_candidates(
        [
            placed(ran(f"s/{place}", row, aggregate=how), "s", float(place), place)
            for place, row in enumerate(rows, start=1)
        ]
    )
    assert known(forecast_section(study)).data["past"][0]["unit"] == "bits"
    assert "0.8200" in shown(study)


def test_the_table_of_the_published_rows_fits_80_columns(tmp_path: Path) -> None:
    text = shown(load_study([str(published(tmp_path))], output=tmp_path), 7)
    assert max(map(len, text.splitlines())) <= 80
