"""The reports of a run that was killed."""

from __future__ import annotations

import json
import shutil

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.results.aggregate import has_ended, summary_so_far
from pytest_touchstone.results.summary import count_items
from tests.support.lines import missing
from tests.support.project import Project


def killed(project: Project) -> str:
    """The id of a run of which half the records were written when it was killed."""
    project.run()
    (run,) = project.runs
    for path in (one for one in run.rglob("*") if one.is_file()):
        if path.name not in ("run.json", "collected.json", "run.log") and path.suffix != ".jsonl":
            path.unlink()
    (journal,) = run.glob("items/items-*.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:12]) + lines[12][:40])
    shutil.rmtree(run.parent / "saved", ignore_errors=True)
    return run.name


def test_a_killed_run_is_reported_listed_and_found_as_the_last(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = killed(project)
    monkeypatch.chdir(project.path)
    before = sorted(path.name for path in project.runs[0].iterdir())
    for target in (name, "last", f"results/{name}"):
        capsys.readouterr()
        assert main(["report", target]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert not missing(told, "unfinished: 12 of 20", "go on: pytest")
        assert "12/20 8 lost items" in told
    assert main(["runs"]) == 0
    assert "12/20 running" in capsys.readouterr().out
    assert main(["report", name, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["lost"] == 8
    assert sorted(path.name for path in project.runs[0].iterdir()) == before, "nothing is written"
    assert main(["export", name, "--format", "mlflow"]) != 0
    assert not missing(capsys.readouterr().err, "goes on", "killed")


def test_a_run_that_has_ended_is_as_it_summed_up(project: Project) -> None:
    project.run()
    (run,) = project.runs
    assert has_ended(run)
    assert count_items(summary_so_far(run))["scored"] == 20


def test_files_that_cannot_be_read_are_said(project: Project) -> None:
    run = project.path / "results" / killed(project)
    (run / "details" / "collected.json").write_text("{", encoding="utf-8")
    with pytest.raises(HarnessError, match="cannot be read"):
        summary_so_far(run)
