"""Runs that begin at once in one results folder: none gets another's answers, and a name is one run's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.forking import python
from tests.support.project import ALONE, Project, declares_metrics

MEETING = """
import os, time
from pathlib import Path

from pytest_touchstone import Loglikelihood, benchmark

RIGHT, ORDER = os.environ["RIGHT"], os.environ.get("ORDER", "")


def wait_for(path):
    end = time.monotonic() + 60
    while not Path(path).exists():
        assert time.monotonic() < end, path
        time.sleep(0.02)


if ORDER == "last":  # to claim the folder, though it has looked at it first
    Path("looked").touch()
    wait_for("results/same/details/claim")
elif ORDER:
    wait_for("looked")


@benchmark("b", version=1, rows=[{"q": str(number)} for number in range(30)], asks=Loglikelihood, primary="acc")
def test_b(example):
    '''One run answers all rightly, and one none.'''
    yield Loglikelihood(example["q"], " 1")
    return {"acc": RIGHT == "1"}
"""


@pytest.fixture
def meeting(project: Project) -> Project:
    """A benchmark that two runs collect at the same time."""
    (project.path / "test_sums.py").unlink()
    (project.path / "test_b.py").write_text(MEETING)
    return project


def start(
    project: Project, *words: str, environment: dict[str, str], before: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    program = [*before, sys.executable if before else python()]
    return subprocess.Popen(
        [*program, "-m", "pytest", "test_b.py", "--checkpoint", "fake:causal", *ALONE, *words],
        cwd=project.path,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def value_of(summary: Path) -> float:
    (result,) = json.loads(summary.read_text(encoding="utf-8"))["results"]
    return float(result["metrics"]["acc"]["value"])


def ended(runs: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    texts = [run.communicate(timeout=120)[0] for run in runs]
    return [(run.returncode, text) for run, text in zip(runs, texts, strict=True)]


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ((), ()),
        pytest.param(("-n", "2"), ("-n", "2"), marks=pytest.mark.slow),
        pytest.param(("-n", "2"), (), marks=pytest.mark.slow),
        pytest.param((), ("-n", "2"), marks=pytest.mark.slow),
    ],
    ids=lambda words: "workers" if words else "alone",
)
@pytest.mark.parametrize("right", "10")
def test_a_second_run_with_an_id_ends_in_a_line_before_it_asks(
    meeting: Project, first: tuple[str, ...], last: tuple[str, ...], right: str
) -> None:
    """Both have looked at the folder before either made it."""
    other = "01"[right == "0"]
    runs = [
        start(meeting, "--eval-run-id", "same", *words, environment={"RIGHT": answer, "ORDER": order})
        for words, answer, order in ((first, right, "first"), (last, other, "last"))
    ]
    (code, text), (refused_code, refused_text) = ended(runs)
    assert (code, refused_code) == (0, 4), text + refused_text
    errors = [line for line in refused_text.splitlines() if line.startswith("ERROR")]
    assert len(errors) == 1, refused_text
    assert "results/same belongs to another run" in errors[0]
    folder = meeting.path / "results" / "same"
    assert value_of(folder / "summary.json") == float(right)
    journals = sorted(path.name for path in (folder / "items").iterdir())
    assert journals == (["items-gw0.jsonl", "items-gw1.jsonl"] if first else ["items-main.jsonl"])
    assert sum(len(path.read_text().splitlines()) for path in (folder / "items").iterdir()) == 30
    saved: list[dict[str, Any]] = [
        json.loads(path.read_text()) for path in (meeting.path / "results" / "saved").glob("*/b@same.json")
    ]
    assert [one["metrics"]["acc"]["value"] for one in saved] == [float(right)]


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode
    != 0,
    reason="needs unshare, and the right to make a PID namespace",
)
def test_runs_in_two_containers_have_folders_and_answers_of_their_own(meeting: Project) -> None:
    """Their processes have the same number, and they begin in the same second."""
    while time.time() % 1 > 0.5:
        time.sleep(0.01)
    container = ("unshare", "--pid", "--fork")
    runs = [start(meeting, environment={"RIGHT": right}, before=container) for right in "10"]
    assert [code for code, _ in ended(runs)] == [0, 0]
    folders = [path for path in (meeting.path / "results").iterdir() if path.name != "saved"]
    assert sorted(value_of(folder / "summary.json") for folder in folders) == [0.0, 1.0]


@pytest.mark.parametrize("words", [["--collect-only"], ["--eval-dry-run"], ["-k", "nothing"], ["--help"]])
def test_what_runs_nothing_claims_nothing(project: Project, words: list[str]) -> None:
    project.run("--eval-run-id", "mine", *words)
    assert not (project.path / "results").exists()
    assert project.run("--eval-run-id", "mine").ret == 0


def test_a_run_that_is_refused_after_it_was_collected_leaves_no_folder(project: Project) -> None:
    """Its floor is of a metric that the benchmark has not, which is known only then."""
    declares_metrics(project.path / "test_sums.py")
    (project.path / "gate.toml").write_text('[benchmarks.sums]\nfloors = ["nothing >= 0.5"]\n')
    refused = project.run("--eval-run-id", "mine", "--gate", "--eval-set", "gate_config=gate.toml")
    assert refused.ret == 4
    assert not (project.path / "results" / "mine").exists()


def test_what_is_left_of_a_run_in_its_folder_is_no_other_runs(project: Project) -> None:
    """A folder with the files of a run, which has no claim."""
    (project.path / "results" / "mine" / "items").mkdir(parents=True)
    assert project.run("--eval-run-id", "mine").ret == 4
    assert [path.name for path in project.runs[0].iterdir()] == ["items"]
