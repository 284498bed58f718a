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
    """The new run's composite against that of an earlier ``run``, from both runs' items.

    Undefined: everything without parts or where one has no items; test and interval where all items of a benchmark
    are one unit; the interval where nothing differs and scores are not within [0, 1].
    """
    parts = [part for one in benchmarks for part in one.parts]
    if not parts or not all(part.new for part in parts):
        return undefined("a part has no items in common" if parts else "no parts", level=level)
    found = [_moments(one, run) for one in benchmarks if one.parts]
    baseline = math.fsum(part.weight * math.fsum(part.runs[run]) / len(part.new) for part in parts)
    difference = math.fsum(one.mean for one in found)
    known = Comparison(
        baseline=baseline,
        new=baseline + difference,
        difference=difference,
        n=sum(one.n for one in found),
        units=sum(len(one.totals) for one in found),
        level=level,
    )
    variances = [one.variance for one in found if one.variance is not None]
    if len(variances) < len(found):
        return replace(known, why="all items of a benchmark are one unit: no test of a difference")
    bounds = [_bound(one, run) for one in benchmarks if one.parts]
    reach = [one for one in bounds if one is not None]
    spaced = compare_spaced(
        replace(known, stderr=math.sqrt(math.fsum(variances))),
        list(map(BoundedMean, found, bounds)),
        largest=math.fsum(reach) if len(reach) == len(bounds) else None,
    )
    if not all(is_binary((*part.runs[run], *part.new)) for part in parts):
        return spaced
    test = sign_flip_test([total / one.n for one in found for total in one.totals])
    return replace(spaced, p=test.p, method=f"permutation ({test.how}); Gaffke's interval")


def compare_composite_totals(
    groups: Sequence[Sequence[tuple[float, Comparison]]], *, level: float = LEVEL
) -> Comparison:
    """The same from comparisons of the parts, with their weights; a group holds those on the same items.

    Undefined: everything where a part has no difference; test and interval where one lacks a standard error.
    """
    parts = [part for group in groups for part in group]
    known = [(weight, one.baseline, one.difference) for weight, one in parts]
    if not parts or any(value is None or moved is None for _, value, moved in known):
        reasons = [one.why for _, one in parts if one.difference is None and one.why]
        return undefined(reasons[0] if reasons else "no parts", level=level)
    baseline = math.fsum(weight * value for weight, value, _ in known if value is not None)
    difference = math.fsum(weight * moved for weight, _, moved in known if moved is not None)
    n = min(one.n for _, one in parts)
    known_sum = Comparison(
        baseline=baseline, new=baseline + difference, difference=difference, n=n, units=n, level=level
    )
    if any(one.low is None or one.high is None for _, one in parts):
        return replace(known_sum, why="a part has no interval")
    down, up = zip(*(_reaches(group) for group in groups), strict=True)
    low, high = difference - math.hypot(*down), difference + math.hypot(*up)
    lacking = any(one.stderr is None for _, one in parts)
    errors = [math.fsum(abs(weight) * (one.stderr or 0.0) for weight, one in group) for group in groups]
    toward = (high - difference if difference < 0 else difference - low) / z_quantile(level)
    return replace(
        known_sum,
        low=low,
        high=high,
        stderr=None if lacking else math.hypot(*errors),
        p=2 * NormalDist().cdf(-abs(difference) / toward) if toward else None,
        method="MOVER from the parts' limits",
        why="parts on the same items taken as wholly dependent",
    )


def _reaches(group: Sequence[tuple[float, Comparison]]) -> tuple[float, float]:
    """How far the limits of a weighted sum of parts on the same items are below and above it, at most."""
    known = [(weight, one.difference or 0.0, one.low or 0.0, one.high or 0.0) for weight, one in group]
    ends = [sorted((weight * (low - value), weight * (high - value))) for weight, value, low, high in known]
    return -math.fsum(low for low, _ in ends), math.fsum(high for _, high in ends)


def _moments(benchmark: SharedItems, run: int) -> Moments:
    """The weighted differences of the items, added up over the benchmark's metrics."""
    for part in benchmark.parts:
        check_items(part.runs[run], part.new, benchmark.clusters)
    columns = [
        [part.weight * (b - a) for a, b in zip(part.runs[run], part.new, strict=True)]
        for part in benchmark.parts
    ]
    return moments_of([math.fsum(row) for row in zip(*columns, strict=True)], benchmark.clusters)


def _bound(benchmark: SharedItems, run: int) -> float | None:
    """The most that an item's weighted difference can be, None where scores are not within [0, 1]."""
    if not all(are_shares((*part.runs[run], *part.new)) for part in benchmark.parts):
        return None
    return math.fsum(abs(part.weight) for part in benchmark.parts)
