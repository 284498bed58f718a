"""Published forms of tasks, the requests made of them, and the scores of what became of the programs."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.requests import CallTests, InputOutputTests, ProgramOutcome, RunProgramAnswer
from pytest_touchstone.metrics.code import apps_row, contest_row, humaneval_row, mbpp_row, reads_and_prints
from pytest_touchstone.metrics.code.extract import is_python
from pytest_touchstone.metrics.code.grader import (
    humaneval_request,
    mbpp_request,
    program_scores,
    stdio_request,
)
from tests.support.lines import naming

HUMANEVAL = {
    "task_id": "HumanEval/7",
    "prompt": "def one():\n",
    "entry_point": "one",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}
TRAINING = {
    "instruction": "def one():\n",
    "input": "",
    "output": "    return 1\n",
    "task_id": "HumanEval/7",
    "metadata": {
        "source": "humaneval",
        "test": HUMANEVAL["test"],
        "entry_point": "one",
        "has_tests": True,
    },
}
MBPP = {
    "text": "Return one.",
    "code": "def one():\r\n    return 1",
    "task_id": 11,
    "test_setup_code": "x = 1\r\ny = 2",
    "test_list": ["assert one() == x", "assert one() != y"],
    "challenge_test_list": ["assert False"],
}
PAIRS = [{"input": "1\n", "output": "2\n"}, {"input": "3\n", "output": "4\n"}]


def test_a_training_row_of_humaneval_is_the_published_row() -> None:
    assert humaneval_row(dict(TRAINING)) == HUMANEVAL
    assert humaneval_row(dict(HUMANEVAL)) == HUMANEVAL
    assert humaneval_row({**TRAINING, "metadata": json.dumps(TRAINING["metadata"])}) == HUMANEVAL


def test_humaneval_is_asked_with_the_check_apart_and_the_prompts_own_helpers() -> None:
    request = humaneval_request(HUMANEVAL, "PROGRAM")
    assert request.program == "PROGRAM"
    assert request.tests == CallTests(
        code=f"{HUMANEVAL['test']}\ncheck(one)\n", trusted="def one():\n    return 1\n", names=("one",)
    )
    assert (request.task, request.seconds, request.reference) == (
        "humaneval/HumanEval/7",
        3.0,
        "def one():\n    return 1\n",
    )


def test_mbpp_runs_its_setup_and_its_assertions_with_plain_line_ends() -> None:
    row = mbpp_row(dict(MBPP))
    request = mbpp_request(row, "PROGRAM")
    assert request.tests == CallTests(code="x = 1\ny = 2\nassert one() == x\nassert one() != y\n")
    assert request.reference == "def one():\n    return 1"
    assert request.task == "mbpp/11"
    assert row["code"] == MBPP["code"]  # what the prompt shows stays as published


def test_a_function_that_has_a_name_of_pythons_own_is_the_programs_in_the_tests_of_its_task() -> None:
    row = mbpp_row(
        {
            "text": "Write a function to find the sum of two numbers.",
            "code": "def helper(a): return a\r\ndef sum(a, b):\r\n    return helper(a) + b",
            "task_id": 12,
            "test_setup_code": "",
            "test_list": ["assert sum(1, 2) == 3"],
            "challenge_test_list": [],
        }
    )
    tests = mbpp_request(row, row["code"]).tests
    assert isinstance(tests, CallTests)
    assert tests.names == ("sum",)


def test_sanitized_mbpp_has_a_prompt_and_imports() -> None:
    row = mbpp_row(
        {
            "source_file": "x",
            "task_id": 85,
            "prompt": "Return one.",
            "code": "def one(): return 1",
            "test_imports": ["import math"],
            "test_list": ["assert math.isclose(one(), 1)"],
        }
    )
    assert row["text"] == "Return one."
    assert mbpp_request(row, "", "mbpp_sanitized").tests == CallTests(
        code="import math\nassert math.isclose(one(), 1)\n"
    )
    assert mbpp_request(row, "", "mbpp_sanitized").task == "mbpp_sanitized/85"


@pytest.mark.parametrize("test", [MBPP["test_list"], "assert one() == x\n\nassert one() != y\n"])
def test_a_training_row_of_mbpp_has_its_assertions_as_a_list_or_a_text(test: Any) -> None:
    row = mbpp_row(
        {
            "instruction": "Return one.",
            "input": "",
            "output": "def one(): return 1",
            "task_id": "mbpp/11",
            "metadata": {"source": "mbpp", "test": test, "has_tests": True},
        }
    )
    assert row["test_list"] == MBPP["test_list"]
    assert row["text"] == "Return one."


def test_assertions_over_several_lines_stay_one_text() -> None:
    test = "assert one(\n) == 1"
    row = {**TRAINING, "metadata": {"test": test}}
    assert mbpp_row(row)["test_list"] == [test]


@pytest.mark.parametrize(
    "row",
    [
        {"id": "a", "description": "D", "tests": PAIRS},
        {"id": "a", "description": "D", "tests": {"input": ["1\n", "3\n"], "output": ["2\n", "4\n"]}},
        {
            "name": "a",
            "description": "D",
            "public_tests": {"input": ["1\n"], "output": ["2\n"]},
            "private_tests": {"input": [], "output": []},
            "generated_tests": {"input": ["3\n"], "output": ["4\n"]},
        },
        {"instruction": "D", "input": "", "output": "", "task_id": "a", "metadata": {"test": PAIRS}},
        {
            "instruction": "D",
            "input": "",
            "output": "",
            "task_id": "a",
            "metadata": {"test": json.dumps(PAIRS)},
        },
    ],
)
def test_all_forms_of_a_contests_problem_are_one(row: dict[str, Any]) -> None:
    assert contest_row(row) == {
        "id": "a",
        "description": "D",
        "tests": PAIRS,
        "time_limit": None,
        "memory_limit": None,
        "solution": "",
        **({"instruction": "D"} if "instruction" in row else {}),
    }


@pytest.mark.parametrize(
    "row",
    [
        {"id": 5, "description": "D", "test_list": [{"input": "1\n", "output": ["2\n"]}]},
        {"problem_id": 5, "question": "D", "input_output": '{"inputs": ["1\\n"], "outputs": ["2\\n"]}'},
        {"id": 5, "question": "D", "input_output": '{"inputs": ["1\\n"], "outputs": [["2\\n"]]}'},
        {"instruction": "D", "task_id": "5", "metadata": {"tests": PAIRS[:1]}},
    ],
)
def test_all_forms_of_a_problem_of_apps_are_one(row: dict[str, Any]) -> None:
    found = apps_row(row)
    assert (found["id"], found["description"], found["tests"]) == ("5", "D", PAIRS[:1])


def test_limits_and_a_solution_in_python_3_come_with_the_problem() -> None:
    row = contest_row(
        {
            "name": "a",
            "description": "D",
            "tests": PAIRS,
            "time_limit": {"seconds": 2, "nanos": 500_000_000},
            "memory_limit_bytes": 256_000_000,
            "solutions": {"language": [2, 3, 3], "solution": ["int main() {}", "print(1)", "print(2)"]},
        }
    )
    request = stdio_request(row, "PROGRAM")
    assert request.tests == InputOutputTests((("1\n", "2\n"), ("3\n", "4\n")))
    assert (request.seconds, request.memory, request.reference) == (2.5, 245, "print(1)")
    assert request.task == "codecontests/a"


def test_without_limits_of_its_own_a_problem_has_the_sets() -> None:
    request = stdio_request(contest_row({"id": "a", "description": "D", "tests": PAIRS}), "", "apps_stdin")
    assert (request.seconds, request.memory, request.reference) == (10.0, 256, None)
    assert request.task == "apps_stdin/a"


@pytest.mark.parametrize(
    ("row", "used"),
    [
        ({}, True),
        ({"input_file": "", "output_file": "", "starter_code": ""}, True),
        ({"input_file": "in.txt"}, False),
        ({"output_file": "out.txt"}, False),
        ({"starter_code": "class Solution:"}, False),
        ({"input_output": '{"fn_name": "f", "inputs": [], "outputs": []}'}, False),
        ({"input_output": '{"inputs": [], "outputs": []}'}, True),
    ],
)
def test_problems_that_do_not_read_and_print_are_left_out(row: dict[str, Any], used: bool) -> None:
    assert reads_and_prints(row) is used


@pytest.mark.parametrize(
    ("make", "row"),
    [
        (humaneval_row, {**TRAINING, "metadata": {"entry_point": "one"}}),
        (humaneval_row, {**TRAINING, "metadata": {**TRAINING["metadata"], "has_tests": False}}),  # type: ignore[dict-item]
        (mbpp_row, {**MBPP, "test_list": []}),
        (mbpp_row, {**MBPP, "test_list": [1]}),
        (contest_row, {"id": "a", "description": "D", "tests": []}),
        (contest_row, {"id": "a", "description": "D"}),
        (contest_row, {"id": "a", "description": "D", "tests": [{"input": "1"}]}),
        (contest_row, {"id": "a", "description": "D", "tests": {"input": ["1"], "output": []}}),
        (contest_row, {"id": "a", "description": "D", "tests": "not JSON"}),
        (apps_row, {"description": "D", "test_list": PAIRS}),
    ],
)
def test_a_row_that_cannot_be_used_is_an_error(make: Any, row: dict[str, Any]) -> None:
    with pytest.raises((KeyError, ValueError, TypeError)):
        make(dict(row))


# Scores


def answers(*outcomes: ProgramOutcome) -> list[RunProgramAnswer]:
    return [RunProgramAnswer(outcome) for outcome in outcomes]


def test_only_what_passed_counts() -> None:
    assert program_scores(answers("passed")) == {"pass@1": 1.0}
    found = program_scores(answers("wrong", "error", "timeout", "memory", "crashed", "refused", "passed"))
    assert found["pass@1"] == pytest.approx(1 / 7)
    assert list(found) == ["pass@1", "pass@5"]


def test_the_reference_graders_verdicts_are_scores_of_their_own() -> None:
    both = [
        RunProgramAnswer("passed", reference_outcome="passed"),
        RunProgramAnswer("wrong", reference_outcome="passed"),
        RunProgramAnswer("error", reference_outcome="crashed"),
    ]
    assert program_scores(both) == {
        "pass@1": pytest.approx(1 / 3),
        "reference_pass@1": pytest.approx(2 / 3),
        "graders_differ": 1,
    }


@pytest.mark.parametrize(
    "fault",
    [RunProgramAnswer("fault", "no hub"), RunProgramAnswer("passed", "no hub", reference_outcome="fault")],
)
def test_what_could_not_be_judged_is_neither_right_nor_wrong(fault: RunProgramAnswer) -> None:
    with pytest.raises(BenchmarkError, match=naming("1 of 2 programs", "no hub")):
        program_scores([*answers("passed"), fault])


def test_tests_and_programs_may_hold_numbers_of_thousands_of_digits() -> None:
    number, before = "7" * 5000, sys.get_int_max_str_digits()
    row = {**HUMANEVAL, "test": f'if __name__ == "__main__":\n    assert one() != {number}\n'}
    assert number in humaneval_request(humaneval_row(row), "").tests.code  # type: ignore[union-attr]
    assert is_python(f"x = {number}")
    assert sys.get_int_max_str_digits() == before
