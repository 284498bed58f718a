"""A run in the results folder that something has damaged spoils no command about others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.results.reuse import find_earlier_runs
from tests.support.runs import run


def deep(path: Path) -> None:
    path.write_text("[" * 100_000)


def wrong(path: Path) -> None:
    path.write_text('{"schema": 1, "kind": "summary", "results": [3], "checkpoints": 5, "began": "x"}')


def cut(path: Path) -> None:
    path.write_text('{"schema": 1, "ki')


def loop(path: Path) -> None:
    path.symlink_to(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


FAULTS = [deep, wrong, cut, os.mkfifo, loop, endless]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    for name, when in (("good", 2), ("bad", 1)):
        run(tmp_path, name, "checkpoint-100", when=when)
    return tmp_path


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_summary_is_one_line(
    fault: Callable[[Path], None], output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (output / "bad" / "summary.json").unlink()
    fault(output / "bad" / "summary.json")
    place = ["--output", str(output)]
    assert main(["runs", *place, "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert [row["run"] for row in json.loads(printed.out)] == ["good"]
    assert printed.err.startswith("touchstone: ")
    assert printed.err.count("\n") == 1
    assert main(["runs", *place]) == 0
    assert "good" in capsys.readouterr().out
    assert main(["report", "good", *place]) == 0
    capsys.readouterr()
    assert main(["report", str(output / "bad"), *place]) == 4
    said = capsys.readouterr().err
    assert said.startswith("touchstone: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_manifest_spoils_no_reuse(fault: Callable[[Path], None], output: Path) -> None:
    (output / "bad" / "run.json").unlink(missing_ok=True)
    fault(output / "bad" / "run.json")
    rows = [{"name": "checkpoint-100", "fingerprint": "f" * 64}]
    mine = {"run_id": "now", "began": 9.0, "checkpoints": rows, "benchmarks": {"b": {"code": "c"}}}
    assert find_earlier_runs(mine, output) == {}
