"""Docstrings of public names are there; all are imperatives or noun phrases, in sentences that can be read at once."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.places import ROOT

PROGRAMS = ("harness/pytest_touchstone/engines/sandbox/self_test_program.py",)
"""Texts of programs, whose functions nobody else calls."""

MODULES = [
    path.relative_to(ROOT)
    for folder in (
        "harness/pytest_touchstone",
        "evals",
        "perf",
        "simulations",
        "docs/build",
        "fixtures/build",
    )
    for path in sorted((ROOT / folder).rglob("*.py"))
    if str(path.relative_to(ROOT)) not in PROGRAMS
]
QUESTION = re.compile(r"(?:What|How|Whether|Which|Where|Why|When|Who|Whose|Has)\b")
LONGEST = 35
"""The number of words that a sentence may have."""

SENTENCE_END = re.compile(r"(?<=[.:;!?])\s+(?=[A-Z`\"(*])")
LIST_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
TABLE = re.compile(r" {4}|={2}|.*\S {3,}\S")
"""The beginnings of lines that are an example or a row of a table."""

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def public(module: ast.Module) -> Iterator[Definition]:
    """The public functions and classes of a module; pytest documents its hooks."""
    for node in module.body:
        if isinstance(node, Definition):
            yield from [] if node.name.startswith(("_", "pytest_")) else [node]


def docstrings(node: ast.Module | Definition, name: str = "") -> Iterator[tuple[str, str]]:
    """The docstrings of a module or definition, of all that it defines, and of its values and fields, by name."""
    if (own := ast.get_docstring(node)) is not None:
        yield name or "the module", own
    for value, text in pairwise(node.body):
        if isinstance(value, (ast.Assign, ast.AnnAssign)) and isinstance(text, ast.Expr):
            target = value.targets[0] if isinstance(value, ast.Assign) else value.target
            if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
                yield f"{name}.{ast.unparse(target)}", inspect.cleandoc(text.value.value)
    for one in node.body:
        if isinstance(one, Definition):
            yield from docstrings(one, f"{name}.{one.name}")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a docstring's prose: paragraphs and list items, without tables and examples."""
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        prose = bool(line.strip()) and not TABLE.match(line)
        if not prose or LIST_ITEM.match(line):
            yield from SENTENCE_END.split(" ".join(paragraph))
            paragraph = []
        if prose:
            paragraph.append(line.strip())


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_public_functions_and_classes_have_docstrings(path: Path) -> None:
    assert not [node.name for node in public(parsed(path)) if ast.get_docstring(node) is None]


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_docstrings_begin_with_no_question_word(path: Path) -> None:
    asking = [name for name, text in docstrings(parsed(path)) if QUESTION.match(text)]
    assert not asking, (
        'begin with "Return whether ...", or with the thing that there is: "The records by node id."'
    )


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_sentences_of_docstrings_are_short(path: Path) -> None:
    long = [
        (name, sentence)
        for name, text in docstrings(parsed(path))
        for sentence in sentences(text)
        if len(sentence.split()) > LONGEST
    ]
    assert not long, f"a sentence has {LONGEST} words at most: split it"


def test_the_check_sees_methods_fields_and_list_items() -> None:
    module = ast.parse(
        '"""Text."""\nVALUE: int = 1\n"""How many."""\nclass A:\n    def b(self):\n        """Why."""\n'
    )
    assert dict(docstrings(module)) == {"the module": "Text.", ".VALUE": "How many.", ".A.b": "Why."}
    words = "word " * LONGEST
    assert len(list(filter(None, sentences(f"{words}\n- {words}\n\n    {words}{words}")))) == 2
    assert max(len(one.split()) for one in sentences(f"{words}\n{words}")) == 2 * LONGEST
