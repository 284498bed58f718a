"""What is known of a series, and its steps per epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.compare.study.reading import about_series, project_series, study_of
from pytest_touchstone.core.errors import DataError
from tests.support.published import published


def test_the_steps_of_an_epoch_follow_from_the_published_rows(tmp_path: Path) -> None:
    study = study_of([str(published(tmp_path))], output=tmp_path)
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
    assert about_series("a/1", "a", [], told).told == {"data": "y", "method": "m"}
    assert about_series("a/2", "a", [], told).get("data") == "x"
    assert about_series("b", "b", [], told).get("data") == "not known"


def test_checkpoints_own_files_tell_the_rest() -> None:
    rows: list[dict[str, Any]] = [
        {"base": {"name": "qwen"}, "training": {"num_train_epochs": 3, "train_batch_size": 8}},
        {"training": {"config": {"dataset": {"name": "mbpp"}}}},
    ]
    found = about_series("a", "a", rows, {}).noted
    assert found == {"method": "LoRA on qwen", "epochs": "3", "batch size": "8", "data": "mbpp"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("series = 3", "give a table for each series"),
        ("series.a = 'x'", "a is 'x'"),
        ("series.a.data = [1]", r"data is \[1\]"),
    ],
)
def test_a_wrong_table_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool.touchstone]\n{text}\n")
    with pytest.raises(DataError, match=said):
        project_series(path)
