"""Several samples of a task: how they are drawn follows from the options and the example alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_touchstone.cli import main
from tests.support.project import Project

BENCHMARK = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="draws", version=1, data="sums/test", asks=Generate, primary="share"{more})
def test_draws(example, fewshot):
    '''How many of the samples have an even number of characters.'''
    answer = yield Generate(example["q"], max_new_tokens=20, **fewshot.sampling.arguments())
    return {{"share": sum(len(one.text) % 2 == 0 for one in answer.samples) / len(answer.samples)}}
"""


@pytest.fixture(autouse=True)
def draws(project: Project) -> None:
    write(project)


def write(project: Project, more: str = "") -> None:
    (project.path / "test_sums.py").write_text(BENCHMARK.format(more=more), encoding="utf-8")


def asked(project: Project) -> dict[str, dict[str, Any]]:
    """What was asked of each example."""
    return {example: record.exchanges[0]["request"] for example, record in project.records.items()}


def test_one_greedy_sample_is_what_is_asked_by_default(project: Project) -> None:
    assert project.run().ret == 0
    for request in asked(project).values():
        assert (request["samples"], request["temperature"], request["top_p"]) == (1, 0.0, 1.0)


def test_several_samples_are_drawn_and_the_manifest_says_how(project: Project) -> None:
    assert project.run("--eval-samples", "4").ret == 0
    requests = asked(project)
    for request in requests.values():
        assert (request["samples"], request["temperature"], request["top_p"]) == (4, 0.2, 0.95)
    assert len({request["seed"] for request in requests.values()}) == 20
    (folder,) = project.runs
    settings = json.loads((folder / "run.json").read_text(encoding="utf-8"))["settings"]
    assert (settings["samples"], settings["temperature"], settings["top_p"]) == (4, 0.2, 0.95)


def test_what_is_drawn_does_not_depend_on_what_else_is_selected(project: Project) -> None:
    project.run("--eval-samples", "4", "--eval-temperature", "0.8")
    whole = project.scores()
    project.run(
        "--eval-samples", "4", "--eval-temperature", "0.8", "--eval-batch-items", "3", "-k", "17 or 4"
    )
    some = project.scores()
    assert some == {example: whole[example] for example in some}
    assert len(some) == 3
    project.run("--eval-samples", "4", "--eval-temperature", "0.8", "--eval-seed", "5")
    assert project.scores() != whole


def test_samples_are_scored_again_as_they_were_drawn(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.run("--eval-samples", "4", "--eval-top-p", "0.5", "--eval-seed", "5")
    (folder,) = project.runs
    capsys.readouterr()
    assert main(["rescore", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["items"], found["changes"], found["unscored"]) == (20, [], [])


def test_of_more_rows_than_are_wanted_a_part_is_drawn_and_keeps_its_names(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.run()
    whole = project.scores()
    write(project, ", most_rows=6")
    project.run()
    (folder,) = project.runs
    capsys.readouterr()
    assert main(["rescore", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unscored"] == []
    some = project.scores()
    assert len(some) == 6
    assert some == {example: whole[example] for example in some}
    project.run("--eval-seed", "2")
    assert set(project.scores()) != set(some)
