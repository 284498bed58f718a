"""Series against series: their bests, at equal epochs, by sequence length, and how fast they learn.

What is told here holds for these checkpoints on more items of the same kind. Another seed of the same training is not
in the data, and nothing is said of it.

- **Bests**: the best of each series, as measured and after allowing for the choice; of every two series the difference
  of their bests (``statistics.best_of_many.compare_bests``). All pairs of all primary metrics are one family (Holm),
  those of the composites another.
- **Equal epochs**: the mean difference over the epochs at which both have a checkpoint; without one in common, at the
  other's epochs by lines between checkpoints with their error; else not at all. Pairs of a measure are one family.
- **Lengths**: within each training, the best of one length against the best of another, by every metric; one family.
- **Efficiency**: the slope over the epochs, and the first epoch within one point of the peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Final, Literal

from harness.compare.study.differences import difference
from harness.compare.study.points import Measure, Point, Series, Study
from harness.compare.study.pool import Pool
from harness.statistics.best_of_many import best_of, compare_bests
from harness.statistics.comparison import LEVEL, Comparison
from harness.statistics.contrasts import (
    Contrast,
    Weighted,
    between_weights,
    interpolation_variance,
)
from harness.statistics.curves import Trend, trend
from harness.statistics.verdicts import MARGIN, holm

if TYPE_CHECKING:
    import numpy as np

Told = Literal["better", "worse", "cannot tell"]

SAME_EPOCH: Final = 0.005
"""Epochs that differ by less are one: they are written with two decimals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best of a series by a measure, as measured and after allowing for its having been chosen.

    ``shrunk`` is None where nothing is known of the noise. ``rivals`` are the points that cannot be told from it, in
    the order of their training; ``of`` is the number of points. ``by_totals``: the items of some are not known.
    """

    series: Series
    point: Point
    value: float
    shrunk: float | None
    rivals: tuple[Point, ...]
    of: int
    by_totals: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """The best of one series against that of another: the comparison after allowing for both choices, and as
    measured.

    ``items`` is the number of items compared, 0 where not known: of the side with fewer, and of a composite those of
    all its benchmarks. ``told`` is about the second series; ``p`` is Holm's.
    """

    first: Best
    second: Best
    comparison: Comparison
    as_measured: Comparison
    items: int
    p: float | None = None
    told: Told = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtEpochs:
    """Two series at equal epochs: the mean difference (second - first) over ``epochs``.

    ``how`` is "common", "interpolated" or "not at all", the last with ``why``.
    """

    first: Series
    second: Series
    how: Literal["common", "interpolated", "not at all"]
    epochs: tuple[float, ...] = ()
    contrast: Contrast | None = None
    why: str = ""
    p: float | None = None
    told: Told = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """The way of a series to its peak: ``slope`` in values per epoch (or step), the first place within one point of the
    peak, the peak's place, and the last one. ``why`` says why something is not known."""

    series: Series
    slope: Trend | None
    first: float | None
    within: float | None
    peak: float | None
    last: float | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """All of it for one measure. ``duels`` has every two series once; ``overall`` is the best of all."""

    measure: Measure
    bests: tuple[Best, ...]
    overall: Best | None
    duels: tuple[Duel, ...]
    epochs: tuple[AtEpochs, ...]
    efficiency: tuple[Efficiency, ...]

    def duel(self, first: Series, second: Series) -> Duel | None:
        """The duel of the two, turned so that ``told`` is about the second."""
        for one in self.duels:
            names = one.first.series.name, one.second.series.name
            if names == (first.name, second.name):
                return one
            if names == (second.name, first.name):
                return turned(one)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """The best of one sequence length against that of another, within one training, by one measure."""

    training: str
    measure: Measure
    duel: Duel


def between(study: Study, pools: Mapping[str, Pool]) -> list[Between]:
    """Series against series by each primary measure; ``pools`` are by the measures' keys."""
    found = [_of_measure(study, pools[one.key]) for one in study.measures if one.primary]
    alpha = 1 - study.level
    told: dict[str, tuple[Duel, ...]] = {}
    for composite in (False, True):
        mine = [one for one in found if (one.measure.composite is not None) == composite]
        judged = iter(_judged([duel for one in mine for duel in one.duels], alpha))
        told |= {one.measure.key: tuple(next(judged) for _ in one.duels) for one in mine}
    return [replace(one, duels=told[one.measure.key]) for one in found]


def by_length(study: Study, pools: Mapping[str, Pool]) -> list[Lengths]:
    """Every training with several lengths: the shorter one's best against the longer one's, by every measure."""
    trainings: dict[str, list[Series]] = {}
    for series in study.series:
        if series.seq_len is not None:
            trainings.setdefault(series.training, []).append(series)
    found = []
    for training, same in trainings.items():
        ordered = sorted(same, key=lambda one: one.seq_len or 0)
        for measure in study.measures:
            bests = [
                best
                for one in ordered
                if (best := best_of_series(one, pools[measure.key], study.level)) is not None
            ]
            pairs = [pair for pair in combinations(bests, 2) if _differ(*pair)]
            duels = [_duel(study, pools[measure.key], first, second) for first, second in pairs]
            found += [Lengths(training=training, measure=measure, duel=duel) for duel in duels]
    judged = _judged([one.duel for one in found], 1 - study.level)
    return [replace(one, duel=duel) for one, duel in zip(found, judged, strict=True)]


def gain(study: Study, series: Series, start: Point, pool: Pool) -> Duel | None:
    """The best of a series against the checkpoint that it began at; None where one lacks the measure."""
    alone = replace(study.series_of(start), points=(start,))
    first, second = (best_of_series(one, pool, study.level) for one in (alone, series))
    if first is None or second is None:
        return None
    (duel,) = _judged([_duel(study, pool, first, second)], 1 - study.level)
    return duel


def turned(one: Duel) -> Duel:
    """The duel as told of the first series."""
    opposite: dict[Told, Told] = {"better": "worse", "worse": "better", "cannot tell": "cannot tell"}
    return replace(
        one,
        first=one.second,
        second=one.first,
        comparison=one.comparison.turned,
        as_measured=one.as_measured.turned,
        told=opposite[one.told],
    )


def best_of_series(
    series: Series, pool: Pool, level: float = LEVEL, sample: np.ndarray | None = None
) -> Best | None:
    """The best point of the series; None where none has the measure. ``sample`` are draws of the pool's noise, if there
    are any yet."""
    places = pool.places(series.points)
    if not places:
        return None
    best = max(places, key=lambda place: pool.means[place])
    noise = pool.noise(places)
    sign = 1 if pool.measure.higher_is_better else -1
    luck = 0.0
    if noise is not None:
        drawn = None if sample is None else sample[:, places]
        choice = best_of([pool.means[place] for place in places], noise, sample=drawn)
        luck = choice.measured - choice.shrunk
    return Best(
        series=series,
        point=pool.points[best],
        value=sign * pool.means[best],
        shrunk=None if noise is None else sign * (pool.means[best] - luck),
        rivals=tuple(pool.points[place] for place in pool.rivals(best, places, level)),
        of=len(places),
        by_totals=any(pool.errors[place] for place in places),
    )


def _of_measure(study: Study, pool: Pool) -> Between:
    sample = pool.sample()
    found = (best_of_series(one, pool, study.level, sample) for one in study.series)
    bests = [best for best in found if best is not None]
    overall = None
    for best in bests:
        if overall is None or pool.measure.better(best.value, overall.value):
            overall = best
    pairs = list(combinations([best.series for best in bests], 2))
    epochs = [at_equal_epochs(first, second, pool, study.level) for first, second in pairs]
    return Between(
        measure=pool.measure,
        bests=tuple(bests),
        overall=overall,
        duels=tuple(_duel(study, pool, *pair, sample) for pair in combinations(bests, 2)),
        epochs=tuple(_judged_epochs(epochs, pool.measure, 1 - study.level)),
        efficiency=tuple(efficiency(best.series, pool, study.level) for best in bests),
    )


# Bests


def _duel(study: Study, pool: Pool, first: Best, second: Best, sample: np.ndarray | None = None) -> Duel:
    plain = difference(first.point, second.point, pool.measure, study.level)
    ours, theirs = pool.places(first.series.points), pool.places(second.series.points)
    noise = pool.noise([*ours, *theirs])
    found = plain
    if noise is not None and plain.difference is not None:
        oriented = compare_bests(
            [pool.means[place] for place in ours],
            [pool.means[place] for place in theirs],
            plain.oriented,
            noise,
            sample=None if sample is None else sample[:, [*ours, *theirs]],
        )
        found = oriented if plain.higher_is_better else oriented.mirrored()
    return Duel(
        first=first,
        second=second,
        comparison=found,
        as_measured=plain,
        items=_items(first.point, second.point, pool.measure) if pool.measure.composite else plain.n,
    )


def _items(first: Point, second: Point, composite: Measure) -> int:
    """The items of a composite's benchmarks, of each those of the side with fewer; 0 where one's are not known."""
    names = composite.composite.benchmarks if composite.composite else []
    sides = [[point.candidate.entries[name].saved.scored for point in (first, second)] for name in names]
    return sum(min(side) for side in sides) if all(min(side) for side in sides) else 0


def _judged(duels: Sequence[Duel], alpha: float) -> list[Duel]:
    adjusted = holm([one.comparison.p for one in duels])
    return [
        replace(one, p=p, told=_told(one.as_measured.oriented.difference, p, alpha))
        for one, p in zip(duels, adjusted, strict=True)
    ]


def _told(moved: float | None, p: float | None, alpha: float) -> Told:
    if not moved or p is None or p > alpha + 1e-12:
        return "cannot tell"
    return "better" if moved > 0 else "worse"


def _differ(first: Best, second: Best) -> bool:
    return first.series.seq_len != second.series.seq_len


# Equal epochs


def at_equal_epochs(first: Series, second: Series, pool: Pool, level: float) -> AtEpochs:
    """The mean difference of two series at equal epochs."""
    if first.axis != "epoch" or second.axis != "epoch":
        without = next(one for one in (first, second) if one.axis != "epoch")
        return AtEpochs(
            first=first, second=second, how="not at all", why=f"epochs of {without.name} not known"
        )
    ours, theirs = _line(first, pool), _line(second, pool)
    common = [
        (mine, other) for mine in ours for other in theirs if abs(mine.epoch - other.epoch) < SAME_EPOCH
    ]
    if common:
        share = 1 / len(common)
        weights = [
            one
            for mine, other in common
            for one in (Weighted(other.place, share), Weighted(mine.place, -share))
        ]
        return AtEpochs(
            first=first,
            second=second,
            how="common",
            epochs=tuple(mine.epoch for mine, _ in common),
            contrast=pool.contrast(weights, level=level),
        )
    return _interpolated(first, second, pool, level)


@dataclass(frozen=True, slots=True)
class _Stop:
    """The place of a point in the pool, and its epoch."""

    place: int
    epoch: float


def _line(series: Series, pool: Pool) -> list[_Stop]:
    """The points by epoch; of several at one epoch the last."""
    found: dict[float, _Stop] = {}
    for point in series.points:
        for place in pool.places([point]):
            if point.epoch is not None:
                found[round(point.epoch, 2)] = _Stop(place, point.epoch)
    return sorted(found.values(), key=lambda one: one.epoch)


def _interpolated(first: Series, second: Series, pool: Pool, level: float) -> AtEpochs:
    """The mean difference at the second's epochs by the first's line, or the other way round."""
    lines = (_line(first, pool), _line(second, pool))
    why = "their epochs do not overlap"
    for line, stops, sign in ((lines[0], lines[1], 1.0), (lines[1], lines[0], -1.0)):
        places, at = [one.place for one in line], [one.epoch for one in line]
        inside = [one for one in stops if at and at[0] < one.epoch < at[-1]]
        if not inside:
            continue
        extra = interpolation_variance(pool.means, pool.spread, places, at)
        if extra is None:
            why = "no epoch in common, and two checkpoints do not tell how straight the line between them is"
            continue
        share = sign / len(inside)
        weights = [Weighted(one.place, share) for one in inside]
        for one in inside:
            line_at = between_weights(places, at, one.epoch) or []
            weights += [Weighted(place, -share * weight) for place, weight in line_at]
        return AtEpochs(
            first=first,
            second=second,
            how="interpolated",
            epochs=tuple(one.epoch for one in inside),
            contrast=pool.contrast(weights, level=level, extra=extra),
        )
    return AtEpochs(first=first, second=second, how="not at all", why=why)


def _judged_epochs(found: Sequence[AtEpochs], measure: Measure, alpha: float) -> Iterable[AtEpochs]:
    """The same with verdicts; the differences, which were those of means turned round, as measured."""
    adjusted = holm([one.contrast.p if one.contrast else None for one in found])
    for one, p in zip(found, adjusted, strict=True):
        if one.contrast is None:
            yield one
            continue
        contrast = one.contrast if measure.higher_is_better else one.contrast.opposite
        yield replace(one, contrast=contrast, p=p, told=_told(one.contrast.value, p, alpha))


# Efficiency


def efficiency(series: Series, pool: Pool, level: float) -> Efficiency:
    """The slope of the series and its way to the peak."""
    known = [
        (place, where)
        for point in series.points
        for place in pool.places([point])
        if (where := series.place(point)) is not None
    ]
    if not known:
        why = "neither epochs nor steps are known"
        return Efficiency(series=series, slope=None, first=None, within=None, peak=None, last=None, why=why)
    places, at = [place for place, _ in known], [where for _, where in known]
    means = [pool.means[place] for place in places]
    best = means.index(max(means))
    near = next(where for mean, where in zip(means, at, strict=True) if mean >= means[best] - MARGIN - 1e-12)
    noise = pool.noise(places)
    slope = None if noise is None else trend(at, means, noise, level)
    if slope is not None and not pool.measure.higher_is_better:
        slope = replace(slope, slope=-slope.slope, low=-slope.high, high=-slope.low)
    why = "fewer than three checkpoints, or nothing is known of their noise" if slope is None else ""
    return Efficiency(
        series=series,
        slope=slope,
        first=at[0],
        within=near if pool.measure.share else None,
        peak=at[best],
        last=at[-1],
        why=why,
    )
