"""``--eval-set gate_sequential``: benchmarks that stop once they are settled, and the schedules in a run's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.compare.sequential import InterimSchedule
from pytest_touchstone.plugin.gate import read_schedules, write_schedules
from tests.support.project import Project, gate_of

GOOD = "return {'acc': float(example['n'] % 10 < 8)}"
BAD = "return {'acc': float(example['n'] % 10 < 2)}"
SCHEDULE = InterimSchedule(["i1", "i2", "i3", "i4"], ["b/1", "b/2", "b/3", "b/4"], ["r"] * 4, (1, 3, 4))


def begin(project: Project, count: int = 120) -> str:
    """A first run with a good score; gives its run id."""
    project.rows(count)
    project.write(GOOD)
    assert project.run().ret == 0
    (run,) = project.runs
    return run.name


def later(project: Project, first: str) -> str:
    """The run that is not the first."""
    (run,) = [run for run in project.runs if run.name != first]
    return run.name


@pytest.mark.parametrize(
    ("baseline", "arguments"),
    [
        ("named", []),
        ("best", []),
        ("best", ["-n", "1"]),
        ("best", ["--eval-set", "batch_items=7"]),
    ],
)
def test_a_bad_checkpoint_is_stopped_early_with_exit_code_8(
    project: Project, baseline: str, arguments: list[str]
) -> None:
    first = begin(project)
    project.write(BAD)
    named = ["--baseline", first] if baseline == "named" else []
    result = project.run("--gate", *named, "--eval-set=gate_sequential", *arguments)
    assert result.ret == 8
    gate = gate_of(project.path, later(project, first))
    (line,) = gate["lines"]
    assert line["kind"] == "worse"
    assert line["n"] < 120
    assert line["n"] <= gate["asked"][0] < gate["asked"][1] == 120
    result.stdout.fnmatch_lines(["*settled after *", "note *of 120 items *"])


def test_the_verdict_is_the_same_with_and_without_workers(project: Project) -> None:
    first = begin(project)
    project.write(BAD)
    found: list[Any] = []
    for arguments in ([], ["-n", "2"]):
        name = f"r{len(found)}"
        chosen = ["--baseline", first, "--eval-set=gate_sequential", "--eval-run-id", name]
        project.run("--gate", *chosen, *arguments)
        (line,) = gate_of(project.path, name)["lines"]
        found.append({key: line[key] for key in ("kind", "n", "difference", "low", "high", "p")})
    assert found[0] == found[1]


def test_what_is_not_asked_is_skipped_with_the_reason_and_is_no_baseline_later(project: Project) -> None:
    first = begin(project)
    project.write(BAD)
    project.run("--gate", "--baseline", first, "--eval-set=gate_sequential")
    run = project.path / "results" / later(project, first)
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert summary["totals"]["skipped"] > 0
    assert summary["totals"]["errors"] == 0
    (entry,) = (project.path / "results" / "saved").glob(f"*/sums@{run.name}.json")
    assert json.loads(entry.read_text(encoding="utf-8"))["skipped"] == summary["totals"]["skipped"]
    project.write(GOOD)
    again = project.run("--gate", "--baseline", run.name)
    assert again.ret == 9
    again.stdout.fnmatch_lines(["*not whole: *120 items*"])


def test_without_a_baseline_all_items_are_asked(project: Project) -> None:
    project.rows(60)
    result = project.run("--gate", "--eval-set=gate_sequential")
    assert result.ret == 0
    assert {record.status for record in project.records.values()} == {"scored"}


def test_an_item_that_fails_makes_the_run_not_valid(project: Project) -> None:
    first = begin(project)
    project.write("assert example['n'] != 5\n    " + GOOD)
    result = project.run("--gate", "--baseline", first, "--eval-set=gate_sequential")
    assert result.ret == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--eval-set=gate_sequential"], "--eval-set gate_sequential does nothing alone"),
        (
            ["--gate", "--eval-set=gate_sequential", "--eval-set", "gate_metric=score"],
            "--eval-set gate_sequential: the composite score needs all items",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(project: Project, arguments: list[str], message: str) -> None:
    (project.path / "pyproject.toml").write_text('[tool.touchstone.composites]\nscore = {"sums:acc" = 1.0}\n')
    result = project.run(*arguments)
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"*{message}*"])


def test_schedules_come_back_from_a_folder_as_they_were(tmp_path: Path) -> None:
    assert read_schedules(tmp_path) == {}
    write_schedules(tmp_path, {("step-1", "b"): SCHEDULE})
    assert read_schedules(tmp_path) == {("step-1", "b"): SCHEDULE}
