"""The changes of a run against the best of earlier runs; ``standings`` has the best of one run.

The changes are told metric by metric, as measured and without a verdict. The best
so far of a metric is the best value among the saved results of earlier runs that are whole, asked alike and
of the same items, one per checkpoint. A composite is compared with the best composite of a checkpoint that has all
parts. The gate says whether a change is more than chance, and how much of a best value is luck.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.baselines import (
    best_per_checkpoint,
    comparable_results,
    is_reference,
    orient_higher_is_better,
)
from pytest_touchstone.core.aggregation import Aggregation, mean
from pytest_touchstone.core.composite import COMPOSITE, Composite, composite_value
from pytest_touchstone.core.dataset import DatasetInfo
from pytest_touchstone.results.aggregate import composite_of_records
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.store_entry import ItemScores, StoredResult, composites_of
from pytest_touchstone.results.summary import Declaration
from pytest_touchstone.statistics.comparison import POINTS, unit_of


class BestSoFarChange(NamedTuple):
    """One metric of one checkpoint against the best so far, out of ``of`` checkpoints.

    ``change`` is in points, or in the metric's own unit. A perplexity's points are those of its log-probabilities,
    which are better when higher; ``label`` says so. ``other_model`` says what kind of model the best so far is, if it
    is another.
    """

    checkpoint: str
    benchmark: str
    metric: str
    value: float
    best: float
    change: float
    unit: str
    against: str
    run_id: str
    of: int
    higher_is_better: bool = True
    other_model: str = ""
    label: str = ""


class _Earlier:
    """The results of earlier runs.

    Checkpoints of a series that were run alike share one search, because there may be hundreds of either.
    """

    def __init__(self, results: Sequence[StoredResult], named: Sequence[StoredResult]) -> None:
        self._results = results
        self._named = named
        self._alike: dict[str, list[StoredResult]] = {}

    def best(self, saved: StoredResult, metric: str) -> _BestSoFar | None:
        """Return the best result so far by the metric."""
        having = (
            result
            for result in self._comparable(saved)
            if metric in result.metrics and is_reference(result, metric)
        )
        alike = best_per_checkpoint(having, metric)
        values = [(value, result) for result in alike if (value := result.metrics[metric].value) is not None]
        best = max(values, key=lambda pair: orient_higher_is_better(pair[1], metric), default=None)
        return None if best is None else _BestSoFar(*best, len(values))

    def best_composite(self, composite: Composite, mine: Mapping[str, StoredResult]) -> _BestSoFar | None:
        """Return the best composite so far, with the first of its results."""
        sets = composite_sets({name: self._comparable(mine[name]) for name in composite.benchmarks})
        values = [
            (value, same[0])
            for same in sets
            if (value := composite_value(composite, values_of(same))) is not None
        ]
        best = max(values, key=lambda pair: pair[0], default=None)
        return None if best is None else _BestSoFar(*best, len(values))

    def _comparable(self, saved: StoredResult) -> list[StoredResult]:
        identity = [saved.benchmark, saved.run_id, saved.began, saved.items_sha256, saved.published]
        way = json.dumps([*identity, saved.conditions], sort_keys=True)
        if way not in self._alike:
            named = [result for result in self._named if result.benchmark == saved.benchmark]
            self._alike[way] = named or comparable_results(saved, self._results)
        return self._alike[way]


class _BestSoFar(NamedTuple):
    """The best value so far, whose it is, and out of how many checkpoints."""

    value: float
    saved: StoredResult
    of: int


def changes_of(
    results: Iterable[StoredResult], earlier: Sequence[StoredResult], named: Sequence[StoredResult] = ()
) -> list[BestSoFarChange]:
    """Return the change of every metric and composite of a run that has an earlier result.

    ``named`` are results of a file that the user gave; they replace the best so far of their benchmarks.
    """
    mine: dict[str, dict[str, StoredResult]] = {}
    for saved in results:
        if saved.complete:
            mine.setdefault(saved.checkpoint, {})[saved.benchmark] = saved
    earlier_results = _Earlier(earlier, named)
    changes = []
    for same in mine.values():
        for saved in same.values():
            for metric, measured in saved.metrics.items():
                how, best = saved.aggregation(metric), earlier_results.best(saved, metric)
                changes.append(_change(saved, saved.benchmark, metric, measured.value, best=best, how=how))
        for composite in composites_of(same.values()):
            value, first = composite_value(composite, values_of(same.values())), next(iter(same.values()))
            best = None if value is None else earlier_results.best_composite(composite, same)
            changes.append(_change(first, composite.name, COMPOSITE, value, best=best, how=mean(COMPOSITE)))
    return [change for change in changes if change is not None]


def _change(
    saved: StoredResult,
    benchmark: str,
    metric: str,
    value: float | None,
    *,
    best: _BestSoFar | None,
    how: Aggregation,
) -> BestSoFarChange | None:
    if value is None or best is None:
        return None
    change, unit = _moved(value, best.value, how)
    label = how.compared(metric)
    return BestSoFarChange(
        checkpoint=saved.checkpoint,
        benchmark=benchmark,
        metric=metric,
        value=value,
        best=best.value,
        change=change,
        unit=unit,
        against=best.saved.checkpoint,
        run_id=best.saved.run_id,
        of=best.of,
        higher_is_better=how.compared_higher_is_better,
        other_model=other_model(saved, best.saved),
        label="" if label == metric else label,
    )


SAME_SIZE: Final = 1.2
"""The factor between the parameters of two checkpoints up to which they may be one model: adapters add some."""


def other_model(mine: StoredResult, other: StoredResult) -> str:
    """Return what is known to differ in the other model, ``llama, 135M parameters``; else empty."""
    info, other_info = mine.checkpoint_info, other.checkpoint_info
    kinds = [str(side.get("model_type") or "") for side in (info, other_info)]
    sizes = [int(side.get("parameters") or 0) for side in (info, other_info)]
    apart = all(kinds) and kinds[0] != kinds[1]
    apart = apart or (all(sizes) and max(sizes) > SAME_SIZE * min(sizes))
    size = f"{sizes[1] / 1e6:,.3g}M parameters" if sizes[1] else ""
    return ", ".join(filter(None, (kinds[1], size))) if apart else ""


def _moved(value: float, before: float, how: Aggregation) -> tuple[float, str]:
    if how.is_perplexity and value > 0 and before > 0:
        return POINTS.factor * math.log(before / value), POINTS.name
    unit = unit_of(how.unit, share=all(0 <= share <= 1 for share in (value, before)))
    return unit.factor * (value - before), unit.name


def values_of(results: Iterable[StoredResult]) -> dict[tuple[str, str], float | None]:
    """Return all values by benchmark and metric."""
    return {
        (saved.benchmark, name): metric.value for saved in results for name, metric in saved.metrics.items()
    }


def composite_sets(by_benchmark: Mapping[str, Sequence[StoredResult]]) -> list[list[StoredResult]]:
    """Return, for each checkpoint with all of the benchmarks, its best result on each by the primary metric."""
    keyed = [
        {saved.checkpoint_key: saved for saved in best_per_checkpoint(same, same[0].primary)} if same else {}
        for same in by_benchmark.values()
    ]
    common = [key for key in keyed[0] if all(key in by_key for by_key in keyed[1:])] if keyed else []
    return [[by_key[key] for by_key in keyed] for key in common]


def composite_of_items(
    composite: Composite, results: Sequence[tuple[StoredResult, ItemScores]]
) -> dict[str, Any] | None:
    """Return a checkpoint's composite, computed from its items as in a run."""
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
                name: value for name, column in items.scores.items() if (value := column[index]) is not None
            },
            cluster=items.clusters[index],
        )
        for index, example in enumerate(items.examples)
    ]
