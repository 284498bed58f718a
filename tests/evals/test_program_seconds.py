"""``--eval-set program_seconds``: the limit of a program, in a run and in ``touchstone score``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from pytest_touchstone.core.requests import CallTests, RunProgram
from pytest_touchstone.engines.sandbox.sandbox import Sandbox, WorkerClient
from pytest_touchstone.metrics.code.grader import mbpp_request
from tests.support.installed import touchstone
from tests.support.lines import naming

QUIET = ("-p", "no:cacheprovider")
REQUEST = RunProgram("x = 1", CallTests("assert x == 1"), task="t/1", seconds=3.0, reference="x = 1\n")


class Client:
    """A sandbox's other side, in which every program but the reference is out of time."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []

    def submit(self, job: dict[str, Any], done: Any) -> None:
        """Notes the job, and answers at once."""
        self.jobs.append(job)
        right = job["program"] == REQUEST.reference
        done({"outcome": "passed" if right else "timeout", "detail": "", "seconds": 4.0, "tests": 0})


def limits(program_seconds: float | None) -> list[float]:
    client = Client()
    sandbox = Sandbox(cast("WorkerClient", client), isolated=True, program_seconds=program_seconds)
    sandbox.run(REQUEST)
    return [job["limits"]["cpu"] for job in client.jobs]


def test_the_persons_limit_goes_before_the_tasks_own() -> None:
    assert limits(None)[0] == 3.0
    assert limits(5.0)[0] == 5.0
    assert limits(0.5)[0] == 0.5


def test_a_slow_machine_still_raises_it_by_the_reference_program() -> None:
    assert limits(5.0) == [5.0, 50.0, 16.0]


def test_score_refuses_it_in_one_line_before_anything_runs(
    tmp_path: Path,
) -> None:
    samples = tmp_path / "samples.jsonl"
    samples.write_text(json.dumps({"task_id": 11, "completion": "x = 1"}) + "\n", encoding="utf-8")
    done = touchstone("score", "mbpp", str(samples), "--eval-set", "program_seconds=5s", *QUIET, cwd=tmp_path)
    assert done.returncode == 4
    assert naming("program_seconds", 0.1, 3600).search(done.stderr.strip())
    assert list(tmp_path.iterdir()) == [samples]


def test_a_request_keeps_the_tasks_own_limit() -> None:
    row = {"task_id": 1, "code": "", "test_list": ["assert f()"], "test_setup_code": "", "test_imports": []}
    assert mbpp_request(row, "").seconds == 3.0
