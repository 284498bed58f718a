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
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.judge import score_name
from pytest_touchstone.compare.metric import metric_of
from pytest_touchstone.compare.study.points import Measure, Point, Series, Study, with_limits
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.results.store_entry import ItemScores
from pytest_touchstone.statistics.best_of_many import is_told_best
from pytest_touchstone.statistics.contrasts import Contrast, JointNoise, Weighted, contrast, noise_of
from pytest_touchstone.statistics.curves import LAST, LEAST, SignalToNoise, signal_to_noise
from pytest_touchstone.statistics.intervals import satterthwaite

if TYPE_CHECKING:
    import numpy as np

UNKNOWN_UNITS: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """A measure at the points that have it, in the study's order; ``means`` are turned so that larger is better.

    ``index`` has the points' places by name. ``units`` counts the independent items behind each, 0 where nothing is
    known of the noise; ``further`` is the most that a further item moves each by. ``left_out`` are points whose result
    is not valid.
    """

    measure: Measure
    points: tuple[Point, ...]
    index: Mapping[str, int]
    means: tuple[float, ...]
    covariance: np.ndarray
    errors: tuple[float, ...]
    units: tuple[int, ...]
    further: tuple[float, ...]
    left_out: tuple[Point, ...] = ()

    def places(self, points: Sequence[Point]) -> list[int]:
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
        units = min((self.units[place] for place, _ in weights), default=UNKNOWN_UNITS)
        return contrast(
            self.means,
            self.covariance,
            weights,
            units=units,
            errors=self.errors,
            further=max((self.further[place] for place, _ in weights), default=0.0),
            extra=extra,
            level=level,
        )

    def rivals(self, best: int, among: Sequence[int], level: float) -> list[int]:
        """The others that cannot be told from the one measured best of so many: a paired p, times half their number
        (``statistics.best_of_many.is_told_best``), above 1 - level. An unknown noise tells nothing."""
        return [
            place
            for place in among
            if place != best
            and not is_told_best(
                [self.contrast([Weighted(best, 1.0), Weighted(place, -1.0)], level=level).p],
                len(among),
                1 - level,
            )
        ]


def pools_of(study: Study) -> dict[str, Pool]:
    """The pools of all measures by their keys; ``study.once(pools_of)`` keeps them."""
    return {measure.key: pool_of(study, measure) for measure in study.measures}


def pool_of(study: Study, measure: Measure) -> Pool:
    """The measure at all points of the study that have it."""
    import numpy as np

    values = [(point, study.value(point, measure)) for point in study.points]
    points = [point for point, value in values if value is not None and not value.invalid]
    means, errors = np.zeros(len(points)), np.zeros(len(points))
    covariance = np.zeros((len(points), len(points)))
    noises: list[_Noise] = []
    for benchmark, parts in _parts(measure).items():
        entries = [point.candidate.entries[benchmark] for point in points]
        found = _noise(entries, benchmark, parts)
        means, covariance = means + found.means, covariance + found.covariance
        errors = np.hypot(errors, found.errors)
        noises.append(found)
    return Pool(
        measure=measure,
        points=tuple(points),
        index={point.name: place for place, point in enumerate(points)},
        means=tuple(means.tolist()),
        covariance=covariance,
        errors=tuple(errors.tolist()),
        units=tuple(_units(noises, place) for place in range(len(points))),
        further=tuple(math.hypot(*(one.further(place) for one in noises)) for place in range(len(points))),
        left_out=tuple(point for point, value in values if value is not None and value.invalid),
    )


def _units(noises: Sequence[_Noise], place: int) -> int:
    """The number of independent items behind a point's sum over benchmarks; unknown where one's is not known."""
    if min(one.units[place] for one in noises) < 2:
        return UNKNOWN_UNITS
    variances = [float(one.covariance[place, place] + one.errors[place] ** 2) for one in noises]
    return 1 + round(satterthwaite(variances, [one.units[place] - 1 for one in noises]))


class _Part(NamedTuple):
    weight: float
    metric: str


class _Noise(NamedTuple):
    """Means and covariance of a benchmark's weighted metrics at all points, and the largest value of an item, 0 where
    that is not known."""

    means: np.ndarray
    covariance: np.ndarray
    errors: np.ndarray
    units: list[int]
    span: float

    def further(self, place: int) -> float:
        """The most that a further item moves the point's mean by; 0 for scores of no known range."""
        return self.span / (self.units[place] + 2)


def _parts(measure: Measure) -> dict[str, list[_Part]]:
    """The weighted metrics by benchmark."""
    if measure.composite is None:
        return {measure.benchmark: [_Part(1.0, measure.metric)]}
    found: dict[str, list[_Part]] = {}
    for weight, benchmark, metric in measure.composite.parts:
        found.setdefault(benchmark, []).append(_Part(weight, metric))
    return found


def _noise(entries: Sequence[BenchmarkScores], benchmark: str, parts: Sequence[_Part]) -> _Noise:
    import numpy as np

    n = len(entries)
    means, errors, covariance, units = np.zeros(n), np.zeros(n), np.zeros((n, n)), [UNKNOWN_UNITS] * n
    bounded = True
    columns: dict[int, np.ndarray] = {}
    for place, entry in enumerate(entries):
        own = _column(entry, parts)
        if own is not None:
            columns[place] = own
            continue
        means[place], error, items = _total(entry, benchmark, parts)
        bounded &= 0 <= abs(means[place]) <= 1
        if error is not None:
            errors[place], units[place] = error, items
    for same in _together(entries, columns):
        places = [place for alike, _ in same for place in alike]
        matrix = np.concatenate([np.stack([columns[one] for one in alike])[:, rows] for alike, rows in same])
        bounded &= bool(np.all(np.abs(matrix) <= 1))
        means[places] = [math.fsum(row) / len(row) for row in matrix.tolist()]
        clusters = [entries[places[0]].items.clusters[row] for row in same[0][1]]
        noise = noise_of(matrix[:-1], matrix[-1], clusters)
        if noise is not None:
            covariance[np.ix_(places, places)] = noise.covariance
            for place in places:
                units[place] = noise.units
    span = math.fsum(abs(weight) for weight, _ in parts) if bounded else 0.0
    return _Noise(means, covariance, errors, units, span)


def _column(entry: BenchmarkScores, parts: Sequence[_Part]) -> np.ndarray | None:
    """The weighted sum of each item's scores, larger is better, NaN where one is missing; None without items."""
    import numpy as np

    if not entry.items.examples:
        return None
    total = np.zeros(len(entry.items.examples))
    for weight, metric in parts:
        if not entry.saved.aggregation(metric).is_mean:
            return None
        try:
            scores = entry.items.scores.get(score_name(entry.saved, metric))
        except GateError:  # a mean over groups, which no item has
            return None
        if scores is None:
            return None
        sign = 1 if entry.saved.aggregation(metric).higher_score_is_better else -1
        total += sign * weight * np.array(scores, dtype=float)
    return None if np.isnan(total).all() else total


def _total(entry: BenchmarkScores, benchmark: str, parts: Sequence[_Part]) -> tuple[float, float | None, int]:
    """The weighted sum of totals, its error at most, and the number of items."""
    value, error, items = 0.0, 0.0, []
    lacking = False
    for weight, name in parts:
        metric = metric_of(entry, name)
        if metric is None or metric.value is None:  # the study has a value, so this cannot be
            return 0.0, None, 0
        known = with_limits(metric, benchmark)
        sign = 1 if entry.saved.aggregation(name).higher_is_better else -1
        value += sign * weight * metric.value
        lacking |= known.stderr is None or known.n < 2
        error += abs(weight) * (known.stderr or 0.0)
        items.append(known.n)
    return value, None if lacking else error, min(items)


class _Alike(NamedTuple):
    """Places of results with the very same items, and the rows of those that count, in one order."""

    places: list[int]
    rows: list[int]


def _together(entries: Sequence[BenchmarkScores], columns: dict[int, np.ndarray]) -> list[list[_Alike]]:
    """The results that share items, with the rows of the common ones.

    Results join others where at least half of the smaller one's items are common to all.
    """
    import numpy as np

    same: dict[str, list[int]] = {}
    for place in columns:
        entry = entries[place]
        same.setdefault(entry.saved.items_sha256 or entry.items.digest(), []).append(place)
    groups: list[tuple[list[list[int]], set[_Name]]] = []
    for places in sorted(same.values(), key=len, reverse=True):
        missing = np.any([np.isnan(columns[place]) for place in places], axis=0).tolist()
        names = zip(_names(entries[places[0]].items), missing, strict=True)
        known = {name for name, gone in names if not gone}
        for number, (others, common) in enumerate(groups):
            both = common & known
            if both and 2 * len(both) >= min(len(common), len(known)):
                groups[number] = ([*others, places], both)
                break
        else:
            groups.append(([places], known))
    return [
        [_Alike(places, _rows(entries[places[0]].items, common)) for places in found]
        for found, common in groups
        if common
    ]


_Name: TypeAlias = tuple[str, str]
"""The id of an item and the hash of its row."""


def _names(items: ItemScores) -> Iterable[_Name]:
    return zip(items.examples, items.rows, strict=True)


def _rows(items: ItemScores, common: set[_Name]) -> list[int]:
    """The rows of the common items, in order of their names."""
    found = {name: row for row, name in enumerate(_names(items)) if name in common}
    return [found[name] for name in sorted(found)]


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
    sign = 1 if pool.measure.higher_is_better else -1
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
