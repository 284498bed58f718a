"""A process's work is booked by what has grown, and nothing of it is left when a run has ended."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.requests import FillMask, Generate, Loglikelihood
from pytest_touchstone.engines.base import EngineProgress
from pytest_touchstone.plugin import progress as module
from pytest_touchstone.plugin import progress as progress_module
from pytest_touchstone.plugin.driver import BatchSoFar, ItemSoFar, RequestCounts, TextLength
from pytest_touchstone.plugin.progress import STARTED, ProgressWriter, progress_of, size_of, spread
from pytest_touchstone.results.live import (
    PartProgress,
    Workload,
    WorkloadPart,
    read_progress,
    read_workload,
    rough_tokens,
)
from tests.support.places import ROOT
from tests.support.project import ALONE

PART_OF = {"arc0": 0, "arc1": 0, "gsm0": 1, "gsm1": 1}.get


class Engine:
    """An engine that has done what it is told."""

    def __init__(self) -> None:
        self.now = EngineProgress()

    def progress(self) -> EngineProgress:
        return self.now


class Seen:
    """A process at work on a batch, by a clock of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.batch, self.engine = 0.0, BatchSoFar((), (), None), Engine()
        monkeypatch.setattr(
            module, "time", SimpleNamespace(monotonic=lambda: self.clock, time=lambda: self.clock)
        )
        monkeypatch.setattr(ProgressWriter, "_run", lambda _: None)
        self.writer = ProgressWriter(folder, "main")
        self.writer.plan(Workload(parts=(WorkloadPart(checkpoint="c", benchmark="arc", items=2),)), PART_OF)

    def look(self, seconds: float, *items: ItemSoFar, now: EngineProgress, **more: Any) -> None:
        self.clock, self.engine.now = self.clock + seconds, now
        self.batch = BatchSoFar(items, more.get("growing", ()), more.get("advancing"))
        self.writer.look()

    @property
    def seconds(self) -> dict[str, float]:
        return {kind: seconds for kind, seconds in self.writer.state.seconds["c"].items() if seconds}


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(tmp_path, monkeypatch)


def scored(name: str, done: int, ended: bool = False) -> ItemSoFar:
    return ItemSoFar(name, ended, RequestCounts(4), RequestCounts(done), ())


def text(name: str, tokens: int = 0, *, programs: int = 0) -> ItemSoFar:
    """An item with one text, which has ended if it has ``tokens``."""
    lengths = [TextLength(tokens, tokens >= 160)] if tokens else []
    return ItemSoFar(name, False, RequestCounts(0, 1, programs), RequestCounts(0, int(bool(tokens))), lengths)


def answering(seen: Seen) -> Any:
    return seen.writer.answering(SimpleNamespace(so_far=lambda _=(): seen.batch), seen.engine, "c")  # type: ignore[arg-type]


def test_time_goes_to_what_has_grown_also_of_a_pass_that_takes_longer_than_a_look(seen: Seen) -> None:
    with answering(seen):
        seen.look(1.0, scored("arc0", 0), now=EngineProgress())
        seen.look(1.0, scored("arc0", 0), now=EngineProgress(tokens=100, share=0.5))
        assert seen.seconds == {"computing": 2.0}
        assert seen.writer.state.parts[0].computed == 0.5
        seen.look(
            3.0, text("gsm0"), now=EngineProgress(tokens=100, steps=10, generated=20), growing=(("gsm0", 10),)
        )
        assert seen.seconds == {"computing": 2.0, "generating": 3.0}
        seen.look(4.0, text("gsm0", 9, programs=1), now=seen.engine.now)
        assert seen.seconds == {"computing": 2.0, "generating": 3.0, "programs": 4.0}
        seen.look(1.0, scored("arc0", 4), now=seen.engine.now, advancing="arc0")
        assert (seen.writer.state.doing, seen.writer.state.tokens) == ("grading", 120)
        seen.batch = BatchSoFar((scored("arc0", 4, ended=True),), (), None)
    seen.writer.look()
    assert seen.writer.state.parts == {0: PartProgress(ended=1, computed=1.0)}


def test_an_engine_that_has_computed_nothing_for_a_batch_tells_of_the_one_before(seen: Seen) -> None:
    seen.engine.now = former = EngineProgress(tokens=8, share=1.0)
    with answering(seen):
        seen.look(1.0, scored("arc0", 0), now=former)
        assert seen.writer.state.parts[0].computed == 0.0


def test_loading_is_nobody_s_time_and_items_that_are_never_asked_end_too(seen: Seen) -> None:
    with seen.writer.loading("c"):
        seen.clock += 9.0
        seen.writer.look()
    assert seen.writer.state.loads == {"c": 9.0}
    assert "c" not in seen.writer.state.seconds
    seen.writer.skipped("arc0")
    seen.writer.skipped("unknown")
    seen.writer.look()
    assert seen.writer.state.parts == {0: PartProgress(ended=1, skipped=1)}


def test_an_engine_that_tells_nothing_has_computed_when_its_batch_has_ended(seen: Seen) -> None:
    with answering(seen):
        seen.look(2.0, scored("arc0", 1), now=EngineProgress())
    assert seen.seconds == {"computing": 2.0}


def test_what_holds_up_an_engine_is_told_as_long_as_it_does(seen: Seen) -> None:
    with answering(seen):
        seen.look(1.0, scored("arc0", 0), now=EngineProgress(trouble="no answer for 9 s"))
        assert (seen.writer.state.trouble, seen.writer.state.open) == ("no answer for 9 s", [0])
        seen.look(1.0, scored("arc0", 0), now=EngineProgress())
        assert seen.writer.state.trouble == ""


def test_texts_count_their_tokens_and_whether_they_stopped_by_themselves() -> None:
    assert progress_of(text("gsm0", 25), (), 0.0) == PartProgress(computed=1.0, texts=1, stopped=1, tokens=25)
    assert progress_of(text("gsm0", 160), (), 0.0).stopped == 0
    assert progress_of(text("gsm0"), [30], 0.0) == PartProgress(computed=1.0, growing=1, grown=30, tokens=30)
    assert progress_of(scored("arc0", 1), (), 0.5) == PartProgress(computed=0.625)


def test_a_thread_writes_until_the_end_and_not_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INTERVAL", 0.01)
    written = threading.Event()
    monkeypatch.setattr(module, "write_progress", lambda *_: written.set())
    writer = ProgressWriter(tmp_path, "main")
    writer.plan(Workload(parts=()), PART_OF)
    assert written.wait(10)
    writer.close()
    assert "touchstone-progress-writer" not in {thread.name for thread in threading.enumerate()}
    assert (read_workload(tmp_path), read_progress(tmp_path)) == (Workload(parts=()), [])


@pytest.mark.parametrize("arguments", [(), ("-q",), ("-x", "--maxfail=1")])
def test_nothing_of_it_is_left_in_the_folder_of_a_run_that_has_ended(
    project: Any, arguments: tuple[str, ...]
) -> None:
    project.write("assert 'n' not in example or example['n'] != 15")
    project.run(*arguments)
    (run,) = project.runs
    assert not [
        path.name for path in Path(run).iterdir() if "progress" in path.name or "workload" in path.name
    ]


# The sizes of what will be asked are those of first questions; what all share counts once, and nothing is asked.


SHOTS = "one two three four five six seven eight nine ten. " * 20


def test_few_shot_examples_and_a_question_s_beginning_count_once():
    questions = [
        [Loglikelihood(f"{SHOTS}{word} is", f" {choice}") for choice in ("right", "wrong")]
        for word in ("apple", "berry", "cherry")
    ]
    sizes = size_of(questions)
    assert sizes["shared"] == pytest.approx(rough_tokens(SHOTS), abs=1)
    assert sizes["tokens"] == pytest.approx(2 + 1 + 1 + 2, abs=1)
    alone = size_of(questions[:1])
    assert (alone["shared"], alone["tokens"]) == (0, pytest.approx(rough_tokens(SHOTS) + 6, abs=1))


def test_masked_texts_are_computed_whole():
    questions = [[FillMask(f"{SHOTS} [MASK] {number}")] for number in range(3)]
    assert size_of(questions, apart=True)["shared"] == 0
    assert size_of(questions, apart=True)["tokens"] > rough_tokens(SHOTS)


def test_texts_are_as_many_as_differ_and_a_person_s_limit_goes_before_the_request_s():
    sampled = Generate("a", max_new_tokens=99, temperature=1.0, samples=5)
    assert (size_of([[sampled]])["texts"], size_of([[sampled]])["limit"]) == (5, 99)
    assert (size_of([[Generate("a", max_new_tokens=99, samples=5)]])["texts"]) == 1
    assert size_of([[sampled]], 7)["limit"] == 7


@given(
    st.lists(
        st.lists(st.builds(Loglikelihood, st.text(), st.text(min_size=1)), min_size=1, max_size=4),
        min_size=1,
        max_size=5,
    )
)
def test_sizes_are_no_larger_than_all_texts_together(questions):
    sizes = size_of(questions)
    whole = sum(
        rough_tokens(one.context + one.continuation) + 1 for question in questions for one in question
    )
    assert sizes["shared"] + sizes["tokens"] * len(questions) <= whole + 2 * len(questions)
    assert sizes["tokens"] >= 0


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
    loads: list[Workload] = []
    monkeypatch.setattr(progress_module, "write_workload", lambda _, load: loads.append(load))
    (pytester.path / "test_own.py").write_text(OWN)
    shipped = str(ROOT / "evals" / "test_winogrande.py")
    pytester.runpytest(shipped, "test_own.py", "--checkpoint", "fake:causal", "--eval-limit", "4", *ALONE)
    (load,) = loads
    sizes = {part.benchmark: part for part in load.parts}
    known = sizes["winogrande"]
    assert (known.items, known.tokens is None) == (4, False)
    assert (sizes["own"].items, sizes["own"].tokens) == (2, None)
    assert (pytester.path / "started").read_text() == "xx"
