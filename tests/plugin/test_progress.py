"""A process tells how far it is while a run goes on, and nothing of it is left when the run has ended."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.requests import Generate, Loglikelihood, Request
from pytest_touchstone.core.text import rough_tokens
from pytest_touchstone.engines.base import EngineProgress
from pytest_touchstone.plugin import progress as progress_module
from pytest_touchstone.plugin.progress import (
    GENERATED,
    PARAMETERS,
    STARTED,
    USUAL_LIMIT,
    USUAL_TOKENS,
    ProgressWriter,
    size_of,
    spread,
)
from pytest_touchstone.results.live import ProcessProgress, read_progress
from tests.support.places import ROOT
from tests.support.project import ALONE


class Engine:
    """An engine that has done what it is told."""

    def __init__(self, tokens: int) -> None:
        self.now = EngineProgress(tokens=tokens)

    def progress(self) -> EngineProgress:
        return self.now


class Item:
    """An item of a benchmark."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


ITEMS: Any = [Item(f"t.py::t[arc/{number}]") for number in range(3)]


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgressWriter:
    monkeypatch.setattr(ProgressWriter, "_run", lambda _: None)
    writer = ProgressWriter(tmp_path, "main")
    writer.plan(ITEMS, {"t.py::t[arc": 2.0})
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
    assert (state(writer).items, state(writer).work) == (3, 6.0)
    writer.ended(ITEMS[0].nodeid)
    writer.ended("unknown")
    assert (state(writer).ended, state(writer).done) == (2, 2.0)


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
    monkeypatch.setattr(progress_module, "INTERVAL", 0.01)
    written = threading.Event()
    monkeypatch.setattr(progress_module, "write_progress", lambda *_: written.set())
    writer = ProgressWriter(tmp_path, "main")
    writer.plan([], {})
    assert written.wait(10)
    writer.close()
    assert "touchstone-progress-writer" not in {thread.name for thread in threading.enumerate()}
    assert read_progress(tmp_path) == []


@pytest.mark.parametrize("arguments", [(), ("-q",), ("-x", "--maxfail=1")])
def test_nothing_of_it_is_left_in_the_folder_of_a_run_that_has_ended(
    project: Any, arguments: tuple[str, ...]
) -> None:
    project.write("assert 'n' not in example or example['n'] != 15")
    project.run(*arguments)
    (run,) = project.runs
    assert not list(Path(run).rglob("*progress*"))


# The size of what will be asked is that of first questions; what texts share counts once, and nothing is asked.


SHOTS = "one two three four five six seven eight nine ten. " * 20


def test_few_shot_examples_and_a_question_s_beginning_count_once() -> None:
    requests = [
        Loglikelihood(f"{SHOTS}{word} is", f" {choice}")
        for word in ("apple", "berry", "cherry")
        for choice in ("right", "wrong")
    ]
    assert size_of(requests) / 3 == pytest.approx(5, abs=2)
    assert size_of(requests[:1]) == pytest.approx(rough_tokens(SHOTS) + 4, abs=1)


def test_texts_are_as_many_as_differ_and_a_person_s_limit_goes_before_the_request_s() -> None:
    sampled = Generate("a", max_new_tokens=99, temperature=1.0, samples=5)
    prompt = size_of([Loglikelihood("a", "")])
    assert size_of([sampled]) == prompt + GENERATED * 5 * 99
    assert size_of([Generate("a", max_new_tokens=99, samples=5)]) == prompt + GENERATED * 99
    assert size_of([sampled], 7) == prompt + GENERATED * 5 * 7
    assert size_of([Generate("a", max_new_tokens=9999)]) == prompt + GENERATED * USUAL_LIMIT


@given(st.lists(st.builds(Loglikelihood, st.text(), st.text(min_size=1)), min_size=1, max_size=9))
def test_a_size_is_no_larger_than_that_of_all_texts_apart(requests: list[Request]) -> None:
    assert len(requests) <= size_of(requests)
    longest = max(size_of([request]) for request in requests)
    assert size_of(requests) <= len(requests) * (longest + 1)


@given(st.integers(0, 100))
def test_items_are_spread_evenly(many):
    found = spread(range(many))
    assert len(found) == min(many, STARTED)
    assert len(set(found)) == len(found)


OWN = """
from pathlib import Path
from pytest_touchstone import Loglikelihood, benchmark

@benchmark("own", version=1, rows=[{"q": "1+1="}, {"q": "2+2="}], asks=Loglikelihood, primary="acc")
def test_own(example):
    "Counts its starts."
    with Path("started").open("a") as file:
        file.write("x")
    answer = yield Loglikelihood(example["q"], " 2")
    return {"acc": answer.logprob > 0}
"""


def test_a_run_knows_the_sizes_of_shipped_benchmarks_and_starts_functions_of_others_once(
    pytester, monkeypatch
):
    plans: list[Any] = []
    monkeypatch.setattr(ProgressWriter, "plan", lambda _, items, sizes: plans.append((items, sizes)))
    (pytester.path / "test_own.py").write_text(OWN)
    shipped = str(ROOT / "evals" / "test_winogrande.py")
    pytester.runpytest(shipped, "test_own.py", "--checkpoint", "fake:causal", "--eval-limit", "4", *ALONE)
    items, sizes = plans[0]
    assert len(items) == 6
    own, winogrande = sorted(sizes, key=lambda key: "own" not in key)
    assert sizes[own] == USUAL_TOKENS * PARAMETERS
    assert 0 < sizes[winogrande] < USUAL_TOKENS * PARAMETERS
    assert (pytester.path / "started").read_text() == "xx"


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
    result = pytester.runpytest(verbose, "--checkpoint", "fake:causal", "--eval-batch-items", "1", *ALONE)
    lines = result.outlines
    numbers = [number for number, text in enumerate(lines) if text.startswith("touchstone: ")]
    assert len(numbers) > 2
    for number in numbers[:-1]:
        assert re.fullmatch(r"touchstone: \d/9 items.* left.*", lines[number])
        assert re.fullmatch(line, lines[number + 1]), lines[number : number + 2]
