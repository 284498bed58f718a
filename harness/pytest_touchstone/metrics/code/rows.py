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
    any_digits,
    base_name,
    build_test_script,
    likely_entry_point,
)


class HumanEvalRow(TypedDict):
    """A function's beginning, its name, a right body, and the source of ``check(function)``."""

    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str


class MbppRow(TypedDict):
    """A task, a right program, and its tests. ``entry_point`` is the name that tests defining ``check`` are given;
    published rows have none. ``instruction`` is a training row's own prompt."""

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
    """A problem with its tests, its limits (seconds, MiB) where it has some, and a right program, empty where there
    is none. Where a function is to be written, ``tests`` is empty, ``test`` the source of the tests that call it, and
    ``entry_point`` its name, if there is one."""

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
    """task_id, prompt, entry_point, canonical_solution, test."""
    if "instruction" in row:
        more, prompt = _metadata(row), _asked(row)
        test = _one_text(_statements(_tests(more)))
        row = {
            "task_id": row["task_id"],
            "prompt": prompt,
            "entry_point": _entry_point(more, prompt, "", test) or _begun(prompt),
            "canonical_solution": row.get("output") or "",
            "test": test,
        }
    if isinstance(row.get("test"), str) and isinstance(row.get("entry_point"), str):
        build_test_script(row["test"], row["entry_point"])
    return row


def mbpp_row(row: dict[str, Any]) -> dict[str, Any]:
    """task_id, text, code, test_list, test_setup_code, test_imports, entry_point; the sanitized set says ``prompt``
    for ``text``."""
    if "instruction" in row:
        more = _metadata(row)
        row = {
            "task_id": row["task_id"],
            "text": _asked(row),
            "instruction": _asked(row),
            "code": row.get("output") or "",
            "test_list": (tests := _statements(_tests(more))),
            "test_setup_code": more.get("test_setup_code", ""),
            "test_imports": more.get("test_imports", []),
            "entry_point": _entry_point(more, row["instruction"], row.get("output"), _one_text(tests)),
        }
    tests = _statements(row["test_list"])
    if not tests:
        raise ValueError("test_list is empty; a task needs a test")
    made = {
        "task_id": row["task_id"],
        "text": row["text"] if "text" in row else row["prompt"],
        "code": row["code"],
        "test_list": tests,
        "test_setup_code": row.get("test_setup_code") or "",
        "test_imports": list(row.get("test_imports") or ()),
        "entry_point": row.get("entry_point") or "",
        **_own_prompt(row),
    }
    mbpp_tests(made)
    return made


def mbpp_tests(row: Mapping[str, Any]) -> str:
    """The script that tests a program of the task: its imports, its setup code, its assertions."""
    parts = (*row["test_imports"], row["test_setup_code"], *row["test_list"])
    text = "".join(unix_lines(part).rstrip("\n") + "\n" for part in parts if part)
    return build_test_script(text, row.get("entry_point", ""))


def contest_row(row: dict[str, Any]) -> dict[str, Any]:
    """id, description, tests [{input, output}], time_limit (seconds) and memory_limit (MiB) or None, solution; of tests
    that call a function ``test`` and ``entry_point`` instead of ``tests``.

    DeepMind's public, private and generated tests are taken in that order, and its first solution in Python 3.
    """
    if "instruction" in row:
        more = _metadata(row)
        row = {
            **({"tests": more["test"]} if "test" in more else {}),
            **more,
            "id": row["task_id"],
            "description": _asked(row),
            "instruction": _asked(row),
            "solution": row.get("output"),
        }
    return _stdio_row(row, str(row["id"] if "id" in row else row["name"]), row["description"])


def apps_row(row: dict[str, Any]) -> dict[str, Any]:
    """The same of a row of APPS: its ``input_output`` is JSON text with lists of inputs and outputs."""
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
    more = row.get("metadata")
    texts = (
        row.get("input_output"),
        *((more.get("test"), more.get("input_output")) if isinstance(more, dict) else (more,)),
    )
    return not any(isinstance(text, str) and '"fn_name"' in text.replace("\\", "") for text in texts)


def _stdio_row(row: Mapping[str, Any], name: str, description: Any) -> dict[str, Any]:
    published = [_read(found) for found in _published(row)]
    solution = row.get("solution") or _python_solution(row.get("solutions"))
    code = [found for found in published if isinstance(found, str)]
    called: dict[str, Any] = {}
    if code:
        called["test"] = "\n".join(code)
        called["entry_point"] = _entry_point(row, description, solution, called["test"])
        build_test_script(called["test"], called["entry_point"])
    tests = [] if code else [pair for found in published for pair in _pairs(found)]
    if not code and not tests:
        raise ValueError("it has no tests")
    return {
        "id": name,
        "description": description,
        "tests": tests,
        **called,
        **_own_prompt(row),
        "time_limit": _seconds(row.get("time_limit")),
        "memory_limit": math.ceil(row["memory_limit_bytes"] / 2**20)
        if row.get("memory_limit_bytes")
        else None,
        "solution": solution,
    }


def builtin_names(solution: str) -> tuple[str, ...]:
    """The names of Python that a right program redefines, such as a function ``sum``.

    In the tests of such a task the name is the program's.
    """
    try:
        with any_digits():
            body = ast.parse(unix_lines(solution)).body
    except SyntaxError:
        return ()
    defined = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    return tuple(name for name in defined if hasattr(builtins, name) or name in sys.stdlib_module_names)


def unix_lines(text: str) -> str:
    """The text with line ends of one character; MBPP was published with both kinds."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _published(row: Mapping[str, Any]) -> list[Any]:
    """The row's tests, from whichever fields hold them."""
    for names in (
        ("tests",),
        ("test_list",),
        ("input_output",),
        ("public_tests", "private_tests", "generated_tests"),
    ):
        if any(name in row for name in names):
            return [row[name] for name in names if row.get(name)]
    raise KeyError("tests")


def _read(tests: Any) -> Any:
    """Tests out of their text: data of any form, or the source of tests that call a function."""
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except ValueError:
            if not tests.lstrip().startswith(("[", "{")):
                return tests
            if (found := _literal(tests)) is None:
                raise
            tests = found
    if isinstance(tests, list) and tests and all(isinstance(test, str) for test in tests):
        return "\n".join(tests)
    return tests


def _pairs(tests: Any) -> list[dict[str, str]]:
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
    """A list of assertions, also where they are published as one text, or as the text of a list."""
    if isinstance(tests, str) and isinstance(found := _literal(tests), list):
        tests = found
    if not isinstance(tests, str):
        return [_one_text(test) for test in tests]
    lines = [line for line in tests.splitlines() if line.strip()]
    return lines if all(line.startswith("assert") for line in lines) else [tests]


def _literal(text: str) -> Any:
    """The value of a text of JSON or of Python literals, None if it is neither."""
    if not text.lstrip().startswith(("[", "{")):
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            with any_digits():
                return read(text.strip())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return None


def _tests(more: Mapping[str, Any]) -> Any:
    """The tests in the metadata of a training row."""
    for name in ("test", "test_list", "tests"):
        if more.get(name):
            return more[name]
    raise KeyError("metadata.test")


def _entry_point(more: Mapping[str, Any], asked: Any, solution: Any, test: str) -> str:
    """The entry point that a row names, checked; where it names none, and the tests want one, the likely one: of the
    right program, else of the definition that the task begins with."""
    if (given := more.get("entry_point")) is not None and not isinstance(given, str):
        raise TypeError(f"entry_point is {str(given)[:40]!r} and no text")
    if given:
        base_name(given)
        return str(given)
    if "def " not in test and CANDIDATE not in test:
        return ""
    return likely_entry_point(str(solution or ""), test) or _begun(str(asked))


def _begun(prompt: str) -> str:
    """The name of the last function that a prompt begins, the one to be completed; empty where it begins none."""
    begun = re.findall(r"^(?:async )?def (\w+)\(", prompt, re.MULTILINE)
    return begun[-1] if begun else ""


def _metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    found = row["metadata"]
    found = json.loads(found) if isinstance(found, str) else dict(found)
    if found.get("has_tests") is False:
        raise ValueError("metadata.has_tests is false; a task needs a test")
    return dict(found)


def _asked(row: Mapping[str, Any]) -> str:
    """The prompt of a training row; ``input`` is nearly always empty."""
    return _one_text(row["instruction"]) + (f"\n\n{row['input']}" if row.get("input") else "")


def _own_prompt(row: Mapping[str, Any]) -> dict[str, str]:
    return {"instruction": row["instruction"]} if "instruction" in row else {}


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
