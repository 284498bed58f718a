"""The means of a measure at all points of a study, with what is known of their noise.

Larger is better throughout: an error rate is turned around, a perplexity stands by its log-probabilities. Points on the
same items share their luck, which their covariance holds (``statistics.joint_noise.noise_of``); points on other items
are independent. Of a point known by totals alone the error counts (``errors``); how it is correlated with others is not
known, and each use takes what claims the least.

Points whose result is not valid are left out: they decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pytest_touchstone.compare.candidate import Entry
from pytest_touchstone.compare.items import score_name
from pytest_touchstone.compare.metric import metric_of
from pytest_touchstone.compare.study.points import Measure, Point, Study
from pytest_touchstone.compare.study.values import with_limits
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.results.store_entry import ItemScores
from pytest_touchstone.statistics.best_of_many import is_told_best
from pytest_touchstone.statistics.contrasts import Contrast, Weighted, contrast
from pytest_touchstone.statistics.joint_noise import Noise, noise_of

if TYPE_CHECKING:
    import numpy as np

UNKNOWN_UNITS: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """A measure at the points that have it, in the study's order; ``means`` are turned so that larger is better.

    ``index`` has the points' places by name. ``units`` counts the independent items behind each, 0 where nothing is
    known of the noise. ``left_out`` are points whose result is not valid.
    """

    measure: Measure
    points: tuple[Point, ...]
    index: Mapping[str, int]
    means: tuple[float, ...]
    covariance: np.ndarray
    errors: tuple[float, ...]
    units: tuple[int, ...]
    bounded: bool
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

    def noise(self, places: Sequence[int]) -> Noise | None:
        """The noise of these means; None where that of one is not known. Totals are taken as independent, which is
        most for the maximum of several."""
        import numpy as np

        units = min((self.units[place] for place in places), default=UNKNOWN_UNITS)
        if units < 2:
            return None
        return Noise(self.spread[np.ix_(places, places)], units)

    def contrast(self, weights: Sequence[Weighted], *, level: float, extra: float = 0.0) -> Contrast:
        """The weighted sum of means."""
        units = min((self.units[place] for place, _ in weights), default=UNKNOWN_UNITS)
        return contrast(
            self.means,
            self.covariance,
            weights,
            units=units,
            errors=self.errors,
            bounded=self.bounded,
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
    units, bounded = [math.inf] * len(points), True
    for benchmark, parts in _parts(measure).items():
        entries = [point.candidate.entries[benchmark] for point in points]
        found = _noise(entries, benchmark, parts)
        means, covariance = means + found.means, covariance + found.covariance
        errors = np.hypot(errors, found.errors)
        units = [min(pair) for pair in zip(units, found.units, strict=True)]
        bounded &= found.bounded
    return Pool(
        measure=measure,
        points=tuple(points),
        index={point.name: place for place, point in enumerate(points)},
        means=tuple(means.tolist()),
        covariance=covariance,
        errors=tuple(errors.tolist()),
        units=tuple(int(one) for one in units),
        bounded=bounded,
        left_out=tuple(point for point, value in values if value is not None and value.invalid),
    )


class _Part(NamedTuple):
    weight: float
    metric: str


class _Noise(NamedTuple):
    """Means and covariance of a benchmark's weighted metrics at all points."""

    means: np.ndarray
    covariance: np.ndarray
    errors: np.ndarray
    units: list[int]
    bounded: bool


def _parts(measure: Measure) -> dict[str, list[_Part]]:
    """The weighted metrics by benchmark."""
    if measure.composite is None:
        return {measure.benchmark: [_Part(1.0, measure.metric)]}
    found: dict[str, list[_Part]] = {}
    for weight, benchmark, metric in measure.composite.parts:
        found.setdefault(benchmark, []).append(_Part(weight, metric))
    return found


def _noise(entries: Sequence[Entry], benchmark: str, parts: Sequence[_Part]) -> _Noise:
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
        means[places] = matrix.mean(axis=1)
        clusters = [entries[places[0]].items.clusters[row] for row in same[0][1]]
        noise = noise_of(matrix[:-1], matrix[-1], clusters)
        if noise is not None:
            covariance[np.ix_(places, places)] = noise.covariance
            for place in places:
                units[place] = noise.units
    return _Noise(means, covariance, errors, units, bounded)


def _column(entry: Entry, parts: Sequence[_Part]) -> np.ndarray | None:
    """The weighted sum of each item's scores, larger is better, NaN where one is missing; None without items."""
    import numpy as np

    if not entry.items.examples:
        return None
    total = np.zeros(len(entry.items.examples))
    for weight, metric in parts:
        try:
            scores = entry.items.scores.get(score_name(entry.saved, metric))
        except GateError:  # a mean over groups, which no item has
            return None
        if scores is None:
            return None
        sign = 1 if entry.saved.aggregation(metric).higher_score_is_better else -1
        total += sign * weight * np.array(scores, dtype=float)
    return None if np.isnan(total).all() else total


def _total(entry: Entry, benchmark: str, parts: Sequence[_Part]) -> tuple[float, float | None, int]:
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


def _together(entries: Sequence[Entry], columns: dict[int, np.ndarray]) -> list[list[_Alike]]:
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
