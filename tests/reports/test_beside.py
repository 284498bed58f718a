"""The results that are written beside checkpoints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.compare.load import read_file
from pytest_touchstone.reports.files import write_beside
from pytest_touchstone.results.summary import Summary
from tests.support.summaries import checkpoint_row, sample


def placed(folder: Path, summary: Summary, **more: Any) -> Summary:
    """The summary of checkpoints that are folders below a folder, or are elsewhere by ``more``."""
    rows = []
    for row in summary.checkpoints:
        path = folder / row["name"]
        path.mkdir(parents=True, exist_ok=True)
        rows.append({**row, "source": str(path), "path": str(path), "series": str(folder), **more})
    return replace(summary, checkpoints=rows)


def content(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_each_checkpoint_gets_a_file_beside_it_that_names_its_path(tmp_path: Path) -> None:
    found = write_beside(placed(tmp_path / "runs", sample(2)))
    names = [path.relative_to(tmp_path).as_posix() for path in found.written]
    assert names == ["runs/checkpoint-100_eval_results.json", "runs/checkpoint-200_eval_results.json"]
    assert sorted(found.written) == sorted((tmp_path / "runs").rglob("*_eval_results.json"))
    row = content(found.written[0])
    assert row["checkpoint"] == row["checkpoint_info"]["path"] == str(tmp_path / "runs" / "checkpoint-100")
    assert row["checkpoint_info"]["global_step"] == 100
    assert {"real1", "real5", "lambada_top1", "score", "coref_samples", "seq_len"} <= row.keys()
    assert found.error() is None


def test_a_file_reads_back_with_every_benchmark_and_the_place_in_the_series(tmp_path: Path) -> None:
    summary = placed(tmp_path, sample(1, faults=False))
    (candidate,) = read_file(write_beside(summary).written[0], {}).candidates
    assert {"real_coref", "ko_lambada_wiki", "winogrande", "lambada_openai"} <= candidate.entries.keys()
    assert (candidate.about["step"], candidate.about["epoch"]) == (100, 1.0)
    for name in ("real_coref", "winogrande"):
        (result,) = [one for one in summary.results if one.name == name]
        assert (
            candidate.entries[name].saved.metrics[result.primary].value
            == result.metrics[result.primary].value
        )


def test_benchmarks_of_causal_models_have_a_file_too(tmp_path: Path) -> None:
    summary = placed(tmp_path, sample(1, benchmarks=["winogrande"], faults=False))
    (path,) = write_beside(summary).written
    assert "real1" not in content(path)
    (candidate,) = read_file(path, {}).candidates
    assert [*candidate.entries] == ["winogrande"]
    assert candidate.about == {"series": str(tmp_path), "step": 100, "epoch": 1.0, "seq_len": 512}


def test_our_own_file_is_written_again_and_anybody_elses_stays(tmp_path: Path) -> None:
    summary = placed(tmp_path, sample(2))
    theirs, ours = (tmp_path / f"checkpoint-{step}_eval_results.json" for step in (100, 200))
    theirs.write_text('{"checkpoint": "checkpoint-100", "real1": 0.6}', encoding="utf-8")
    ours.write_text('{"schema": 1, "run_id": "earlier"}', encoding="utf-8")
    found = write_beside(summary)
    assert content(theirs) == {"checkpoint": "checkpoint-100", "real1": 0.6}
    assert found.written == [ours]
    assert content(ours)["run_id"] == summary.run_id
    assert "checkpoint-100_eval_results.json: another program's file; move it away" in (found.error() or "")


def test_a_folder_that_cannot_be_written_is_one_line_and_the_others_get_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = placed(tmp_path, sample(2))
    (tmp_path / "checkpoint-100_eval_results.json").mkdir()
    found = write_beside(summary)
    assert [path.name for path in found.written] == ["checkpoint-200_eval_results.json"]
    error = found.error() or ""
    assert "checkpoint-100_eval_results.json: Is a directory" in error
    assert "\n" not in error
    assert "the run's folder has the results" in error


@pytest.mark.parametrize("source", ["builtin:tiny", "fake:causal", "org/model", "hub:org/model"])
def test_what_is_no_path_of_the_users_gets_no_file_and_a_line(tmp_path: Path, source: str) -> None:
    found = write_beside(placed(tmp_path / "cache", sample(1), source=source))
    assert found.written == []
    assert found.lines() == ["beside      nothing for checkpoint-100: no path of yours"]


def test_two_files_of_one_name_get_a_file_of_results_each(tmp_path: Path) -> None:
    rows = []
    for step, name in ((100, "best.pt"), (200, "best.gguf")):
        (tmp_path / name).touch()
        path = str(tmp_path / name)
        rows.append({**checkpoint_row(f"checkpoint-{step}", step), "source": path, "path": path})
    found = write_beside(replace(sample(2), checkpoints=rows))
    assert [path.name for path in found.written] == [
        "best_eval_results.json",
        "checkpoint-200_eval_results.json",
    ]
    assert [content(path)["checkpoint"] for path in found.written] == [row["path"] for row in rows]
