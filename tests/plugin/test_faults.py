"""A fault in one item is an error of that item: all others are scored, and the exit code is not 0."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from pytest_touchstone.results.journal import read_journal
from tests.support.project import Project

WRONG = (
    ("return {'acc': object()}", "cannot travel between processes"),
    ("import numpy; return {'acc': numpy.zeros(3)}", "cannot travel between processes"),
    ("raise ValueError('bad \\ud800 row')", "ValueError: bad \\ud800 row"),
    ("return {'acc': float('nan')}", "finite"),
    ("yield 'hello'", "yielded 'hello'"),
)
"""Faults, each with words of its message."""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_wrong_items_are_errors_and_all_others_are_scored(project: Project, workers: str) -> None:
    faults = {3 * number: fault for number, fault in enumerate(WRONG)}
    project.write(
        "\n    ".join(f"if example['n'] == {n}: {statement}" for n, (statement, _) in faults.items())
    )
    result = project.run("-n", workers)
    assert result.ret == 9
    wrong = {example: record for example, record in project.records.items() if record.status != "scored"}
    assert set(wrong) == {f"sums/{n}" for n in faults}
    for n, (_, message) in faults.items():
        assert message in str(wrong[f"sums/{n}"].message)
    result.assert_outcomes(passed=15, failed=5)
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_numpy_scores_travel(project: Project) -> None:
    project.write("import numpy; return {'acc': numpy.float32(0.5), 'margin': numpy.int64(2)}")
    assert project.run("-n", "1").ret == 0
    assert project.records["sums/0"].scores == {"acc": 0.5, "margin": 2.0}


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_benchmark_that_never_yields_is_an_error_of_its_items(project: Project, workers: str) -> None:
    project.write()
    (project.path / "test_never.py").write_text(
        "from pytest_touchstone import Loglikelihood, benchmark\n"
        "@benchmark(name='never', version=1, data='sums/test', asks=Loglikelihood, primary='acc')\n"
        "def test_never(example):\n    return {'acc': 1.0}\n"
    )
    result = project.run("-n", workers, "--eval-limit", "3")
    assert result.ret == 9
    result.assert_outcomes(passed=3, failed=3)
    assert "never yields" in str(project.records["never/0"].message)


def test_a_property_that_cannot_travel_fails_its_own_test_only(project: Project) -> None:
    (project.path / "test_plain.py").write_text(
        "def test_one(record_property):\n    record_property('o', object())\ndef test_two():\n    pass\n"
    )
    result = project.run("-n", "1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*cannot travel between processes*"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    assert len(project.records) == 20


KILL = "import os, signal\n    {when} os.kill(os.getpid(), signal.SIGKILL)"


def test_a_worker_that_dies_again_and_again_costs_the_guilty_item_alone(project: Project) -> None:
    project.rows(40)
    project.write(KILL.format(when="if example['n'] == 11:"))
    result = project.run("-n", "2", apart=True)
    assert result.ret == 9
    lost = {example for example, record in project.records.items() if record.status != "scored"}
    assert lost == {"sums/11"}
    assert "worker died 2 times" in str(project.records["sums/11"].message)
    assert "sums/11]; given up" in (project.runs[0] / "details" / "run.log").read_text()
    assert len(project.records) == 40
    result.stdout.fnmatch_lines(["*sums/11*"])


def test_a_worker_that_dies_once_costs_nothing(project: Project) -> None:
    project.rows(40)
    project.write(
        KILL.format(
            when="import pathlib; flag = pathlib.Path('flag')\n"
            "    if example['n'] == 11 and not flag.exists(): flag.touch();"
        )
    )
    result = project.run("-n", "2", apart=True)
    assert result.ret == 0
    assert {record.status for record in project.records.values()} == {"scored"}
    assert len(project.records) == 40


@pytest.mark.parametrize("unit", ["4", "64"])
def test_after_kill_9_the_journal_holds_every_finished_item(project: Project, unit: str) -> None:
    project.rows(40)
    project.write("__import__('time').sleep(0.05)")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--checkpoint",
        "fake:causal",
        "--eval-data",
        "data",
        "--eval-batch-items",
        unit,
        "-s",
    ]
    process = subprocess.Popen(
        command, cwd=project.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (
            project.runs
            and sum(path.read_bytes().count(b"\n") for path in project.runs[0].glob("items/items-*")) >= 10
        ):
            break
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    records = read_journal(project.runs[0])
    assert 10 <= len(records) < 40
    assert all(record.status == "scored" and record.scores for record in records)
    assert json.loads((project.runs[0] / "run.json").read_text())["run_id"] == project.runs[0].name


def test_an_interrupt_keeps_what_was_finished(project: Project) -> None:
    project.write("if example['n'] == 11: raise KeyboardInterrupt")
    result = project.run("--eval-batch-items", "4", apart=True)
    assert result.ret == 2
    assert sum(record.status == "scored" for record in project.records.values()) >= 8
    assert len(project.records) == 20


def test_an_item_that_ends_the_interpreter_takes_no_finished_item_with_it(project: Project) -> None:
    project.write("if example['n'] == 5: raise SystemExit(3)")
    assert project.run().ret == 9
    assert {example for example, record in project.records.items() if record.status == "error"} == {"sums/5"}
    assert len(read_journal(project.runs[0])) == 20


def test_a_disk_that_is_full_at_the_start_is_one_line(project: Project) -> None:
    (project.path / "conftest.py").write_text(
        "import resource, sys\n"
        "sys.dont_write_bytecode = True  # else Python leaves cut files for later tests\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
    )
    done = project.run(apart=True)
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: cannot write results/*: File too large; free some space*"])
    assert "INTERNALERROR" not in str(done.stdout) + str(done.stderr)
