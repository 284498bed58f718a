"""Runs of a results folder: their list, a table of several for a paper, and which of their checkpoints is best."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from tests.support.lines import missing
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
    assert main(["runs", "--output", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[::4] == ["run", "items"]
    assert [line.split()[0] for line in lines[1:]] == ["b_early_run", "a_late_run"]
    assert all(len(line) <= width for line in lines)
    assert ("1970-01-0" if width > 60 else " 01-0") in lines[1]
    assert width < 80 or "checkpoint-100 +3 " in lines[1]
    assert main(["runs", "--output", str(tmp_path), "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == ["a_late_run", "b_early_run"]
    assert rows[1]["checkpoints"] == names


def test_names_keep_their_ends_and_the_state_is_whole_where_a_line_is_narrow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for step in (1000, 2000):
        name = f"20261129_17555{step // 1000}_3592f2a2a"
        folder = run(tmp_path, name, f"checkpoint-{step}", f"checkpoint-{step + 1}", when=9 * HOUR)
        path = folder / "summary.json"
        data = json.loads(path.read_text())
        del data["crc32"]
        data["gate"] = {"mode": "plain", "decision": "not valid", "lines": [], "exit_code": 9}
        path.write_text(json.dumps(data))
    assert main(["runs", "--output", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert all(line.endswith(" gate not valid") and len(line) <= 80 for line in lines)
    assert [line.split()[3][-4:] for line in lines] == ["1000", "2000"]


def test_a_folder_without_runs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path}/\n"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs below ``results``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    run(tmp_path / "results", "first", "checkpoint-100", "checkpoint-200", when=HOUR)
    run(tmp_path / "results", "second", "checkpoint-300", seed=3, when=2 * HOUR)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    out, err = capsys.readouterr()
    return err if code else out


def test_the_table_for_a_paper_has_the_checkpoints_of_all_runs_and_nothing_else(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for form, start in (
        ("latex", "% \\usepackage{booktabs}"),
        ("markdown", "| checkpoint |"),
    ):
        text = printed(capsys, "report", "first", "last", "--format", form)
        assert text.startswith(start)
        assert [text.count(f"checkpoint-{step}") for step in (100, 200, 300)] == [1, 1, 1]
    assert "95 % intervals" in printed(capsys, "report", "last", "--format", "markdown")
    assert "standard errors" in printed(capsys, "report", "last", "--format", "markdown", "--stderr")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("first", "second"),
            "2 runs: this form is of one; several have a table (--format markdown or latex) and ",
        ),
        (("first", "--stderr"), "--stderr: is for a table; give --format"),
        (("first", "--format", "word"), "--format: invalid choice: 'word'"),
        (("firts", "--format", "latex"), "firts: no such run, file, folder or pattern"),
    ],
)
def test_a_mistake_about_the_table_is_one_line(
    arguments: tuple[str, ...], told: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "report", *arguments, code=4)
    assert told in text
    assert text.count("\n") == 1


def test_best_says_who_leads_in_its_first_line_and_each_benchmark_below(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "best", "first", "second")
    assert "over all items" in text.splitlines()[0]
    assert [line.split()[0] for line in text.splitlines() if line.startswith(("wino", "real"))] == [
        *("winogrande", "real_coref"),
        *("winogrande", "real_coref"),  # what choosing the best costs
    ]
    data = json.loads(printed(capsys, "best", "first", "--format", "json"))
    assert (data["kind"], {row["of"] for row in data["best"]}) == ("best", {2})
    assert data["text"] in " ".join(printed(capsys, "best", "first").split())
    assert "one checkpoint: name another run" in printed(capsys, "best")


def test_last_is_the_newest_run_wherever_a_run_is_named(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (
        "report",
        "study",
        "report --open",
        "best",
        "compare first#checkpoint-100",
        "baseline show",
    ):
        assert printed(capsys, *command.split(), "last")
    assert not missing(printed(capsys, "baseline", "set", "last"), "main", "checkpoint-300", "second")
    assert "best, none, last" in printed(capsys, "baseline", "set", "last", "--name", "last", code=4)
    assert "second" in printed(capsys, "baseline", "plan", "--baseline", "last")
    assert "saved results of second removed" in printed(capsys, "baseline", "rm", "last")


def test_a_run_that_goes_on_and_one_that_was_stopped_say_how_far_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("goes_on", "killed"):
        run(tmp_path, name, "checkpoint-100", when=9 * HOUR)
        (tmp_path / name / "summary.json").unlink()
    for path in (tmp_path / "killed").rglob("items-*"):
        os.utime(path, (0, 0))
    assert main(["runs", "--output", str(tmp_path)]) == 0
    ends = {line.split()[0]: line.split()[-2:] for line in capsys.readouterr().out.splitlines()[1:]}
    assert (ends["goes_on"][1], ends["killed"][1]) == ("running", "stopped")
    done, _, of = ends["killed"][0].partition("/")
    assert int(done) == int(of)


COMMANDS = (
    "report RUN",
    "report RUN --format csv",
    "items RUN",
    "best RUN",
    "study RUN",
    "compare RUN",
    "compare RUN#checkpoint-100 RUN#checkpoint-200",
    "report RUN -o page.html",
    "export RUN -o exported",
    "score RUN",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["first", "last"])
@pytest.mark.parametrize("shadow", ["a folder", "a file", "another run"])
def test_every_command_takes_a_name_for_a_run_whatever_has_it_in_the_current_folder(
    command: str, name: str, shadow: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "last":
        shutil.rmtree("results/second")  # so that the last has two checkpoints
    words = command.replace("RUN", name).split()

    def found() -> tuple[int, str]:
        code = main(words)
        return code, capsys.readouterr().out

    expected = found()
    if shadow == "a folder":
        (runs / name).mkdir()
        (runs / name / "config.json").write_text("{}")
    elif shadow == "a file":
        (runs / name).write_text("")
    else:
        run(runs, name, "checkpoint-900", "checkpoint-950", seed=5)
    assert found() == expected


def test_a_pattern_of_names_means_runs_too(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = printed(capsys, "study", "fir*", "sec*")
    for name in ("firmware", "secrets"):
        (runs / name).mkdir()
    assert printed(capsys, "study", "fir*", "sec*") == expected


def test_a_path_is_no_name_of_a_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(runs, "first", "checkpoint-900", seed=5)
    assert "checkpoint-900" in printed(capsys, "report", "./first")
    assert "checkpoint-900" in printed(capsys, "study", "./first", "second")
