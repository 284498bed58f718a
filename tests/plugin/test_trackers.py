"""A run that is to be tracked: by nobody who is there, by a real server of MLflow, and by W&B offline."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.plugin.reporters import TrackerReporter
from pytest_touchstone.reports.trackers.mlflow import MLflow
from pytest_touchstone.results.summary import load_summary
from tests.support import runs
from tests.support.forking import python
from tests.support.lines import missing
from tests.support.mlflow_server import free_port, sent_to, stub
from tests.support.project import Project
from tests.support.wandb_files import kept_in, offline

SECRET = "planted-7f3b9c1e-value"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


def test_without_mlflow_the_mistake_is_one_line_before_anything_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = project.run("--mlflow")
    assert result.ret == 4
    line = "ERROR: --mlflow: MLflow is not installed: pip install 'pytest-touchstone[mlflow]'"
    assert line in str(result.stderr)
    assert project.runs == []


def test_without_an_address_and_a_database_the_mistake_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "sqlalchemy" else name)
    assert str(MLflow().missing()).startswith("MLFLOW_TRACKING_URI is not set")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:1")
    assert MLflow().missing() is None


def test_what_a_tracker_has_no_use_for_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = runs.run(tmp_path, "r", "a")
    for words, flag in (
        (["--format", "mlflow", "-o", "x"], "-o: does nothing with --format mlflow"),
        (["--format", "wandb", "--model-id", "a/b"], "--model-id: does nothing with --format wandb"),
        (["--project", "x"], "--project: does nothing with --format lm-eval"),
    ):
        assert main(["export", str(folder), *words]) == 4
        assert capsys.readouterr().err == f"touchstone: {flag}; leave it out\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "why"), [(0, "no server listens there"), (500, "answers with error 500"), (None, "not done")]
)
def test_a_server_that_is_down_wrong_or_silent_costs_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int | None, why: str
) -> None:
    folder = runs.run(tmp_path, "r", "a")
    kept = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with stub(status or None) as address:
        nobody = f"http://127.0.0.1:{free_port()}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", nobody if status == 0 else address)
        hook = TrackerReporter(MLflow(), 60 if status is not None else 8)
        text = hook.pytest_touchstone_run_finished(load_summary(folder))
    assert text.startswith("warning: MLflow ")
    assert why in text
    assert f"`touchstone export {folder} --format mlflow` sends" in text
    assert "\n" not in text
    assert {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == kept


@pytest.mark.slow
def test_a_silent_server_is_asked_twice_for_ten_seconds_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runs.run(tmp_path, "r", "a")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with stub(None) as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address.replace("//", "//me:password@"))
        assert main(["export", str(folder), "--format", "mlflow"]) == 4
    assert capsys.readouterr().err == f"touchstone: {address}: no answer in time\n"


@pytest.mark.slow
def test_a_run_goes_on_when_its_tracker_is_down_and_is_sent_later(
    project: Project, tracked: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = str(tracked.tracking_uri)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    result = project.run("--eval-set", "mlflow_experiment=later")
    assert result.ret == 0
    assert len(project.records) == 20
    assert str(result.stdout).count("warning: MLflow ") == 1
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    capsys.readouterr()
    assert main(["export", "last", "--format", "mlflow"]) == 0
    assert f"sent to experiment later of {address}" in capsys.readouterr().out
    assert set(sent_to(tracked, "later")) == {f"touchstone {project.runs[0].name}", "eval_sums_fake-causal"}


@pytest.mark.slow
def test_what_was_sent_is_sent_once_and_what_is_lacking_is_completed(
    tmp_path: Path, tracked: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runs.run(tmp_path, "twice", "checkpoint-100", when=7)
    words = ["export", str(folder), "--format", "mlflow", "--project", "twice"]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("MLflow: 3 runs, ")
    (tasks,) = (one for name, one in sent_to(tracked, "twice").items() if "winogrande" in name)
    tracked.delete_run(tasks.info.run_id)  # somebody deleted one, and it comes again; nothing else does
    assert main(words) == 0
    assert not missing(capsys.readouterr().out, "MLflow: 1 run", "2 were there")
    assert main(words) == 0
    assert not missing(capsys.readouterr().out, "MLflow: nothing to send", "3 runs")
    for one in sent_to(tracked, "twice").values():
        for name in one.data.metrics:
            assert len(tracked.get_metric_history(one.info.run_id, name)) == 1


@pytest.mark.slow
def test_a_key_of_the_environment_reaches_no_parameter_tag_or_file(
    tmp_path: Path, tracked: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = runs.run(tmp_path, "secret", f"runs-{SECRET}", when=8)
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    assert main(["export", str(folder), "--format", "mlflow", "--project", "secret"]) == 0
    assert not missing(capsys.readouterr().out, "left out: report.html", "SOME_API_KEY")
    for one in sent_to(tracked, "secret").values():
        assert SECRET not in f"{one.info.run_name} {one.data.params} {one.data.tags} {one.data.metrics}"
        for path in tracked.list_artifacts(one.info.run_id):
            local = tracked.download_artifacts(one.info.run_id, path.path, str(tmp_path))
            assert SECRET not in Path(local).read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_series_is_one_curve_and_its_results_are_runs_below_the_parent(
    tmp_path: Path, tracked: Any
) -> None:
    folder = runs.run(tmp_path, "series", "checkpoint-10", "checkpoint-20", when=9)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    for row, step in zip(summary["checkpoints"], (10, 20), strict=True):
        row |= {"series": "runs/a", "global_step": step, "step": step}
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    assert main(["export", str(folder), "--format", "mlflow", "--project", "series"]) == 0
    found = sent_to(tracked, "series")
    parent = found["touchstone series"].info.run_id
    parents = {name: one.data.tags.get("mlflow.parentRunId") for name, one in found.items()}
    assert {one for name, one in parents.items() if name.startswith("eval_")} == {parent}
    assert (parents["series_a"], parents["touchstone series"]) == (None, None)
    curve = tracked.get_metric_history(found["series_a"].info.run_id, "real_coref/real_at_1")
    values = [one["metrics"]["real@1"]["value"] for one in summary["results"] if one["name"] == "real_coref"]
    assert [(point.step, point.value) for point in curve] == list(zip((10, 20), values, strict=True))
    result = found["eval_real_coref_checkpoint-20"]
    assert (result.info.status, result.data.tags["valid"]) == ("FINISHED", "true")
    (point,) = tracked.get_metric_history(result.info.run_id, "real_at_1")
    assert (point.step, point.value) == (20, values[1])
    files = {one.path for one in tracked.list_artifacts(parent)}
    assert files >= {"summary.json", "results.csv", "report.html", "bars_real_coref.png"}
    assert {one.path for one in tracked.list_artifacts(result.info.run_id)} == {"tasks.csv", "samples.jsonl"}


@pytest.mark.slow
def test_a_result_that_is_not_valid_is_sent_and_marked(tmp_path: Path, tracked: Any) -> None:
    folder = runs.run(tmp_path, "invalid", "checkpoint-10", when=10)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary["results"][0]["invalid"] = "cut off"
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    assert main(["export", str(folder), "--format", "mlflow", "--project", "invalid"]) == 0
    found = sent_to(tracked, "invalid")
    wrong = found[f"eval_{summary['results'][0]['name']}_checkpoint-10"]
    assert (wrong.info.status, wrong.data.tags["valid"]) == ("FAILED", "false")
    assert wrong.data.tags["mlflow.note.content"] == "**NOT VALID**: cut off"
    assert wrong.data.metrics["acc"] == summary["results"][0]["metrics"]["acc"]["value"]
    assert found["touchstone invalid"].info.status == "FAILED"


@pytest.mark.slow
def test_a_study_of_an_experiment_has_our_results_and_those_of_another_script_and_draws_them(
    tmp_path: Path, tracked: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = runs.run(tmp_path, "ours", "checkpoint-10", when=11)
    assert main(["export", str(folder), "--format", "mlflow", "--project", "study"]) == 0
    experiment = tracked.get_experiment_by_name("study").experiment_id
    script = tracked.create_run(experiment, run_name="eval_winogrande_checkpoint_best.pt").info.run_id
    for name, value in {"checkpoint_path": "storage/checkpoint_best.pt", "dataset": "winogrande"}.items():
        tracked.log_param(script, name, value)
    tracked.log_metric(script, "acc", 0.625)
    tracked.set_terminated(script)
    capsys.readouterr()
    assert main(["study", "--from-mlflow", "study", "--items", "winogrande=40", "--format", "json"]) == 0
    found = capsys.readouterr().out
    assert main(["study", "--from-mlflow", "study"]) == 0
    told = capsys.readouterr().out
    values = {one["name"]: one for one in json.loads((folder / "summary.json").read_text())["results"]}
    assert str(values["winogrande"]["metrics"]["acc"]["value"]) in found
    assert "0.625" in found
    assert "drawn:   comparison_" in told
    assert (tmp_path / "comparison_winogrande.png").read_bytes().startswith(b"\x89PNG")
    assert main(["study", "--from-mlflow", "studi"]) == 4
    assert "no such experiment" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_written_offline_for_weights_and_biases_is_there_once_and_has_no_key(tmp_path: Path) -> None:
    folder = runs.run(tmp_path, "offline", f"runs-{SECRET}", "checkpoint-20", when=11)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary["results"][0]["invalid"] = "cut off"
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    command = [
        python(),
        "-P",
        "-m",
        "pytest_touchstone.cli",
        "export",
        str(folder),
        "--format=wandb",
        "--project=mine",
    ]
    environ = {**os.environ, **offline(tmp_path), "SOME_API_KEY": SECRET}
    first, second = (
        subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    )
    kept = kept_in(tmp_path / "wandb")
    assert first.startswith(f"Weights & Biases: {len(kept)} runs, ")
    assert not missing(second, "Weights & Biases: nothing to send", f"{len(kept)} runs")
    wrong = kept[f"eval_{summary['results'][0]['name']}_runs-[SOME_API_KEY]"]
    assert (wrong.exit_code, wrong.notes) == (1, "NOT VALID: cut off")
    assert "valid:false" in wrong.tags
    assert wrong.points[100]["acc"] == summary["results"][0]["metrics"]["acc"]["value"]
    right = kept[f"eval_{summary['results'][0]['name']}_checkpoint-20"]
    assert (right.exit_code, right.notes, right.kind, right.config["shots"]) == (0, "", "result", 5)
    assert set(right.files) == {"tasks.csv", "samples.jsonl"}
    parent = kept["touchstone offline"].files
    assert set(parent) >= {"summary.json", "results.csv"}
    assert "report.html" not in parent
    files = [path for name in ("wandb", "own") for path in (tmp_path / name).rglob("*") if path.is_file()]
    assert len(files) > 20
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
