"""What a run has changed against the best so far, metric by metric, as measured and without a verdict.

The best so far of a metric is the best value among the saved results of earlier runs that are whole, asked alike and
of the same items, one a checkpoint. A composite is held against the best composite of a checkpoint that has all parts.
Whether a change is more than chance, and how much of a best value is luck, the gate says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from harness.gate.baselines import comparable, one_each, worth
from harness.metrics.composites import COMPOSITES, Composite, composite_value
from harness.saved.entry import Saved

Unit = Literal["points", ""]


class Change(NamedTuple):
    """One metric of one checkpoint: its value, the best so far and whose that is, out of ``of`` checkpoints; ``change``
    in points, or in the metric's own unit. A perplexity's points are those of its log-probabilities."""

    checkpoint: str
    benchmark: str
    metric: str
    value: float
    best: float
    change: float
    unit: Unit
    against: str
    run_id: str
    of: int


def changes_of(results: Iterable[Saved], earlier: Sequence[Saved]) -> list[Change]:
    """The changes of every metric and composite of a run, where there is anything to compare with."""
    whole = [saved for saved in results if saved.complete]
    found = []
    for checkpoint in dict.fromkeys(saved.checkpoint for saved in whole):
        mine = {saved.benchmark: saved for saved in whole if saved.checkpoint == checkpoint}
        alike = {name: comparable(saved, earlier) for name, saved in mine.items()}
        found += [
            change
            for name, saved in mine.items()
            for metric in saved.metrics
            if (change := _of_metric(saved, alike[name], metric)) is not None
        ]
        found += [
            change
            for composite in COMPOSITES
            if (change := _of_composite(composite, checkpoint, mine, alike)) is not None
        ]
    return found


def _of_metric(saved: Saved, alike: Sequence[Saved], metric: str) -> Change | None:
    value = saved.metrics[metric].value
    known = [one for one in one_each(alike, metric) if worth(one, metric) > float("-inf")]
    if value is None or not known:
        return None
    best = max(known, key=lambda one: worth(one, metric))
    before = best.metrics[metric].value
    assert before is not None
    change, unit = _moved(value, before, by=saved.aggregate.get(metric, {}).get("by", "mean"))
    return Change(
        saved.checkpoint,
        saved.benchmark,
        metric,
        value,
        before,
        change,
        unit,
        best.checkpoint,
        best.run_id,
        len(known),
    )


def _moved(value: float, before: float, *, by: str) -> tuple[float, Unit]:
    if by == "perplexity" and value > 0 and before > 0:
        return 100 * math.log(before / value), "points"
    if all(0 <= one <= 1 for one in (value, before)):
        return 100 * (value - before), "points"
    return value - before, ""


def _of_composite(
    composite: Composite, checkpoint: str, mine: Mapping[str, Saved], alike: Mapping[str, Sequence[Saved]]
) -> Change | None:
    value = composite_value(composite, values_of(mine.values()))
    if value is None:
        return None
    sets = composite_sets({name: alike[name] for name in dict.fromkeys(p.benchmark for p in composite.parts)})
    known = [
        (one, saved) for saved in sets if (one := composite_value(composite, values_of(saved))) is not None
    ]
    if not known:
        return None
    before, best = max(known, key=lambda one: one[0])
    change, unit = _moved(value, before, by="mean")
    return Change(
        checkpoint,
        composite.name,
        "composite",
        value,
        before,
        change,
        unit,
        best[0].checkpoint,
        best[0].run_id,
        len(known),
    )


def values_of(results: Iterable[Saved]) -> dict[tuple[str, str], float | None]:
    """All values by benchmark and metric."""
    return {
        (saved.benchmark, name): metric.value for saved in results for name, metric in saved.metrics.items()
    }


def composite_sets(by_benchmark: Mapping[str, Sequence[Saved]]) -> list[list[Saved]]:
    """For each checkpoint that has all of the benchmarks its result on each, the best by the primary metric."""
    keyed = [
        {saved.fingerprint or saved.checkpoint: saved for saved in one_each(same, same[0].primary)}
        if same
        else {}
        for same in by_benchmark.values()
    ]
    common = [key for key in keyed[0] if all(key in one for one in keyed[1:])] if keyed else []
    return [[one[key] for one in keyed] for key in common]
