"""``touchstone list``: a table of runs that fits the terminal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from tests.support.runs import run

HOUR = 3600


@pytest.mark.parametrize("width", [60, 80, 100])
def test_runs_are_a_table_with_the_newest_last(
    width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    run(tmp_path, "a_late_run", "checkpoint-100", when=9 * HOUR)
    names = [f"checkpoint-{step}" for step in (100, 200, 300, 400)]
    run(tmp_path, "b_early_run", *names, when=8 * HOUR)
    assert main(["list", "--output", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[::4] == ["run", "items"]
    assert [line.split()[0] for line in lines[1:]] == ["b_early_run", "a_late_run"]
    assert all(len(line) <= width for line in lines)
    assert "1970-01-0" in lines[1]
    assert width < 80 or "checkpoint-100 +3 " in lines[1]
    assert main(["list", "--output", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == ["a_late_run", "b_early_run"]
    assert rows[1]["checkpoints"] == names


def test_a_folder_without_runs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path}/\n"


def test_a_run_that_goes_on_and_one_that_was_stopped_say_how_far_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("goes_on", "killed"):
        run(tmp_path, name, "checkpoint-100", when=9 * HOUR)
        (tmp_path / name / "summary.json").unlink()
    for path in (tmp_path / "killed").rglob("items-*"):
        os.utime(path, (0, 0))
    assert main(["list", "--output", str(tmp_path)]) == 0
    ends = {line.split()[0]: line.split()[-2:] for line in capsys.readouterr().out.splitlines()[1:]}
    assert (ends["goes_on"][1], ends["killed"][1]) == ("running", "stopped")
    done, _, of = ends["killed"][0].partition("/")
    assert int(done) == int(of)
