"""A baseline that is the best of many runs by a composite score: ``selection`` for a weighted sum of metrics.

The noise of the runs' composites is the sum, over the benchmarks, of that of their weighted items: metrics of the same
items are added up item by item, different benchmarks are independent.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from harness.statistics.comparison import LEVEL
from harness.statistics.composites import Benchmark, Part, compare_composites
from harness.statistics.selection import DRAWS, Noise, Selection, noise_of, nothing_chosen, select


@dataclass(frozen=True, slots=True)
class RunsOfPart:
    """One metric with its weight: each earlier run's values, and the new run's, on the same items."""

    weight: float
    runs: Sequence[Sequence[float]]
    new: Sequence[float]


@dataclass(frozen=True, slots=True)
class RunsOfBenchmark:
    """The metrics that are computed on the same items, which may share texts."""

    parts: Sequence[RunsOfPart]
    clusters: Sequence[Hashable | None] | None = None


def compare_composite_with_best(
    benchmarks: Sequence[RunsOfBenchmark], *, level: float = LEVEL, seed: int = 0, draws: int = DRAWS
) -> Selection:
    """The new run's composite against that of the run whose composite is the highest, the first of equals.

    Raises ``ValueError`` without runs or items, and where metrics have unequal numbers of runs or items.
    """
    parts = [part for one in benchmarks for part in one.parts]
    count = len(parts[0].runs) if parts else 0
    if not count or not all(part.new for part in parts):
        raise ValueError("the best of no runs, or of runs without items; give at least one run with items")
    for part in parts:
        if len(part.runs) != count:
            raise ValueError(f"{count} runs of one metric but {len(part.runs)} of another; give all the same")
        if any(len(run) != len(part.new) for run in part.runs):
            raise ValueError("runs have different numbers of items on one metric; compare the same items")
    means = [
        math.fsum(part.weight * math.fsum(part.runs[run]) / len(part.new) for part in parts)
        for run in range(count)
    ]
    best = means.index(max(means))
    plain = compare_composites(
        [
            Benchmark([Part(part.weight, part.runs[best], part.new) for part in one.parts], one.clusters)
            for one in benchmarks
        ],
        level=level,
        seed=seed,
    )
    noise = _noise(benchmarks, count) if count > 1 else None
    if noise is None:
        return nothing_chosen(best, means[best], count, plain)
    how = "normal noise of the composites, covariance over the items of each benchmark"
    return select(best, means, plain, noise, how=how, seed=seed, draws=draws)


def _noise(benchmarks: Sequence[RunsOfBenchmark], count: int) -> Noise | None:
    found = []
    for one in benchmarks:
        if not one.parts:
            continue
        runs = [_weighted([(part.weight, part.runs[run]) for part in one.parts]) for run in range(count)]
        new = _weighted([(part.weight, part.new) for part in one.parts])
        noise = noise_of(runs, new, one.clusters)
        if noise is None:
            return None
        found.append(noise)
    return Noise(
        sum(one.covariance for one in found[1:]) + found[0].covariance, min(one.units for one in found)
    )


def _weighted(columns: Sequence[tuple[float, Sequence[float]]]) -> list[float]:
    """Each item's weighted sum over the metrics."""
    return [
        math.fsum(weight * value for (weight, _), value in zip(columns, row, strict=True))
        for row in zip(*(values for _, values in columns), strict=True)
    ]
