"""The means of a measure at all points of a study, with what is known of their noise.

Larger is better throughout: an error rate is turned around. Points on the
same items share their luck, which their covariance holds (``statistics.contrasts.noise_of``); points on other items
are independent. Of a point known by totals alone the error counts (``errors``); how it is correlated with others is not
known, and each use takes what claims the least.

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
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.metric import metric_of
from pytest_touchstone.core.composite import Part
from pytest_touchstone.statistics.best_of_many import is_told_best
from pytest_touchstone.statistics.contrasts import Contrast, JointNoise, Weighted, contrast, noise_of
from pytest_touchstone.statistics.curves import LAST, LEAST, SignalToNoise, signal_to_noise
from pytest_touchstone.statistics.intervals import satterthwaite
from pytest_touchstone.study.differences import ScoreColumn, column_of, shared_items
from pytest_touchstone.study.points import Measure, Point, Series, Study, with_limits

if TYPE_CHECKING:
    import numpy as np

UNKNOWN_UNITS: Final = 0
NORMAL_UNITS: Final = 10_000
"""The units of an error that names no number of items: so many that t intervals are normal ones."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """A measure at the points that have it, in the study's order; ``means`` are turned so that larger is better.

    ``index`` has the points' places by name. ``units`` counts the independent items behind each, 0 where nothing is
    known of the noise; ``further`` is the most that a further item moves each by.
    """

    measure: Measure
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

    def noise(self, places: Sequence[int]) -> JointNoise | None:
        """The noise of these means; None where that of one is not known. Totals are taken as independent, which is
        most for the maximum of several."""
        import numpy as np

        units = min((self.units[place] for place in places), default=UNKNOWN_UNITS)
        if units < 2:
            return None
        return JointNoise(self.spread[np.ix_(places, places)], units)

    def contrast(self, weights: Sequence[Weighted], *, level: float, extra: float = 0.0) -> Contrast:
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

    def lead(self, first: int, second: int, level: float) -> Contrast:
        """The first mean less the second."""
        return self.contrast([Weighted(first, 1.0), Weighted(second, -1.0)], level=level)

    def rivals(self, best: int, among: Sequence[int], level: float) -> list[int]:
        """The others that cannot be told from the one measured best of so many: a paired p, times half their number
        (``statistics.best_of_many.is_told_best``), above 1 - level. An unknown noise tells nothing."""
        return [
            place
            for place in among
            if place != best and not is_told_best([self.lead(best, place, level).p], len(among), 1 - level)
        ]


def pools_of(study: Study) -> dict[str, Pool]:
    """The pools of all measures by their keys; ``study.once(pools_of)`` keeps them."""
    return {measure.key: pool_of(study, measure) for measure in study.measures}


def pool_of(study: Study, measure: Measure) -> Pool:
    """The measure at all points of the study that have a valid result of it."""
    return pool_over(study, measure, [one for one in study.points if study.valid(one, measure) is not None])


def pool_over(study: Study, measure: Measure, points: Sequence[Point]) -> Pool:
    """The measure at points that have it."""
    import numpy as np

    found = [_noise(study, measure, name, points) for name in measure.benchmarks]
    further = [one.span / (one.units + 2) for one in found]
    return Pool(
        measure=measure,
        points=tuple(points),
        index={point.name: place for place, point in enumerate(points)},
        means=tuple(np.sum([one.means for one in found], axis=0).tolist()),
        covariance=np.sum([one.covariance for one in found], axis=0),
        errors=tuple(np.linalg.norm([one.errors for one in found], axis=0).tolist()),
        units=tuple(_units(found, place) for place in range(len(points))),
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


def _units(noises: Sequence[_Noise], place: int) -> int:
    """The number of independent items behind a point's sum over benchmarks; unknown where one's is not known."""
    if min(one.units[place] for one in noises) < 2:
        return UNKNOWN_UNITS
    variances = [float(one.covariance[place, place] + one.errors[place] ** 2) for one in noises]
    return 1 + round(satterthwaite(variances, [int(one.units[place]) - 1 for one in noises]))


def _noise(study: Study, measure: Measure, benchmark: str, points: Sequence[Point]) -> _Noise:
    import numpy as np

    parts = [part for part in measure.parts if part.benchmark == benchmark]
    entries = [point.candidate.entries[benchmark] for point in points]
    means, errors, units = np.zeros(len(points)), np.zeros(len(points)), np.zeros(len(points), dtype=int)
    covariance = np.zeros((len(points), len(points)))
    columns = {place: _column(study, entry, parts) for place, entry in enumerate(entries)}
    for place, entry in enumerate(entries):
        if columns[place] is None:
            means[place], errors[place], units[place] = _total(entry, parts)
    for places, shared in _groups({place: one for place, one in columns.items() if one is not None}):
        means[places] = [math.fsum(row) / len(row) for row in shared.values.tolist()]
        noise = noise_of(shared.values[:-1], shared.values[-1], shared.clusters)
        if noise is not None:
            covariance[np.ix_(places, places)] = noise.covariance
            units[places] = noise.units
    span = math.fsum(abs(part.weight) for part in parts) if measure.share else 0.0
    return _Noise(means, covariance, errors, units, span)


def _column(study: Study, entry: BenchmarkScores, parts: Sequence[Part]) -> ScoreColumn | None:
    """The weighted sum of each item's scores, larger is better; None where they are not known."""
    import numpy as np

    known = [column_of(study, entry, part.metric) for part in parts]
    columns = [one for one in known if one is not None]
    if len(columns) < len(parts):
        return None
    weights = [
        part.weight if entry.saved.aggregation(part.metric).higher_score_is_better else -part.weight
        for part in parts
    ]
    values = np.asarray(weights) @ np.stack([one.values for one in columns])
    return None if np.isnan(values).all() else replace(columns[0], values=values)


def _total(entry: BenchmarkScores, parts: Sequence[Part]) -> tuple[float, float, int]:
    """The weighted sum of totals, its error at most, and the number of items."""
    value, error, units = 0.0, 0.0, []
    for weight, benchmark, name in parts:
        sign = 1 if entry.saved.aggregation(name).higher_is_better else -1
        if (metric := metric_of(entry, name)) is not None:
            metric = with_limits(metric, benchmark)
            value += sign * weight * (metric.value or 0.0)
            error += abs(weight) * (metric.stderr or 0.0)
            units.append(UNKNOWN_UNITS if metric.stderr is None else metric.n or NORMAL_UNITS)
    return value, error, min(units, default=UNKNOWN_UNITS)


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

    measure: Measure
    series: tuple[Series, ...]
    found: SignalToNoise | None
    items: float | None
    largest: Contrast | None
    p: float | None
    verdict: Verdict
    why: str = ""


def noise(study: Study, pools: Mapping[str, Pool]) -> list[MeasureNoise]:
    """The noise of every primary measure, in the study's order."""
    return [_of_measure(study, pools[measure.key]) for measure in study.measures if measure.primary]


def _of_measure(study: Study, pool: Pool) -> MeasureNoise:
    places = {series.name: pool.places(series.points) for series in study.series}
    used = [series for series in study.series if len(places[series.name]) >= LEAST]
    lines = [places[one.name] for one in used]
    sign = pool.measure.sign
    found = signal_to_noise(
        [[sign * pool.means[place] for place in line] for line in lines], level=study.level
    )
    largest = _largest(pool, [line[-LAST:] for line in lines], study.level)
    p = None if largest is None or largest.p is None else min(1.0, largest.p * math.comb(len(lines), 2))
    verdict, why = _judged(found, p, 1 - study.level)
    return MeasureNoise(
        measure=pool.measure,
        series=tuple(used),
        found=found,
        items=_of_items(pool),
        largest=largest,
        p=p,
        verdict=verdict,
        why=why,
    )


def _judged(found: SignalToNoise | None, p: float | None, alpha: float) -> tuple[Verdict, str]:
    if found is None:
        return "no evidence", NO_SERIES
    if found.limit is None:
        return "no evidence", ONE_SERIES
    if not found.tells:
        return "too noisy", ""
    if p is None:
        return "no evidence", NO_ERROR
    return ("can decide" if p <= alpha else "too few items"), ""


def _largest(pool: Pool, tails: Sequence[Sequence[int]], level: float) -> Contrast | None:
    """The difference of the means of the two series that are furthest apart."""
    if len(tails) < 2:
        return None
    means = [math.fsum(pool.means[place] for place in tail) / len(tail) for tail in tails]
    low, high = means.index(min(means)), means.index(max(means))
    if low == high:
        low, high = next(combinations(range(len(tails)), 2))
    weights = [
        Weighted(place, sign / len(tails[one]))
        for sign, one in ((1, high), (-1, low))
        for place in tails[one]
    ]
    return pool.contrast(weights, level=level)


def _of_items(pool: Pool) -> float | None:
    if not all(pool.units) or not pool.points:
        return None
    return math.fsum(math.sqrt(one) for one in pool.spread.diagonal().tolist()) / len(pool.points)
