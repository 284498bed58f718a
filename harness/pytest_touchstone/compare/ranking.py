"""Saved results by a metric or a composite, the best first; a ranking has only results that were asked alike.

A checkpoint stands in a ranking once, with its best result. A composite is made of a checkpoint's saved results, its
interval of their items, as that of a run is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_touchstone.compare.baselines import one_each, worth
from pytest_touchstone.compare.gate.changes import composite_sets
from pytest_touchstone.compare.gate.config import check_names
from pytest_touchstone.core.composite import COMPOSITE, Composite
from pytest_touchstone.core.conditions import ways_of_asking
from pytest_touchstone.core.data_files import DatasetInfo
from pytest_touchstone.results.aggregate import composite_of_records
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.store_entry import ItemScores, StoredResult, composites_of
from pytest_touchstone.results.summary import Declaration


@dataclass(frozen=True, slots=True)
class Row:
    """One checkpoint in a ranking."""

    checkpoint: str
    run_id: str
    step: int | None
    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The checkpoints by one metric of one benchmark, or by a composite, the best first; ``conditions`` are those of
    its results, by benchmark where there are several."""

    name: str
    metric: str
    conditions: dict[str, Any]
    rows: tuple[Row, ...]


def rank(
    saved: Sequence[StoredResult],
    by: str,
    items: Callable[[StoredResult], ItemScores],
    composites: Sequence[Composite] = (),
) -> list[Ranking]:
    """The rankings by this metric or composite, the one with the most checkpoints first.

    ``composites`` are known beside those that the results name.

    Raises ``GateError`` naming the nearest metric where no result has it.
    """
    whole = [one for one in saved if one.complete]
    made = {one.name: one for one in composites_of(saved, composites)}
    known = dict.fromkeys(metric for one in saved for metric in one.metrics)
    check_names([by], [*known, *made], "--by", "metric")
    composite = made.get(by)
    if composite is not None:
        found = _by_composite(whole, composite, items)
    else:
        found = [_by_metric(same, by) for same in _alike(one for one in whole if by in one.metrics)]
    return sorted((one for one in found if one.rows), key=lambda one: (one.name, -len(one.rows)))


def _alike(results: Iterable[StoredResult]) -> list[list[StoredResult]]:
    """The results by benchmark, conditions and items."""
    found: dict[str, list[StoredResult]] = {}
    for saved in results:
        key = json.dumps([saved.benchmark, saved.items_sha256, _conditions(saved)], sort_keys=True)
        found.setdefault(key, []).append(saved)
    return list(found.values())


def _conditions(saved: StoredResult) -> dict[str, Any]:
    return ways_of_asking(saved.known)


def _by_metric(same: Sequence[StoredResult], by: str) -> Ranking:
    known = [one for one in one_each(same, by) if one.metrics[by].value is not None]
    rows = [
        Row(one.checkpoint, one.run_id, one.step, metric.value, metric.low, metric.high, metric.n)
        for one in sorted(known, key=lambda one: -worth(one, by))
        if (metric := one.metrics[by]).value is not None
    ]
    return Ranking(name=same[0].benchmark, metric=by, conditions=_conditions(same[0]), rows=tuple(rows))


def _by_composite(
    saved: Sequence[StoredResult], composite: Composite, items: Callable[[StoredResult], ItemScores]
) -> list[Ranking]:
    """One ranking for each combination of ways of asking the benchmarks that a checkpoint has in full."""
    names = composite.benchmarks
    ways: list[list[list[StoredResult]]] = [[]]
    for name in names:
        groups = _alike(one for one in saved if one.benchmark == name)
        ways = [[*before, group] for before in ways for group in groups]
    found = []
    for way in ways:
        sets = composite_sets(dict(zip(names, way, strict=True)))
        rows = [row for one in sets if (row := _composite_row(composite, one, items)) is not None]
        conditions = {name: _conditions(group[0]) for name, group in zip(names, way, strict=True)}
        ordered = tuple(sorted(rows, key=lambda row: -row.value))
        found.append(Ranking(name=composite.name, metric=COMPOSITE, conditions=conditions, rows=ordered))
    return found


def _composite_row(
    composite: Composite, results: Sequence[StoredResult], items: Callable[[StoredResult], ItemScores]
) -> Row | None:
    found = composite_of_items(composite, [(saved, items(saved)) for saved in results])
    if found is None or found["value"] is None:
        return None
    first, runs = results[0], ", ".join(dict.fromkeys(one.run_id for one in results))
    limits = found["low"], found["high"]
    n = sum(one.scored for one in results)
    return Row(first.checkpoint, runs, first.step, found["value"], *limits, n)


def composite_of_items(
    composite: Composite, results: Sequence[tuple[StoredResult, ItemScores]]
) -> dict[str, Any] | None:
    """A checkpoint's composite, from its items as a run's own is."""
    return composite_of_records(
        composite,
        results[0][0].checkpoint,
        [(_declared(saved), _records(saved, items)) for saved, items in results],
    )


def _declared(saved: StoredResult) -> Declaration:
    dataset = DatasetInfo(name="", origin="", path="", rows=saved.scored, sha256="")
    return Declaration(
        name=saved.benchmark,
        version=0,
        primary=saved.primary,
        aggregate=saved.aggregate,
        clustered=True,
        dataset=dataset,
    )


def _records(saved: StoredResult, items: ItemScores) -> list[Record]:
    return [
        Record(
            item=example,
            benchmark=saved.benchmark,
            example=example,
            checkpoint=saved.checkpoint,
            status="scored",
            scores={
                name: value for name, column in items.scores.items() if (value := column[place]) is not None
            },
            cluster=items.clusters[place],
        )
        for place, example in enumerate(items.examples)
    ]
