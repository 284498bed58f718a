"""Wall time ends programs that wait, CPU time those that compute: a busy machine changes no verdict.

Here the wall time is so short that a program has as little of a core as on a busy machine.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from pytest_touchstone.core.requests import CallTests, InputOutputTests, RunProgram
from pytest_touchstone.engines.sandbox.guest.jail import LEAST_SHARE, ProgramLimits
from pytest_touchstone.engines.sandbox.sandbox import Sandbox
from pytest_touchstone.metrics.code.plus import plus_request
from tests.support.lines import naming

WALL = 0.2
COMPUTES = """\
import time
def compute(seconds, clock=time.process_time):
    end = clock() + seconds
    while clock() < end: pass
"""
IN_THREADS = """
import threading
def answer():
    others = [threading.Thread(target=compute, args=(0.25, time.thread_time)) for _ in range(2)]
    for one in others: one.start()
    for one in others: one.join()
    return 42
"""


LIFTED = {
    "computes": "compute(2)",
    "stops timers": "signal.setitimer(signal.ITIMER_PROF, 0); compute(2)",
    "ignores signals": "signal.signal(signal.SIGPROF, signal.SIG_IGN); compute(2)",
    "catches everything": """
        try: compute(2)
        except BaseException: compute(2)""",
    "in a thread": """
        other = threading.Thread(target=compute, args=(2,)); other.start(); other.join()""",
}
"""What a program does on one of its inputs, which has a limit of 0.1 seconds."""


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs have this wall time, whatever their CPU time is."""
    monkeypatch.setattr("pytest_touchstone.engines.sandbox.sandbox.WALL_PER_CPU", 0.0)
    monkeypatch.setattr("pytest_touchstone.engines.sandbox.sandbox.WALL_EXTRA", WALL)


def answering(program: str, *, seconds: float = 2.0) -> RunProgram:
    """A request to judge a program that should define ``answer``; it may compute for so many seconds."""
    return RunProgram(
        COMPUTES + program, CallTests("assert answer() == 42"), task="times", seconds=seconds, memory=512
    )


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    "program", ["def answer(): compute(0.5); return 42", IN_THREADS], ids=["itself", "in threads"]
)
def test_a_program_that_computes_may_take_longer_than_its_wall_time(sandbox: Sandbox, program: str) -> None:
    answer = sandbox.run(answering(program))
    assert (answer.outcome, answer.detail) == ("passed", "")
    assert answer.seconds > 2 * WALL


@pytest.mark.usefixtures("short")
def test_so_may_one_that_reads_and_prints(sandbox: Sandbox) -> None:
    tests = InputOutputTests((("1\n", "2\n"),))
    program = COMPUTES + "compute(0.5)\nprint(int(input()) + 1)"
    assert sandbox.run(RunProgram(program, tests, task="prints", seconds=2.0)).outcome == "passed"


@pytest.mark.usefixtures("short")
def test_a_program_that_waits_is_ended_when_its_wall_time_is_over(sandbox: Sandbox) -> None:
    began = time.monotonic()
    answer = sandbox.run(answering("def answer():\n    time.sleep(60)"))
    assert (answer.outcome, answer.detail) == ("timeout", "still there after 0.2 s")
    assert time.monotonic() - began < 10.0  # not the twenty seconds of one that computes


@pytest.mark.usefixtures("short")
def test_a_program_that_has_computed_before_it_waits_is_ended_too(sandbox: Sandbox) -> None:
    answer = sandbox.run(answering("def answer():\n    compute(0.3)\n    time.sleep(60)"))
    assert (answer.outcome, answer.detail) == ("timeout", "still there after 0.2 s")


@pytest.mark.usefixtures("short")
def test_no_program_is_still_there_when_one_that_computes_has_used_up_its_time(sandbox: Sandbox) -> None:
    """One that computes just enough, again and again, is ended by its CPU time."""
    longest = ProgramLimits(cpu=0.3, wall=WALL).longest
    assert longest == pytest.approx(0.3 / LEAST_SHARE)
    program = "def answer():\n    while True:\n        compute(0.03)\n        time.sleep(0.1)"
    began = time.monotonic()
    assert sandbox.run(answering(program, seconds=0.3)).outcome == "timeout"
    assert time.monotonic() - began < longest + 2.0


@pytest.mark.usefixtures("short")
def test_a_program_does_not_wait_while_its_tests_compute(sandbox: Sandbox) -> None:
    """The tests take longer than the program may wait, as they do on a busy machine."""
    tests = f"{COMPUTES}\nassert answer() == 42\ncompute({3 * WALL})\nassert answer() == 42"
    answer = sandbox.run(RunProgram("def answer(): return 42", CallTests(tests), task="times", seconds=1.0))
    assert (answer.outcome, answer.detail) == ("passed", "")


@pytest.mark.parametrize("lifted", LIFTED)
def test_the_limit_of_an_input_is_held_whatever_the_program_does(sandbox: Sandbox, lifted: str) -> None:
    body = f"    if n == 7:\n        {LIFTED[lifted]}\n"
    answer = sandbox.run(on_inputs(f"import signal, threading\n{COMPUTES}def f(n):\n{body}    return n\n"))
    assert (answer.outcome, answer.tests) == ("timeout", 7), answer
    assert naming("CPU time", "one input", "0.12 s").search(answer.detail)
    assert answer.seconds < 1.0


def test_inputs_that_together_take_longer_than_the_limit_of_one_are_no_matter(sandbox: Sandbox) -> None:
    answer = sandbox.run(on_inputs(f"{COMPUTES}def f(n):\n    compute(0.03)\n    return n\n"))
    assert (answer.outcome, answer.tests) == ("passed", 20), answer


def on_inputs(program: str) -> RunProgram:
    """A request to judge a function that should return each of 20 numbers, and may take 0.1 seconds for one."""
    row = {"task_id": "times", "prompt": "def f(n):\n", "canonical_solution": "    return n\n", "atol": 0}
    row |= {"entry_point": "f", "base_input": [[n] for n in range(7)]}
    row["plus_input"] = [[n] for n in range(7, 20)]
    asked = plus_request(row, program, "plus")
    assert isinstance(asked.tests, CallTests)
    trusted = asked.tests.trusted.replace("LEAST_SECONDS = 1.0", "LEAST_SECONDS = 0.1")
    return replace(asked, tests=replace(asked.tests, trusted=trusted))
