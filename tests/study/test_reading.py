"""Runs, tables and folders of them -> the series of a study.

What is known of a series, and its steps per epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.study.curves import DROP, curve_of
from pytest_touchstone.study.points import Point, Series, Study, StudyMetric
from pytest_touchstone.study.pool import NOT_MORE, compare_points, noise_verdict
from pytest_touchstone.study.reading import load_study, project_series, series_info
from tests.support.compared import ran
from tests.support.entries import right
from tests.support.known import known
from tests.support.korean_table import row, write
from tests.support.published import published
from tests.support.runs import run
from tests.support.studies import placed, study_of_candidates


def of(*arguments: object, output: Path) -> Study:
    return load_study([str(one) for one in arguments], output=output)


def series(study: Study, name: str) -> Series:
    return next(one for one in study.series if one.name == name)


def measure(study: Study, key: str) -> StudyMetric:
    return next(one for one in study.measures if one.key == key)


def point(study: Study, name: str) -> Point:
    return next(one for one in study.points if one.name == name)


def test_a_table_is_read_as_series_by_training_and_length(tmp_path: Path) -> None:
    study = of(published(tmp_path), output=tmp_path)
    assert [(one.name, len(one.points)) for one in study.series] == [
        ("mlm_v2/1536", 11),
        ("mlm_v2/2048", 9),
        ("combined/1536", 5),
        ("combined/2048", 5),
        ("entity_ft", 3),
    ]
    assert [one.label for one in study.measures] == ["Real@1", "Real@5", "LAMBADA@1", "score"]
    assert len(study.contradictions) == 20


def test_points_stand_in_the_order_of_the_training(tmp_path: Path) -> None:
    study = of(write(tmp_path / "t.csv", row(step=300), row(step=100), row(step=200)), output=tmp_path)
    assert [one.step for one in study.series[0].points] == [100, 200, 300]
    assert study.series[0].axis == "epoch"


def test_a_share_of_known_items_has_an_interval_and_one_of_unknown_items_says_why_not(tmp_path: Path) -> None:
    header = "series,seq_len,checkpoint,step,epoch,real1,coref_samples"
    table = write(tmp_path / "t.csv", "a,1,x,1,1,0.66,2400", "a,1,y,2,2,0.66,", header=header)
    study = of(table, output=tmp_path)
    known, unknown = (study.value(one, study.measures[0]) for one in study.points)
    assert known is not None
    assert unknown is not None
    assert known.stderr == pytest.approx((0.66 * 0.34 / 2399) ** 0.5)
    assert known.low is not None
    assert known.low < 0.66
    assert (unknown.low, unknown.stderr, unknown.n) == (None, None, 0)
    assert "--items real_coref=N" in (unknown.why or "")


def test_the_best_of_many_equal_values_is_not_told_from_the_last(tmp_path: Path) -> None:
    study = of(published(tmp_path), output=tmp_path)
    curve = known(curve_of(study, series(study, "mlm_v2/1536"), measure(study, "real_coref:real@1")))
    assert curve.points[curve.peak].epoch == 3.0
    assert curve.tests[DROP].value == pytest.approx(-0.0137)
    assert noise_verdict(curve.tests[DROP].p, study.level) == NOT_MORE


def test_a_run_and_a_table_may_be_mixed(tmp_path: Path) -> None:
    folder = run(tmp_path / "results", "one", "checkpoint-100", "checkpoint-200")
    study = of(folder, published(tmp_path), output=tmp_path / "results")
    assert len(study.points) == 35


def test_points_of_runs_are_compared_by_their_items(tmp_path: Path) -> None:
    run(tmp_path, "one", "checkpoint-100", "checkpoint-200")
    study = of("one", output=tmp_path)
    first, second = study.points
    found = compare_points(study, first, second, measure(study, "real_coref:real@1"))
    assert "permutation over 8 clusters" in found.method


def test_a_checkpoint_that_two_runs_scored_is_one_point_with_the_newest_results(tmp_path: Path) -> None:
    run(tmp_path, "one", "checkpoint-100", when=1)
    run(tmp_path, "two", "checkpoint-100", seed=5, when=2)
    study = of(output=tmp_path)
    (only,) = study.points
    assert {entry.saved.run_id for entry in only.candidate.entries.values()} == {"two"}
    assert any("older result" in note for note in study.notes)


@pytest.mark.parametrize("fingerprint", ["f" * 64, ""])
def test_a_checkpoint_that_two_runs_name_differently_is_one_point(fingerprint: str) -> None:
    def scored(run_id: str, name: str, began: float, correct: int) -> CheckpointResults:
        known = {"fingerprint": fingerprint, "path": "runs/a/checkpoint-5", "run_id": run_id, "began": began}
        return placed(ran(name, {"b": right(correct, 10)}, **known), "runs/a", 1.0, 5)

    old, new = scored("one", "a-checkpoint-5", 1.0, 8), scored("two", "checkpoint-5", 2.0, 4)
    for candidates in ([old, new], [new, old]):
        study = study_of_candidates(candidates)
        (only,) = study.points
        assert (value := study.value(only, study.measures[0])) is not None
        assert value.value == 0.4
        assert any("1 older result" in note for note in study.notes)
    other = scored("two", "best", 2.0, 4)  # one run has it twice: that is meant
    assert len(study_of_candidates([new, other]).points) == 2


def test_a_pattern_names_runs(tmp_path: Path) -> None:
    run(tmp_path, "run-1", "checkpoint-100")
    run(tmp_path, "run-2", "checkpoint-200")
    assert len(of("run-*", output=tmp_path).points) == 2
    assert len(of("run-1#checkpoint-100", output=tmp_path).points) == 1


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("nothing-*", "no such run, file, folder or pattern"),
        ("/no/such/place.csv", "no such run, file, folder or pattern"),
        ("**of/odd", "no such run, file, folder or pattern"),
        ("empty", "no run and no results file"),
        ("unfinished", "this run has not ended"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, what: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "run.json").write_text("{}")
    with pytest.raises(DataError, match=said):
        of(what, output=tmp_path)


def test_the_steps_of_an_epoch_follow_from_the_published_rows(tmp_path: Path) -> None:
    study = load_study([str(published(tmp_path))], output=tmp_path)
    found = {one.name: one.steps_per_epoch.text for one in study.series if one.steps_per_epoch}
    assert found == {
        "mlm_v2/1536": "130 to 131",
        "mlm_v2/2048": "110",
        "combined/1536": "396",
        "combined/2048": "410",
        "entity_ft": "563",
    }


def test_the_projects_table_says_more_of_one_length_than_of_the_training(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(
        '[tool.touchstone.series.a]\ndata = "x"\nmethod = "m"\n[tool.touchstone.series."a/1"]\ndata = "y"\n'
    )
    told = project_series(path)
    assert series_info("a/1", "a", [], told).declared == {"data": "y", "method": "m"}
    assert series_info("a/2", "a", [], told).get("data") == "x"
    assert series_info("b", "b", [], told).get("data") == "not known"


def test_checkpoints_own_files_tell_the_rest() -> None:
    rows: list[dict[str, Any]] = [
        {"base": {"name": "qwen"}, "training": {"num_train_epochs": 3, "train_batch_size": 8}},
        {"training": {"config": {"dataset": {"name": "mbpp"}}}},
    ]
    found = series_info("a", "a", rows, {}).noted
    assert found == {"method": "LoRA on qwen", "epochs": "3", "batch size": "8", "data": "mbpp"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("series = 3", "series. is 3; give a table"),
        ("series.a = 'x'", "a is 'x'"),
        ("series.a.data = [1]", r"data is \[1\]"),
    ],
)
def test_a_wrong_table_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool.touchstone]\n{text}\n")
    with pytest.raises(DataError, match=said):
        project_series(path)
