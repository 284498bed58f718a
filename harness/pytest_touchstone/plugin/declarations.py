"""The items of a run, its benchmarks, metrics and composites as plain data, as the run's folder keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from pytest_touchstone.plugin.planned import Planned, planned_items
from pytest_touchstone.results.summary import Collected, Declaration


def check_composites(items: Sequence[pytest.Item]) -> None:
    """Raise ``BenchmarkError`` for the first composite that is declared wrongly."""
    parts = {
        (part.benchmark, part.metric): composite.name
        for composite in composites_declared(items)
        for part in composite.parts
    }
    specs = {planned.given.loaded.spec.name: planned.spec for planned in planned_items(items)}
    for (name, metric), composite in parts.items():
        aggregate = {key: one.plain() for key, one in specs[name].aggregate.items()} if name in specs else {}
        if not aggregation_of(aggregate, metric).higher_is_better:
            raise BenchmarkError(
                f"composite {composite!r}: of {name}:{metric} less is better; give parts of which more is"
            )


def collected_of(items: Iterable[pytest.Item]) -> list[Collected]:
    """Return the benchmark items, as plain data."""
    return [
        Collected(
            planned.nodeid,
            planned.spec.name,
            planned.info.name,
            planned.given.example.id,
            planned.given.example.group,
        )
        for planned in planned_items(items)
    ]


def _declaration(planned: Planned, composites: Iterable[Composite]) -> Declaration:
    """Return an item's benchmark as plain data, with the ``composites`` that it is part of."""
    loaded, spec = planned.given.loaded, planned.spec
    soft = soft_names(spec)
    more = (*soft, *sample_metrics(spec, loaded.sampling.samples)) if spec.metrics else ()
    return Declaration(
        name=spec.name,
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
        composites=[one.plain() for one in composites if spec.name in one.benchmarks],
        settings=loaded.asking.settings,
        file=str(planned.item.path),
        temperature=temperature_of(spec) if soft else None,
        hub=spec.data.on_hub,
    )


def declarations_of(items: Sequence[pytest.Item]) -> dict[str, Declaration]:
    """Return the items' benchmarks as plain data, by the names of their results."""
    used = {planned.spec.name: planned for planned in planned_items(items)}
    composites = composites_declared(items)
    return {name: _declaration(planned, composites) for name, planned in used.items()}


def composites_declared(items: Sequence[pytest.Item]) -> list[Composite]:
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
