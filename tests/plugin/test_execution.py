"""Batches run one after the other, and the next one is prepared meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.requests import Request
from pytest_touchstone.engines.base import Done
from pytest_touchstone.engines.fake import FakeEngine
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


def test_items_are_reported_in_their_order_and_score_alike_in_batches_of_any_size(
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
    assert sorted(found(project)) == sorted(at_once)


def test_the_requests_of_the_next_batch_are_prepared_before_the_model_answers(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, int]] = []
    answer = FakeEngine.answer

    def note(engine: FakeEngine, requests: Sequence[Request], done: Done | None = None) -> Any:
        calls.append(("answer", len(requests)))
        return answer(engine, requests, done)

    monkeypatch.setattr(FakeEngine, "answer", note)
    monkeypatch.setattr(FakeEngine, "prepare", lambda _, requests: calls.append(("prepare", len(requests))))
    project.run("--eval-set", "batch_items=8").assert_outcomes(passed=20)
    assert calls == [
        *(("prepare", 16), ("prepare", 16), ("answer", 16)),
        *(("prepare", 8), ("answer", 16), ("answer", 8)),
    ]


def test_a_run_that_stops_at_the_first_failure_stops_after_its_batch(
    project: Project, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_touchstone.plugin.batches.GENERATING_SIZE", 5)
    text = WRITE.replace("    return", '    assert example["n"] != 3\n    return')
    (project.path / "test_sums.py").write_text(text, encoding="utf-8")
    project.run("-x", checkpoint=str(model)).assert_outcomes(passed=3, failed=1)
    assert {number for number, _ in found(project)} <= set(range(5))
    (project.path / "test_sums.py").write_text(WRITE, encoding="utf-8")
    project.run(checkpoint=str(model)).assert_outcomes(passed=20)
