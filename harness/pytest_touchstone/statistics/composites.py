"""The difference of a composite score, a weighted sum of benchmarks' metrics, between two runs.

- **From items**: a composite is linear in the items, so its delta method (Cramer 1946, "Mathematical Methods of
  Statistics", section 28.4) is exact. Each item's weighted difference over all metrics of its benchmark is one value,
  which holds what metrics of the same items have in common. Benchmarks are independent, their variances add, and the
  degrees of freedom are Satterthwaite's (1946, Biometrics 2). The test flips the signs of all units of all
  benchmarks at once (``paired``), each weighted by what it adds to the composite. The interval allows for unseen
  differences as ``paired`` does.
- **From totals**: errors of metrics of the same items are added up, the most that they can come to however they are
  correlated; errors of different benchmarks add in squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from pytest_touchstone.statistics.comparison import LEVEL, Comparison, check_level, undefined, z_quantile
from pytest_touchstone.statistics.intervals import Clusters, Moments, moments_of, t_quantile
from pytest_touchstone.statistics.paired import DRAWS, allowance, check_items, sign_flip_test


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
    benchmarks: Sequence[SharedItems], run: int = 0, *, level: float = LEVEL, draws: int = DRAWS
) -> Comparison:
    """The new run's composite against that of an earlier ``run``, from both runs' items.

    Undefined: everything without parts or where one has no items; test and interval where all items of a benchmark
    are one unit; the interval where nothing differs and scores are not within [0, 1].
    """
    check_level(level)
    parts = [part for one in benchmarks for part in one.parts]
    if not parts or not all(part.new for part in parts):
        return undefined("a part has no items in common" if parts else "no parts", level=level)
    found = [_moments(one, run) for one in benchmarks if one.parts]
    baseline = math.fsum(part.weight * math.fsum(part.runs[run]) / len(part.new) for part in parts)
    difference = math.fsum(one.mean for one in found)
    variances = [one.variance for one in found if one.variance is not None]
    low = high = p = stderr = why = None
    method = "none"
    if len(variances) < len(found):
        why = "all items of a benchmark are one unit: no test of a difference"
    else:
        stderr = math.sqrt(math.fsum(variances))
        test = sign_flip_test([total / one.n for one in found for total in one.totals], draws=draws)
        p, method = test.p, f"permutation over {len(found)} benchmarks ({test.how}); delta method, t interval"
        half = _half_width([one for one in benchmarks if one.parts], run, found, level)
        if half is None:
            why = "nothing differs, and how far scores can is not known: no interval"
        else:
            low, high = difference - half, difference + half
    return Comparison(
        baseline=baseline,
        new=baseline + difference,
        difference=difference,
        low=low,
        high=high,
        stderr=stderr,
        p=p,
        n=sum(one.n for one in found),
        units=sum(len(one.totals) for one in found),
        method=method,
        level=level,
        why=why,
    )


def compare_composite_totals(
    groups: Sequence[Sequence[tuple[float, Comparison]]], *, level: float = LEVEL
) -> Comparison:
    """The same from comparisons of the parts, with their weights; a group holds those on the same items.

    Undefined: everything where a part has no difference; test and interval where one lacks a standard error.
    """
    check_level(level)
    parts = [part for group in groups for part in group]
    known = [(weight, one.baseline, one.difference) for weight, one in parts]
    if not parts or any(value is None or moved is None for _, value, moved in known):
        reasons = [one.why for _, one in parts if one.difference is None and one.why]
        return undefined(reasons[0] if reasons else "no parts", level=level)
    baseline = math.fsum(weight * value for weight, value, _ in known if value is not None)
    difference = math.fsum(weight * moved for weight, _, moved in known if moved is not None)
    lacking = any(one.stderr is None for _, one in parts)
    errors = [math.fsum(abs(weight) * (one.stderr or 0.0) for weight, one in group) for group in groups]
    error = None if lacking else math.hypot(*errors)
    n = min(one.n for _, one in parts)
    half = z_quantile(level) * error if error else None
    return Comparison(
        baseline=baseline,
        new=baseline + difference,
        difference=difference,
        low=None if half is None else difference - half,
        high=None if half is None else difference + half,
        stderr=error,
        p=2 * NormalDist().cdf(-abs(difference) / error) if error else None,
        n=n,
        units=n,
        method="delta method on totals" if error else "none",
        level=level,
        why="parts on the same items taken as wholly dependent" if error else "a part has no standard error",
    )


def _moments(benchmark: SharedItems, run: int) -> Moments:
    """The weighted differences of the items, added up over the benchmark's metrics."""
    length = len(benchmark.parts[0].new)
    for part in benchmark.parts:
        check_items(part.runs[run], part.new, benchmark.clusters)
        if len(part.new) != length:
            raise ValueError(
                f"parts of one benchmark have {length} and {len(part.new)} items; give all the same"
            )
    columns = [
        [part.weight * (b - a) for a, b in zip(part.runs[run], part.new, strict=True)]
        for part in benchmark.parts
    ]
    return moments_of([math.fsum(row) for row in zip(*columns, strict=True)], benchmark.clusters)


def _half_width(
    benchmarks: Sequence[SharedItems], run: int, found: Sequence[Moments], level: float
) -> float | None:
    variances = []
    for benchmark, moments in zip(benchmarks, found, strict=True):
        span = math.fsum(abs(part.weight) for part in benchmark.parts)
        bounded = all(0 <= one <= 1 for part in benchmark.parts for one in (*part.runs[run], *part.new))
        variances.append((moments.variance or 0.0) + (span**2 * allowance(moments) if bounded else 0.0))
    total = math.fsum(variances)
    if not total:
        return None
    freedom = total**2 / math.fsum(
        one**2 / (len(moments.totals) - 1) for one, moments in zip(variances, found, strict=True)
    )
    return t_quantile(freedom, level) * math.sqrt(total)
