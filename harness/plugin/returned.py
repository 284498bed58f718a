"""The names of the scores that a benchmark returns, read off its code, to check metrics before it runs."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final

from harness.core.grade import Graded

DEEPEST: Final = 4
"""The greatest depth to which calls of functions are followed."""


def returned_names(function: Callable[..., Any], depth: int = 0) -> set[str] | None:
    """Return the keys of the dicts that a function returns; None where its code does not show all of them.

    They are read from dict displays, ``{"acc": ..., **more(...)}``, from a ``Graded``, and from functions that are
    called by name.
    """
    if depth > DEEPEST:
        return None
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if not isinstance(tree, ast.FunctionDef):
        return None
    found: set[str] = set()
    for value in _returned(tree):
        names = _names(value, function, depth)
        if names is None:
            return None
        found |= names
    return found or None


def _returned(tree: ast.AST) -> Iterator[ast.expr | None]:
    """Yield the expressions that the function returns, without those of functions inside it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, ast.Return):
            yield node.value
        yield from _returned(node)


def _names(value: ast.expr | None, function: Callable[..., Any], depth: int) -> set[str] | None:
    if isinstance(value, (ast.YieldFrom, ast.Await)):
        value = value.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        called = getattr(function, "__globals__", {}).get(value.func.id)
        if called is Graded:
            given = [*value.args[:1], *(one.value for one in value.keywords if one.arg == "scores")]
            return _names(given[0], function, depth) if given else None
        return returned_names(called, depth + 1) if inspect.isfunction(called) else None
    if not isinstance(value, ast.Dict):
        return None
    found: set[str] = set()
    for key, part in zip(value.keys, value.values, strict=True):
        if key is None:
            names = _names(part, function, depth)
        else:
            names = {key.value} if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
        if names is None:
            return None
        found |= names
    return found
