"""The items of a run, its benchmarks, metrics and composites as plain data, as the run's folder keeps them.

The names of the scores that a benchmark returns are read off its code, to check metrics before it runs.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, Final

import pytest

from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.benchmark import generator_function
from pytest_touchstone.core.composite import ATTRIBUTE as COMPOSITES
from pytest_touchstone.core.composite import Composite, one_of_each, project_composites
from pytest_touchstone.core.dataset import extents_of
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.grade import NO_ANSWER, PASSED, Graded
from pytest_touchstone.core.text import listed
from pytest_touchstone.metrics.samples import sample_metrics
from pytest_touchstone.metrics.soft import soft_names, temperature_of
from pytest_touchstone.plugin import project_file
from pytest_touchstone.plugin.collection import Given, checkpoint_of, given_items, result_of
from pytest_touchstone.results.summary import Collected, Declaration

DEEPEST: Final = 4
"""The greatest depth to which calls of functions are followed."""


def wrong_composite(items: list[pytest.Item]) -> str | None:
    """Return a sentence about the first composite that is declared wrongly, None if there is none."""
    try:
        parts = {
            (part.benchmark, part.metric): one.name
            for one in composites_declared(items)
            for part in one.parts
        }
    except BenchmarkError as error:
        return str(error)
    specs = {given.loaded.spec.name: given.loaded.spec for _, given in given_items(items)}
    for (name, metric), composite in parts.items():
        aggregate = {key: one.plain() for key, one in specs[name].aggregate.items()} if name in specs else {}
        if not aggregation_of(aggregate, metric).higher_is_better:
            return f"composite {composite!r}: of {name}:{metric} less is better; give parts of which more is"
    return None


def wrong_primary(items: list[pytest.Item]) -> str | None:
    """Return a sentence about the first benchmark whose code shows that it never returns its primary score, None if
    there is none."""
    first = {id(given.loaded.spec): (item, given.loaded.spec) for item, given in given_items(reversed(items))}
    for item, spec in first.values():
        names = None if spec.metrics else returned_names(generator_function(item.function))  # type: ignore[attr-defined]
        if names is not None and (primary := spec.primary_score) not in names:
            found, helps = listed(sorted(names)), f"declare primary={min(names)!r}, or return that too"
            if names == {PASSED}:
                found, helps = (
                    "nothing",
                    f"return {{{primary!r}: ...}}, or leave primary out where it asserts",
                )
            return f"benchmark {spec.name}: its primary score is {primary!r}, but it returns {found}; {helps}"
    return None


def collected_of(items: list[pytest.Item]) -> list[Collected]:
    """Return the benchmark items, as plain data."""
    return [
        Collected(
            item.nodeid,
            result_of(item, given),
            checkpoint_of(item).name,
            given.example.id,
            given.example.group,
        )
        for item, given in given_items(items)
    ]


def _declaration(item: pytest.Item, given: Given, name: str, composites: Iterable[Composite]) -> Declaration:
    """Return an item's benchmark as plain data, under the name of one of its results, with the ``composites`` that it
    is part of."""
    loaded, spec = given.loaded, given.loaded.spec
    shown = returned_names(generator_function(item.function))  # type: ignore[attr-defined]
    scores = spec.metrics or shown or ()
    soft = soft_names(spec) if shown is None else ()  # what is shown are dicts, which tell no choices
    more = (*soft, *sample_metrics(spec, loaded.sampling.samples)) if scores else ()
    return Declaration(
        name=name,
        version=spec.version,
        primary=spec.primary,
        aggregate={key: one.plain() for key, one in spec.aggregate.items()},
        grouped=any(example.group is not None for example in loaded.dataset.examples),
        clustered=spec.cluster is not None,
        dataset=loaded.dataset.info,
        few_shot=loaded.shots.description(),
        rule=spec.rule,
        source=spec.published.places,
        most_unusable=spec.most_unusable,
        code=loaded.code,
        scores=sorted({*scores, *more} - {NO_ANSWER}),
        extents=extents_of(spec, loaded.dataset, loaded.sampling.seed),
        own_rows=spec.published.own_rows,
        composites=[one.plain() for one in composites if name in one.benchmarks],
        settings=loaded.asking.settings,
        file=str(item.path),
        temperature=temperature_of(spec) if soft else None,
        hub=spec.data.on_hub,
    )


def declarations_of(items: list[pytest.Item]) -> dict[str, Declaration]:
    """Return the items' benchmarks as plain data, by the names of their results."""
    used = {result_of(item, given): (item, given) for item, given in given_items(items)}
    composites = composites_declared(items)
    return {name: _declaration(item, given, name, composites) for name, (item, given) in used.items()}


def composites_declared(items: list[pytest.Item]) -> list[Composite]:
    """Return the composites of pyproject.toml, of conftests and plug-ins, and of the items' modules.

    Raises ``BenchmarkError`` where one name has two formulas.
    """
    if not items:
        return []
    config = items[0].config
    files = dict.fromkeys(item.parent for item in items)
    modules = [*config.pluginmanager.get_plugins(), *(getattr(file, "module", None) for file in files)]
    found = project_composites(project_file(config))
    for module in dict.fromkeys(one for one in modules if isinstance(one, ModuleType)):
        found += vars(module).get(COMPOSITES, ())
    return one_of_each(found)


def returned_names(function: Callable[..., Any], depth: int = 0) -> set[str] | None:
    """Return the keys of the dicts that a function returns; None where its code does not show all of them.

    They are read from dict displays, ``{"acc": ..., **more(...)}``, from a ``Graded``, and from functions that are
    called by name. One that returns nothing asserts.
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
    for value in list(_returned(tree)) or [None]:
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
    if value is None:
        return {PASSED}
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
