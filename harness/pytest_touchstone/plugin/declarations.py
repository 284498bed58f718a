"""The items of a run, its benchmarks, metrics and composites as plain data, as the run's folder keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import pytest

from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.composite import ATTRIBUTE as COMPOSITES
from pytest_touchstone.core.composite import Composite, one_of_each, project_composites
from pytest_touchstone.core.dataset import extents_of
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.grade import NO_ANSWER
from pytest_touchstone.metrics.samples import sample_metrics
from pytest_touchstone.metrics.soft import soft_names, temperature_of
from pytest_touchstone.plugin import project_file
from pytest_touchstone.plugin.collection import Given, checkpoint_of, given_items, result_of
from pytest_touchstone.results.summary import Collected, Declaration


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
    soft = soft_names(spec)
    more = (*soft, *sample_metrics(spec, loaded.sampling.samples)) if spec.metrics else ()
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
        scores=sorted({*spec.metrics, *more} - {NO_ANSWER}),
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
