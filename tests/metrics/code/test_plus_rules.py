"""EvalPlus's comparison: tolerances that stay, sets, tasks with rules of their own, arguments that JSON has not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_touchstone.core.requests import CallTests, RunProgramAnswer
from pytest_touchstone.metrics.code import plus_rules as rules
from pytest_touchstone.metrics.code.plus import PLUS, plus_request, plus_row
from pytest_touchstone.metrics.code.plus_rules import (
    SHAPES,
    agree,
    floats,
    judge,
    near,
    prepared,
    reference,
    shaped,
)


def judged(
    name: str,
    program: Any,
    right: Any,
    *inputs: list[Any],
    shape: str = "",
    atol: float = 0,
    base: int = 0,
    passed: list[int] | None = None,
) -> None:
    given = {"name": name, "inputs": json.dumps(inputs), "shape": shape, "base": base or len(inputs)}
    task = {"name": name, "base": base or len(inputs), "atol": atol}
    rules.reference, kept = lambda *_: right, rules.reference
    try:
        known = list(prepared("", given))
    finally:
        rules.reference = kept
    judge(program, known, task, [] if passed is None else passed)


def test_outputs_are_compared_input_by_input() -> None:
    judged("f", lambda a, b: a + b, lambda a, b: b + a, [1, 2], [3, 4])
    with pytest.raises(AssertionError, match="input 1"):
        judged("f", lambda a: a * a, lambda a: a + a, [2], [3])


def test_the_inputs_on_which_a_program_is_right_are_counted() -> None:
    passed: list[int] = []
    with pytest.raises(AssertionError, match="input 2"):
        judged("f", lambda a: min(a, 2), lambda a: a, [1], [2], [3], [4], passed=passed)
    assert passed == [0, 1]


def test_an_input_with_a_huge_output_is_judged_like_any_other() -> None:
    def many(n: int) -> list[int]:
        return [0] * n

    passed: list[int] = []
    judged("f", many, many, [1], [2_000_000], [3], base=1, passed=passed)
    assert passed == [0, 1, 2]
    with pytest.raises(AssertionError, match="input 1"):
        judged("f", lambda n: many(n) if n < 1_000_000 else [], many, [1], [2_000_000], base=1)


def test_the_tolerance_begins_anew_with_the_inputs_of_evalplus() -> None:
    values = {0: 0.5, 1: 10**9}
    judged("f", lambda n: 0.5 if n == 0 else 10**9 + 1, values.get, [0], [1], base=2)
    with pytest.raises(AssertionError, match="input 1"):
        judged("f", lambda n: 0.5 if n == 0 else 10**9 + 1, values.get, [0], [1], base=1)


def test_a_program_that_changes_its_arguments_changes_a_copy() -> None:
    judged("f", lambda a: a.sort() or a, sorted, [[2, 1]], [[3, 2]])


def test_the_tolerance_of_floats_stays_for_later_inputs() -> None:
    huge = 10**9
    values = {0: 0.5, 1: huge}
    judged("f", lambda n: 0.5 if n == 0 else huge + 1, values.get, [0], [1])
    with pytest.raises(AssertionError, match="input 0"):
        judged("f", lambda n: huge + 1, values.get, [1])


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        (0.1 + 0.2, 0.3, True),
        ((0.3,), [0.3], False),
        ([0.3, 1.0], [0.3], False),
        ([[1.0], [2.0]], [[1.0], [2.0 + 1e-9]], True),
        (1, 1.0, True),
        ("0.3", 0.3, False),
        (float("nan"), 0.3, False),
        (float("inf"), float("inf"), True),
        (float("inf"), 1e308, False),
        (10**400, 1.0, False),
        (["a"], ["b"], False),
    ],
)
def test_values_agree_within_the_tolerance(output: Any, expected: Any, same: bool) -> None:
    assert agree("f", [], output, expected, 1e-6) is same


@pytest.mark.parametrize(
    ("name", "arguments", "output", "expected", "same"),
    [
        ("find_zero", [[-1, 1]], 1.00001, 1.0, True),
        ("find_zero", [[-1, 1]], 1.001, 1.0, False),
        ("Diff", [[1], [2]], [2, 1, 1], [1, 2], True),
        ("Diff", [[1], [2]], [2], [1, 2], False),
        ("check_str", ["a"], object(), object(), True),
        ("check_str", ["a"], False, object(), False),
        ("check_str", ["a"], None, None, True),
        ("are_equivalent", [1, 2], "anything", True, True),
        ("sum_div", [8], 0, 7, True),
        ("surface_Area", [3, 4], 35, 33, True),
        ("digit_distance_nums", [1, 23], 4, 1, True),
        ("digit_distance_nums", [1, 23], 5, 1, False),
    ],
)
def test_some_tasks_have_rules_of_their_own(
    name: str, arguments: Any, output: Any, expected: Any, same: bool
) -> None:
    assert agree(name, arguments, output, expected, 0) is same


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ([0.50000001], [0.5], True),
        ((0.50000001,), [0.5], False),
        ([0.5, 0.50000001], [0.5], False),
        ([0.50000001], {0.5}, False),
        ({0.50000001}, {0.5}, False),
        ([1.0, 0.50000001], [0.5, 1.0], False),
    ],
)
def test_the_tolerance_is_tried_in_order_where_two_sets_differ(
    output: Any, expected: Any, same: bool
) -> None:
    assert agree("extract_singly", [], output, expected, 1e-6) is same


def test_only_values_made_of_floats_get_a_tolerance() -> None:
    assert floats(0.5)
    assert floats([0.5])
    assert floats((0.5, 1.5))
    assert not any(floats(one) for one in ([], [1], [0.5, 1], [[0.5]], 1, "x"))
    assert not near(["a"], ["a", "b"], 1.0)


@pytest.mark.parametrize(
    ("shape", "given", "arguments"),
    [
        ("", [[1]], [[1]]),
        ("arguments", [[1, 2], [3]], [(1, 2), (3,)]),
        ("items", [[[1, 2]], [[3]]], [[(1, 2)], [(3,)]]),
        ("first's items", [[[1]], 2], [[(1,)], 2]),
        ("first", [[1], 2, 3], [(1,), 2, 3]),
        ("second", [1, [2]], [1, (2,)]),
        ("arguments and items", [[[1]], [[2]]], [((1,),), ((2,),)]),
        ("first and its lists", [[[1], 2]], [((1,), 2)]),
        ("values", [{"a": [1]}, 2], [{"a": (1,)}, 2]),
        ("everything", [[1, [2]]], [(1, (2,))]),
        ("sets", [[[1, 1], []]], [[{1}, {}]]),
        ("float, complex", [1, "2j"], [1.0, 2j]),
        ("complex", ["1+2j"], [1 + 2j]),
    ],
)
def test_arguments_are_brought_back_from_json(shape: str, given: Any, arguments: Any) -> None:
    assert shaped(given, shape) == arguments


def test_every_shape_is_tested_and_the_reference_has_names_of_its_own() -> None:
    assert len(SHAPES) == 13
    source = "def f(n):\n    return 1 if n == 0 else n * f(n - 1)\n"
    assert reference(source, "f")(5) == 120


def test_a_task_without_more_inputs_is_asked_its_own() -> None:
    row: dict[str, Any] = {"task_id": "Mbpp/793", "prompt": '\n"""x"""\n', "entry_point": "last"}
    row |= {"canonical_solution": "def last(): pass", "base_input": [[1]], "plus_input": {}, "atol": 0}
    row = plus_row(row)
    asked = plus_request(row, "def last(): pass", "mbpp_plus")
    assert isinstance(asked.tests, CallTests)
    assert asked.tests.code == "judge(last, PREPARED, {'name': 'last', 'base': 1, 'atol': 0}, PASSED)\n"
    assert PLUS.part(row, RunProgramAnswer("wrong", tests=1)).outcome == "passed"
    assert PLUS.part(row, RunProgramAnswer("wrong")).outcome == "wrong"
    assert PLUS.part(row, RunProgramAnswer("fault", tests=1)).outcome == "fault"
