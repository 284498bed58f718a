"""A process with a limit for each item: what hangs is cut off, what comes next is answered, nothing stays."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.metrics.subprocess_worker import TimeLimitedWorker, WorkerReply
from tests.support.lines import naming
from tests.support.places import ROOT

ECHO = (sys.executable, str(ROOT / "tests" / "support" / "limited_echo.py"))
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@pytest.fixture
def worker() -> Iterator[TimeLimitedWorker]:
    with closing(TimeLimitedWorker(ECHO, patience_s=20.0)) as started:
        yield started


def alive(pid: int) -> bool:
    """Whether a process is there and has not ended (one that has ended and was not waited for counts as gone)."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    """Whether a process ends within ten seconds."""
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def test_an_item_is_answered_by_another_process_that_stays(worker: TimeLimitedWorker) -> None:
    assert worker.pid is None
    assert worker.ask("a", 1.0) == WorkerReply(value="a")
    first = worker.pid
    assert worker.ask("b", 1.0) == WorkerReply(value="b")
    assert first not in (None, os.getpid())
    assert worker.pid == first


def test_one_long_computation_in_c_is_cut_off_and_the_next_item_is_answered(
    worker: TimeLimitedWorker,
) -> None:
    worker.ask("a", 1.0)
    first = worker.pid
    assert worker.ask("compute", 0.3) == WorkerReply(timed_out=True)
    assert worker.ask("b", 1.0) == WorkerReply(value="b")
    assert worker.pid != first


def test_a_child_that_waits_without_computing_is_cut_off_by_the_clock() -> None:
    with closing(TimeLimitedWorker(ECHO, patience_s=0.2)) as worker:
        assert worker.ask("wait", 0.1) == WorkerReply(timed_out=True)
        assert worker.ask("b", 60.0) == WorkerReply(value="b")


def test_a_crash_is_an_error_of_its_item_alone(worker: TimeLimitedWorker) -> None:
    reply = worker.ask("crash", 1.0)
    assert not reply.timed_out
    assert naming("code 3").search(str(reply.error))
    assert worker.ask("b", 1.0) == WorkerReply(value="b")


@pytest.mark.parametrize(("item", "error"), [("fail", "ZeroDivisionError"), ("memory", "MemoryError")])
def test_what_the_child_raises_is_named_and_the_child_goes_on(
    worker: TimeLimitedWorker, item: str, error: str
) -> None:
    assert worker.ask(item, 1.0) == WorkerReply(error=error)
    first = worker.pid
    assert worker.ask("b", 1.0) == WorkerReply(value="b")
    assert worker.pid == first


def test_what_the_child_prints_does_not_disturb(worker: TimeLimitedWorker) -> None:
    assert worker.ask("print", 1.0) == WorkerReply(value="print")
    assert worker.ask("b", 1.0) == WorkerReply(value="b")


def test_the_child_is_started_fresh_and_has_not_what_the_parent_has_loaded(worker: TimeLimitedWorker) -> None:
    import torch  # noqa: F401

    assert worker.ask("torch", 1.0) == WorkerReply(value=False)


def test_a_child_killed_between_two_items_is_replaced(worker: TimeLimitedWorker) -> None:
    worker.ask("a", 1.0)
    assert worker.pid is not None
    os.kill(worker.pid, 9)
    assert gone(worker.pid)
    assert worker.ask("b", 1.0) == WorkerReply(value="b")


def test_it_works_from_many_threads(worker: TimeLimitedWorker) -> None:
    replies: dict[int, WorkerReply] = {}

    def ask(number: int) -> None:
        replies[number] = worker.ask("compute" if number == 2 else number, 0.3)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies.pop(2).timed_out
    assert replies == {number: WorkerReply(value=number) for number in (0, 1, 3, 4, 5)}


def test_closing_leaves_no_process_and_may_be_done_twice(worker: TimeLimitedWorker) -> None:
    worker.ask("a", 1.0)
    pid = worker.pid
    assert pid is not None
    worker.close()
    worker.close()
    assert worker.pid is None
    assert not alive(pid)


@pytest.mark.parametrize("item", ["a", "compute"])
def test_the_child_ends_after_a_parent_that_was_killed(item: str) -> None:
    program = (
        "import sys, threading, time; from pytest_touchstone.metrics.subprocess_worker import TimeLimitedWorker; "
        f"worker = TimeLimitedWorker({ECHO!r}); worker.ask('a', 1.0); print(worker.pid, flush=True); "
        f"threading.Thread(target=worker.ask, args=({item!r}, 1.0)).start(); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    assert gone(pid)


def test_a_child_that_lacks_a_package_says_so() -> None:
    with (
        closing(TimeLimitedWorker((*ECHO, "missing"))) as worker,
        pytest.raises(BenchmarkError, match=naming("no module named abacus")),
    ):
        worker.ask("a", 1.0)


def test_a_child_that_ends_at_once_is_an_error_not_an_endless_wait() -> None:
    with (
        closing(TimeLimitedWorker((sys.executable, "-c", "raise SystemExit(5)"))) as worker,
        pytest.raises(BenchmarkError, match=naming("code 5")),
    ):
        worker.ask("a", 1.0)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plain.filter(lambda item: not isinstance(item, str)))
def test_plain_data_comes_back_as_it_went(worker: TimeLimitedWorker, item: object) -> None:
    assert worker.ask(item, 1.0) == WorkerReply(value=item)
