"""The forms in which tasks are published, brought into the one that a benchmark's row describes.

    the authors' own        HumanEval, MBPP, sanitized MBPP, CodeContests (DeepMind), APPS
    one list of tests       ``tests``: [{input, output}], or ``test_list`` with the output as a list of one text
    training rows           ``instruction`` (the prompt), ``input``, ``output`` (a right program), ``task_id``,
                            ``metadata`` {source, test, entry_point, has_tests}

All raise ``KeyError`` for a missing field, ``ValueError`` or ``TypeError`` for one that is not as it should be.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from typing_extensions import TypedDict


class HumanEvalRow(TypedDict):
    """A function's beginning, its name, a right body, and the source of ``check(function)``."""

    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str


class MbppRow(TypedDict):
    """A task, a right program, and what that must pass."""

    task_id: int | str
    text: str
    code: str
    test_list: list[str]
    test_setup_code: str
    test_imports: list[str]


class Pair(TypedDict):
    """What a program is given and what it must print."""

    input: str
    output: str


class StdioRow(TypedDict):
    """A problem with its tests, its limits (seconds, MiB) where it has some, and a right program, empty where there
    is none."""

    id: str
    description: str
    tests: list[Pair]
    time_limit: float | None
    memory_limit: int | None
    solution: str


_PYTHON3: Final = 3
"""The number of that language in contest_problem.proto."""


def humaneval_row(row: dict[str, Any]) -> dict[str, Any]:
    """task_id, prompt, entry_point, canonical_solution, test."""
    if "instruction" not in row:
        return row
    more = _metadata(row)
    return {
        "task_id": row["task_id"],
        "prompt": _asked(row),
        "entry_point": more["entry_point"],
        "canonical_solution": row.get("output") or "",
        "test": _one_text(more["test"]),
    }


def mbpp_row(row: dict[str, Any]) -> dict[str, Any]:
    """task_id, text, code, test_list, test_setup_code, test_imports; the sanitized set says ``prompt`` for
    ``text``."""
    if "instruction" in row:
        more = _metadata(row)
        row = {
            "task_id": row["task_id"],
            "text": _asked(row),
            "code": row.get("output") or "",
            "test_list": more["test"],
            "test_setup_code": more.get("test_setup_code", ""),
            "test_imports": more.get("test_imports", []),
        }
    tests = _statements(row["test_list"])
    if not tests:
        raise ValueError("test_list is empty; a task needs a test")
    return {
        "task_id": row["task_id"],
        "text": row["text"] if "text" in row else row["prompt"],
        "code": row["code"],
        "test_list": tests,
        "test_setup_code": row.get("test_setup_code") or "",
        "test_imports": list(row.get("test_imports") or ()),
    }


def contest_row(row: dict[str, Any]) -> dict[str, Any]:
    """id, description, tests [{input, output}], time_limit (seconds) and memory_limit (MiB) or None, solution.

    DeepMind's public, private and generated tests are taken in that order, and its first solution in Python 3.
    """
    if "instruction" in row:
        more = _metadata(row)
        tests = more.get("tests", more.get("test"))
        row = {
            **more,
            "id": row["task_id"],
            "description": _asked(row),
            "solution": row.get("output"),
            "tests": tests,
        }
    return _stdio_row(row, str(row["id"] if "id" in row else row["name"]), row["description"])


def apps_row(row: dict[str, Any]) -> dict[str, Any]:
    """The same of a row of APPS: its ``input_output`` is JSON text with lists of inputs and outputs."""
    if "instruction" in row:
        return contest_row(row)
    key = next((key for key in ("id", "problem_id", "task_id") if key in row), "name")
    return _stdio_row(row, str(row[key]), row["question"] if "question" in row else row["description"])


def reads_and_prints(row: dict[str, Any]) -> bool:
    """Whether a task's programs read the standard input and print: not those that use files of their own, nor
    those of APPS whose functions are called."""
    if row.get("input_file") or row.get("output_file") or row.get("starter_code"):
        return False
    both = row.get("input_output")
    return not (isinstance(both, str) and '"fn_name"' in both)


def _stdio_row(row: Mapping[str, Any], name: str, description: Any) -> dict[str, Any]:
    tests = [pair for found in _published(row) for pair in _pairs(found)]
    if not tests:
        raise ValueError("it has no tests")
    return {
        "id": name,
        "description": description,
        "tests": tests,
        "time_limit": _seconds(row.get("time_limit")),
        "memory_limit": math.ceil(row["memory_limit_bytes"] / 2**20)
        if row.get("memory_limit_bytes")
        else None,
        "solution": row.get("solution") or _python_solution(row.get("solutions")),
    }


def _published(row: Mapping[str, Any]) -> list[Any]:
    """The row's tests, in whichever fields they are."""
    for names in (
        ("tests",),
        ("test_list",),
        ("input_output",),
        ("public_tests", "private_tests", "generated_tests"),
    ):
        if any(name in row for name in names):
            return [row[name] for name in names if row.get(name)]
    raise KeyError("tests")


def _pairs(tests: Any) -> list[dict[str, str]]:
    if isinstance(tests, str):
        tests = json.loads(tests)
    if isinstance(tests, Mapping):
        inputs, outputs = (tests.get(name, tests.get(f"{name}s")) for name in ("input", "output"))
        tests = [{"input": given, "output": due} for given, due in zip(inputs, outputs, strict=True)]
    return [{name: _one_text(test[name]) for name in ("input", "output")} for test in tests]


def _one_text(value: Any) -> str:
    """A text, also where it is published as its lines."""
    if isinstance(value, list):
        return "\n".join(_one_text(part) for part in value)
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]!r} is no text")
    return value


def _statements(tests: Any) -> list[str]:
    """A list of assertions, also where they are published as one text."""
    if not isinstance(tests, str):
        return [_one_text(test) for test in tests]
    lines = [line for line in tests.splitlines() if line.strip()]
    return lines if all(line.startswith("assert") for line in lines) else [tests]


def _metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    found = row["metadata"]
    found = json.loads(found) if isinstance(found, str) else dict(found)
    if found.get("has_tests") is False:
        raise ValueError("metadata.has_tests is false; a task needs a test")
    return dict(found)


def _asked(row: Mapping[str, Any]) -> str:
    """The prompt of a training row; ``input`` is nearly always empty."""
    return _one_text(row["instruction"]) + (f"\n\n{row['input']}" if row.get("input") else "")


def _seconds(limit: Any) -> float | None:
    """A limit of time, also as {seconds, nanos}."""
    if isinstance(limit, Mapping):
        limit = limit.get("seconds", 0) + limit.get("nanos", 0) / 1e9
    return float(limit) if limit else None


def _python_solution(solutions: Any) -> str:
    """The first solution in Python 3 of DeepMind's {language: [...], solution: [...]}."""
    if not isinstance(solutions, Mapping):
        return ""
    both = zip(solutions.get("language", ()), solutions.get("solution", ()), strict=True)
    return next((text for language, text in both if language == _PYTHON3), "")
