"""Items that have ended and wait for pytest to report them."""

from __future__ import annotations

import tracemalloc

import pytest

from pytest_touchstone.plugin.driver import Outcome
from pytest_touchstone.plugin.unreported import Ended, Unreported
from pytest_touchstone.results.records import Record, Status


def outcome(item: str, score: float = 1.0, raised: BaseException | None = None) -> Outcome:
    status: Status = "scored" if raised is None else "error"
    record = Record(
        item=item, benchmark="x", example="x/0", checkpoint="c", status=status, scores={"acc": score}
    )
    return Outcome(record, raised)


def test_each_item_is_taken_once_whatever_batch_ended_first() -> None:
    ended = Unreported()
    for batch in (1, 0, 2):
        ended.add(batch, {f"t::{batch}-{n}": outcome("t", batch + n / 10) for n in range(3)})
    for batch in range(3):
        for n in range(3):
            assert ended.has(batch, f"t::{batch}-{n}")
            assert ended.take(batch, f"t::{batch}-{n}") == Ended({"acc": batch + n / 10})
            assert not ended.has(batch, f"t::{batch}-{n}")
    with pytest.raises(KeyError):
        ended.take(1, "t::1-0")


def test_items_of_a_batch_may_end_at_different_times() -> None:
    ended = Unreported()
    ended.add("first", {"a": outcome("a")})
    for number, item in enumerate("bcd"):
        ended.add("second", {item: outcome(item, number)})
    assert [ended.take("second", item).scores for item in "cbd"] == [{"acc": 1}, {"acc": 0}, {"acc": 2}]
    assert ended.take("first", "a").scores == {"acc": 1.0}


def test_what_an_item_raised_is_the_very_exception_also_of_a_batch_that_waits() -> None:
    ended = Unreported()
    error = ValueError("wrong")
    ended.add("first", {"a": outcome("a")})
    ended.add("second", {"b": outcome("b", raised=error), "c": outcome("c", 0.5)})
    assert not ended.has("second", "a")
    assert ended.take("second", "b").raised is error
    assert ended.take("second", "c") == Ended({"acc": 0.5})


def test_items_that_replicas_have_done_far_ahead_take_little_memory() -> None:
    ended, size, batches = Unreported(), 1000, 20
    ended.add("now", {"a": outcome("a")})
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for batch in range(batches):
            ended.add(
                batch, {f"test_x.py::test_x[c-x/{batch * size + n}]": outcome("x") for n in range(size)}
            )
        each = (tracemalloc.get_traced_memory()[0] - before) / (size * batches)
    finally:
        tracemalloc.stop()
    assert each < 50, f"{each:.0f} bytes for each item"
