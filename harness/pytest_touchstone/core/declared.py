"""The benchmarks of a file, read without running it: their names, and the kinds of request that each asks.

A declaration may take fields from a table, ``**TASKS``, or from a function that returns one, ``**part("history")``.
They are looked for in the file itself, and where it imports them from this package, in the package.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from pytest_touchstone.core.resources import shipped_evals

_PACKAGE: Final = Path(__file__).resolve().parents[1]

_Fields: TypeAlias = dict[str, ast.expr]


def declared_in(path: Path) -> Iterator[tuple[str, set[str]]]:
    """The benchmarks of a file and the kinds of request that each asks; none of a file that cannot be read."""
    tree = _read(path)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _called(node) != "benchmark":
            continue
        given = _arguments(node, tree)
        name = given.get("name", next(iter(node.args), None))
        text = name.value if isinstance(name, ast.Constant) else None
        if isinstance(text, str):
            asks = ast.walk(given["asks"]) if "asks" in given else ()
            yield text, {one.id for one in asks if isinstance(one, ast.Name)}


@functools.cache
def shipped_names() -> frozenset[str]:
    """The names of the benchmarks that come with the package."""
    return frozenset(
        name for path in sorted(shipped_evals().glob("test_*.py")) for name, _ in declared_in(path)
    )


def _read(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


_read_own = functools.cache(_read)
"""The same for files of this package, many of which are asked for again."""


def _called(node: ast.expr) -> str | None:
    """The name of the function that an expression calls; of a plain name, that name."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", None)


def _arguments(call: ast.Call, tree: ast.Module) -> _Fields:
    found: _Fields = {one.arg: one.value for one in call.keywords if one.arg is not None}
    for one in call.keywords:
        if one.arg is None:
            found |= _spread(one.value, tree)
    return found


def _spread(value: ast.expr, tree: ast.Module) -> _Fields:
    """The fields that ``**value`` stands for, as far as they can be read."""
    if isinstance(value, ast.Dict):
        return _of_table(value, tree)
    name = _called(value)
    return _named(name, tree) if name is not None else {}


def _of_table(table: ast.Dict, tree: ast.Module) -> _Fields:
    found: _Fields = {}
    for key, value in zip(table.keys, table.values, strict=True):
        if key is None:
            found |= _spread(value, tree)
        elif isinstance(key, ast.Constant):
            found[str(key.value)] = value
    return found


def _named(name: str, tree: ast.Module) -> _Fields:
    """The fields of the table or of the function's result with this name."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (place := _own_module(node.module)) is not None:
            for one in node.names:
                if (one.asname or one.name) == name:
                    return _named(one.name, _read_own(place))
        elif isinstance(node, ast.FunctionDef) and node.name == name:
            returned = (one.value for one in ast.walk(node) if isinstance(one, ast.Return))
            return next((_of_table(one, tree) for one in returned if isinstance(one, ast.Dict)), {})
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            if any(isinstance(one, ast.Name) and one.id == name for one in targets):
                return _of_table(node.value, tree)
    return {}


def _own_module(name: str | None) -> Path | None:
    """The file of a module of this package, None for any other."""
    first, *rest = (name or "").split(".")
    if first != _PACKAGE.name:
        return None
    place = _PACKAGE.joinpath(*rest)
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
