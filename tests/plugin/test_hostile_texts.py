"""A run whose every outside text is hostile: nothing that it prints or writes is obeyed by what shows it."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.core.text import INVISIBLE
from tests.support.project import Project

HOSTILE = (
    "\n::error::owned\r  ::set-output name=x::y\x1b]0;title\x07\x9b2J\u202eright\u200bleft\u2066 ##[group]x"
)
KEY = "hunter2-of-the-server"

BENCHMARK = """
import json
from pathlib import Path

from pytest_touchstone import Generate, benchmark

TEXT = json.loads(Path("text.json").read_text())


@benchmark(name="texts", version=1, data="texts/test", asks=Generate, primary="acc")
def test_texts(example):
    '''What a model says.'''
    answer = yield Generate(example["q"] + TEXT, max_new_tokens=4)
    print(TEXT, "::stop-commands::token" + answer.samples[0].text)
    if example["n"] == 0:
        raise RuntimeError(TEXT)
    assert example["n"] != 1, TEXT
    return {"acc": 1.0}
"""


def obeyed(text: str) -> list[str]:
    """The lines of a log that GitHub takes for commands, and the signs that a terminal obeys."""
    lines = [line for line in re.split("[\r\n]", text) if line.lstrip().startswith("::") or "##[" in line]
    return [*lines, *(found[0] for found in INVISIBLE.finditer(text))]


@pytest.fixture
def hostile(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "job.md"))
    (project.path / "test_sums.py").unlink()
    (project.path / "test_texts.py").write_text(BENCHMARK)
    (project.path / "text.json").write_text(json.dumps(HOSTILE))
    folder = project.path / "data" / "texts"
    folder.mkdir(parents=True)
    rows = [{"n": n, "id": f"=cmd{HOSTILE}{n}", "q": f"{n} {HOSTILE}"} for n in range(3)]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return project


@pytest.mark.parametrize("options", [(), ("-v",), ("-vv", "--color=yes"), ("-rA",), ("-s",)], ids=str)
def test_nothing_in_the_report_of_pytest_is_obeyed(hostile: Project, options: tuple[str, ...]) -> None:
    result = hostile.run("--eval-run-id", "first", *options)
    printed = result.stdout.str() + result.stderr.str()
    assert printed.count("owned") > 8
    assert obeyed(re.sub(r"\x1b\[[0-79;]*m", "", printed) if "--color=yes" in options else printed) == []


def test_no_file_of_a_run_and_no_command_about_it_is_obeyed(
    hostile: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile.run("--eval-run-id", "first", "--eval-set", "markdown=out.md", "--junitxml", "junit.xml")
    folder = hostile.path / "results" / "first"
    written = {name: (folder / name).read_text() for name in ("details/errors.log", "details/run.log")}
    for name in ("out.md", "job.md"):
        written[name] = (hostile.path / name).read_text().replace("@\u200b", "@")
    for name, text in written.items():
        assert [sign[0] for sign in INVISIBLE.finditer(text)] == [], name
    summary = (folder / "report.html").read_text()
    assert not re.search("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b]", summary)
    capsys.readouterr()
    for command in (
        ["items"],
        ["items", "--full"],
        ["items", "--format", "json"],
        ["report"],
        ["report", "--format", "csv"],
    ):
        assert main([command[0], str(folder), *command[1:]]) == 0
        assert obeyed(capsys.readouterr().out) == [], command


def test_a_folder_with_a_hostile_name_is_one_harmless_line(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    folder = project.path / f"model{HOSTILE.replace('/', '')}"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    result = project.run(checkpoint=str(folder))
    assert result.ret == 4
    (told,) = obeyed(result.stdout.str() + result.stderr.str())
    assert told.startswith("::error title=")  # our own, of which its text has made one line
    capsys.readouterr()
    assert main(["checkpoint", "show", str(folder)]) == 4
    said = capsys.readouterr().err
    assert obeyed(said) == []
    assert said.count("\n") == 1


def test_a_name_that_a_spreadsheet_would_compute_is_a_text_in_tables(project: Project) -> None:
    text = (project.path / "test_sums.py").read_text()
    (project.path / "test_sums.py").write_text(text.replace('"margin"', '"=1+1"'))
    project.run("--eval-run-id", "first")
    with (project.path / "results" / "first" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["metric"] for row in rows} == {"acc", "'=1+1"}
    assert all(float(row["value"]) is not None for row in rows)


def test_keys_and_homes_stay_out_of_all_files_of_a_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path("/home/somebody")
    monkeypatch.setenv("HOME", str(project.path))
    project.write(f"raise RuntimeError('http://me:{KEY}@host/x?api_key={KEY}, see {home}/secret/place')")
    files = [project.path / "junit.xml", project.path / "tests.json"]
    options = ["--junitxml", str(files[0]), "--json-report", "--json-report-file", str(files[1])]
    project.run("--eval-run-id", "first", "-o", f"markers=x: --api-key {KEY}", *options)
    folder = project.path / "results" / "first"
    kept = [*files, *(path for path in folder.rglob("*") if path.is_file())]
    assert len(kept) > 7
    for path in kept:
        assert KEY not in path.read_text(), path.name
    page = (folder / "report.html").read_text()
    assert str(home) not in page
    assert str(project.path) not in page
