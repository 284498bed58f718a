"""The difference of a composite score, a weighted sum of benchmarks' metrics, between two runs.

- **From items**: a composite is linear in the items, so its delta method (Cramer 1946, "Mathematical Methods of
  Statistics", section 28.4) is exact. Each item's weighted difference over all metrics of its benchmark is one value,
  which holds what metrics of the same items have in common. Benchmarks are independent. Test and interval are
  Gaffke's (``gaffke``) over the units of all benchmarks, each weighted by what it adds to the composite. Of right and
  wrong answers alone the test flips the signs of these (``paired``), which is McNemar's where all weigh the same.
- **From comparisons of the parts**: the distances of the limits from the differences are added up over metrics of the
  same items, the most that they can come to however they are correlated; over different benchmarks they add in squares
  (MOVER: Zou and Donner 2008, Statistics in Medicine 27). So a part whose few items all agree is as uncertain as its
  own interval. The test is the normal one with the limit on the side of 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from pytest_touchstone.statistics.comparison import LEVEL, Comparison, undefined, z_quantile
from pytest_touchstone.statistics.gaffke import BoundedMean
from pytest_touchstone.statistics.intervals import Clusters, Moments, are_shares, is_binary, moments_of
from pytest_touchstone.statistics.paired import check_items, compare_spaced, sign_flip_test


@dataclass(frozen=True, slots=True)
class WeightedPart:
    """One metric with its weight: each earlier run's values, and the new run's, on the same items."""

    weight: float
    runs: Sequence[Sequence[float]]
    new: Sequence[float]


@dataclass(frozen=True, slots=True)
class SharedItems:
    """The parts that are computed on the same items, which may share texts."""

    parts: Sequence[WeightedPart]
    clusters: Clusters | None = None


def compare_composites(
    benchmarks: Sequence[SharedItems], run: int = 0, *, level: float = LEVEL
) -> Comparison:
    """Compare the composites of the new run and of an earlier ``run``, from the items of both.

    Undefined: everything without parts or where one has no items; test and interval where all items of a benchmark
    are one unit; the interval where nothing differs and scores are not within [0, 1].
    """
    metrics = [metric for benchmark in benchmarks for metric in benchmark.parts]
    if not metrics or not all(metric.new for metric in metrics):
        return undefined("a part has no items in common" if metrics else "no parts", level=level)
    moments = [_moments(benchmark, run) for benchmark in benchmarks if benchmark.parts]
    baseline = math.fsum(metric.weight * math.fsum(metric.runs[run]) / len(metric.new) for metric in metrics)
    difference = math.fsum(unit_sums.mean for unit_sums in moments)
    totals = Comparison(
        baseline=baseline,
        new=baseline + difference,
        difference=difference,
        n=sum(unit_sums.n for unit_sums in moments),
        units=sum(len(unit_sums.totals) for unit_sums in moments),
        level=level,
    )
    variances = [unit_sums.variance for unit_sums in moments if unit_sums.variance is not None]
    if len(variances) < len(moments):
        return replace(totals, why="all items of a benchmark are one unit: no test of a difference")
    bounds = [_bound(benchmark, run) for benchmark in benchmarks if benchmark.parts]
    reach = [bound for bound in bounds if bound is not None]
    spaced = compare_spaced(
        replace(totals, stderr=math.sqrt(math.fsum(variances))),
        list(map(BoundedMean, moments, bounds)),
        largest=math.fsum(reach) if len(reach) == len(bounds) else None,
    )
    if not all(is_binary((*metric.runs[run], *metric.new)) for metric in metrics):
        return spaced
    test = sign_flip_test([total / unit_sums.n for unit_sums in moments for total in unit_sums.totals])
    return replace(spaced, p=test.p, method=f"permutation ({test.how}); Gaffke's interval")


def compare_composite_totals(
    groups: Sequence[Sequence[tuple[float, Comparison]]], *, level: float = LEVEL
) -> Comparison:
    """Compare composites from weighted comparisons of their components, grouped by common items.

    Undefined: everything where a part has no difference; test and interval where one lacks a standard error.
    """
    components = [component for group in groups for component in group]
    differences = [(weight, comparison.baseline, comparison.difference) for weight, comparison in components]
    if not components or any(value is None or moved is None for _, value, moved in differences):
        reasons = [
            comparison.why for _, comparison in components if comparison.difference is None and comparison.why
        ]
        return undefined(reasons[0] if reasons else "no parts", level=level)
    baseline = math.fsum(weight * value for weight, value, _ in differences if value is not None)
    difference = math.fsum(weight * moved for weight, _, moved in differences if moved is not None)
    n = min(comparison.n for _, comparison in components)
    totals = Comparison(
        baseline=baseline, new=baseline + difference, difference=difference, n=n, units=n, level=level
    )
    if any(comparison.low is None or comparison.high is None for _, comparison in components):
        return replace(totals, why="a part has no interval")
    down, up = zip(*(_reaches(group) for group in groups), strict=True)
    low, high = difference - math.hypot(*down), difference + math.hypot(*up)
    lacking = any(comparison.stderr is None for _, comparison in components)
    errors = [
        math.fsum(abs(weight) * (comparison.stderr or 0.0) for weight, comparison in group)
        for group in groups
    ]
    toward = (high - difference if difference < 0 else difference - low) / z_quantile(level)
    return replace(
        totals,
        low=low,
        high=high,
        stderr=None if lacking else math.hypot(*errors),
        p=2 * NormalDist().cdf(-abs(difference) / toward) if toward else None,
        method="MOVER from the parts' limits",
        why="parts on the same items taken as wholly dependent",
    )


def _reaches(group: Sequence[tuple[float, Comparison]]) -> tuple[float, float]:
    """Return the distances of a weighted sum's limits below and above it for dependent components."""
    limits = [
        (weight, comparison.difference or 0.0, comparison.low or 0.0, comparison.high or 0.0)
        for weight, comparison in group
    ]
    ends = [sorted((weight * (low - value), weight * (high - value))) for weight, value, low, high in limits]
    return -math.fsum(low for low, _ in ends), math.fsum(high for _, high in ends)


def _moments(benchmark: SharedItems, run: int) -> Moments:
    """Return the moments of the items' weighted differences, summed over the metrics of a benchmark."""
    for metric in benchmark.parts:
        check_items(metric.runs[run], metric.new, benchmark.clusters)
    columns = [
        [metric.weight * (b - a) for a, b in zip(metric.runs[run], metric.new, strict=True)]
        for metric in benchmark.parts
    ]
    return moments_of([math.fsum(row) for row in zip(*columns, strict=True)], benchmark.clusters)


def _bound(benchmark: SharedItems, run: int) -> float | None:
    """Return the largest possible weighted difference of an item; None if scores may leave [0, 1]."""
    if not all(are_shares((*metric.runs[run], *metric.new)) for metric in benchmark.parts):
        return None
    return math.fsum(abs(metric.weight) for metric in benchmark.parts)
