"""Answers are handed on as they come, the model's and the sandbox's, and no item waits for another's."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.info import SERVES
from pytest_touchstone.core.benchmark import Benchmark, Dataset
from pytest_touchstone.core.dataset import Example
from pytest_touchstone.core.errors import JournalError, RequestError
from pytest_touchstone.core.requests import (
    Answer,
    CallTests,
    Generate,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
    Request,
    RunProgram,
    RunProgramAnswer,
    to_plain,
)
from pytest_touchstone.engines.base import Done, Engine
from pytest_touchstone.engines.fake import FakeEngine
from pytest_touchstone.plugin.dispatch import (
    Answered,
    ProgramRunner,
    RequestDispatcher,
)
from pytest_touchstone.plugin.driver import ItemJob, RunningBatch
from pytest_touchstone.results.journal import Journal, read_journal, shorten_request
from pytest_touchstone.results.records import Record
from tests.support.lines import missing

SPEC = Benchmark(
    name="x", version=1, data=Dataset(local="x/x"), asks=(Loglikelihood, RunProgram), primary="acc"
)
TESTS = CallTests("assert f() == 1")


def score(text: str) -> Loglikelihood:
    return Loglikelihood("a", text)


def program(text: str) -> RunProgram:
    return RunProgram(text, TESTS, task="t")


class Scripted(Engine):
    """Answers with the length of the continuation; ``script`` does so with the texts it is asked and a way to
    tell the answer to one of them."""

    info = CheckpointInfo("c", "c", Path(), "causal", "folder", "fake", "Fake", 100, SERVES["causal"])

    def __init__(self, script: Callable[[list[str], Callable[[int], None]], None] | None = None) -> None:
        self.script = script
        self.asked: list[list[str]] = []

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        texts = [request.continuation for request in requests if isinstance(request, Loglikelihood)]
        assert len(texts) == len(requests)
        self.asked.append(texts)
        answers: list[Answer | Refusal] = [LoglikelihoodAnswer(-float(len(text)), True, 1) for text in texts]
        assert done is not None
        if self.script is not None:
            self.script(texts, lambda number: done(number, answers[number]))
        return answers


class Sandbox:
    """Passes every program, with a second for each of its letters; ``judge`` may do something else."""

    def __init__(self, judge: Callable[[str], Any] | None = None) -> None:
        self.judge = judge
        self.submitted: list[str] = []
        self.threads = ThreadPoolExecutor(max_workers=4)

    def submit(self, request: RunProgram) -> Future[RunProgramAnswer | Refusal]:
        self.submitted.append(request.program)
        return self.threads.submit(self._answer, request.program)

    def _answer(self, text: str) -> RunProgramAnswer | Refusal:
        found = self.judge(text) if self.judge is not None else None
        return found or RunProgramAnswer("passed", seconds=float(len(text)))


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    found = Sandbox()
    yield found
    found.threads.shutdown()


Function = Callable[[int], Any]


class Batch:
    """Items that are run with an engine and a sandbox; the journal can be read while they run."""

    def __init__(self, folder: Path, *functions: Function, spec: Benchmark = SPEC) -> None:
        self.folder = folder
        self.jobs = [
            ItemJob(f"t::{n}", spec, Example(f"x/{n}", None, {}, "hash"), "c", functools.partial(function, n))
            for n, function in enumerate(functions)
        ]

    def run(self, engine: Scripted, sandbox: ProgramRunner | None = None) -> dict[str, Record]:
        with Journal(self.folder, "main") as journal:
            outcomes = RunningBatch(self.jobs, engine, journal, sandbox).run(engine)
        records = self.records()
        assert {item: outcome.record for item, outcome in outcomes.items()} == records
        assert len(read_journal(self.folder)) == len(self.jobs)
        return records

    def records(self) -> dict[str, Record]:
        return {record.item: record for record in read_journal(self.folder)}


def asks(*texts: str) -> Function:
    """A benchmark that asks one thing after the other."""

    def function(n: int) -> Any:
        total = 0.0
        for text in texts:
            answer = yield score(text)
            total -= answer.logprob
        return {"acc": total}

    return function


def test_an_item_is_journalled_while_others_are_still_being_answered(tmp_path: Path) -> None:
    def script(texts: list[str], tell: Callable[[int], None]) -> None:
        for number in (1, 2, 0):
            assert f"t::{number}" not in batch.records()
            tell(number)
            assert f"t::{number}" in batch.records()

    batch = Batch(tmp_path, asks("a"), asks("bb"), asks("ccc"))
    records = batch.run(Scripted(script))
    assert [records[f"t::{n}"].scores["acc"] for n in range(3)] == [1.0, 2.0, 3.0]
    assert [record.item for record in read_journal(tmp_path)] == ["t::1", "t::2", "t::0"]


@pytest.mark.parametrize("told", [(), (0,), (3, 1), (2, 3, 0, 1), (1, 1, 9, 1)])
def test_outcomes_do_not_depend_on_what_was_told_early(told: tuple[int, ...], tmp_path: Path) -> None:
    def both(n: int) -> Any:
        one, two = yield [score("ccc"), score("dddd")]
        return {"acc": -one.logprob - 10 * two.logprob}

    def script(texts: list[str], tell: Callable[[int], None]) -> None:
        for number in told:
            if number < len(texts):
                tell(number)

    engine = Scripted(script)
    records = Batch(tmp_path, asks("a", "e"), asks("bb"), both).run(engine)
    assert [records[f"t::{n}"].scores["acc"] for n in range(3)] == [2.0, 2.0, 43.0]
    assert engine.asked == [["a", "bb", "ccc", "dddd"], ["e"]]


def test_an_item_waits_for_all_its_answers(tmp_path: Path) -> None:
    advanced: list[int] = []

    def both(n: int) -> Any:
        yield [score("a"), score("b")]
        advanced.append(n)
        return {"acc": 1.0}

    def script(texts: list[str], tell: Callable[[int], None]) -> None:
        tell(1)
        assert advanced == []
        tell(0)
        assert advanced == [0]

    Batch(tmp_path, both).run(Scripted(script))


def test_where_the_engine_breaks_only_those_without_an_answer_are_asked_again(tmp_path: Path) -> None:
    def script(texts: list[str], tell: Callable[[int], None]) -> None:
        if len(texts) == 6:
            tell(4)
            tell(0)
        if "break" in texts:
            raise RuntimeError("no such kernel")

    engine = Scripted(script)
    batch = Batch(tmp_path, *(asks(text) for text in ("a", "b", "break", "d", "e", "f")))
    records = batch.run(engine)
    assert engine.asked == [["a", "b", "break", "d", "e", "f"], ["b", "break"], ["b"], ["break"], ["d", "f"]]
    assert [item for item, record in records.items() if record.status == "error"] == ["t::2"]
    assert "no such kernel" in str(records["t::2"].message)


def test_an_engine_that_breaks_when_all_is_said_loses_nothing(tmp_path: Path) -> None:
    def script(texts: list[str], tell: Callable[[int], None]) -> None:
        tell(0)
        tell(1)
        raise RuntimeError("too late")

    engine = Scripted(script)
    records = Batch(tmp_path, asks("a"), asks("b")).run(engine)
    assert {record.status for record in records.values()} == {"scored"}
    assert len(engine.asked) == 1


def test_a_journal_that_cannot_be_written_is_no_fault_of_the_engines(tmp_path: Path) -> None:
    class Full(Journal):
        def append(self, record: Record) -> None:
            raise JournalError("no space left")

    engine = Scripted(lambda texts, tell: tell(0))
    jobs = Batch(tmp_path, asks("a"), asks("b")).jobs
    with pytest.raises(JournalError), Full(tmp_path, "main") as journal:
        RunningBatch(jobs, engine, journal).run(engine)
    assert len(engine.asked) == 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, pytest.exit.Exception])
def test_an_interrupt_in_between_keeps_what_was_journalled(tmp_path: Path, stop: type[BaseException]) -> None:
    closed: list[int] = []

    def interrupts(n: int) -> Any:
        yield score("b")
        raise stop("now")

    def patient(n: int) -> Any:
        try:
            yield score("c")
        finally:
            closed.append(n)

    def script(texts: list[str], tell: Callable[[int], None]) -> None:
        tell(0)
        tell(1)
        raise AssertionError("the interrupt did not come through")

    batch = Batch(tmp_path, asks("a"), interrupts, patient)
    engine = Scripted(script)
    with pytest.raises(stop):
        batch.run(engine)
    assert (list(batch.records()), closed, len(engine.asked)) == (["t::0"], [2], 1)


def runs(*texts: str) -> Function:
    """A benchmark that runs one program after the other."""

    def function(n: int) -> Any:
        passed = 0
        for text in texts:
            answer = yield program(text)
            passed += answer.outcome == "passed"
        return {"acc": passed}

    return function


def test_programs_run_while_the_model_computes(tmp_path: Path, sandbox: Sandbox) -> None:
    computing, judged = threading.Event(), threading.Event()

    def judge(text: str) -> None:
        assert computing.wait(10)
        judged.set()

    def script(texts: list[str], tell: Callable[[int], None]) -> None:
        computing.set()
        assert judged.wait(10)
        time.sleep(0.05)
        tell(0)
        assert list(batch.records()) == ["t::1", "t::0"]

    sandbox.judge = judge
    batch = Batch(tmp_path, runs("p"), asks("a"), asks("b"))
    records = batch.run(Scripted(script), sandbox)
    assert {record.status for record in records.values()} == {"scored"}


def test_what_a_text_leads_to_is_run_while_other_texts_are_written(tmp_path: Path, sandbox: Sandbox) -> None:
    def writes(n: int) -> Any:
        yield score(f"{n}")
        answer = yield program(f"{n}")
        return {"acc": answer.outcome == "passed"}

    def script(texts: list[str], tell: Callable[[int], None]) -> None:
        for number in range(3):
            assert len(sandbox.submitted) == number
            tell(number)
        assert sandbox.submitted == ["0", "1", "2"]

    engine = Scripted(script)
    records = Batch(tmp_path, writes, writes, writes).run(engine, sandbox)
    assert [record.scores for record in records.values()] == [{"acc": 1.0}] * 3
    assert len(engine.asked) == 1


def test_one_question_may_mix_kinds_and_is_answered_in_its_order(tmp_path: Path, sandbox: Sandbox) -> None:
    def mixed(n: int) -> Any:
        one, two, three, four = yield [program("p"), score("aa"), program("qq"), score("b")]
        assert (one.seconds, two.logprob, three.seconds, four.logprob) == (1.0, -2.0, 2.0, -1.0)
        answer = yield score("c")
        return {"acc": -answer.logprob}

    engine = Scripted()
    records = Batch(tmp_path, mixed, runs("r", "s")).run(engine, sandbox)
    assert engine.asked == [["aa", "b"], ["c"]]
    assert sorted(sandbox.submitted) == ["p", "qq", "r", "s"]
    assert [one["kind"] for one in records["t::0"].exchanges] == [
        *("RunProgram", "Loglikelihood") * 2,
        "Loglikelihood",
    ]
    assert records["t::0"].seconds >= 3.0
    assert records["t::1"].scores == {"acc": 2.0}


def test_without_a_sandbox_a_program_is_an_error_that_names_the_benchmark(tmp_path: Path) -> None:
    def later(n: int) -> Any:
        yield score("a")
        yield [score("b"), program("p")]

    engine = Scripted()
    records = Batch(tmp_path, runs("p"), later, asks("a")).run(engine)
    assert [record.status for record in records.values()] == ["error", "error", "scored"]
    assert not missing(str(records["t::0"].message), "benchmark x (x/0)", "RunProgram", "no sandbox")
    assert engine.asked == [["a", "a"]]


def test_a_program_must_be_declared_as_every_other_kind(tmp_path: Path, sandbox: Sandbox) -> None:
    spec = Benchmark(name="x", version=1, data=Dataset(local="x/x"), asks=(Loglikelihood,), primary="acc")
    records = Batch(tmp_path, runs("p"), spec=spec).run(Scripted(), sandbox)
    assert not missing(str(records["t::0"].message), "RunProgram", "asks=Loglikelihood")
    assert sandbox.submitted == []


@pytest.mark.parametrize("error", [ValueError("broken"), pytest.fail.Exception("broken")])
def test_a_program_that_cannot_be_judged_is_the_error_of_its_item_alone(
    tmp_path: Path, sandbox: Sandbox, error: BaseException
) -> None:
    def judge(text: str) -> None:
        if text == "bad":
            raise error

    sandbox.judge = judge
    records = Batch(tmp_path, runs("p"), runs("bad"), asks("a")).run(Scripted(), sandbox)
    assert [records[f"t::{n}"].status for n in range(3)] == ["scored", "error", "scored"]
    assert "broken" in str(records["t::1"].message)


def test_a_sandbox_that_takes_no_program_is_the_error_of_its_item_alone(tmp_path: Path) -> None:
    class Closed:
        def submit(self, request: RunProgram) -> Future[RunProgramAnswer]:
            raise RuntimeError("the sandbox is closed")

    records = Batch(tmp_path, runs("p"), asks("a")).run(Scripted(), Closed())
    assert "the sandbox is closed" in str(records["t::0"].message)
    assert records["t::1"].status == "scored"


def test_a_refused_program_may_be_caught(tmp_path: Path, sandbox: Sandbox) -> None:
    def recovers(n: int) -> Any:
        try:
            yield program("bad")
        except RequestError as error:
            return {"acc": "too large" in str(error)}

    sandbox.judge = lambda text: Refusal("too large")
    assert Batch(tmp_path, recovers).run(Scripted(), sandbox)["t::0"].scores == {"acc": 1.0}


@pytest.mark.parametrize("stop", [KeyboardInterrupt, pytest.exit.Exception])
def test_an_interrupt_out_of_the_sandbox_goes_through(
    tmp_path: Path, sandbox: Sandbox, stop: type[BaseException]
) -> None:
    def judge(text: str) -> None:
        raise stop("now")

    sandbox.judge = judge
    with pytest.raises(stop):
        Batch(tmp_path, runs("p"), asks("a")).run(Scripted(), sandbox)


def test_programs_that_have_not_begun_are_taken_back_when_a_unit_is_stopped(tmp_path: Path) -> None:
    class Waiting:
        def __init__(self) -> None:
            self.futures: list[Future[RunProgramAnswer]] = []

        def submit(self, request: RunProgram) -> Future[RunProgramAnswer]:
            self.futures.append(Future())
            return self.futures[-1]

    def script(texts: list[str], tell: Callable[[int], None]) -> None:
        raise KeyboardInterrupt

    waiting = Waiting()
    with pytest.raises(KeyboardInterrupt):
        Batch(tmp_path, runs("p"), runs("q"), asks("a")).run(Scripted(script), waiting)
    assert [future.cancelled() for future in waiting.futures] == [True, True]


def test_equal_programs_may_share_a_future(tmp_path: Path) -> None:
    class Once:
        def __init__(self) -> None:
            self.future: Future[RunProgramAnswer] = Future()

        def submit(self, request: RunProgram) -> Future[RunProgramAnswer]:
            return self.future

    once = Once()
    batch = Batch(tmp_path, runs("p"), runs("p", "p"), asks("a"))
    records = batch.run(
        Scripted(lambda texts, tell: once.future.set_result(RunProgramAnswer("passed"))), once
    )
    assert [records[f"t::{n}"].scores["acc"] for n in range(3)] == [1.0, 2.0, 1.0]


def test_a_benchmark_that_runs_programs_without_end_is_stopped(tmp_path: Path, sandbox: Sandbox) -> None:
    records = Batch(tmp_path, runs(*["p"] * 2000), asks("a")).run(Scripted(), sandbox)
    assert "yielded 1000 times" in str(records["t::0"].message)
    assert len(sandbox.submitted) == 1000


def test_the_time_of_a_batch_is_shared_by_those_who_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def script(texts: list[str], tell: Callable[[int], None]) -> None:
        nonlocal now
        now += 3.0
        tell(1)
        now += 2.0

    def slow(n: int) -> Any:
        nonlocal now
        yield score("a")
        now += 100.0
        return {"acc": 1.0}

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    records = Batch(tmp_path, asks("a"), slow, asks("b")).run(Scripted(script))
    assert [records[f"t::{n}"].seconds for n in range(3)] == [2.0, 101.0, 2.0]


def test_what_a_program_is_tested_with_is_kept_by_its_end_and_its_hash() -> None:
    long = RunProgram("x = 1", CallTests("y" * 5000 + "end", names=("f",)), task="t")
    found = shorten_request(to_plain(long))
    assert found["program"] == "x = 1"
    assert found["tests"]["code"].endswith("end")
    assert len(found["tests"]["code"]) < 1100
    assert len(found["tests"]["code_sha256"]) == 64
    assert found["tests"]["names"] == ["f"]


# Benchmarks that ask the same about the same rows ask the model once, and score as if each had asked by itself.


Project = Any

OTHER = """
from pytest_touchstone import Loglikelihood, benchmark


@benchmark("part", version=1, data="sums/test", asks=Loglikelihood, primary="acc", keep=lambda row: row["n"] % 2)
def test_part(example):
    answers = yield [Loglikelihood(example["q"], " " + option) for option in example["options"]]
    return {"acc": float(answers[0].logprob > answers[1].logprob)}
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """All requests that the engine gets."""
    found: list[Request] = []
    right = FakeEngine.answer

    def answer(self: FakeEngine, requests: Sequence[Request], done: Any = None) -> Any:
        found.extend(requests)
        return right(self, requests, done)

    monkeypatch.setattr(FakeEngine, "answer", answer)
    return found


def test_a_row_of_two_benchmarks_is_asked_once(project: Project, asked: list[Request]) -> None:
    (project.path / "test_part.py").write_text(OTHER)
    assert project.run().ret == 0
    together = project.scores()
    assert len(asked) == len(set(asked)) == 40
    asked.clear()
    assert project.run("test_part.py").ret == 0
    alone = project.scores()
    assert len(asked) == 20
    assert alone == {name: scores for name, scores in together.items() if name.startswith("part/")}


def test_only_sound_log_probabilities_are_remembered() -> None:
    class Odd(Engine):
        info = Scripted.info

        def __init__(self) -> None:
            self.asked: list[Request] = []

        def answer(self, requests: Sequence[Request], done: Any = None) -> Any:
            self.asked += requests
            return [
                LoglikelihoodAnswer(float("nan") if "nan" in str(one) else -1.0, True, 1) for one in requests
            ]

    odd, shared, told = Odd(), dict[bytes, LoglikelihoodAnswer](), list[tuple[int, Answered]]()
    requests: list[Request] = [
        Loglikelihood("a", "b"),
        Loglikelihood("a", "nan"),
        Generate("a", max_new_tokens=1),
    ]
    dispatcher = RequestDispatcher[int](
        odd, None, lambda _, number, answer, __: told.append((number, answer)), shared
    )

    def ask(*some: Request) -> None:
        dispatcher.ask(0, some)
        dispatcher.collect()
        while dispatcher.open:
            odd.collect()

    ask(*requests)
    ask(*requests)
    assert odd.asked == [*requests, *requests[1:]]
    assert [number for number, _ in told] == [0, 1, 2, 0, 1, 2]
    assert [type(answer) for _, answer in told] == [LoglikelihoodAnswer, Refusal, LoglikelihoodAnswer] * 2
    ask(Loglikelihood("ab", ""))
    assert odd.asked[-1] == Loglikelihood("ab", "")
