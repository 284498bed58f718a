"""Tests that cannot fail are found in the real sandbox, in each of their forms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_touchstone.core.requests import CallTests, InputOutputTests, RunProgram
from pytest_touchstone.engines.sandbox.soundness import (
    ECHOES,
    EMPTY,
    PRINTS_NONE,
    RAISES,
    RETURNS_FIRST,
    RETURNS_NONE,
    SelfCheckingSandbox,
)
from tests.support.sandbox_here import opened_here

RIGHT = "def add(a, b):\n    return a + b\n"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SelfCheckingSandbox]:
    folder: Path = tmp_path_factory.mktemp("tests")
    with SelfCheckingSandbox(opened_here(workers=2), "bwrap", folder) as opened:
        yield opened


CALLS = {
    "assert add(1, 2) == 3\n": (),
    "def check(candidate):\n    assert candidate(1, 2) == 3\n": (EMPTY, RAISES, RETURNS_NONE, RETURNS_FIRST),
    "try:\n    assert add(1, 2) == 3\nexcept Exception:\n    pass\n": (
        EMPTY,
        RAISES,
        RETURNS_NONE,
        RETURNS_FIRST,
    ),
    "if 'add' in globals():\n    assert add(1, 2) == 3\n": (EMPTY,),
    "try:\n    found = add(1, 2)\nexcept RuntimeError:\n    found = 3\nassert found == 3\n": (RAISES,),
    "try:\n    assert add(1, 2) == 3\nexcept AssertionError:\n    print('failed')\n": (
        RETURNS_NONE,
        RETURNS_FIRST,
    ),
    "add(1, 2)\n": (RETURNS_NONE, RETURNS_FIRST),
    "assert not add(1, 2) == 4\n": (RETURNS_NONE, RETURNS_FIRST),
    "assert add(3, 0) == 3\n": (RETURNS_FIRST,),
    "assert add(a=3, b=0) == 3\n": (RETURNS_FIRST,),
    "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(add(1, 2), 3)\n"
    "unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(T))\n": (
        EMPTY,
        RAISES,
        RETURNS_NONE,
        RETURNS_FIRST,
    ),
}


@pytest.mark.parametrize("tests", CALLS)
def test_tests_of_calls_are_tried_on_wrong_programs(sandbox: SelfCheckingSandbox, tests: str) -> None:
    found = sandbox.run(RunProgram(RIGHT, CallTests(tests, names=("add",)), task="t", seconds=1.0))
    assert found.weak_tests == CALLS[tests]
    bad = {EMPTY, RAISES} & set(found.weak_tests)
    assert found.outcome == ("fault" if bad else "passed")


@pytest.mark.parametrize(
    ("pairs", "accepted"),
    [
        ((("1 2\n", "3\n"),), ()),
        ((("1 2\n", "3\n"), ("x", "")), ()),
        ((("1 2\n", "\n"),), (EMPTY,)),
        ((), (EMPTY, RAISES, PRINTS_NONE, ECHOES)),
        ((("1\n", "none\n"),), (PRINTS_NONE,)),
        ((("1\n", "1\n"), ("2\n", "2\n")), (ECHOES,)),
    ],
)
def test_tests_of_what_is_printed_are_tried_too(
    sandbox: SelfCheckingSandbox, pairs: tuple[tuple[str, str], ...], accepted: tuple[str, ...]
) -> None:
    assert sandbox.run(RunProgram("x = 1", InputOutputTests(pairs), task="t")).weak_tests == accepted


def test_a_class_is_tried_as_one(sandbox: SelfCheckingSandbox) -> None:
    program = "class Stack:\n    def push(self, x): self.top = x\n    def peek(self): return self.top\n"
    thin = "s = Stack()\ns.push(1)\n"
    weak = RunProgram(program, CallTests(thin, names=("Stack",)), task="t", reference=program)
    assert sandbox.run(weak).weak_tests == (RETURNS_NONE, RETURNS_FIRST)
    sound = RunProgram(program, CallTests(f"{thin}assert s.peek() == 1\n"), task="t", reference=program)
    assert sandbox.run(sound).weak_tests == ()
    assert sandbox.run(sound).outcome == "passed"


def test_tests_that_do_not_end_on_a_wrong_program_are_not_said_to_accept_it(
    sandbox: SelfCheckingSandbox,
) -> None:
    tests = CallTests("while add(1, 2) != 3: pass\n")
    found = sandbox.run(RunProgram(RIGHT, tests, task="t", seconds=0.3))
    assert (found.outcome, found.weak_tests) == ("passed", ())
