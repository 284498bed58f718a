"""Several checkpoints in one run: sorted, selected by step; one that fails to load keeps no other from being scored."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from pytest_touchstone.results.store import ResultStore
from tests.support.project import Project
from tests.support.tiny import tiny_causal


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three different models."""
    folder = tmp_path_factory.mktemp("models")
    return [tiny_causal(folder / str(seed), seed=seed) for seed in range(3)]


@pytest.fixture
def runs(models: list[Path], project: Project) -> Path:
    """A run of three steps."""
    for model, step in zip(models, (100, 200, 1000), strict=True):
        shutil.copytree(model, project.path / "runs" / "a" / f"checkpoint-{step}")
    project.rows(6)
    folder: Path = project.path / "runs" / "a"
    return folder


def unloadable(folder: Path) -> None:
    """Makes a checkpoint one that is recognised and cannot be loaded: a tensor is missing."""
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    tensors.pop("model.norm.weight")
    save_file(tensors, weights, metadata={"format": "pt"})


def scored(project: Project) -> dict[str, int]:
    return {result["checkpoint"]: result["scored"] for result in project.summary["results"]}


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ([], [100, 200, 1000]),
        (["--eval-steps", "200:"], [200, 1000]),
        (["--eval-steps", "100,1000"], [100, 1000]),
    ],
)
def test_a_run_folder_is_evaluated_in_one_command_by_step(
    project: Project, runs: Path, arguments: list[str], steps: list[int]
) -> None:
    result = project.run(*arguments, "-v", checkpoint="runs/a")
    assert result.ret == 0
    ran = [line.split()[0] for line in result.outlines if line.startswith("test_sums.py::")]
    assert ran == [
        f"test_sums.py::test_sums[checkpoint-{step}-sums/{n}]" if len(steps) > 1 else ""
        for step in steps
        for n in range(6)
    ]
    assert [one["step"] for one in project.summary["checkpoints"]] == steps


def test_steps_that_are_not_there_are_one_line(project: Project, runs: Path) -> None:
    result = project.run("--eval-steps", "5", checkpoint="runs/a")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --eval-steps 5: *100, 200, 1000"])
    wrong = project.run("--eval-steps", "x", checkpoint="runs/a")
    assert wrong.ret == 4
    wrong.stderr.fnmatch_lines(["ERROR: *--eval-steps 'x': *START:STOP:STEP *"])


def check_not_recognised(project: Project, result: pytest.RunResult, name: str) -> None:
    """Everything says that the configuration of this one cannot be read."""
    result.stdout.fnmatch_lines([f"failed*{name} failed to load: *config.json:*"])
    (path,) = [one["path"] for one in project.summary["failed_to_load"] if one["name"] == name]
    assert path == f"runs/a/{name}"
    (run,) = project.runs
    for file in ("details/errors.log", "report.html"):
        assert f"runs/a/{name}/config.json: " in (run / file).read_text()


def check_not_loaded(project: Project, result: pytest.RunResult, workers: int) -> None:
    """The second is an error of its six items, and of them alone."""
    (message,) = [
        one["message"] for one in project.summary["failed_to_load"] if one["name"] == "checkpoint-200"
    ]
    assert "model.norm.weight" in message
    assert len(project.summary["faults"]) == 6
    shown = result.parseoutcomes()["failed"]
    assert 1 <= shown <= max(1, workers)  # once in each process that meets it, whichever those are
    line = "runs/a/checkpoint-200: 1 tensor of LlamaForCausalLM missing from the weights: model.norm.weight"
    blocks = [
        one for one in result.outlines if not one.startswith("FAILED")
    ]  # where CI is set they have it whole
    assert sum(line in one for one in blocks) == 1  # the same error of several items is one block
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_one_that_is_not_recognised_is_reported_and_the_rest_go_on(project: Project, runs: Path) -> None:
    (runs / "checkpoint-200" / "config.json").write_text("{")
    result = project.run(checkpoint="runs/a")
    assert result.ret == 9
    result.assert_outcomes(passed=12)
    check_not_recognised(project, result, "checkpoint-200")
    assert len(project.summary["failed_to_load"]) == 1
    assert scored(project) == {"checkpoint-100": 6, "checkpoint-1000": 6}


def test_one_that_cannot_be_loaded_is_an_error_of_its_items_alone(project: Project, runs: Path) -> None:
    unloadable(runs / "checkpoint-200")
    result = project.run(checkpoint="runs/a")
    assert result.ret == 9
    assert result.parseoutcomes()["passed"] == 12
    check_not_loaded(project, result, 0)
    assert len(project.summary["failed_to_load"]) == 1
    assert scored(project) == {"checkpoint-100": 6, "checkpoint-200": 0, "checkpoint-1000": 6}


@pytest.mark.slow
def test_with_workers_both_are_reported_so_and_the_rest_go_on(project: Project, runs: Path) -> None:
    unloadable(runs / "checkpoint-200")
    (runs / "checkpoint-1000" / "config.json").write_text("{")
    result = project.run("-n", "2", checkpoint="runs/a")
    assert result.ret == 9
    assert result.parseoutcomes()["passed"] == 6
    check_not_recognised(project, result, "checkpoint-1000")
    check_not_loaded(project, result, 2)
    assert len(project.summary["failed_to_load"]) == 2
    assert scored(project) == {"checkpoint-100": 6, "checkpoint-200": 0}


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_where_none_can_be_loaded_the_run_ends_in_one_line(
    project: Project, runs: Path, workers: str
) -> None:
    for folder in runs.iterdir():
        unloadable(folder)
    result = project.run("-n", workers, checkpoint="runs/a")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *3 checkpoints *: (1)*runs/a/*(2)*runs/a/*(3)*runs/a/*"])


def test_a_single_one_that_cannot_be_loaded_is_one_line(project: Project, runs: Path) -> None:
    unloadable(runs / "checkpoint-200")
    result = project.run(checkpoint="runs/a/checkpoint-200")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: runs/a/checkpoint-200: 1 tensor *"])


def test_what_is_broken_is_said_when_items_are_only_collected(project: Project, runs: Path) -> None:
    (runs / "checkpoint-200" / "config.json").write_text("{")
    result = project.run("--co", "-q", checkpoint="runs/a")
    result.stdout.fnmatch_lines(["failed to load checkpoint-200: runs/a/checkpoint-200/config.json:*"])


@pytest.mark.parametrize(
    ("workers", "process"), [("0", "os.getpid()"), pytest.param("2", "os.getppid()", marks=pytest.mark.slow)]
)
def test_results_of_a_checkpoint_that_has_ended_outlive_a_kill(
    project: Project, runs: Path, workers: str, process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The parent of a fork is not who has asked for it.
    monkeypatch.setattr(pytest.Pytester, "_getpytestargs", lambda _: (sys.executable, "-m", "pytest"))
    project.write(
        "import os, time; checkpoint.step == 200 and example['n'] == 0 and "
        f"[time.sleep(3 * {workers}), os.kill({process}, 9)]"
    )
    text = (
        (project.path / "test_sums.py")
        .read_text()
        .replace("(example, fewshot)", "(example, fewshot, checkpoint)")
    )
    (project.path / "test_sums.py").write_text(text)
    assert project.run("-n", workers, checkpoint="runs/a", apart=True).ret == -9
    (run,) = project.runs
    assert not (run / "summary.json").exists()
    results = json.loads((run / "details" / "checkpoint-100_results.json").read_text())
    assert results["results"]["sums"]["acc"] is not None
    saved = {one.checkpoint: one for one in ResultStore(project.path / "results").find()}
    assert "checkpoint-200" not in saved
    assert (saved["checkpoint-100"].scored, saved["checkpoint-100"].run_id) == (6, run.name)
    assert not (run / "details" / "checkpoint-200_results.json").exists()


@pytest.mark.slow
def test_results_written_early_are_those_of_the_end(project: Project, runs: Path) -> None:
    assert project.run(checkpoint="runs/a").ret == 0
    (run,) = project.runs
    log = (run / "details" / "run.log").read_text()
    assert [line.rpartition(": ")[2] for line in log.splitlines() if " ended: " in line] == [
        *("checkpoint-100", "checkpoint-200", "checkpoint-1000")
    ]
    saved = {one.checkpoint: one for one in ResultStore(project.path / "results").find()}
    for result in project.summary["results"]:
        entry = saved[result["checkpoint"]]
        assert {name: one.value for name, one in entry.metrics.items()} == {
            name: one["value"] for name, one in result["metrics"].items()
        }
        assert entry.code
