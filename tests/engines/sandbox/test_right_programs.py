"""Right programs pass, however oddly they are written, and odd texts that are none are judged like any other."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from pytest_touchstone.core.requests import CallTests, InputOutputTests, RunProgram
from pytest_touchstone.engines.sandbox.sandbox import Sandbox
from tests.support.right_programs import CALLS, SCRIPTS
from tests.support.sandbox_here import opened_here

CHANGING = ("signals caught", "a file in the working folder")
"""Programs that would change the process of the tests or its folder."""

SOON = 30.0
"""Seconds after which a verdict is not waited for any more."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with opened_here(workers=2, grader="reference") as opened:
        yield opened


@pytest.mark.parametrize("name", CALLS)
def test_a_right_program_passes_by_both_graders(sandbox: Sandbox, name: str) -> None:
    program, tests = CALLS[name]
    answer = sandbox.submit(RunProgram(program, CallTests(tests), task=name)).result(SOON)
    assert (answer.outcome, answer.reference_outcome) == ("passed", "passed"), answer


@pytest.mark.parametrize("name", [name for name in CALLS if name not in CHANGING])
def test_the_same_program_and_asserts_hold_in_one_process(name: str) -> None:
    program, tests = CALLS[name]
    limit = sys.getrecursionlimit()
    try:
        exec(compile(f"{program}\n{tests}", name, "exec", dont_inherit=True), {"__name__": "builtins"})
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_right_script_passes(sandbox: Sandbox, name: str) -> None:
    tests = InputOutputTests((("2\n3\n", "5\n"), ("-4\n4\n", "0\n"), ("1000000\n1\n", "1000001")))
    answer = sandbox.submit(RunProgram(SCRIPTS[name], tests, task=name)).result(SOON)
    assert (answer.outcome, answer.tests) == ("passed", 3), answer


def test_helpers_of_the_prompt_are_the_prompt_s_for_program_and_test_alike(sandbox: Sandbox) -> None:
    prompt = (
        "def encode(text):\n    return ''.join(chr(ord(c) + 1) for c in text)\n\n\n"
        "def decode(text):\n    '''What was encoded.'''\n"
    )
    tests = CallTests(
        "def check(candidate):\n    assert candidate(encode('abc')) == 'abc'\n\ncheck(decode)\n",
        trusted=f"{prompt}    pass\n",
        names=("decode",),
    )
    by_helper = "    return next(c for c in ('abc', 'abd') if encode(c) == text)\n"
    for body in ("    return ''.join(chr(ord(c) - 1) for c in text)\n", by_helper):
        answer = sandbox.submit(RunProgram(prompt + body, tests, task="decode")).result(SOON)
        assert answer.outcome == "passed", answer


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("", "error"),
        ("def add(a, b)\n    return a + b\n", "error"),
        ("def add(a, b):\nreturn a + b\n", "error"),
        ("x = 'a\0b'\ndef add(a, b):\n    return a + b\n", "error"),
        ("x = '\ud800'\ndef add(a, b):\n    return a - b\n", "error"),
        ("(" * 100_000, "error"),
        ("x = " + "-" * 1_000_000 + "1\n", "memory"),
        ("x = [" + "1, " * 200_000 + "]\ndef add(a, b):\n    return 0\n", "wrong"),
        ("import numpy_that_is_not_there\n", "error"),
        ("def add(a, b):\n    return input()\n", "error"),
        ("def add(a, b, c):\n    return a + b\n", "error"),
        ("add = 5\n", "wrong"),
        ("import math as add\n", "wrong"),
        ("raise SystemExit\n", "crashed"),
        ("class add:\n    def __init__(self, a, b):\n        self.sum = a + b\n", "wrong"),
    ],
    ids=lambda value: ascii(value[:30]),
)
def test_odd_texts_are_judged_and_are_no_fault(sandbox: Sandbox, program: str, outcome: str) -> None:
    tests = CallTests("assert add(1, 2) == 3\n")
    answer = sandbox.submit(RunProgram(program, tests, task="odd")).result(SOON)
    assert answer.outcome == outcome, answer
    assert answer.detail.isprintable()
    after = sandbox.submit(RunProgram("def add(a, b):\n    return a + b\n", tests, task="odd"))
    assert after.result(SOON).outcome == "passed"
