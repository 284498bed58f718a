"""The last long texts of a batch are written beside the first ones of the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.results.journal import read_journal
from tests.support.project import Project
from tests.support.tiny import tiny_causal

WRITE = """
from pytest_touchstone import Generate, benchmark

@benchmark(name="write", version=1, data="sums/test", asks=Generate, primary="acc")
def test_write(example):
    answer = yield Generate(example["q"], stop=(), max_new_tokens=4 + 60 * (example["n"] % 5 == 0))
    return {"acc": len(answer.samples[0].text)}
"""


@pytest.fixture
def model(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (project.path / "test_sums.py").write_text(WRITE, encoding="utf-8")
    return tiny_causal(tmp_path_factory.mktemp("model") / "tiny")


def found(project: Project) -> list[tuple[int, Any]]:
    """The number and the scores of each item, in the order in which they ended."""
    records = [record for record in read_journal(project.runs[-1]) if record.status in ("scored", "error")]
    return [(int(record.example.rpartition("/")[2]), record.scores) for record in records]


def test_the_next_batch_fills_the_rows_that_long_texts_leave(
    project: Project, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert project.run(checkpoint=str(model)).ret == 0
    at_once = found(project)
    monkeypatch.setattr("pytest_touchstone.plugin.batches.GENERATING_SIZE", 5)
    reported: list[str] = []

    class Reports:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call" and report.passed:
                reported.append(report.nodeid.partition("[")[2])

    project.run("--eval-no-cache", checkpoint=str(model), plugins=[Reports()])
    assert reported == [f"write/{number}]" for number in range(20)]
    ended = found(project)
    assert sorted(ended) == sorted(at_once)
    order = [number for number, _ in ended]
    # 0 is a long one; 5 and 10 wait for a batch of their own no longer.
    assert max(order.index(number) for number in range(6, 10)) < order.index(0)
    assert order.index(5) < order.index(11)


def test_a_run_that_stops_at_the_first_failure_stops_after_its_batch(
    project: Project, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_touchstone.plugin.batches.GENERATING_SIZE", 5)
    text = WRITE.replace("    return", '    assert example["n"] != 3\n    return')
    (project.path / "test_sums.py").write_text(text, encoding="utf-8")
    project.run("-x", checkpoint=str(model)).assert_outcomes(passed=3, failed=1)
    assert {number for number, _ in found(project)} <= set(range(10))
    (project.path / "test_sums.py").write_text(WRITE, encoding="utf-8")
    project.run(checkpoint=str(model)).assert_outcomes(passed=20)
