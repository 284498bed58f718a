"""Programs of LiveCodeBench as its grader has them run, on tests made here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pytest_touchstone.core.files import load_module
from pytest_touchstone.core.requests import RunProgram
from tests.support.places import ROOT
from tests.support.rows import read_jsonl

MODULE = load_module(ROOT / "evals" / "test_livecodebench.py", "livecodebench_of_tests")
SHIPPED = read_jsonl(ROOT / "fixtures" / "data" / "livecodebench" / "code_generation_lite.jsonl")


def cases_text(*cases: Iterable[str]) -> str:
    """Tests as published, of pairs of input and output."""
    return json.dumps([{"input": given, "output": due, "testtype": "stdin"} for given, due in cases])


def row(**change: Any) -> dict[str, Any]:
    """A published row, with some fields changed."""
    return {**SHIPPED[0], "question_id": "t", "solution": "", **change}


def request(
    program: str, cases: Iterable[Iterable[str]], func_name: str = "", seconds: float | None = None
) -> RunProgram:
    """The request for a program's verdict; ``seconds`` is a shorter limit of each test."""
    metadata = json.dumps({"func_name": func_name} if func_name else {})
    public = cases_text(*cases)
    problem = MODULE.problem(row(public_test_cases=public, private_test_cases="[]", metadata=metadata))
    asked: RunProgram = MODULE.request(problem, program, "livecodebench")
    return asked if seconds is None else replace(asked, seconds=seconds)
