"""A folder of data is the only source of a run: what it lacks is left out by name, and never taken from elsewhere."""

from __future__ import annotations

import json

import pytest

from tests.support.lines import missing
from tests.support.mistakes import refused
from tests.support.project import Project

SHIPPED = """
from pytest_touchstone import Dataset, Loglikelihood, Shots, benchmark


@benchmark("{name}", version=1, data=Dataset(local={data!r}, fewshot={fewshot!r}),
           asks=Loglikelihood, primary="acc", {more})
def test_{name}(example, fewshot):
    yield fewshot.loglikelihood("a", " b")
    return {{"acc": 1.0}}
"""


def of_shipped_rows(
    project: Project, name: str, data: str, more: str = "", fewshot: str | None = None
) -> None:
    """A benchmark whose rows, and few-shot rows, come with the project."""
    (project.path / f"test_{name}.py").write_text(
        SHIPPED.format(name=name, data=data, more=more, fewshot=fewshot)
    )


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_the_folder_lacks_is_left_out_with_the_path_and_the_nearest_name(
    project: Project, workers: str
) -> None:
    of_shipped_rows(project, "easy", "arc_easy/test")
    (project.path / "data" / "ARC-Easy").mkdir()
    (project.path / "data" / "ARC-Easy" / "test.jsonl").write_text("{}\n")
    result = project.run("-n", workers)
    assert result.ret == 0
    (deselected,) = project.summary["deselected"]
    assert not missing(deselected, "easy", "data/arc_easy/test.jsonl", "nearest: data/ARC-Easy/test.jsonl")
    assert [found["name"] for found in project.summary["results"]] == ["sums"]
    assert "nearest: data/ARC-Easy/test.jsonl" in " ".join(str(result.stdout).split())


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_folder_with_nothing_of_what_was_selected_is_a_mistake(project: Project, workers: str) -> None:
    of_shipped_rows(project, "easy", "arc_easy/test")
    of_shipped_rows(project, "grade", "gsm8k/test")
    found = project.run("-n", workers, "-k", "easy or grade")
    refused(found, "easy (data/arc_easy/test.jsonl)", "; and 1 other benchmark likewise")
    assert project.runs == [] or not any((run / "summary.json").exists() for run in project.runs)


def test_the_environment_names_a_folder_as_the_option_does(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_shipped_rows(project, "easy", "arc_easy/test")
    monkeypatch.setenv("TOUCHSTONE_DATA", "data")
    found = project.pytester.runpytest("--checkpoint", "fake:causal", "-k", "easy")
    refused(found, "data/arc_easy/test.jsonl")


def test_few_shot_rows_that_the_folder_lacks_are_not_shipped_ones(project: Project) -> None:
    more = 'shots=Shots(2, lambda row: row["question"])'
    of_shipped_rows(project, "grade", "gsm8k/test", more, fewshot="train")
    (project.path / "data" / "gsm8k").mkdir()
    (project.path / "data" / "gsm8k" / "test.jsonl").write_text('{"question": "1+1", "answer": "2"}\n')
    refused(project.run("-k", "grade"), "data/gsm8k/train.jsonl", "--eval-shots 0 asks without")
    assert project.run("-k", "grade", "--eval-shots", "0").ret == 0


def test_a_processed_split_is_read(project: Project) -> None:
    of_shipped_rows(project, "human", "humaneval/HumanEval")
    folder = project.path / "data" / "humaneval" / "processed"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(3)))
    assert project.run("-k", "human").ret == 0
    [found] = project.summary["results"]
    assert (found["scored"], found["dataset"]["path"]) == (3, "data/humaneval/processed/test.jsonl")
