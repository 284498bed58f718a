"""What a test sees of a program's containers and objects is what one process would show it, or the verdict says so."""

from __future__ import annotations

import random

import pytest

from pytest_touchstone.core.requests import CallTests, RunProgram, RunProgramAnswer
from pytest_touchstone.engines.sandbox import open_sandbox
from pytest_touchstone.engines.sandbox.sandbox import Sandbox
from tests.support.lines import naming

SAME = "def same(x): return x\ndef seen(x): return [repr(x), str(x), [repr(one) for one in x]]\n"


def judged(sandbox: Sandbox, program: str, tests: str) -> RunProgramAnswer:
    return sandbox.run(RunProgram(program, CallTests(tests), task="containers"))


def literals(count: int) -> list[str]:
    """Literals of sets, and of dicts and lists with some in them."""
    drawn, found = random.Random(0), []
    forms = ("{%s}", "frozenset([%s])", "[{%s}]", "{1: {%s}}.values()")
    for number in range(count):
        numbers = [drawn.randrange(10 ** drawn.randrange(1, 20)) for _ in range(drawn.randrange(1, 40))]
        leaves = [repr(one if one % 2 else f"word {one}") for one in numbers]
        found.append(forms[number % 4] % ", ".join(leaves))
    return found


def test_literals_are_the_same_to_program_and_test(sandbox: Sandbox) -> None:
    asked = "assert sorted(map(len, seen(x)[2])) == sorted(len(repr(one)) for one in x)\n"
    asked += "assert same(x) == x or [*same(x)] == [*x]\nassert type(same(x)) is type(x)\n"
    tests = "".join(f"x = {literal}\n{asked}" for literal in literals(200))
    assert judged(sandbox, SAME, tests).outcome == "passed"


def test_the_order_of_sets_is_the_same_in_every_sandbox() -> None:
    told = set()
    for _ in range(2):
        with open_sandbox("none", workers=1) as sandbox:
            told.add(judged(sandbox, "def f(): return hash('a')", "assert f() == 0, str(f())").detail)
    assert len(told) == 1, told


@pytest.mark.parametrize(
    ("program", "tests", "outcome"),
    [
        ("def f(s): return tuple(s)", "assert f({12, 13, 14, 15, 16}) == (12, 13, 14, 15, 16)", "wrong"),
        ("def f(s): return list(s)", "assert f(frozenset({12, 13, 14, 15, 16})) == [12, 13, 14, 15, 16]", "wrong"),
        ("def f(s): return {12, 13, 14, 15, 16}", "assert list(f(1)) == [16, 12, 13, 14, 15]", "passed"),
        ("def f(s): return {12, 13, 14, 15, 16}", "assert str(f(1)) == '{16, 12, 13, 14, 15}'", "passed"),
        ("def f(s): return s.keys()", "assert f({1: 2}) == {1: 2}.keys()", "passed"),
        ("def f(s): return s.items()", "assert list(f({1: 2})) == [(1, 2)]", "passed"),
        ("def f(s): return ...", "assert f(1) is ...", "passed"),
        ("def f(s): return NotImplemented", "assert f(1) is NotImplemented", "passed"),
        ("def f(s): return memoryview(s)[1:]", "assert f(b'abc') == memoryview(b'bc')", "passed"),
        ("import collections\ndef f(s): return collections.deque(s, 2)", "from collections import deque\n"
         "assert f([1, 2, 3]) == deque([2, 3]) and f([1]).maxlen == 2", "passed"),
    ],
)  # fmt: skip
def test_containers_are_judged_as_in_one_process(
    sandbox: Sandbox, program: str, tests: str, outcome: str
) -> None:
    assert judged(sandbox, program, tests).outcome == outcome


POINT = """
class Point:
    def __init__(self, x): self.x = x
    def __repr__(self): return f"Point({self.x})"
    def __str__(self): return f"<{self.x}>"
    def __format__(self, how): return how + str(self)
    def __add__(self, other): return Point(self.x + other.x)
    def __eq__(self, other): return True
    def __lt__(self, other): return True
    def __float__(self): return 5.0
class Plain: pass
"""


@pytest.mark.parametrize(
    "test", ["repr(Point(1)) == 'Point(1)'", "str(Point(1)) == '<1>'", "f'{Point(1):>}' == '><1>'", "Point(1) != None",
             "Plain() != Plain()", "Plain() != 5", "Plain() not in [1, 2]", "[Plain] == [Plain]"]
)  # fmt: skip
def test_an_object_of_the_program_s_is_written_as_it_says_and_is_unequal_to_others(
    sandbox: Sandbox, test: str
) -> None:
    assert judged(sandbox, POINT, f"assert {test}").outcome == "passed"


@pytest.mark.parametrize(
    "test",
    [
        *(
            "Point(1) + Point(2) == Point(3)",
            "1 + Point(1)",
            "abs(Point(5) - 5) < 1e-6",
            "float(Point(1)) == 5.0",
        ),
        *("Point(1) == Point(1)", "Point(1) == 5", "5 in [Point(1)]", "len({Point(1)}) == 1"),
        "sorted([Point(2), Point(1)])",
    ],
)
@pytest.mark.parametrize("hidden", [False, True])
def test_what_only_the_program_could_say_of_its_objects_is_an_error_that_says_so(
    sandbox: Sandbox, test: str, hidden: bool
) -> None:
    tests = f"try:\n    assert {test}\nexcept Exception:\n    pass\n" if hidden else f"assert {test}"
    answer = judged(sandbox, POINT, tests)
    assert answer.outcome == "error"
    assert naming("(Point)", "not asked").search(answer.detail)


FEWER = "def fewer():\n    s = set(range(100))\n    s -= set(range(90))\n    return s\n"


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        (FEWER, "assert fewer() == {*range(90, 100)}\nassert list(fewer()) == [*range(90, 100)]"),
        ("def f(s): return list(s)", f"{FEWER}s = fewer()\nassert sorted(f(s)) == sorted(s)\nassert f(s) == list(s)"),
    ],
)  # fmt: skip
def test_a_set_that_comes_in_another_order_is_named_where_the_test_fails(
    sandbox: Sandbox, program: str, tests: str
) -> None:
    answer = judged(sandbox, program, tests)
    assert (answer.outcome, "another order" in answer.detail) == ("wrong", True), answer


def test_values_computed_ahead_may_be_sets_in_any_order(sandbox: Sandbox) -> None:
    tests = CallTests(
        "assert fewer() == PREPARED[0]",
        trusted=FEWER,
        names=("fewer",),
        prepared="[fewer()]",
    )
    assert sandbox.run(RunProgram(FEWER, tests, task="containers")).outcome == "passed"


def test_numbers_may_have_any_number_of_digits(sandbox: Sandbox) -> None:
    program = "def power(n): return str(7**n)\ndef same(n): return n\n"
    tests = f"assert int(power(9000)) == 7**9000 and str(same({'7' * 5000})) == '7' * 5000"
    assert judged(sandbox, program, tests).outcome == "passed"
