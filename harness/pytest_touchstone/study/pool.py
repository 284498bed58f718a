"""The scores of items as columns, differences of points, and a measure's means at all points with their noise.

Differences are paired by items where both points have them, else from totals as ``compare.metric`` says. Runs of which
only totals are known are taken as independent; on the same items they rise and fall together, and the difference is
known better than that. A perplexity that is asked for itself is compared from totals too.

Of means larger is better throughout: an error rate is turned around. Points on the
same items share their luck, which their covariance holds (``statistics.contrasts.covariance_of_means``); points on
other items are independent. Of a point known by totals alone the error counts (``errors``); how it is correlated with
others is not known, and each use takes what claims the least.

Points whose result is not valid are left out: they decide nothing.

**Noise from checkpoint to checkpoint** tells which benchmarks can carry a decision. The signal-to-noise ratio is that
of Heineman et al. 2025 (``statistics.curves``), each series standing for one of their models. Two things can make up a
difference between series that is none, and a benchmark can decide where neither does:

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
from pytest_touchstone.core.composite import Part
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
from pytest_touchstone.study.points import Point, Series, Study, StudyMetric, with_limits

if TYPE_CHECKING:
    import numpy as np


# The scores of items


ItemName: TypeAlias = tuple[str, str]
"""The id of an item, and the hash of its row."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreColumn:
    """The scores of all items of a result, in order of the items' names; NaN where one is missing.

    ``digest`` is that of the items: columns with the same one can be compared item by item. ``clusters`` is None where
    items share nothing. ``flips``: they share nothing, and each is right or wrong.
    """

    digest: str
    names: list[ItemName]
    values: np.ndarray
    clusters: list[str | None] | None
    flips: bool

    def at(self, names: Sequence[ItemName]) -> np.ndarray:
        """Return the scores of these items, in their order."""
        places = {name: place for place, name in enumerate(self.names)}
        found: np.ndarray = self.values[[places[name] for name in names]]
        return found


def column_of(study: Study, entry: BenchmarkScores, metric: str) -> ScoreColumn | None:
    """The scores by which a metric is compared, made once; None without items, and for a metric that is no mean of
    scores."""
    import numpy as np

    key = id(entry), metric
    if key not in study.made:
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
        study.made[key] = column
    found: ScoreColumn | None = study.made[key]
    return found


def shared_items(columns: Sequence[ScoreColumn], least: float = 0.5) -> ScoreColumn | None:
    """The items that all columns have, with a row of scores for each; None where these are none, or less than that
    share of the smallest column."""
    import numpy as np

    first = columns[0]
    complete = [
        {name for name, missing in zip(one.names, np.isnan(one.values), strict=True) if not missing}
        for one in columns
    ]
    names = sorted(set.intersection(*complete))
    if not names or len(names) < least * min(len(one.values) for one in columns):
        return None
    clusters = dict(zip(first.names, first.clusters, strict=True)) if first.clusters else None
    return replace(
        first,
        names=names,
        values=np.stack([one.at(names) for one in columns]),
        clusters=None if clusters is None else [clusters[name] for name in names],
    )


# Differences of points


MORE: Final = "more than noise"
NOT_MORE: Final = "not more than noise"
UNTESTED: Final = "cannot be tested"
"""The verdicts on a change along a series."""


def difference(study: Study, baseline: Point, new: Point, measure: StudyMetric) -> Comparison:
    """The new point against the baseline by a measure; undefined, with the reason, where one lacks it."""
    level = study.level
    before, after = baseline.candidate.entries, new.candidate.entries
    if measure.composite is not None:
        found = compare_composite_in(measure.composite, before, after, level)
        return found.comparison if found else undefined("a part is missing", level=level)
    a, b, metric = before.get(measure.benchmark), after.get(measure.benchmark), measure.metric
    if a is None or b is None or metric not in a.saved.metrics or metric not in b.saved.metrics:
        return undefined("not measured at both", level=level)
    one, other = column_of(study, a, metric), column_of(study, b, metric)
    if one is not None and other is not None and one.digest == other.digest and one.flips and other.flips:
        both = int(one.values @ other.values)
        gained, lost = int(other.values.sum()) - both, int(one.values.sum()) - both
        neither = len(one.values) - both - gained - lost
        if b.saved.aggregation(metric).higher_score_is_better:
            return compare_flips(both, gained, lost, neither, level=level)
        return compare_flips(neither, lost, gained, both, level=level).mirrored(1.0)
    return compare_metric(a, b, metric, primary=measure.primary, level=level).comparison


def verdict_on(p: float | None, level: float) -> str:
    """Return the verdict by a p, which may be corrected for the number of tests."""
    if p is None:
        return UNTESTED
    return MORE if p <= 1 - level + 1e-12 else NOT_MORE


# Means and their noise


UNKNOWN_UNITS: Final = 0
NORMAL_UNITS: Final = 10_000
"""The units of an error that names no number of items: so many that t intervals are normal ones."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointMeans:
    """A measure at the points that have it, in the study's order; ``means`` are turned so that larger is better.

    ``index`` has the points' places by name. ``units`` counts the independent items behind each, 0 where nothing is
    known of the noise; ``further`` is the most that a further item moves each by.
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
        """The places of those of the points that are here."""
        return [self.index[point.name] for point in points if point.name in self.index]

    @property
    def spread(self) -> np.ndarray:
        """The covariance with totals as independent."""
        import numpy as np

        found: np.ndarray = self.covariance + np.diag(np.square(self.errors))
        return found

    def noise(self, places: Sequence[int]) -> MeanCovariance | None:
        """The noise of these means; None where that of one is not known. Totals are taken as independent, which is
        most for the maximum of several."""
        import numpy as np

        units = min((self.units[place] for place in places), default=UNKNOWN_UNITS)
        if units < 2:
            return None
        return MeanCovariance(self.spread[np.ix_(places, places)], units)

    def contrast(self, weights: Sequence[ContrastTerm], *, level: float, extra: float = 0.0) -> Contrast:
        """The weighted sum of means."""
        return contrast(
            self.means,
            self.covariance,
            weights,
            units=min((self.units[place] for place, _ in weights), default=UNKNOWN_UNITS),
            errors=self.errors,
            further=max((self.further[place] for place, _ in weights), default=0.0),
            extra=extra,
            level=level,
        )

    def rivals(self, best: int, among: Sequence[int], level: float) -> list[int]:
        """The others that cannot be told from the one measured best of so many: a paired p, times half their number
        (``statistics.best_of_many.is_told_best``), above 1 - level. An unknown noise tells nothing."""
        leads = {
            place: self.contrast([ContrastTerm(best, 1.0), ContrastTerm(place, -1.0)], level=level).p
            for place in among
            if place != best
        }
        return [place for place, p in leads.items() if not is_told_best([p], len(among), 1 - level)]


def pools_of(study: Study) -> dict[str, JointMeans]:
    """The pools of all measures by their keys; ``study.once(pools_of)`` keeps them."""
    return {measure.key: pool_of(study, measure) for measure in study.measures}


def pool_of(study: Study, measure: StudyMetric) -> JointMeans:
    """The measure at all points of the study that have a valid result of it."""
    return pool_over(study, measure, [one for one in study.points if study.valid(one, measure) is not None])


def pool_over(study: Study, measure: StudyMetric, points: Sequence[Point]) -> JointMeans:
    """The measure at points that have it."""
    import numpy as np

    noises = [_noise(study, measure, name, points) for name in measure.benchmarks]
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


class _Noise(NamedTuple):
    """Means and covariance of a benchmark's weighted metrics at all points, and the largest value of an item, 0 where
    that is not known."""

    means: np.ndarray
    covariance: np.ndarray
    errors: np.ndarray
    units: np.ndarray
    span: float


def _noise(study: Study, measure: StudyMetric, benchmark: str, points: Sequence[Point]) -> _Noise:
    """Return the noise of one benchmark of a measure: of items where they are known, else of totals at most."""
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
                metric = with_limits(metric, benchmark)
                sign = 1 if entry.saved.aggregation(name).higher_is_better else -1
                means[index] += sign * weight * (metric.value or 0.0)
                errors[index] += abs(weight) * (metric.stderr or 0.0)
                sizes.append(UNKNOWN_UNITS if metric.stderr is None else metric.n or NORMAL_UNITS)
        units[index] = min(sizes, default=UNKNOWN_UNITS)
    for places, shared in _groups(columns):
        means[places] = [math.fsum(row) / len(row) for row in shared.values.tolist()]
        noise = covariance_of_means(shared.values[:-1], shared.values[-1], shared.clusters)
        if noise is not None:
            covariance[np.ix_(places, places)] = noise.covariance
            units[places] = noise.units
    span = math.fsum(abs(part.weight) for part in parts) if measure.share else 0.0
    return _Noise(means, covariance, errors, units, span)


def _weighted_column(study: Study, entry: BenchmarkScores, parts: Sequence[Part]) -> ScoreColumn | None:
    """Return the weighted sum of each item's scores, larger is better; None where they are not known."""
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


def _groups(columns: Mapping[int, ScoreColumn]) -> list[tuple[list[int], ScoreColumn]]:
    """The places of results that share items, with the scores of the common ones.

    Results join others where at least half of the smaller one's items are common to all.
    """
    same: dict[str, list[int]] = {}
    for place, one in columns.items():
        same.setdefault(one.digest, []).append(place)
    found: list[tuple[list[int], ScoreColumn]] = []
    for places in sorted(same.values(), key=len, reverse=True):
        for number, (others, _) in enumerate(found):
            shared = shared_items([columns[place] for place in (*others, *places)])
            if shared is not None:
                found[number] = ([*others, *places], shared)
                break
        else:
            shared = shared_items([columns[place] for place in places], least=0.0)
            found += [(places, shared)] if shared is not None else []
    return found


# Noise from checkpoint to checkpoint


Verdict = Literal["can decide", "too noisy", "too few items", "no evidence"]

NO_SERIES: Final = "no series has two checkpoints"
ONE_SERIES: Final = "one series with two checkpoints or more: nothing to tell apart"
NO_ERROR: Final = (
    "its series differ by more than their checkpoints do, but nothing is known of the error of its items"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureNoise:
    """A measure's noise over the series that have two checkpoints or more.

    ``found`` is None where there is no such series. ``items`` is the error that the items leave a single checkpoint,
    on average. ``largest`` is the difference of the two series that are furthest apart, with ``p`` for all pairs.
    ``why`` is the reason for "no evidence".
    """

    measure: StudyMetric
    series: tuple[Series, ...]
    found: SignalToNoise | None
    items: float | None
    largest: Contrast | None
    p: float | None
    verdict: Verdict
    why: str = ""


def noise(study: Study) -> list[MeasureNoise]:
    """Return the noise of every primary measure, in the study's order; ``study.once(noise)`` keeps it."""
    pools = study.once(pools_of)
    return [_noise_of_measure(study, pools[measure.key]) for measure in study.measures if measure.primary]


def _noise_of_measure(study: Study, pool: JointMeans) -> MeasureNoise:
    places = {series.name: pool.places(series.points) for series in study.series}
    used = [series for series in study.series if len(places[series.name]) >= LEAST]
    lines = [places[series.name] for series in used]
    sign = pool.measure.sign
    ratio = signal_to_noise(
        [[sign * pool.means[place] for place in line] for line in lines], level=study.level
    )
    largest, p = _largest(pool, [line[-LAST:] for line in lines], study.level), None
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


def _largest(pool: JointMeans, tails: Sequence[Sequence[int]], level: float) -> Contrast | None:
    """Return the difference of the means of the two series that are furthest apart."""
    if len(tails) < 2:
        return None
    means = [math.fsum(pool.means[place] for place in tail) / len(tail) for tail in tails]
    low, high = means.index(min(means)), means.index(max(means))
    if low == high:
        low, high = next(combinations(range(len(tails)), 2))
    weights = [
        ContrastTerm(place, sign / len(tails[end]))
        for sign, end in ((1, high), (-1, low))
        for place in tails[end]
    ]
    return pool.contrast(weights, level=level)
