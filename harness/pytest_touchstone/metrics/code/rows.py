"""The forms in which tasks are published, brought into the one that a benchmark's row describes.

    the authors' own        HumanEval, MBPP, sanitized MBPP, CodeContests (DeepMind), APPS
    one list of tests       ``tests``: [{input, output}], or ``test_list`` with the output as a list of one text
    training rows           ``instruction`` (the prompt), ``input``, ``output`` (a right program), ``task_id``,
                            ``metadata`` {source, test, entry_point, has_tests}

Tests that call functions are one text or a list of texts: assertions, or definitions that
``metrics.code.calling`` knows how to call.

All raise ``KeyError`` for a missing field, and ``ValueError`` or ``TypeError`` for a malformed one.
"""

from __future__ import annotations

import ast
import builtins
import json
import math
import re
import sys
from collections.abc import Mapping
from typing import Any, Final, NotRequired

from typing_extensions import TypedDict

from pytest_touchstone.metrics.code.test_scripts import (
    CANDIDATE,
    build_test_script,
    likely_entry_point,
    root_name,
    unlimited_int_digits,
)


class HumanEvalRow(TypedDict):
    """A function's beginning, its name, a right body, and the source of ``check(function)``."""

    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str


class MbppRow(TypedDict):
    """A task, a right program, and its tests.

    ``entry_point`` is the name that is passed to tests that define ``check``; published rows have none. ``instruction``
    is a training row's own prompt.
    """

    task_id: int | str
    text: str
    code: str
    test_list: list[str]
    test_setup_code: str
    test_imports: list[str]
    entry_point: NotRequired[str]
    instruction: NotRequired[str]


class StdioCase(TypedDict):
    """An input of a program, and the output that it must print."""

    input: str
    output: str


class StdioRow(TypedDict):
    """A problem with its tests, its limits (seconds, MiB; None for no limit), and a right program or an empty text.

    If a function is to be written, ``tests`` is empty, ``test`` is the source of the tests that call it, and
    ``entry_point`` its name, if there is one.
    """

    id: str
    description: str
    tests: list[StdioCase]
    time_limit: float | None
    memory_limit: int | None
    solution: str
    test: NotRequired[str]
    entry_point: NotRequired[str]
    instruction: NotRequired[str]


_PYTHON3: Final = 3
"""The number of that language in contest_problem.proto."""


def humaneval_row(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row to task_id, prompt, entry_point, canonical_solution, test."""
    if "instruction" in row:
        metadata, prompt = _metadata(row), _instruction(row)
        test = _join_lines(_parse_assertions(_metadata_tests(metadata)))
        row = {
            "task_id": row["task_id"],
            "prompt": prompt,
            "entry_point": _entry_point(metadata, prompt, "", test) or _last_defined_function(prompt),
            "canonical_solution": row.get("output") or "",
            "test": test,
        }
    if isinstance(row.get("test"), str) and isinstance(row.get("entry_point"), str):
        build_test_script(row["test"], row["entry_point"])
    return row


def mbpp_row(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row to the fields of ``MbppRow``; the sanitized set has ``prompt`` for ``text``."""
    if "instruction" in row:
        metadata = _metadata(row)
        row = {
            "task_id": row["task_id"],
            "text": _instruction(row),
            "instruction": _instruction(row),
            "code": row.get("output") or "",
            "test_list": (tests := _parse_assertions(_metadata_tests(metadata))),
            "test_setup_code": metadata.get("test_setup_code", ""),
            "test_imports": metadata.get("test_imports", []),
            "entry_point": _entry_point(metadata, row["instruction"], row.get("output"), _join_lines(tests)),
        }
    tests = _parse_assertions(row["test_list"])
    if not tests:
        raise ValueError("test_list is empty; a task needs a test")
    task = {
        "task_id": row["task_id"],
        "text": row["text"] if "text" in row else row["prompt"],
        "code": row["code"],
        "test_list": tests,
        "test_setup_code": row.get("test_setup_code") or "",
        "test_imports": list(row.get("test_imports") or ()),
        "entry_point": row.get("entry_point") or "",
        **_instruction_field(row),
    }
    mbpp_tests(task)
    return task


def mbpp_tests(row: Mapping[str, Any]) -> str:
    """Return the script that tests a program of the task: its imports, its setup code, its assertions."""
    sections = (*row["test_imports"], row["test_setup_code"], *row["test_list"])
    text = "".join(unix_lines(section).rstrip("\n") + "\n" for section in sections if section)
    return build_test_script(text, row.get("entry_point", ""))


def contest_row(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row to the fields of ``StdioRow``; ``time_limit`` and ``memory_limit`` may be None.

    DeepMind's public, private and generated tests are joined in that order; the solution is the first in Python 3.
    """
    if "instruction" in row:
        metadata = _metadata(row)
        row = {
            **({"tests": metadata["test"]} if "test" in metadata else {}),
            **metadata,
            "id": row["task_id"],
            "description": _instruction(row),
            "instruction": _instruction(row),
            "solution": row.get("output"),
        }
    return _stdio_row(row, str(row["id"] if "id" in row else row["name"]), row["description"])


def apps_row(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row of APPS to the fields of ``StdioRow``; its ``input_output`` is JSON text."""
    if "instruction" in row:
        return contest_row(row)
    key = next((key for key in ("id", "problem_id", "task_id") if key in row), "name")
    return _stdio_row(row, str(row[key]), row["question"] if "question" in row else row["description"])


def reads_and_prints(row: dict[str, Any]) -> bool:
    """Return whether a task's programs read the standard input and print.

    Tasks that use files do not count, nor do those of APPS that call a function.
    """
    if row.get("input_file") or row.get("output_file") or row.get("starter_code"):
        return False
    metadata = row.get("metadata")
    texts = (
        row.get("input_output"),
        *(
            (metadata.get("test"), metadata.get("input_output"))
            if isinstance(metadata, dict)
            else (metadata,)
        ),
    )
    return not any(isinstance(text, str) and '"fn_name"' in text.replace("\\", "") for text in texts)


def _stdio_row(row: Mapping[str, Any], name: str, description: Any) -> dict[str, Any]:
    published = [_parse_tests(field) for field in _published_tests(row)]
    solution = row.get("solution") or _python_solution(row.get("solutions"))
    code = [content for content in published if isinstance(content, str)]
    called: dict[str, Any] = {}
    if code:
        called["test"] = "\n".join(code)
        called["entry_point"] = _entry_point(row, description, solution, called["test"])
        build_test_script(called["test"], called["entry_point"])
    tests = [] if code else [case for content in published for case in _stdio_cases(content)]
    if not code and not tests:
        raise ValueError("it has no tests")
    return {
        "id": name,
        "description": description,
        "tests": tests,
        **called,
        **_instruction_field(row),
        "time_limit": _parse_seconds(row.get("time_limit")),
        "memory_limit": math.ceil(row["memory_limit_bytes"] / 2**20)
        if row.get("memory_limit_bytes")
        else None,
        "solution": solution,
    }


def builtin_names(solution: str) -> tuple[str, ...]:
    """Return the names of Python that a right program redefines, such as a function ``sum``.

    In the tests of such a task the name is the program's.
    """
    try:
        with unlimited_int_digits():
            body = ast.parse(unix_lines(solution)).body
    except SyntaxError:
        return ()
    defined = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    return tuple(name for name in defined if hasattr(builtins, name) or name in sys.stdlib_module_names)


def unix_lines(text: str) -> str:
    """Return the text with line ends of one character; MBPP was published with both kinds."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _published_tests(row: Mapping[str, Any]) -> list[Any]:
    """Return the row's tests, from whichever fields hold them."""
    for names in (
        ("tests",),
        ("test_list",),
        ("input_output",),
        ("public_tests", "private_tests", "generated_tests"),
    ):
        if any(name in row for name in names):
            return [row[name] for name in names if row.get(name)]
    raise KeyError("tests")


def _parse_tests(tests: Any) -> Any:
    """Parse tests from their text: data of any form, or the source of tests that call a function."""
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except ValueError:
            if not tests.lstrip().startswith(("[", "{")):
                return tests
            if (literal := _parse_literal(tests)) is None:
                raise
            tests = literal
    if isinstance(tests, list) and tests and all(isinstance(test, str) for test in tests):
        return "\n".join(tests)
    return tests


def _stdio_cases(tests: Any) -> list[dict[str, str]]:
    if isinstance(tests, Mapping):
        inputs, outputs = (tests.get(name, tests.get(f"{name}s")) for name in ("input", "output"))
        tests = [{"input": stdin, "output": stdout} for stdin, stdout in zip(inputs, outputs, strict=True)]
    return [{name: _join_lines(test[name]) for name in ("input", "output")} for test in tests]


def _join_lines(value: Any) -> str:
    """Return a text, joining the lines of a list."""
    if isinstance(value, list):
        return "\n".join(_join_lines(line) for line in value)
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]!r} is no text")
    return value


def _parse_assertions(tests: Any) -> list[str]:
    """Return a list of assertions from a list, a text, or the text of a list."""
    if isinstance(tests, str) and isinstance(literal := _parse_literal(tests), list):
        tests = literal
    if not isinstance(tests, str):
        return [_join_lines(test) for test in tests]
    lines = [line for line in tests.splitlines() if line.strip()]
    return lines if all(line.startswith("assert") for line in lines) else [tests]


def _parse_literal(text: str) -> Any:
    """Return the value of a text of JSON or of Python literals, None if it is neither."""
    if not text.lstrip().startswith(("[", "{")):
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            with unlimited_int_digits():
                return read(text.strip())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return None


def _metadata_tests(metadata: Mapping[str, Any]) -> Any:
    """Return the tests in the metadata of a training row."""
    for name in ("test", "test_list", "tests"):
        if metadata.get(name):
            return metadata[name]
    raise KeyError("metadata.test")


def _entry_point(fields: Mapping[str, Any], description: Any, solution: Any, test: str) -> str:
    """Return the entry point that a row names, else the likely one if the tests need one.

    The likely one is that of the right program, else the definition that the task begins with. Raises ``TypeError`` or
    ``ValueError`` for a name that is not usable.
    """
    if (entry_point := fields.get("entry_point")) is not None and not isinstance(entry_point, str):
        raise TypeError(f"entry_point is {str(entry_point)[:40]!r} and no text")
    if entry_point:
        root_name(entry_point)
        return str(entry_point)
    if "def " not in test and CANDIDATE not in test:
        return ""
    return likely_entry_point(str(solution or ""), test) or _last_defined_function(str(description))


def _last_defined_function(prompt: str) -> str:
    """Return the name of the last function that a prompt begins, or an empty text."""
    names = re.findall(r"^(?:async )?def (\w+)\(", prompt, re.MULTILINE)
    return names[-1] if names else ""


def _metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    metadata = row["metadata"]
    metadata = json.loads(metadata) if isinstance(metadata, str) else dict(metadata)
    if metadata.get("has_tests") is False:
        raise ValueError("metadata.has_tests is false; a task needs a test")
    return dict(metadata)


def _instruction(row: Mapping[str, Any]) -> str:
    """Return the prompt of a training row; ``input`` is nearly always empty."""
    return _join_lines(row["instruction"]) + (f"\n\n{row['input']}" if row.get("input") else "")


def _instruction_field(row: Mapping[str, Any]) -> dict[str, str]:
    return {"instruction": row["instruction"]} if "instruction" in row else {}


def _parse_seconds(limit: Any) -> float | None:
    """Return a limit of time, also as {seconds, nanos}."""
    if isinstance(limit, Mapping):
        limit = limit.get("seconds", 0) + limit.get("nanos", 0) / 1e9
    return float(limit) if limit else None


def _python_solution(solutions: Any) -> str:
    """Return the first solution in Python 3 of DeepMind's {language: [...], solution: [...]}."""
    if not isinstance(solutions, Mapping):
        return ""
    pairs = zip(solutions.get("language", ()), solutions.get("solution", ()), strict=True)
    return next((text for language, text in pairs if language == _PYTHON3), "")
