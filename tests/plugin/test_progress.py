"""A process tells how far it is while a run goes on, and nothing of it is left when the run has ended."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_touchstone.core.requests import Generate, Loglikelihood, Request
from pytest_touchstone.engines.base import EngineProgress
from pytest_touchstone.plugin import execution as module
from pytest_touchstone.plugin.execution import (
    PARAMETERS,
    TEXT_TOKENS,
    USUAL_TOKENS,
    ProgressWriter,
    estimated_work,
)
from pytest_touchstone.results.run_directory import ProcessProgress, read_progress
from tests.support.project import ALONE


class Engine:
    """An engine that has done what it is told."""

    def __init__(self, tokens: int) -> None:
        self.now = EngineProgress(tokens=tokens)

    def progress(self) -> EngineProgress:
        return self.now


def item(nodeid: str, asks: type[Request] = Loglikelihood, parameters: int | None = None) -> Any:
    """An item of a benchmark."""
    info = SimpleNamespace(weights=SimpleNamespace(parameters=parameters))
    return SimpleNamespace(nodeid=nodeid, spec=SimpleNamespace(asks=(asks,)), info=info)


ITEMS = [item(f"t.py::t[arc/{number}]") for number in range(3)]


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgressWriter:
    monkeypatch.setattr(ProgressWriter, "_run", lambda _: None)
    writer = ProgressWriter(tmp_path, "main")
    monkeypatch.setattr(module, "estimated_work", lambda _: 2.0)
    writer.plan(ITEMS)
    return writer


def state(writer: ProgressWriter) -> ProcessProgress:
    writer.look()
    return writer._state


def test_tokens_are_those_since_each_engine_was_asked(writer: ProgressWriter) -> None:
    first: Any = Engine(1000)
    with writer.doing("loading c"):
        assert (state(writer).doing, state(writer).done) == ("loading c", 0.0)
    with writer.doing("arc", first):
        first.now = EngineProgress(tokens=1100)
        assert (state(writer).doing, state(writer).tokens) == ("arc", 100)
        first.now = EngineProgress(tokens=1150)
    second: Any = Engine(7)
    with writer.doing("gsm8k", second):
        second.now = EngineProgress(tokens=10)
    assert (state(writer).doing, state(writer).tokens) == ("", 153)


def test_items_that_end_are_counted_and_their_work_is_done(writer: ProgressWriter) -> None:
    assert state(writer).work == 6.0
    writer.ended(ITEMS[0].nodeid, "scored")
    writer.ended("unknown", "error")
    assert (state(writer).ended, state(writer).faults, state(writer).done) == (2, 1, 2.0)


def test_an_item_that_ends_again_is_counted_by_its_last_end(writer: ProgressWriter) -> None:
    for status in ("error", "scored", "xfailed"):
        writer.ended(ITEMS[0].nodeid, status)
        assert (state(writer).ended, state(writer).faults) == (1, status == "error")
    assert state(writer).done == 2.0


def test_what_holds_up_an_engine_is_told_as_long_as_it_does(writer: ProgressWriter) -> None:
    engine: Any = Engine(0)
    with writer.doing("arc", engine):
        engine.now = EngineProgress(trouble="no answer for 9 s")
        assert state(writer).doing == "no answer for 9 s"
        engine.now = EngineProgress()
        assert state(writer).doing == "arc"


def test_a_thread_writes_until_the_end_and_not_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INTERVAL", 0.01)
    written = threading.Event()
    monkeypatch.setattr(module, "write_progress", lambda *_: written.set())
    writer = ProgressWriter(tmp_path, "main")
    writer.plan([])
    assert written.wait(10)
    writer.close()
    written.clear()
    assert not written.wait(0.1)
    assert read_progress(tmp_path) == []


@pytest.mark.parametrize("arguments", [(), ("-q",), ("-x", "--maxfail=1")])
def test_nothing_of_it_is_left_in_the_folder_of_a_run_that_has_ended(
    project: Any, arguments: tuple[str, ...]
) -> None:
    project.write("assert 'n' not in example or example['n'] != 15")
    project.run(*arguments)
    (run,) = project.runs
    assert not list(Path(run).rglob("*progress*"))


@pytest.mark.parametrize(("parameters", "known"), [(None, PARAMETERS), (7, 7)])
def test_a_generated_text_is_more_work_than_a_likelihood(parameters: int | None, known: int) -> None:
    likelihood, text = (item("t", asks, parameters) for asks in (Loglikelihood, Generate))
    assert estimated_work(likelihood) == USUAL_TOKENS * known
    assert estimated_work(text) == (USUAL_TOKENS + TEXT_TOKENS) * known


SLOW = """
import time
from pytest_touchstone import Loglikelihood, benchmark

@benchmark("slow", version=1, rows=[{"q": f"{n}+1="} for n in range(9)], asks=Loglikelihood, primary="acc")
def test_slow(example):
    "Takes a while."
    answer = yield Loglikelihood(example["q"], " 2")
    time.sleep(0.1)
    return {"acc": 0.0}
"""


@pytest.mark.parametrize(
    ("verbose", "line"),
    [
        ("--verbosity=0", r"test_slow.py -+( +\[100%\])?"),
        ("-v", r"test_slow.py::test_slow\[slow/\d\] 0.00.*"),
    ],
)
def test_pytest_s_line_begins_anew_after_a_line_of_progress_in_a_file(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, verbose: str, line: str
) -> None:
    monkeypatch.setattr("pytest_touchstone.reports.progress.PLAIN_INTERVAL", 0.15)
    (pytester.path / "test_slow.py").write_text(SLOW)
    result = pytester.runpytest(verbose, "--checkpoint", "fake:causal", "--eval-set", "batch_items=1", *ALONE)
    lines = result.outlines
    numbers = [number for number, text in enumerate(lines) if text.startswith("touchstone: ")]
    assert len(numbers) > 2
    for number in numbers[:-1]:
        assert re.fullmatch(r"touchstone: \d/9 items.* left.*", lines[number])
        assert re.fullmatch(line, lines[number + 1]), lines[number : number + 2]
