"""No hostile program passes, reaches anything outside or leaves anything behind, and the sandbox lives on.

Programs are judged some ahead of the tests that ask for them: many only end by their time.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_touchstone.core.requests import RunProgramAnswer
from pytest_touchstone.engines.sandbox.sandbox import Sandbox
from tests.support.attack_tasks import MOST_SECONDS, TASKS, Attack, PrintTask, attacks, request, right
from tests.support.outside import NAME as VARIABLE
from tests.support.outside import (
    SECRET,
    Outside,
    all_processes,
    descendants,
    files_left,
    namespaces,
    outside,
)
from tests.support.sandbox_here import opened_here

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is Linux's")

ATTACKS = attacks()

WORKERS = 6
AHEAD = 16
"""Programs that are judged before a test asks for them."""

MOST_WALL = 10.0
"""Seconds within which the verdict on a program of one second must be there."""

GIVE_UP = 60.0
"""Seconds after which it is not waited for."""

ISOLATED = """\
import os

try:
    os.kill(PID, 0)
except ProcessLookupError:
    raise RuntimeError("isolated") from None
"""


class Seen(NamedTuple):
    """What became of a hostile program and of a right one after it, and the seconds that the first took."""

    answer: RunProgramAnswer
    after: RunProgramAnswer
    seconds: float


@dataclass
class Opened:
    """A sandbox, what lies outside of it, and what was seen of its processes."""

    sandbox: Sandbox
    outside: Outside
    temporary: Path
    mounts: str
    stack: ExitStack
    pool: ThreadPoolExecutor
    usual: int = 0
    others: frozenset[int] = frozenset()
    """Processes that this one had started before, for other tests."""
    namespaces: set[str] = field(default_factory=set)
    begun: dict[str, Future[Seen]] = field(default_factory=dict)

    def judged(self, attack: Attack, chosen: list[Attack]) -> Seen:
        """What became of a hostile program; begins with the ones behind it."""
        at = chosen.index(attack)
        for one in chosen[at : at + AHEAD]:
            if one.name not in self.begun:
                self.begun[one.name] = self.pool.submit(self._judge, one)
        return self.begun[attack.name].result()

    def _judge(self, attack: Attack) -> Seen:
        program = attack.program(str(self.outside.file), self.outside.port, VARIABLE)
        began = time.monotonic()
        answer = self.sandbox.submit(request(attack.task, program)).result(GIVE_UP)
        seconds = time.monotonic() - began
        self.namespaces |= namespaces(descendants())
        after = self.sandbox.submit(right(attack.task, attack.name)).result(GIVE_UP)
        return Seen(answer, after, seconds)

    def settled(self) -> dict[int, str]:
        """The processes of the sandbox once no program is run; waits a while for that."""
        until = time.monotonic() + 5.0
        while len(found := descendants()) > self.usual and time.monotonic() < until:
            time.sleep(0.02)
        return found


def at_rest() -> int:
    """The number of processes once it stays the same for a while: the sandbox's own are forked one by one."""
    seen, since = len(descendants()), time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.02)
        if (now := len(descendants())) != seen:
            seen, since = now, time.monotonic()
    return seen


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    others = frozenset(descendants())
    before, mounts = tempfile.tempdir, Path("/proc/self/mountinfo").read_text()
    with ExitStack() as everything:
        temporary = Path(everything.enter_context(tempfile.TemporaryDirectory(prefix="attacks-")))
        target = everything.enter_context(outside())
        tempfile.tempdir = str(temporary)
        try:
            with ExitStack() as stack:
                sandbox = stack.enter_context(opened_here(workers=WORKERS))
                answer = sandbox.run(request("add", ISOLATED.replace("PID", str(os.getpid()))))
                if "isolated" not in answer.detail:
                    pytest.fail(f"programs see the processes outside, so hostile ones are not run: {answer}")
                pool = stack.enter_context(ThreadPoolExecutor(WORKERS))
                yield Opened(sandbox, target, temporary, mounts, stack, pool, usual=at_rest(), others=others)
        finally:
            tempfile.tempdir = before


@pytest.fixture(scope="module")
def chosen(request: pytest.FixtureRequest) -> list[Attack]:
    """The hostile programs that this run has tests of."""
    calls: list[Any] = [
        item.callspec
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    ]
    return [call.params["attack"] for call in calls if "attack" in call.params]


def test_every_hostile_program_says_in_a_sentence_what_it_tries() -> None:
    assert len(ATTACKS) >= 50
    for attack in ATTACKS:
        assert attack.aim.endswith("."), attack.name
        assert len(attack.aim) < 120, attack.name
        assert isinstance(TASKS[attack.task], PrintTask) == (attack.kind == "stdio"), attack.name


@pytest.mark.parametrize("task", TASKS)
def test_a_right_solution_of_every_task_passes_and_none_at_all_does_not(opened: Opened, task: str) -> None:
    answers = [opened.sandbox.submit(right(task, str(number))) for number in range(2 * WORKERS)]
    assert {one.result().outcome for one in answers} == {"passed"}, answers[0].result()
    assert opened.sandbox.run(request(task, "    pass\n")).outcome not in ("passed", "fault")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_hostile_program_does_not_pass_and_harms_nothing(
    opened: Opened, chosen: list[Attack], attack: Attack
) -> None:
    answer, after, seconds = opened.judged(attack, chosen)
    assert answer.outcome not in ("passed", "fault"), answer
    assert "ESCAPED" not in answer.detail
    assert SECRET not in answer.detail
    assert answer.detail.isprintable(), "what is shown can be written and does nothing to a terminal"
    assert len(answer.detail) < 2000
    assert not opened.outside.touched()
    assert seconds < MOST_WALL
    assert answer.seconds < MOST_SECONDS + 1.0
    assert after.outcome == "passed", f"a right program after it: {after}"


def test_no_process_of_a_hostile_program_is_left_beside_the_sandbox_own(opened: Opened) -> None:
    for future in opened.begun.values():
        future.result()
    assert len(left := opened.settled()) <= opened.usual, left


def test_nothing_is_left_when_the_sandbox_is_closed(opened: Opened) -> None:
    opened.namespaces |= namespaces(descendants())
    began = time.monotonic()
    opened.stack.close()
    assert time.monotonic() - began < 5.0
    assert not descendants().keys() - opened.others
    assert opened.namespaces, "the processes of the sandbox are in namespaces of their own"
    until = time.monotonic() + 10.0  # the last of them is for the machine's first process to wait for
    while left := [pid for pid in all_processes() if namespaces([pid]) & opened.namespaces]:
        assert time.monotonic() < until, left
        time.sleep(0.05)
    assert Path("/proc/self/mountinfo").read_text() == opened.mounts
    assert not list(opened.temporary.iterdir())
    assert not files_left()
    assert not opened.outside.touched()


def test_under_the_reference_grader_hostile_programs_may_pass_and_do_no_harm() -> None:
    families = ("descriptors_", "equal_", "files_", "frame_", "host_", "kill_", "network_", "process_")
    chosen = [one for one in ATTACKS if one.kind == "call" and one.name.startswith(families)]
    with outside() as target:
        with opened_here(workers=WORKERS, grader="reference") as sandbox:
            begun = {
                one.name: sandbox.submit(
                    request(one.task, one.program(str(target.file), target.port, VARIABLE))
                )
                for one in chosen
            }
            answers = {name: future.result(GIVE_UP) for name, future in begun.items()}
            after = sandbox.run(right("add", "after all of them"))
        assert not target.touched()
    assert (after.outcome, after.reference_outcome) == ("passed", "passed")
    assert answers["equal_to_everything"].reference_outcome == "passed", "what the two graders differ in"
    for name, answer in answers.items():
        assert answer.outcome not in ("passed", "fault"), (name, answer)
        assert answer.reference_outcome not in (None, "fault"), (name, answer)
        assert SECRET not in answer.detail
        assert "ESCAPED" not in answer.detail
    assert not files_left()
