"""Series against series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.study.points import Study
from pytest_touchstone.study.pool import pool_of
from pytest_touchstone.study.reading import load_study
from pytest_touchstone.study.series_comparison import SeriesComparison, compare_lengths, compare_series
from tests.support.compared import ran
from tests.support.known import known
from tests.support.published import published
from tests.support.studies import answers, of_items, placed, study_of_candidates


def first(study: Study) -> SeriesComparison:
    return compare_series(study)[0]


def split(runs: list[dict[str, list[float]]], at: int) -> Study:
    """Two series of one set of checkpoints, so of the same items."""
    return of_items({"a": runs[:at], "z": runs[at:]})


def test_a_clearly_better_series_is_told_and_the_other_way_round_is_worse() -> None:
    found = first(split(answers([0.5] * 3 + [0.7] * 3, 600, 1), 3))
    (duel,) = found.duels
    assert (duel.first.series.name, duel.second.series.name, duel.told) == ("a", "z", "better")
    assert known(found.overall).series.name == "z"
    turned = known(found.duel(duel.second.series, duel.first.series))
    assert turned.told == "worse"
    assert turned.comparison.difference == -known(duel.comparison.difference)
    assert duel.items == 600


def test_equal_series_cannot_be_told_though_one_has_more_chances_to_be_lucky() -> None:
    found = first(split(answers([0.6] * 12, 400, 2), 11))
    (duel,) = found.duels
    assert duel.told == "cannot tell"
    best = found.bests[0]
    assert (best.of, known(best.corrected) < best.value) == (11, True)
    assert found.bests[1].corrected == found.bests[1].value


def test_all_pairs_are_corrected_together() -> None:
    runs = answers([0.60, 0.60, 0.60, 0.655], 900, 8)
    two = first(of_items({"c": runs[2:3], "d": runs[3:]})).duels[0]
    four = first(of_items({name: [run] for name, run in zip("abcd", runs, strict=True)}))
    same = known(four.duel(four.bests[2].series, four.bests[3].series))
    assert known(two.p) == known(two.comparison.p)
    assert known(same.p) > known(same.comparison.p)


def test_where_lower_is_better_the_lower_best_wins() -> None:
    runs = answers([0.5] * 2 + [0.3] * 2, 600, 3)
    study = of_items(
        {"a": runs[:2], "z": runs[2:]},
        aggregate={"error": {"by": "mean", "of": "acc", "higher_is_better": False}},
    )
    (measure,) = study.measures
    assert not measure.higher_is_better
    found = first(study)
    assert known(found.overall).series.name == "z"
    assert found.duels[0].told == "better"
    assert known(found.duels[0].comparison.difference) < 0
    assert known(found.bests[1].corrected) >= found.bests[1].value
    assert known(found.epochs[0].contrast).value < 0
    assert found.epochs[0].told == "better"


def test_series_are_compared_at_the_epochs_that_both_have() -> None:
    runs = answers([0.5, 0.5, 0.5, 0.7, 0.7], 600, 4)
    study = of_items({"a": runs[:3], "z": runs[3:]}, {"a": (1, 2, 3), "z": (2, 3)})
    (pair,) = first(study).epochs
    assert (pair.how, pair.epochs, pair.told) == ("common", (2, 3), "better")
    means = [sum(run["b"]) / 600 for run in runs]
    assert known(pair.contrast).value == pytest.approx((means[3] + means[4] - means[1] - means[2]) / 2)


def test_without_a_common_epoch_the_line_between_checkpoints_is_taken_with_its_error() -> None:
    runs = answers([0.4, 0.6, 0.4, 0.6, 0.9], 600, 5)
    study = of_items({"a": runs[:4], "z": runs[4:]}, {"a": (1, 2, 3, 4), "z": (2.5,)})
    (pair,) = first(study).epochs
    assert (pair.how, pair.epochs) == ("interpolated", (2.5,))
    assert known(known(pair.contrast).stderr) > 0.1  # the curve misses its own lines by 20 points
    assert pair.told == "cannot tell"


@pytest.mark.parametrize("names", ["az", "za"])
@pytest.mark.parametrize("aggregate", [{}, {"error": {"by": "mean", "of": "acc", "higher_is_better": False}}])
def test_beginnings_between_checkpoints_are_compared_as_equal_epochs_are(
    names: str, aggregate: dict[str, dict[str, Any]]
) -> None:
    curves = {"a": answers([0.4, 0.5, 0.55, 0.6], 600, 5), "z": answers([0.7, 0.7], 600, 6)}
    study = of_items(
        {name: curves[name] for name in names}, {"a": (1, 2, 3, 4), "z": (2.5, 9)}, aggregate=aggregate
    )
    (start,) = first(study).starts
    (pair,) = first(study).epochs
    assert (start.how, start.epochs) == ("interpolated", (2.5,))
    assert start.contrast == pair.contrast
    assert list(start.gaps) == pytest.approx([known(start.contrast).value])


def test_between_two_checkpoints_alone_beginnings_are_not_compared() -> None:
    runs = answers([0.5, 0.5, 0.7, 0.7], 200, 6)
    study = of_items({"a": runs[:2], "z": runs[2:]}, {"a": (1, 2), "z": (1.5, 3)})
    (start,) = first(study).starts
    assert start.contrast is None
    assert "two checkpoints do not tell" in start.why


@pytest.mark.parametrize(
    ("epochs", "why"),
    [
        ({"a": (1, 2), "z": (1.5, 3)}, "two checkpoints do not tell how straight"),
        ({"a": (1, 2), "z": (3, 4)}, "do not overlap"),
        ({"a": (1, 2), "z": (None, None)}, "epochs of z not known"),
    ],
)
def test_where_epochs_cannot_be_matched_nothing_is_said_but_why(
    epochs: dict[str, tuple[float | None, ...]], why: str
) -> None:
    runs = answers([0.5, 0.5, 0.7, 0.7], 200, 6)
    (pair,) = first(of_items({"a": runs[:2], "z": runs[2:]}, epochs)).epochs
    assert (pair.how, pair.contrast, pair.told) == ("not at all", None, "cannot tell")
    assert why in pair.why


def test_results_that_are_not_valid_are_no_best() -> None:
    right, wrong = answers([0.5, 0.9], 200, 7)
    study = study_of_candidates(
        [
            placed(ran("a/1", right), "a", 1.0),
            placed(ran("a/2", wrong, invalid="3 faults"), "a", 2.0),
        ]
    )
    pool = pool_of(study, study.measures[0])
    assert [point.name for point in pool.points] == ["a/1"]


def test_of_the_published_rows_no_difference_of_series_or_lengths_is_carried(tmp_path: Path) -> None:
    """Best of 1536 against best of 2048: 0.73 points at Real@1, on 2,400 and 3,200 items."""
    study = load_study([str(published(tmp_path))], output=tmp_path)
    found = {one.measure.label: one for one in compare_series(study)}
    assert {duel.told for one in found.values() for duel in one.duels} == {"cannot tell"}
    assert known(found["Real@1"].overall).value == 0.6778
    every = compare_lengths(study)
    lengths = {(one.series[0].training, one.measure.label): one for one in every}
    assert len(lengths) == 8
    duel = lengths["mlm_v2", "Real@1"]
    assert [one.seq_len for one in duel.series] == [1536, 2048]
    assert (duel.first.value, duel.second.value) == (0.6604, 0.6531)
    assert known(duel.as_measured.difference) == pytest.approx(-0.0073)
    assert (duel.told, duel.items) == ("cannot tell", 2400)
    assert known(duel.comparison.low) < -0.01
    assert known(duel.comparison.high) > 0.01
