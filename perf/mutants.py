"""Programs that are nearly right: a solution with one small change, of the kinds that people make.

A comparison is turned, a number is one more, a sum is a difference, ``and`` is ``or``, a branch is taken the other way,
or a result is left out. Which changes are made depends on the source and the seed alone.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
}
OTHERS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.FloorDiv,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
}


def mutants(source: str, count: int, seed: int) -> list[str]:
    """Return up to ``count`` different programs with one change each; fewer where the source has fewer places."""
    tree = ast.parse(source)
    places = [place for place, node in enumerate(ast.walk(tree)) if _change(node) is not None]
    generator = random.Random(f"{seed}\0{source}")
    generator.shuffle(places)
    found = dict.fromkeys(_changed(tree, place) for place in places)
    return [text for text in found if text != ast.unparse(tree)][:count]


def _changed(tree: ast.Module, place: int) -> str:
    copied = copy.deepcopy(tree)
    node = next(node for number, node in enumerate(ast.walk(copied)) if number == place)
    change = _change(node)
    assert change is not None
    change()
    return ast.unparse(ast.fix_missing_locations(copied))


def _change(node: ast.AST) -> Callable[[], None] | None:
    """Return what changes the node, None where nothing is changed."""
    for fits, change in _changes(node):
        if fits:
            return change
    return None


def _changes(node: Any) -> Iterator[tuple[bool, Callable[[], None]]]:
    if isinstance(node, ast.Compare):
        turned = TURNED.get(type(node.ops[0]))
        yield turned is not None, lambda: node.ops.__setitem__(0, turned())  # type: ignore[misc]
    if isinstance(node, ast.BinOp):
        other = OTHERS.get(type(node.op))
        yield other is not None, lambda: setattr(node, "op", other())  # type: ignore[misc]
    if isinstance(node, ast.BoolOp):
        swapped = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield True, lambda: setattr(node, "op", swapped)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        more = node.value + 1  # type: ignore[operator]
        yield True, lambda: setattr(node, "value", more)
    if isinstance(node, ast.If):
        yield True, lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.Return) and node.value is not None:
        yield True, lambda: setattr(node, "value", None)
