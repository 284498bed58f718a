"""No hostile program passes, reaches anything outside or leaves anything behind, and the sandbox lives on.

Where the kernel or the container lacks something, the sandbox holds as well, or refuses. The same program has the same
verdict, on a busy machine too. Programs are judged some ahead of the tests that ask for them: many only end by their
time.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_touchstone.core.requests import RunProgramAnswer
from pytest_touchstone.engines.sandbox.sandbox import SLOTS_PER_WORKER, Sandbox
from tests.drill.conftest import Drill
from tests.support.attack_tasks import MOST_SECONDS, TASKS, Attack, PrintTask, attacks, request, right
from tests.support.lines import naming
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
from tests.support.places import ROOT
from tests.support.poor_kernels import ENGINES, LACKS, REFUSED, engine
from tests.support.sandbox_here import lacking, opened_here
from tests.support.verdict_programs import known

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is Linux's")

ATTACKS = attacks()

SAMPLE = 24
"""Hostile programs of the short form, drawn by the seed."""

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
        self.namespaces |= self.own_namespaces()
        after = self.sandbox.submit(right(attack.task, attack.name)).result(GIVE_UP)
        return Seen(answer, after, seconds)

    def own_namespaces(self) -> set[str]:
        """Those of the processes of the sandbox."""
        return namespaces(descendants().keys() - self.others)

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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The whole has every hostile program, the short form those that the seed draws, with those of slow verdicts
    spread among the others."""
    if "attack" in metafunc.fixturenames:
        drawn = random.Random(metafunc.config.getoption("--drill-seed") or 0)
        most = len(ATTACKS) if metafunc.config.getoption("--run-slow") else SAMPLE
        some = drawn.sample(ATTACKS, most)
        metafunc.parametrize("attack", some, ids=[one.name for one in some])


@pytest.fixture(scope="module")
def chosen(request: pytest.FixtureRequest) -> list[Attack]:
    """The hostile programs that this run has tests of."""
    calls: list[Any] = [
        item.callspec
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path and hasattr(item, "callspec")
    ]
    return [call.params["attack"] for call in calls if "attack" in call.params]


def test_every_hostile_program_says_in_a_sentence_what_it_tries() -> None:
    assert len(ATTACKS) >= 360
    for attack in ATTACKS:
        assert attack.aim.endswith("."), attack.name
        assert len(attack.aim) < 120, attack.name
        assert isinstance(TASKS[attack.task], PrintTask) == (attack.kind == "stdio"), attack.name


@pytest.mark.parametrize("task", TASKS)
def test_a_right_solution_of_every_task_passes_and_none_at_all_does_not(opened: Opened, task: str) -> None:
    answers = [opened.sandbox.submit(right(task, str(number))) for number in range(2 * WORKERS)]
    assert {one.result().outcome for one in answers} == {"passed"}, answers[0].result()
    assert opened.sandbox.run(request(task, "    pass\n")).outcome not in ("passed", "fault")


def test_a_hostile_program_does_not_pass_and_harms_nothing(
    opened: Opened, chosen: list[Attack], attack: Attack, drill: Drill
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
    drill.figure("hostile programs contained, each of another kind", 1)


def test_programs_beside_each_other_have_no_network_in_common(opened: Opened) -> None:
    """A socket of a pair can get a name by which another program of the same network would reach it."""
    found = {Path(f"/proc/{pid}/ns/net").readlink() for pid in descendants()}
    assert len(found - {Path("/proc/self/ns/net").readlink()}) > SLOTS_PER_WORKER * WORKERS


def test_no_process_of_a_hostile_program_is_left_beside_the_sandbox_own(opened: Opened) -> None:
    for future in opened.begun.values():
        future.result()
    assert len(left := opened.settled()) <= opened.usual, left


def test_nothing_is_left_when_the_sandbox_is_closed(opened: Opened) -> None:
    opened.namespaces |= opened.own_namespaces()
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


@pytest.mark.slow
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


# Kernels and containers that lack something


CONTRADICTING = {"user namespaces, by a profile", "user namespaces, by max_user_namespaces=0"}
"""Two of ``LACKS`` that refuse the same call, with another error each."""

REACHING = [
    "files_left_everywhere",
    "host_files",
    "network_tcp",
    "network_unix",
    "process_ptrace",
    "process_subprocess",
]
"""Hostile programs that would show what is open."""


def tried_on_poor_kernels(
    lists: list[list[str]], kind: str = "bwrap", path: str = ""
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """What became of a sandbox without each of these, in a process of its own."""
    if missing := lacking():
        pytest.skip(f"no sandbox: {missing}")
    environment = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    with outside() as target:
        given = {
            "kind": kind,
            "hostile": REACHING,
            "lists": lists,
            "file": str(target.file),
            "port": target.port,
        }
        found = subprocess.run(
            [sys.executable, "-m", "tests.support.poor_kernels"],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert found.returncode == 0, found.stderr
        assert not target.touched()
        yield from zip(lists, map(json.loads, found.stdout.splitlines()), strict=True)


def assert_held_or_refused(found: dict[str, Any], remedy: str, drill: Drill, where: str) -> None:
    """A refusal is one line with a remedy; else no hostile program got anywhere and a right one passed."""
    if "refused" in found:
        assert found["refused"].isprintable()
        assert remedy in found["refused"]
    else:
        assert "raised" not in found
        for outcome, detail in found["answers"].values():
            assert outcome not in ("passed", "fault")
            assert "ESCAPED" not in detail
            assert SECRET not in detail
        assert found["after"] == "passed"
    drill.figure(f"{where} where it {'refused' if 'refused' in found else 'held'}", 1)


def test_on_a_kernel_that_lacks_something_the_sandbox_holds_or_refuses(drill: Drill) -> None:
    """The whole: every one of them, and every two that do not contradict each other."""
    lists = [
        [*some]
        for many in (1, 2)
        for some in itertools.combinations(LACKS, many)
        if not CONTRADICTING.issubset(some)
    ]
    random.Random(0).shuffle(lists)
    for lacks, found in tried_on_poor_kernels([lists[seed] for seed in drill.seeds(3, len(lists))]):
        try:
            assert_held_or_refused(found, "allow them, or use --eval-sandbox docker", drill, "poor kernels")
            assert "refused" in found or not REFUSED.intersection(lacks)
        except AssertionError as error:
            raise AssertionError(f"--drill-seed {lists.index(lacks)}: without {lacks}: {found}") from error


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_in_a_container_that_lacks_something_the_sandbox_holds_or_refuses(
    name: str, drill: Drill, tmp_path: Path
) -> None:
    engine(tmp_path, **ENGINES[name])
    lists = [[], ["mount_setattr"], ["user namespaces, by a profile"], ["seccomp"]]
    for lacks, found in tried_on_poor_kernels(lists, "docker", str(tmp_path)):
        assert_held_or_refused(found, "or use --eval-sandbox bwrap", drill, "containers")
        assert "refused" in found or not lacks, (name, lacks)


def test_a_command_refuses_in_one_line_and_runs_nothing(tmp_path: Path) -> None:
    if missing := lacking():
        pytest.skip(f"no sandbox: {missing}")
    samples = tmp_path / "samples.jsonl"
    samples.write_text('{"task_id": "Test/0", "completion": "    return 1\\n"}\n')
    problems = tmp_path / "tasks" / "humaneval" / "HumanEval.jsonl"
    problems.parent.mkdir(parents=True)
    problems.write_text(json.dumps({"task_id": "Test/0", **PROBLEM}) + "\n")
    code = (
        "import sys; from tests.support.poor_kernels import lack; from pytest_touchstone.cli import main\n"
        "lack(['user namespaces, by a profile']); sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "score", "humaneval", str(samples), "--data", "tasks"]
    command += ["-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "harness"), str(ROOT)])}
    found = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert found.returncode == 4, found.stderr
    assert naming("user.max_user_namespaces", "--eval-sandbox docker").search(found.stderr.strip())
    assert sorted(tmp_path.iterdir()) == [samples, tmp_path / "tasks"]


PROBLEM = {
    "prompt": "def one():\n",
    "entry_point": "one",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}


# The same program twice


@contextmanager
def a_busy_machine() -> Iterator[None]:
    """Has twice as many processes compute as there are cores."""
    begun = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for one in begun:
            one.kill()
            one.wait()


@pytest.mark.slow
def test_the_same_program_has_the_same_verdict_twice_and_on_a_busy_machine(drill: Drill) -> None:
    seeds = drill.seeds(5, 60)
    programs = [known(random.Random(seed), seed) for seed in seeds]
    with opened_here(workers=2) as sandbox:

        def verdicts(mark: str) -> list[str]:
            """``mark`` makes other texts of them: equal ones are judged once."""
            begun = [
                sandbox.submit(replace(one.request, program=f"{one.request.program}# {mark}\n"))
                for one in programs
            ]
            return [future.result(10 * GIVE_UP).outcome for future in begun]

        first, second = verdicts("first"), verdicts("second")
        with a_busy_machine():
            busy = verdicts("busy")
    for seed, one, *found in zip(seeds, programs, first, second, busy, strict=True):
        assert found == [one.outcome] * 3, f"--drill-seed {seed}: {one.request.program}"
    drill.figure("programs of the same verdict twice and on a busy machine", len(programs))
