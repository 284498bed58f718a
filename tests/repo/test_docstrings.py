"""Docstrings of public names are there, and are imperatives or noun phrases."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("harness/engines/sandbox/self_test_program.py",)
"""Texts of programs, whose functions nobody else calls."""

MODULES = [
    path.relative_to(ROOT)
    for path in sorted((ROOT / "harness").rglob("*.py"))
    if str(path.relative_to(ROOT)) not in PROGRAMS
]
QUESTION = re.compile(r"(?:What|How|Whether|Which|Where|Why|When|Who|Whose|Has)\b")


def public(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The public functions and classes of a module; pytest documents its hooks."""
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from [] if node.name.startswith(("_", "pytest_")) else [node]


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_public_functions_and_classes_have_docstrings_that_begin_with_no_question_word(path: Path) -> None:
    module = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    known = {node.name: ast.get_docstring(node) for node in public(module)}
    assert not [name for name, text in known.items() if text is None], "without a docstring"
    asking = {name: text.splitlines()[0] for name, text in known.items() if text and QUESTION.match(text)}
    assert not asking, (
        'begin with "Return whether ...", or with the thing that there is: "The records by node id."'
    )
