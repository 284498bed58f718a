"""Item scores as columns, differences of points, and the means of a measure with their covariance.

Differences are paired by items if both points have them, else they are computed from totals (``compare.metric``). Runs
with totals only are taken as independent; on the same items they are correlated, so the true interval is narrower. A
perplexity that is requested by itself is compared from totals too.

All means are oriented so that larger is better; an error rate is negated. Points on the same items are correlated
(``statistics.contrasts.covariance_of_means``); points on other items are independent. A point with totals only
contributes its standard error (``errors``). Its correlation with others is unknown, and each use assumes the value that
claims the least.

Points with a result that is not valid are left out.

**Noise from checkpoint to checkpoint** shows which benchmarks can carry a decision. The signal-to-noise ratio is that
of Heineman et al. 2025 (``statistics.curves``), with each series in the role of a model. Two sources of noise can
produce a spurious difference between series, and a benchmark can decide if neither explains the difference:

- **checkpoints**: the ratio is no larger than that of equal series;
- **items**: the largest difference, between the means of the last checkpoints of two series, is within the error of
  their items (Bonferroni over all pairs). Checkpoints on the same items share that error, so the ratio does not see it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.comparison_verdicts import score_name
from pytest_touchstone.compare.metric import compare_metric, metric_of
from pytest_touchstone.compare.pair import compare_composite_in
from pytest_touchstone.core.composite import WeightedMetric
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.statistics.best_of_many import is_told_best
from pytest_touchstone.statistics.comparison import Comparison, undefined
from pytest_touchstone.statistics.contrasts import (
    Contrast,
    ContrastTerm,
    MeanCovariance,
    contrast,
    covariance_of_means,
)
from pytest_touchstone.statistics.curves import LAST, LEAST, SignalToNoise, signal_to_noise
from pytest_touchstone.statistics.intervals import any_shared, is_binary, satterthwaite
from pytest_touchstone.statistics.paired import compare_flips
from pytest_touchstone.study.points import Point, Series, Study, StudyMetric, add_limits

if TYPE_CHECKING:
    import numpy as np


# The scores of items


ItemName: TypeAlias = tuple[str, str]
"""The id of an item, and the hash of its row."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreColumn:
    """The scores of all items of a result, sorted by item name; NaN for a missing score.

    ``values`` has shape [items], or [columns, items] after ``shared_items``. Columns with the same ``digest`` have the
    same items. ``clusters`` is None for independent items. ``flips`` is set for independent items that are each right
    or wrong.
    """

    digest: str
    names: list[ItemName]
    values: np.ndarray
    clusters: list[str | None] | None
    flips: bool

    def scores_of(self, names: Sequence[ItemName]) -> np.ndarray:
        """Return the scores of the named items, in the order of the names."""
        indices = {name: index for index, name in enumerate(self.names)}
        scores: np.ndarray = self.values[[indices[name] for name in names]]
        return scores


def column_of(study: Study, entry: BenchmarkScores, metric: str) -> ScoreColumn | None:
    """Return the item scores of a metric, computed once per study.

    None without items, and for a metric that is not a mean of scores.
    """
    import numpy as np

    key = id(entry), metric
    if key not in study.computed:
        items, scores, column = entry.items, None, None
        with suppress(GateError):  # a mean over groups, or no such metric
            scores = items.scores.get(score_name(entry.saved, metric))
        if scores is not None and items.examples and entry.saved.aggregation(metric).is_mean:
            names = list(zip(items.examples, items.rows, strict=True))
            order = sorted(range(len(names)), key=names.__getitem__)
            clusters = [items.clusters[index] for index in order]
            values = np.asarray([scores[index] for index in order], dtype=float)
            shared = any_shared(clusters)
            column = ScoreColumn(
                digest=entry.saved.items_sha256 or items.digest(),
                names=[names[index] for index in order],
                values=values,
                clusters=clusters if shared else None,
                flips=not shared and is_binary(values.tolist()),
            )
        study.computed[key] = column
    cached: ScoreColumn | None = study.computed[key]
    return cached


def shared_items(columns: Sequence[ScoreColumn], least: float = 0.5) -> ScoreColumn | None:
    """Return the items that all columns have, with a row of scores for each column.

    None if there are none, or fewer than the share ``least`` of the smallest column.
    """
    import numpy as np

    first = columns[0]
    complete = [
        {name for name, missing in zip(column.names, np.isnan(column.values), strict=True) if not missing}
        for column in columns
    ]
    names = sorted(set.intersection(*complete))
    if not names or len(names) < least * min(len(column.values) for column in columns):
        return None
    clusters = dict(zip(first.names, first.clusters, strict=True)) if first.clusters else None
    return replace(
        first,
        names=names,
        values=np.stack([column.scores_of(names) for column in columns]),
        clusters=None if clusters is None else [clusters[name] for name in names],
    )


# Differences of points


MORE: Final = "more than noise"
NOT_MORE: Final = "not more than noise"
UNTESTED: Final = "cannot be tested"
"""The verdicts on a change along a series."""


def compare_points(study: Study, baseline: Point, new: Point, measure: StudyMetric) -> Comparison:
    """Compare two points by a measure; undefined, with the reason, if one lacks the measure."""
    level = study.level
    before, after = baseline.candidate.entries, new.candidate.entries
    if measure.composite is not None:
        composite = compare_composite_in(measure.composite, before, after, level)
        return composite.comparison if composite else undefined("a part is missing", level=level)
    a, b, metric = before.get(measure.benchmark), after.get(measure.benchmark), measure.metric
    if a is None or b is None or metric not in a.saved.metrics or metric not in b.saved.metrics:
        return undefined("not measured at both", level=level)
    column, other_column = column_of(study, a, metric), column_of(study, b, metric)
    if (
        column is not None
        and other_column is not None
        and column.digest == other_column.digest
        and column.flips
        and other_column.flips
    ):
        both = int(column.values @ other_column.values)
        gained, lost = int(other_column.values.sum()) - both, int(column.values.sum()) - both
        neither = len(column.values) - both - gained - lost
        if b.saved.aggregation(metric).higher_score_is_better:
            return compare_flips(both, gained, lost, neither, level=level)
        return compare_flips(neither, lost, gained, both, level=level).mirrored(1.0)
    return compare_metric(a, b, metric, primary=measure.primary, level=level).comparison


def noise_verdict(p: float | None, level: float) -> str:
    """Return the verdict for a p-value, which may be corrected for the number of tests."""
    if p is None:
        return UNTESTED
    return MORE if p <= 1 - level + 1e-12 else NOT_MORE


# Means and their noise


UNKNOWN_UNITS: Final = 0
NORMAL_UNITS: Final = 10_000
"""The units of an error without a number of items: so large that Student's t is normal."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointMeans:
    """The means of a measure at all points that have it, with their joint noise.

    ``means`` are oriented so that larger is better. ``index`` maps the names of points to indices. ``covariance`` has
    shape [points, points]; ``errors`` are the standard errors of points with totals only. ``units`` counts the
    independent items behind each mean, 0 for unknown noise. ``further`` is the most by which one more item can move
    each mean.
    """

    measure: StudyMetric
    points: tuple[Point, ...]
    index: Mapping[str, int]
    means: tuple[float, ...]
    covariance: np.ndarray
    errors: tuple[float, ...]
    units: tuple[int, ...]
    further: tuple[float, ...]

    def places(self, points: Iterable[Point]) -> list[int]:
        """Return the indices of the given points, without those that lack the measure."""
        return [self.index[point.name] for point in points if point.name in self.index]

    @property
    def spread(self) -> np.ndarray:
        """The covariance, with totals taken as independent."""
        import numpy as np

        spread: np.ndarray = self.covariance + np.diag(np.square(self.errors))
        return spread

    def noise(self, indices: Sequence[int]) -> MeanCovariance | None:
        """Return the covariance of some means, given by index; None if the noise of one is unknown.

        Totals are taken as independent, which gives the maximum of several the largest bias.
        """
        import numpy as np

        units = min((self.units[index] for index in indices), default=UNKNOWN_UNITS)
        if units < 2:
            return None
        return MeanCovariance(self.spread[np.ix_(indices, indices)], units)

    def contrast(self, weights: Sequence[ContrastTerm], *, level: float, extra: float = 0.0) -> Contrast:
        """Return a weighted sum of means with its interval; ``extra`` is added to its variance."""
        return contrast(
            self.means,
            self.covariance,
            weights,
            units=min((self.units[index] for index, _ in weights), default=UNKNOWN_UNITS),
            errors=self.errors,
            further=max((self.further[index] for index, _ in weights), default=0.0),
            extra=extra,
            level=level,
        )

    def rivals(self, best: int, among: Sequence[int], level: float) -> list[int]:
        """Return the indices that do not differ significantly from the one measured best.

        The paired p-value is multiplied by half the number of points (``statistics.best_of_many.is_told_best``).
        A point with unknown noise is a rival.
        """
        leads = {
            index: self.contrast([ContrastTerm(best, 1.0), ContrastTerm(index, -1.0)], level=level).p
            for index in among
            if index != best
        }
        return [index for index, p in leads.items() if not is_told_best([p], len(among), 1 - level)]


def pools_of(study: Study) -> dict[str, JointMeans]:
    """Return the joint means of all measures by key; use ``study.compute_once(pools_of)``."""
    return {measure.key: pool_of(study, measure) for measure in study.measures}


def pool_of(study: Study, measure: StudyMetric) -> JointMeans:
    """Return the joint means of a measure over all points with a valid value."""
    return pool_points(
        study, measure, [point for point in study.points if study.valid_value(point, measure) is not None]
    )


def pool_points(study: Study, measure: StudyMetric, points: Sequence[Point]) -> JointMeans:
    """Return the joint means of a measure over the given points, which must have it."""
    import numpy as np

    noises = [_benchmark_noise(study, measure, name, points) for name in measure.benchmarks]
    further = [noise.span / (noise.units + 2) for noise in noises]
    units = []
    for index in range(len(points)):
        if min(noise.units[index] for noise in noises) < 2:
            units.append(UNKNOWN_UNITS)
        else:
            variances = [float(noise.covariance[index, index] + noise.errors[index] ** 2) for noise in noises]
            degrees = [int(noise.units[index]) - 1 for noise in noises]
            units.append(1 + round(satterthwaite(variances, degrees)))
    return JointMeans(
        measure=measure,
        points=tuple(points),
        index={point.name: index for index, point in enumerate(points)},
        means=tuple(np.sum([noise.means for noise in noises], axis=0).tolist()),
        covariance=np.sum([noise.covariance for noise in noises], axis=0),
        errors=tuple(np.linalg.norm([noise.errors for noise in noises], axis=0).tolist()),
        units=tuple(units),
        further=tuple(np.linalg.norm(further, axis=0).tolist()),
    )


class _BenchmarkNoise(NamedTuple):
    """The weighted means of a benchmark's metrics at all points, and their covariance.

    ``span`` is the largest value of an item, 0 if unknown.
    """

    means: np.ndarray
    covariance: np.ndarray
    errors: np.ndarray
    units: np.ndarray
    span: float


def _benchmark_noise(
    study: Study, measure: StudyMetric, benchmark: str, points: Sequence[Point]
) -> _BenchmarkNoise:
    """Return the noise of one benchmark of a measure, from items if known, else from totals."""
    import numpy as np

    parts = [part for part in measure.parts if part.benchmark == benchmark]
    means, errors, units = np.zeros(len(points)), np.zeros(len(points)), np.zeros(len(points), dtype=int)
    covariance = np.zeros((len(points), len(points)))
    columns: dict[int, ScoreColumn] = {}
    for index, point in enumerate(points):
        entry = point.candidate.entries[benchmark]
        column = _weighted_column(study, entry, parts)
        if column is not None:
            columns[index] = column
            continue
        sizes = []
        for weight, _, name in parts:
            if (metric := metric_of(entry, name)) is not None:
                metric = add_limits(metric, benchmark)
                sign = 1 if entry.saved.aggregation(name).higher_is_better else -1
                means[index] += sign * weight * (metric.value or 0.0)
                errors[index] += abs(weight) * (metric.stderr or 0.0)
                sizes.append(UNKNOWN_UNITS if metric.stderr is None else metric.n or NORMAL_UNITS)
        units[index] = min(sizes, default=UNKNOWN_UNITS)
    for indices, shared in _group_by_items(columns):
        means[indices] = [math.fsum(row) / len(row) for row in shared.values.tolist()]
        noise = covariance_of_means(shared.values[:-1], shared.values[-1], shared.clusters)
        if noise is not None:
            covariance[np.ix_(indices, indices)] = noise.covariance
            units[indices] = noise.units
    span = math.fsum(abs(part.weight) for part in parts) if measure.share else 0.0
    return _BenchmarkNoise(means, covariance, errors, units, span)


def _weighted_column(
    study: Study, entry: BenchmarkScores, parts: Sequence[WeightedMetric]
) -> ScoreColumn | None:
    """Return the weighted sum of each item's scores, oriented so that larger is better; None without scores."""
    import numpy as np

    columns = [column for part in parts if (column := column_of(study, entry, part.metric)) is not None]
    if len(columns) < len(parts):
        return None
    weights = [
        part.weight if entry.saved.aggregation(part.metric).higher_score_is_better else -part.weight
        for part in parts
    ]
    values = np.asarray(weights) @ np.stack([column.values for column in columns])
    return None if np.isnan(values).all() else replace(columns[0], values=values)


def _group_by_items(columns: Mapping[int, ScoreColumn]) -> list[tuple[list[int], ScoreColumn]]:
    """Group results by shared items, and return their indices with the scores of the common items.

    A result joins a group if at least half of the items of the smallest member are common to all.
    """
    by_digest: dict[str, list[int]] = {}
    for index, column in columns.items():
        by_digest.setdefault(column.digest, []).append(index)
    groups: list[tuple[list[int], ScoreColumn]] = []
    for indices in sorted(by_digest.values(), key=len, reverse=True):
        for group_index, (others, _) in enumerate(groups):
            shared = shared_items([columns[index] for index in (*others, *indices)])
            if shared is not None:
                groups[group_index] = ([*others, *indices], shared)
                break
        else:
            shared = shared_items([columns[index] for index in indices], least=0.0)
            groups += [(indices, shared)] if shared is not None else []
    return groups


# Noise from checkpoint to checkpoint


Verdict = Literal["can decide", "too noisy", "too few items", "no evidence"]

NO_SERIES: Final = "no series has two checkpoints"
ONE_SERIES: Final = "one series with two checkpoints or more: nothing to tell apart"
NO_ERROR: Final = (
    "its series differ by more than their checkpoints do, but nothing is known of the error of its items"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureNoise:
    """The noise of a measure over the series that have two checkpoints or more.

    ``found`` is None without such a series. ``items`` is the mean standard error of a single checkpoint due to its
    items. ``largest`` is the difference of the two series furthest apart; its ``p`` is corrected for all pairs. ``why``
    is the reason for "no evidence".
    """

    measure: StudyMetric
    series: tuple[Series, ...]
    found: SignalToNoise | None
    items: float | None
    largest: Contrast | None
    p: float | None
    verdict: Verdict
    why: str = ""


def measure_noise(study: Study) -> list[MeasureNoise]:
    """Return the noise of every primary measure; use ``study.compute_once(measure_noise)``."""
    pools = study.compute_once(pools_of)
    return [_noise_of_measure(study, pools[measure.key]) for measure in study.measures if measure.primary]


def _noise_of_measure(study: Study, pool: JointMeans) -> MeasureNoise:
    indices = {series.name: pool.places(series.points) for series in study.series}
    used = [series for series in study.series if len(indices[series.name]) >= LEAST]
    lines = [indices[series.name] for series in used]
    ratio = signal_to_noise(
        [[pool.measure.sign * pool.means[index] for index in line] for line in lines], level=study.level
    )
    largest, p = _largest_difference(pool, [line[-LAST:] for line in lines], study.level), None
    if largest is not None and largest.p is not None:
        p = min(1.0, largest.p * math.comb(len(lines), 2))
    verdict: Verdict = "no evidence"
    why = NO_SERIES if ratio is None else ONE_SERIES if ratio.limit is None else ""
    if ratio is not None and ratio.limit is not None:
        if not ratio.tells:
            verdict = "too noisy"
        elif p is None:
            why = NO_ERROR
        else:
            verdict = "can decide" if p <= 1 - study.level else "too few items"
    items = None
    if pool.points and all(pool.units):
        items = math.fsum(map(math.sqrt, pool.spread.diagonal().tolist())) / len(pool.points)
    return MeasureNoise(
        measure=pool.measure,
        series=tuple(used),
        found=ratio,
        items=items,
        largest=largest,
        p=p,
        verdict=verdict,
        why=why,
    )


def _largest_difference(pool: JointMeans, tails: Sequence[Sequence[int]], level: float) -> Contrast | None:
    """Return the difference of the two series whose means are furthest apart."""
    if len(tails) < 2:
        return None
    means = [math.fsum(pool.means[index] for index in tail) / len(tail) for tail in tails]
    low, high = means.index(min(means)), means.index(max(means))
    if low == high:
        low, high = next(combinations(range(len(tails)), 2))
    weights = [
        ContrastTerm(index, sign / len(tails[end]))
        for sign, end in ((1, high), (-1, low))
        for index in tails[end]
    ]
    return pool.contrast(weights, level=level)
