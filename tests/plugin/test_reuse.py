"""Scores of an earlier run are taken from the cache, unless something that they depend on has changed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.results.journal import latest_records, read_journal
from pytest_touchstone.results.records import Record
from tests.support.project import Project
from tests.support.tiny import tiny_causal

LOADED = """
import sys

def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        print("LOADED", [name for name in ("torch", "transformers", "tokenizers") if name in sys.modules])
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    return [tiny_causal(folder / str(seed), seed=seed) for seed in range(2)]


@pytest.fixture(autouse=True)
def runs(models: list[Path], project: Project) -> Path:
    """A run of two steps."""
    for model, step in zip(models, (100, 200), strict=True):
        shutil.copytree(model, project.path / "runs" / "a" / f"checkpoint-{step}")
    project.rows(6)
    folder: Path = project.path / "runs" / "a"
    return folder


def records(run: Path) -> dict[tuple[str, str], Record]:
    return {(one.checkpoint, one.example): one for one in latest_records(read_journal(run)).values()}


def run(project: Project, *arguments: str, checkpoint: str = "runs/a", apart: bool = False) -> Any:
    """A run under the next number: two may begin in the same second."""
    return project.run(
        "--eval-run-id", f"r{len(project.runs)}", *arguments, checkpoint=checkpoint, apart=apart
    )


def newest(project: Project) -> Path:
    found: Path = project.path / "results" / f"r{len(project.runs) - 1}"
    return found


def reused(project: Project) -> dict[str, int]:
    """How many items of each checkpoint the newest run has from earlier ones."""
    summary = json.loads((newest(project) / "summary.json").read_text())
    return {result["checkpoint"]: result["reused"] for result in summary["results"]}


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_a_second_run_takes_every_score_from_the_first_and_loads_no_model(
    project: Project, workers: str
) -> None:
    (project.path / "conftest.py").write_text(LOADED)
    assert project.run("--eval-run-id", "first", checkpoint="runs/a").ret == 0
    again = project.run("-n", workers, "--eval-run-id", "second", checkpoint="runs/a", apart=True)
    assert again.ret == 0
    again.assert_outcomes(passed=12)
    again.stdout.fnmatch_lines(["reused      * scores, from first", "*LOADED []*"])
    first, second = (records(project.path / "results" / name) for name in ("first", "second"))
    assert first.keys() == second.keys()
    for key, record in second.items():
        assert (record.scores, record.exchanges) == (first[key].scores, first[key].exchanges)
        assert (record.reused_from, first[key].reused_from) == ("first", None)
    numbers = [
        json.loads((project.path / "results" / name / "summary.json").read_text())["results"]
        for name in ("first", "second")
    ]
    assert [one["metrics"] for one in numbers[0]] == [one["metrics"] for one in numbers[1]]


def test_a_third_run_says_which_one_has_scored(project: Project) -> None:
    for name in ("first", "second", "third"):
        project.run("--eval-run-id", name, checkpoint="runs/a")
    assert {one.reused_from for one in records(project.path / "results" / "third").values()} == {"first"}
    shutil.rmtree(project.path / "results" / "first")
    project.run("--eval-run-id", "fourth", checkpoint="runs/a")
    assert {one.reused_from for one in records(project.path / "results" / "fourth").values()} == {"first"}


def test_fresh_scores_everything_again(project: Project) -> None:
    run(project)
    run(project, "--eval-no-cache")
    assert reused(project) == {"checkpoint-100": 0, "checkpoint-200": 0}


def test_a_checkpoint_is_known_by_its_content_whatever_it_is_called(project: Project, runs: Path) -> None:
    run(project)
    shutil.copytree(runs / "checkpoint-200", project.path / "final")
    run(project, checkpoint="final")
    assert reused(project) == {"final": 6}


def test_new_steps_alone_are_scored(project: Project) -> None:
    run(project, "--eval-steps", "100")
    run(project)
    assert reused(project) == {"checkpoint-100": 6, "checkpoint-200": 0}


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), encoding="utf-8")
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)


CHANGES: dict[str, Callable[[Path], object]] = {
    "the benchmark's file": lambda root: edit(
        root / "test_sums.py", "right.logprob > wrong", "right.logprob < wrong"
    ),
    "a module that it imports": lambda root: edit(root / "helper_of_sums.py", "1", "2"),
    "a fixture that it asks for": lambda root: edit(root / "conftest.py", "return 1", "return 2"),
    "a row": lambda root: edit(root / "data" / "sums" / "test.jsonl", '"0+1="', '"0 + 1 ="'),
    "a checkpoint": lambda root: edit(
        root / "runs" / "a" / "checkpoint-100" / "config.json",
        '"initializer_range": 0.02',
        '"initializer_range": 0.03',
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_has_changed_is_scored_again(project: Project, what: str) -> None:
    text = (
        (project.path / "test_sums.py").read_text().replace("(example, fewshot)", "(example, fewshot, bonus)")
    )
    (project.path / "test_sums.py").write_text("import helper_of_sums\n" + text)
    (project.path / "helper_of_sums.py").write_text("VALUE = 1\n")
    (project.path / "conftest.py").write_text(
        "import pytest\n@pytest.fixture(scope='session')\ndef bonus():\n    return 1\n"
    )
    assert run(project).ret == 0
    CHANGES[what](project.path)
    assert run(project).ret == 0
    expected = {"checkpoint-100": 0, "checkpoint-200": 6 if what == "a checkpoint" else 0}
    assert reused(project) == expected


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        (["--eval-limit", "4"], [], 4),
        ([], ["--eval-limit", "4"], 4),
        (["-k", "sums/2"], [], 1),
        ([], ["--eval-batch", "1", "--eval-set", "batch_items=2"], 6),
        ([], ["--eval-seed", "5"], 0),
        ([], ["--eval-shots", "1"], 0),
        (["--eval-shots", "1"], ["--eval-shots", "2"], 0),
        ([], ["--eval-dtype", "bfloat16"], 0),
        ([], ["--eval-seq-len", "64"], 0),
        ([], ["--eval-sandbox", "none"], 0),
    ],
)
def test_settings_that_answers_depend_on_must_be_the_same_and_others_need_not(
    project: Project, first: list[str], second: list[str], count: int
) -> None:
    assert run(project, *first, checkpoint="runs/a/checkpoint-100").ret == 0
    assert run(project, *second, checkpoint="runs/a/checkpoint-100").ret == 0
    assert reused(project) == {"checkpoint-100": count}


def test_what_was_no_score_is_tried_again(project: Project) -> None:
    project.write("import pathlib; assert example['n'] != 3 or not pathlib.Path('stumble').exists()")
    (project.path / "stumble").touch()
    assert run(project).ret == 9
    (project.path / "stumble").unlink()
    assert run(project).ret == 0
    assert reused(project) == {"checkpoint-100": 5, "checkpoint-200": 5}


def test_a_run_that_was_killed_leaves_what_it_had_scored(project: Project) -> None:
    kill = (
        "import os, pathlib; example['n'] == 3 and pathlib.Path('kill').exists() and os.kill(os.getpid(), 9)"
    )
    project.write(kill)
    (project.path / "kill").touch()
    killed = run(project, "--eval-set", "batch_items=1", apart=True)
    assert killed.ret == -9
    (project.path / "kill").unlink()
    assert run(project).ret == 0
    assert reused(project) == {"checkpoint-100": 3, "checkpoint-200": 0}


def test_items_with_parameters_of_their_own_are_scored_each_time(project: Project) -> None:
    text = (
        (project.path / "test_sums.py").read_text().replace("(example, fewshot)", "(example, fewshot, style)")
    )
    text = text.replace("@benchmark(", "@pytest.mark.parametrize('style', ['x', 'y'])\n@benchmark(")
    (project.path / "test_sums.py").write_text("import pytest\n" + text)
    for _ in range(2):
        run(project).assert_outcomes(passed=24)
    assert reused(project) == {"checkpoint-100": 0, "checkpoint-200": 0}


def test_answers_of_fake_checkpoints_are_never_reused(project: Project) -> None:
    for _ in range(2):
        run(project, checkpoint="fake:causal")
    assert reused(project) == {"fake-causal": 0}


def test_a_manifest_that_cannot_be_read_is_left_alone(project: Project) -> None:
    run(project)
    (project.path / "results" / "r1").mkdir()
    (project.path / "results" / "r1" / "run.json").write_text("{")
    assert run(project).ret == 0
    assert reused(project) == {"checkpoint-100": 6, "checkpoint-200": 6}


def test_a_run_that_took_its_scores_from_another_can_be_rescored(project: Project) -> None:
    from pytest_touchstone.cli.score import rescore

    for _ in range(2):
        assert run(project).ret == 0
    found = rescore(newest(project))
    assert (found.items, found.changes, found.unscored) == (12, [], [])


def test_a_damaged_record_is_named_and_asked_again(project: Project) -> None:
    assert run(project).ret == 0
    journal = newest(project) / "items" / "items-main.jsonl"
    whole, before = journal.read_text(), records(newest(project))
    journal.write_text(re.sub(r'"acc":[01]', '"acc":9', whole, count=1))
    again = run(project)
    assert again.ret == 0
    again.stdout.fnmatch_lines(["1 record*reused,*items-main.jsonl, line 1: damaged*"])
    assert sum(reused(project).values()) == len(before) - 1
    assert {key: one.scores["acc"] for key, one in records(newest(project)).items()} == {
        key: one.scores["acc"] for key, one in before.items()
    }
