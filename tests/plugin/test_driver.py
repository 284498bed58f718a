"""The driver: generators advance together, and what one does wrong is its own affair."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone import Graded
from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.info import SERVES
from pytest_touchstone.core.benchmark import Benchmark, Dataset, RowRules
from pytest_touchstone.core.dataset import Example
from pytest_touchstone.core.requests import (
    Answer,
    FillMask,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
    Request,
)
from pytest_touchstone.engines.base import Done, Engine
from pytest_touchstone.plugin.driver import ItemJob, RunningBatch
from pytest_touchstone.results.journal import Journal, read_journal

SPEC = Benchmark(
    name="x",
    version=1,
    data=Dataset(local="x/x"),
    asks=(Loglikelihood,),
    primary="acc",
    metrics=("acc", "f1"),
    row_rules=RowRules(cluster="text"),
)


class CountingEngine(Engine):
    """Answers with the length of the continuation; notes each batch; breaks on the words 'break' and
    'refuse'.
    """

    info = CheckpointInfo("c", "c", Path(), "causal", "folder", "fake", "Fake", 100, SERVES["causal"])

    def __init__(self) -> None:
        self.batches: list[int] = []

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        self.batches.append(len(requests))
        answers: list[Answer | Refusal] = []
        for request in requests:
            assert isinstance(request, Loglikelihood)
            if request.continuation == "break":
                raise RuntimeError("no such kernel")
            if request.continuation == "refuse":
                answers.append(Refusal("the continuation is too long"))
            elif request.continuation == "nan":
                answers.append(LoglikelihoodAnswer(float("nan"), True, 1))
            else:
                answers.append(LoglikelihoodAnswer(-float(len(request.continuation)), True, 1))
        return answers


def run(tmp_path: Path, *functions: Callable[[Any], Any]) -> tuple[dict[str, Any], CountingEngine]:
    engine = CountingEngine()
    jobs = [
        ItemJob(
            f"t::{n}",
            SPEC,
            Example(f"x/{n}", None, {"text": "t1"}, "hash"),
            "c",
            functools.partial(function, n),
        )
        for n, function in enumerate(functions)
    ]
    with Journal(tmp_path, "main") as journal:
        outcomes = RunningBatch(jobs, engine, journal).run(engine)
    records = {record.item: record for record in read_journal(tmp_path)}
    assert {item: outcome.record for item, outcome in outcomes.items()} == records
    assert len(records) == len(functions)
    return records, engine


def good(n: int) -> Any:
    answer = yield Loglikelihood("a", "b" * (n + 1))
    return {"acc": -answer.logprob}


def asks_twice(n: int) -> Any:
    first = yield [Loglikelihood("a", "b"), Loglikelihood("a", "cc")]
    assert [answer.logprob for answer in first] == [-1.0, -2.0]
    second = yield (Loglikelihood("a", "ddd"),)
    return {"acc": -second[0].logprob}


def tells_what_it_read(n: int) -> Any:
    yield Loglikelihood("a question", "b")
    return Graded({"acc": 1.0}, 0, {"strict": "b"}, "c")


class Broken(dict[str, float]):
    @property
    def gold(self) -> str:
        raise RuntimeError("no gold")


def tells_by_code_that_raises(n: int) -> Any:
    yield Loglikelihood("a", "b")
    return Broken(acc=1.0)


def test_the_record_keeps_what_the_benchmark_tells_beside_scores(tmp_path: Path) -> None:
    records, _ = run(tmp_path, tells_what_it_read, tells_by_code_that_raises, asks_twice)
    told = [record.facts for record in records.values()]
    assert told == [{"extracted": {"strict": "b"}, "gold": "c", "length": 10}, {"length": 1}, {"length": 1}]
    assert [record.status for record in records.values()] == ["scored"] * 3


def test_generators_of_a_unit_are_answered_in_one_batch_a_round(tmp_path: Path) -> None:
    records, engine = run(tmp_path, good, asks_twice, good)
    assert engine.batches == [4, 1]
    assert [record.scores["acc"] for record in records.values()] == [1.0, 3.0, 3.0]
    assert records["t::1"].cluster == "t1"
    assert records["t::1"].exchanges[1]["request"] == {"context": "a", "continuation": "cc"}


def raises_at_once(n: int) -> Any:
    raise ValueError("bad row")
    yield


def raises_later(n: int) -> Any:
    yield Loglikelihood("a", "b")
    raise ValueError("bad answer")


def no_generator(n: int) -> Any:
    return {"acc": 1.0}


def returns_without_asking(n: int) -> Any:
    if n < 0:
        yield
    return {"acc": 1.0}


def yields_text(n: int) -> Any:
    yield "hello"


def yields_nothing(n: int) -> Any:
    yield []


def yields_mixed(n: int) -> Any:
    yield [Loglikelihood("a", "b"), 3]


def yields_undeclared(n: int) -> Any:
    yield FillMask("[MASK]")


def returns_nothing(n: int) -> Any:
    yield Loglikelihood("a", "b")


def returns_object(n: int) -> Any:
    yield Loglikelihood("a", "b")
    return {"acc": object()}


def returns_without_primary(n: int) -> Any:
    yield Loglikelihood("a", "b")
    return {"f1": 1.0}


def returns_unknown(n: int) -> Any:
    yield Loglikelihood("a", "b")
    return {"acc": 1.0, "em": 1.0}


def breaks_engine(n: int) -> Any:
    yield Loglikelihood("a", "break")


def is_refused(n: int) -> Any:
    yield Loglikelihood("a", "refuse")


def is_answered_nan(n: int) -> Any:
    yield Loglikelihood("a", "nan")


def never_ends(n: int) -> Any:
    while True:
        yield Loglikelihood("a", "b")


def fails_by_pytest(n: int) -> Any:
    yield Loglikelihood("a", "b")
    pytest.fail("not like this")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (raises_at_once, "ValueError: bad row"),
        (raises_later, "ValueError: bad answer"),
        (no_generator, "benchmark x (x/1) never yields"),
        (returns_without_asking, "before it yielded a request"),
        (yields_text, "yielded 'hello'; yield a request"),
        (yields_nothing, "yielded []; yield a request"),
        (yields_mixed, "a list with 3 in it"),
        (yields_undeclared, "yielded a FillMask but declares asks=Loglikelihood"),
        (returns_nothing, "returned nothing"),
        (returns_object, "cannot travel between processes"),
        (returns_without_primary, "not its primary score 'acc'"),
        (returns_unknown, "returned 'em', which is not among its metrics: acc, f1"),
        (breaks_engine, "RuntimeError: no such kernel"),
        (is_refused, "the continuation is too long"),
        (is_answered_nan, "answered with NaN"),
        (never_ends, "yielded 1000 times"),
        (fails_by_pytest, "not like this"),
    ],
)
def test_what_one_item_does_wrong_is_its_error_and_no_other_items(
    tmp_path: Path, wrong: Any, message: str
) -> None:
    records, _ = run(tmp_path, good, wrong, good)
    assert records["t::1"].status == "error"
    assert message in str(records["t::1"].message)
    assert records["t::0"].scores == {"acc": 1.0}
    assert records["t::2"].scores == {"acc": 3.0}


def test_a_skip_is_a_skip(tmp_path: Path) -> None:
    def skips(n: int) -> Any:
        pytest.skip("not today")
        yield

    records, _ = run(tmp_path, skips, good)
    assert (records["t::0"].status, records["t::0"].message) == ("skipped", "not today")


def test_a_refused_request_may_be_caught_and_something_else_asked(tmp_path: Path) -> None:
    def recovers(n: int) -> Any:
        from pytest_touchstone.core.errors import RequestError

        try:
            yield Loglikelihood("a", "refuse")
        except RequestError:
            answer = yield Loglikelihood("a", "bb")
        return {"acc": -answer.logprob}

    records, _ = run(tmp_path, recovers)
    assert records["t::0"].scores == {"acc": 2.0}


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, pytest.exit.Exception])
def test_an_interrupt_goes_through_and_closes_the_other_generators(
    tmp_path: Path, stop: type[BaseException]
) -> None:
    closed: list[int] = []

    def patient(n: int) -> Any:
        try:
            yield Loglikelihood("a", "b")
        finally:
            closed.append(n)

    def interrupts(n: int) -> Any:
        raise stop("now")
        yield

    with pytest.raises(stop):
        run(tmp_path, good, patient, interrupts)
    assert closed == [1]


def test_long_requests_are_kept_by_their_end_and_their_hash(tmp_path: Path) -> None:
    def long(n: int) -> Any:
        yield Loglikelihood("a" * 5000 + "end", "b")
        return {"acc": 1.0}

    records, _ = run(tmp_path, long)
    request = records["t::0"].exchanges[0]["request"]
    assert request["context"].endswith("end")
    assert len(request["context"]) < 1100
    assert len(request["context_sha256"]) == 64
