"""Series against series: their bests, at equal epochs, by sequence length, and how fast they learn.

What is told here holds for these checkpoints on more items of the same kind. Another seed of the same training is not
in the data, and nothing is said of it.

- **Bests**: the best of each series, as measured and after allowing for the choice; of every two series the difference
  of their bests (``statistics.best_of_many``). All pairs of all primary metrics are one family (Holm),
  those of the other metrics that composites count another, and those of the composites a third.
- **Equal epochs**: the mean difference over the epochs at which both have a checkpoint; without one in common, at the
  other's epochs by lines between checkpoints with their error; else not at all. Pairs of a measure are one family.
- **Lengths**: within each training, the best of one length against the best of another, by every metric; one family.
- **Beginnings**: two series at the epoch at which the later one begins. Where both have a checkpoint there, the two are
  compared. Where the earlier one has checkpoints before and after it, its value is that between them. Otherwise nothing
  is compared, and why is said: a first value at epoch 0.5 and one at 2.5 differ by two epochs of training, whatever
  else they differ by.
- **Efficiency**: the slope over the epochs, and the first epoch within one point of the peak.

A value between two checkpoints is that of the straight line, with the error of both and of the line: what its series
misses the lines through the neighbours of its checkpoints by (``statistics.contrasts``). Two checkpoints do not tell
that, so between them nothing is said. No curve is continued beyond its checkpoints.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Final, Literal

from pytest_touchstone.compare.study.differences import difference
from pytest_touchstone.compare.study.points import Measure, Point, Series, Study
from pytest_touchstone.compare.study.pool import Pool, pools_of
from pytest_touchstone.core.text import place_text
from pytest_touchstone.statistics.best_of_many import Bests
from pytest_touchstone.statistics.comparison import Comparison, undefined
from pytest_touchstone.statistics.contrasts import Contrast, Weighted, between_weights, interpolation_variance
from pytest_touchstone.statistics.curves import Trend, trend
from pytest_touchstone.statistics.verdicts import MARGIN, holm

Told = Literal["better", "worse", "cannot tell"]


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

    @property
    def turned(self) -> Duel:
        """The duel as told of the first series."""
        opposite: dict[Told, Told] = {"better": "worse", "worse": "better", "cannot tell": "cannot tell"}
        return replace(
            self,
            first=self.second,
            second=self.first,
            comparison=self.comparison.turned,
            as_measured=self.as_measured.turned,
            told=opposite[self.told],
        )


class Contest:
    """Series by a measure; ``bests`` are those of the series that have it, of which each can be held against each."""

    def __init__(self, study: Study, pool: Pool, series: Iterable[Series]) -> None:
        self._study = study
        self._pool = pool
        known = [(one, places) for one in series if (places := pool.places(one.points))]
        self._bests = Bests(
            pool.means, pool.spread, pool.units, [places for _, places in known], level=study.level
        )
        self.bests = tuple(self._best(number, *one) for number, one in enumerate(known))

    def _best(self, number: int, series: Series, places: Sequence[int]) -> Best:
        pool, place = self._pool, self._bests.places[number]
        sign = 1 if pool.measure.higher_is_better else -1
        luck = self._bests.luck(number)
        return Best(
            series=series,
            point=pool.points[place],
            value=sign * pool.means[place],
            shrunk=None if luck is None else sign * (pool.means[place] - luck),
            rivals=tuple(pool.points[one] for one in pool.rivals(place, places, self._study.level)),
            of=len(places),
            by_totals=any(pool.errors[one] for one in places),
        )

    def duel(self, first: int, second: int) -> Duel:
        """The best with the second number against that with the first."""
        one, other, measure = self.bests[first], self.bests[second], self._pool.measure
        plain = difference(self._study, one.point, other.point, measure)
        found = self._bests.compare(first, second, plain.oriented)
        return Duel(
            first=one,
            second=other,
            comparison=found if plain.higher_is_better else found.mirrored(),
            as_measured=plain,
            items=_items(one.point, other.point, measure) if measure.composite else plain.n,
        )


def _items(first: Point, second: Point, composite: Measure) -> int:
    """The items of a composite's benchmarks, of each those of the side with fewer; 0 where one's are not known."""
    names = composite.composite.benchmarks if composite.composite else []
    sides = [[point.candidate.entries[name].saved.scored for point in (first, second)] for name in names]
    return sum(min(side) for side in sides) if all(min(side) for side in sides) else 0


def judged(duels: Sequence[Duel], alpha: float) -> list[Duel]:
    """The duels with verdicts, corrected together (Holm)."""
    adjusted = holm([one.comparison.p for one in duels])
    return [
        replace(one, p=p, told=told_of(one.as_measured.oriented.difference, p, alpha))
        for one, p in zip(duels, adjusted, strict=True)
    ]


def told_of(moved: float | None, p: float | None, alpha: float) -> Told:
    """The verdict by a difference, where larger is better, and its p."""
    if not moved or p is None or p > alpha + 1e-12:
        return "cannot tell"
    return "better" if moved > 0 else "worse"


# Equal epochs


SAME_EPOCH: Final = 0.005
"""Epochs that differ by less are one: they are written with two decimals."""

TOO_FEW: Final = "no epoch in common, and two checkpoints do not tell how straight the line between them is"
APART: Final = "their epochs do not overlap"


@dataclass(frozen=True, slots=True)
class EpochPoint:
    """The place of a point in the pool, and its epoch."""

    place: int
    epoch: float


@dataclass(frozen=True, slots=True)
class SeriesByEpoch:
    """A series by epoch; ``bend`` is the variance by which it misses its own lines, None where that is not known."""

    series: Series
    stops: tuple[EpochPoint, ...]
    bend: float | None

    def at(self, epoch: float) -> EpochPoint | None:
        """The checkpoint at an epoch, if there is one."""
        return next((one for one in self.stops if abs(one.epoch - epoch) < SAME_EPOCH), None)

    def around(self, epoch: float) -> tuple[EpochPoint, EpochPoint] | None:
        """The checkpoints before and after an epoch; None outside."""
        after = next((number for number, one in enumerate(self.stops) if one.epoch > epoch), 0)
        return (self.stops[after - 1], self.stops[after]) if after else None


def line_of(series: Series, pool: Pool) -> SeriesByEpoch:
    """The points of a series by epoch; of several at one epoch the last. None of a series on another axis."""
    found: dict[float, EpochPoint] = {}
    for point in series.points if series.axis == "epoch" else ():
        for place in pool.places([point]):
            if point.epoch is not None:
                found[round(point.epoch, 2)] = EpochPoint(place, point.epoch)
    stops = tuple(sorted(found.values(), key=lambda one: one.epoch))
    places, at = [one.place for one in stops], [one.epoch for one in stops]
    return SeriesByEpoch(series, stops, interpolation_variance(pool.means, pool.spread, places, at))


def off_the_line(
    line: SeriesByEpoch, stops: Sequence[EpochPoint], pool: Pool, level: float
) -> Contrast | str:
    """The mean difference of checkpoints from the line at their epochs, or the reason why it is not known."""
    if line.bend is None:
        return TOO_FEW
    places, at = [one.place for one in line.stops], [one.epoch for one in line.stops]
    share = 1 / len(stops)
    weights = [Weighted(one.place, share) for one in stops]
    for one in stops:
        weights += [
            Weighted(place, -share * weight) for place, weight in between_weights(places, at, one.epoch) or []
        ]
    return pool.contrast(weights, level=level, extra=line.bend)


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


def at_equal_epochs(first: SeriesByEpoch, second: SeriesByEpoch, pool: Pool, level: float) -> AtEpochs:
    """The mean difference of two series at equal epochs."""
    plain = AtEpochs(first=first.series, second=second.series, how="not at all")
    without = next((one.series for one in (first, second) if one.series.axis != "epoch"), None)
    if without is not None:
        return replace(plain, why=f"epochs of {without.name} not known")
    common = [
        (mine, other)
        for mine in first.stops
        for other in second.stops
        if abs(mine.epoch - other.epoch) < SAME_EPOCH
    ]
    if not common:
        return _between(first, second, pool, level, plain)
    share = 1 / len(common)
    weights = [
        one for mine, other in common for one in (Weighted(other.place, share), Weighted(mine.place, -share))
    ]
    epochs = tuple(mine.epoch for mine, _ in common)
    return replace(plain, how="common", epochs=epochs, contrast=pool.contrast(weights, level=level))


def _between(
    first: SeriesByEpoch, second: SeriesByEpoch, pool: Pool, level: float, plain: AtEpochs
) -> AtEpochs:
    """The mean difference at the second's epochs by the first's line, or the other way round."""
    why = APART
    for line, other in ((first, second), (second, first)):
        inside = [one for one in other.stops if line.around(one.epoch) is not None]
        if not inside:
            continue
        found = off_the_line(line, inside, pool, level)
        if isinstance(found, str):
            why = found
            continue
        contrast = found if line is first else found.opposite
        epochs = tuple(one.epoch for one in inside)
        return replace(plain, how="interpolated", epochs=epochs, contrast=contrast)
    return replace(plain, why=why)


def judged_epochs(found: Sequence[AtEpochs], measure: Measure, alpha: float) -> Iterable[AtEpochs]:
    """The same with verdicts; the differences, which were those of means turned round, as measured."""
    adjusted = holm([one.contrast.p if one.contrast else None for one in found])
    for one, p in zip(found, adjusted, strict=True):
        if one.contrast is None:
            yield one
            continue
        contrast = one.contrast if measure.higher_is_better else one.contrast.opposite
        yield replace(one, contrast=contrast, p=p, told=told_of(one.contrast.value, p, alpha))


# All of it, by measure


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


@dataclass(frozen=True, kw_only=True)
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
        found = self._by_names.get((first.name, second.name))
        other = self._by_names.get((second.name, first.name))
        return found if found or other is None else other.turned

    @cached_property
    def _by_names(self) -> dict[tuple[str, str], Duel]:
        return {(one.first.series.name, one.second.series.name): one for one in self.duels}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """The best of one sequence length against that of another, within one training, by one measure."""

    training: str
    measure: Measure
    duel: Duel


FAMILIES: Final = ("benchmarks", "other metrics", "composites")
"""The measures whose tests are corrected together."""


def family_of(measure: Measure) -> str:
    """Return the family of a measure."""
    return FAMILIES[2 if measure.composite is not None else 0 if measure.primary else 1]


def between(study: Study, pools: Mapping[str, Pool]) -> list[Between]:
    """Series against series by each measure that decides, or that a composite counts; ``pools`` are by the measures'
    keys."""
    counted = {
        (part.benchmark, part.metric)
        for one in study.measures
        for part in (one.composite.parts if one.composite is not None else ())
    }
    measures = [one for one in study.measures if one.primary or (one.benchmark, one.metric) in counted]
    found = [_of_measure(study, pools[one.key]) for one in measures]
    alpha = 1 - study.level
    told: dict[str, tuple[Duel, ...]] = {}
    for family in FAMILIES:
        mine = [one for one in found if family_of(one.measure) == family]
        found_of = iter(judged([duel for one in mine for duel in one.duels], alpha))
        told |= {one.measure.key: tuple(next(found_of) for _ in one.duels) for one in mine}
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
            contest = Contest(study, pools[measure.key], ordered)
            lengths = [best.series.seq_len for best in contest.bests]
            found += [
                Lengths(training=training, measure=measure, duel=contest.duel(one, other))
                for one, other in combinations(range(len(lengths)), 2)
                if lengths[one] != lengths[other]
            ]
    duels = judged([one.duel for one in found], 1 - study.level)
    return [replace(one, duel=duel) for one, duel in zip(found, duels, strict=True)]


def gain(study: Study, series: Series, start: Point, pool: Pool) -> Duel | None:
    """The best of a series against the checkpoint that it began at; None where one lacks the measure."""
    alone = replace(study.series_of(start), points=(start,))
    contest = Contest(study, pool, (alone, series))
    if len(contest.bests) < 2:
        return None
    (duel,) = judged([contest.duel(0, 1)], 1 - study.level)
    return duel


def _of_measure(study: Study, pool: Pool) -> Between:
    contest = Contest(study, pool, study.series)
    bests = contest.bests
    overall = None
    for best in bests:
        if overall is None or pool.measure.better(best.value, overall.value):
            overall = best
    lines = [line_of(best.series, pool) for best in bests]
    epochs = [at_equal_epochs(*pair, pool, study.level) for pair in combinations(lines, 2)]
    return Between(
        measure=pool.measure,
        bests=bests,
        overall=overall,
        duels=tuple(contest.duel(*pair) for pair in combinations(range(len(bests)), 2)),
        epochs=tuple(judged_epochs(epochs, pool.measure, 1 - study.level)),
        efficiency=tuple(efficiency(best.series, pool, study.level) for best in bests),
    )


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


# The beginnings of two series


@dataclass(frozen=True, slots=True, kw_only=True)
class StartComparison:
    """Two series at the epoch where the later of them begins; ``comparison`` is of ``second`` with ``first``.

    ``between`` are the checkpoints that a value was interpolated from, None where both were measured.
    """

    measure: Measure
    first: Series
    second: Series
    epoch: float | None
    comparison: Comparison
    between: tuple[Point, Point] | None = None


def starts_of(study: Study, measure: Measure) -> Iterator[StartComparison]:
    """Every pair of series that have the measure and several checkpoints."""
    pool = study.once(pools_of)[measure.key]
    lines = [line_of(one, pool) for one in study.series if len(pool.places(one.points)) > 1]
    for first, second in itertools.combinations(lines, 2):
        yield _start(study, pool, first, second)


def _start(study: Study, pool: Pool, first: SeriesByEpoch, second: SeriesByEpoch) -> StartComparison:
    def found(
        comparison: Comparison | str, epoch: float | None = None, between: tuple[Point, Point] | None = None
    ) -> StartComparison:
        known = undefined(comparison, level=study.level) if isinstance(comparison, str) else comparison
        return StartComparison(
            measure=pool.measure,
            first=first.series,
            second=second.series,
            epoch=epoch,
            comparison=known,
            between=between,
        )

    lacking = [one.series.name for one in (first, second) if not one.stops]
    if lacking:
        return found(f"the epochs of {' and '.join(lacking)} are not known")
    epoch = max(first.stops[0].epoch, second.stops[0].epoch)
    own, other = (line.at(epoch) for line in (first, second))
    if own is not None and other is not None:
        both = pool.points[own.place], pool.points[other.place]
        return found(difference(study, *both, pool.measure), epoch)
    early, late = (first, second) if first.stops[0].epoch < epoch else (second, first)
    around = early.around(epoch)
    if around is None:
        ends, begins = place_text(early.stops[-1].epoch), place_text(epoch)
        return found(
            f"{early.series.name} ends at epoch {ends}, and {late.series.name} begins at {begins}", epoch
        )
    contrast = off_the_line(early, late.stops[:1], pool, study.level)
    if isinstance(contrast, str):
        return found(contrast, epoch)
    places = [late.stops[0].place, *(one.place for one in around)]
    points = [pool.points[place] for place in places]
    sizes = [value.n for point in points if (value := study.value(point, pool.measure)) is not None]
    made = replace(
        _against_the_line(pool, places, contrast, study.level, turned=early is second), n=min(sizes)
    )
    return found(made, epoch, (points[1], points[2]))


def _against_the_line(
    pool: Pool, places: Sequence[int], contrast: Contrast, level: float, *, turned: bool
) -> Comparison:
    """The first of three checkpoints against the value between the others, which it differs from so much, or with
    ``turned`` the other way round; in the measure's own direction."""
    higher = pool.measure.higher_is_better
    sign = 1 if higher else -1
    measured, made = sign * pool.means[places[0]], sign * (pool.means[places[0]] - contrast.value)
    own = contrast if higher != turned else contrast.opposite
    units = min(pool.units[place] for place in places)
    return Comparison(
        baseline=measured if turned else made,
        new=made if turned else measured,
        difference=own.value,
        low=own.low,
        high=own.high,
        stderr=own.stderr,
        p=own.p,
        n=units,
        units=units,
        method="linear interpolation between two checkpoints, t interval",
        level=level,
        why=None if own.stderr else "an error is not known",
        higher_is_better=higher,
    )
