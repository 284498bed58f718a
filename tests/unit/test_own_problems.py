"""The project's own contest problems: what is shipped is what the script writes, and every solution is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.files import load_module

ROOT = Path(__file__).parents[2]
SCRIPT = load_module(ROOT / "fixtures" / "build" / "own_problems.py", "own_problems")
TEXT = (ROOT / "fixtures" / "data" / "codecontests" / "problems.jsonl").read_text(encoding="utf-8")
SHIPPED = [json.loads(line) for line in TEXT.splitlines()]


@pytest.mark.parametrize("number", range(1, len(SCRIPT.PROBLEMS) + 1))
def test_a_shipped_problem_is_what_its_solution_prints(number: int) -> None:
    assert SCRIPT.row(number, SCRIPT.PROBLEMS[number - 1]) == SHIPPED[number - 1]


def test_there_are_twelve_with_a_test_that_the_statement_does_not_show() -> None:
    assert len(SHIPPED) == len(SCRIPT.PROBLEMS) == 12
    assert len({row["id"] for row in SHIPPED}) == 12
    for row in SHIPPED:
        hidden = [test for test in row["tests"] if test["input"] not in row["description"]]
        assert len(hidden) >= 2
        assert row["source"] == "pytest-touchstone"
