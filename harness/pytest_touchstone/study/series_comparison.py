"""Series against series: their bests, at equal epochs, by sequence length, and how fast they learn.

What is told here holds for these checkpoints on more items of the same kind. Another seed of the same training is not
in the data, and nothing is said of it.

- **Bests**: the best of each series, as measured and after allowing for the choice; of every two series the difference
  of their bests (``statistics.best_of_many``). All pairs of all primary metrics are one family (Holm),
  those of the other metrics that composites count another, and those of the composites a third.
- **Equal epochs**: the mean difference over the epochs at which both have a checkpoint; without one in common, at the
  other's epochs by lines between checkpoints with their error; else not at all. Pairs of a measure are one family.
- **Lengths**: within each training, the best of one length against the best of another; one family.
- **Beginnings**: two series at the epoch at which the later one begins, as at equal epochs. A first value at epoch 0.5
  and one at 2.5 differ by two epochs of training, whatever else they differ by. All pairs of all measures are one
  family.

A value between two checkpoints is that of the straight line, with the error of both and of the line: what its series
misses the lines through the neighbours of its checkpoints by (``statistics.contrasts``). Two checkpoints do not tell
that, so between them nothing is said. No curve is continued beyond its checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, islice
from typing import Final, Literal, TypeVar

from pytest_touchstone.statistics.best_of_many import GroupedBests
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.contrasts import (
    Contrast,
    ContrastTerm,
    between_weights,
    interpolation_variance,
)
from pytest_touchstone.statistics.verdicts import holm
from pytest_touchstone.study.points import Point, Series, Study, StudyMetric
from pytest_touchstone.study.pool import JointMeans, difference, pools_of

Told = Literal["better", "worse", "cannot tell"]
UNTOLD: Final[Told] = "cannot tell"
OPPOSITE: Final[dict[Told, Told]] = {"better": "worse", "worse": "better", UNTOLD: UNTOLD}


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best of a series by a measure, as measured and ``corrected`` for its having been chosen.

    ``corrected`` is None where nothing is known of the noise. ``rivals`` are the points that cannot be told from it, in
    the order of their training; ``of`` is the number of points. ``by_totals``: the items of some are not known.
    """

    series: Series
    point: Point
    value: float
    corrected: float | None
    rivals: tuple[Point, ...]
    of: int
    by_totals: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BestVsBest:
    """The best of one series against that of another: the comparison after allowing for both choices, and as
    measured.

    ``items`` is the number of items compared, 0 where not known: of the side with fewer, and of a composite those of
    all its benchmarks. ``told`` is about the second series; ``p`` is Holm's.
    """

    measure: StudyMetric
    first: Best
    second: Best
    comparison: Comparison
    as_measured: Comparison
    items: int
    p: float | None = None
    told: Told = UNTOLD

    @property
    def test(self) -> tuple[float | None, float | None]:
        """The difference, of which more is better, and its p before it is corrected for others."""
        return self.as_measured.oriented.difference, self.comparison.p

    @property
    def series(self) -> tuple[Series, Series]:
        """The two series."""
        return self.first.series, self.second.series

    @property
    def turned(self) -> BestVsBest:
        """The duel as told of the first series."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            comparison=self.comparison.turned,
            as_measured=self.as_measured.turned,
            told=OPPOSITE[self.told],
        )


class SeriesContest:
    """Groups of a pool's places, each of a series, whose bests can be held against each other."""

    def __init__(
        self, study: Study, pool: JointMeans, groups: Sequence[tuple[Series, Sequence[int]]]
    ) -> None:
        self._study = study
        self._pool = pool
        self._bests = GroupedBests(pool.means, pool.spread, pool.units, [places for _, places in groups])
        self.bests = tuple(self._best(number, *group) for number, group in enumerate(groups))

    def _best(self, number: int, series: Series, places: Sequence[int]) -> Best:
        pool, place = self._pool, self._bests.places[number]
        luck = self._bests.luck(number)
        return Best(
            series=series,
            point=pool.points[place],
            value=pool.measure.sign * pool.means[place],
            corrected=None if luck is None else pool.measure.sign * (pool.means[place] - luck),
            rivals=tuple(pool.points[one] for one in pool.rivals(place, places, self._study.level)),
            of=len(places),
            by_totals=any(pool.errors[one] for one in places),
        )

    def duel(self, first: int, second: int) -> BestVsBest:
        """The best of the second group against that of the first."""
        one, other, measure = self.bests[first], self.bests[second], self._pool.measure
        plain = difference(self._study, one.point, other.point, measure)
        found = self._bests.compare(first, second, plain.oriented)
        return BestVsBest(
            measure=measure,
            first=one,
            second=other,
            comparison=found if plain.higher_is_better else found.mirrored(),
            as_measured=plain,
            items=_items(one.point, other.point, measure) if measure.composite else plain.n,
        )


def _items(first: Point, second: Point, composite: StudyMetric) -> int:
    """The items of a composite's benchmarks, of each those of the side with fewer; 0 where one's are not known."""
    sides = [
        [point.candidate.entries[name].saved.scored for point in (first, second)]
        for name in composite.benchmarks
    ]
    return sum(min(side) for side in sides) if all(min(side) for side in sides) else 0


# Equal epochs


DECIMALS: Final = 2
"""The decimals that epochs are written with: those that are equal so far are one."""

APART: Final = "their epochs do not overlap"


@dataclass(frozen=True, slots=True)
class SeriesByEpoch:
    """The places of a series in the pool by their epochs, in order; ``bend`` is the variance by which it misses its own
    lines, None where that is not known."""

    series: Series
    places: Mapping[float, int]
    bend: float | None

    def line(self, epoch: float) -> list[ContrastTerm] | None:
        """The weights of the neighbours for the value at an epoch; None outside, and where the error is not known."""
        return between_weights([*self.places.values()], [*self.places], epoch)


def line_of(series: Series, pool: JointMeans) -> SeriesByEpoch:
    """The points of a series by epoch, of several at one epoch the last; none where its axis has no epochs."""
    epochs = {
        place: round(point.epoch, DECIMALS)
        for point in series.points
        for place in pool.places([point])
        if series.axis == "epoch" and point.epoch is not None
    }
    places = {epoch: place for place, epoch in sorted(epochs.items(), key=lambda one: one[1])}
    bend = interpolation_variance(pool.means, pool.spread, [*places.values()], [*places])
    return SeriesByEpoch(series, places, bend)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtEpochs:
    """Two series at equal epochs: the mean difference (second - first) over ``epochs``, and ``gaps``, that at each.

    ``how`` is "common", "interpolated" or "not at all", the last with ``why``.
    """

    measure: StudyMetric
    first: Series
    second: Series
    how: Literal["common", "interpolated", "not at all"] = "not at all"
    epochs: tuple[float, ...] = ()
    gaps: tuple[float, ...] = ()
    contrast: Contrast | None = None
    why: str = ""
    p: float | None = None
    told: Told = UNTOLD

    @property
    def test(self) -> tuple[float | None, float | None]:
        """The difference, of which more is better, and its p before it is corrected for others."""
        one = self.contrast
        return (None, None) if one is None else (self.measure.sign * one.value, one.p)

    @property
    def series(self) -> tuple[Series, Series]:
        """The two series."""
        return self.first, self.second


def at_equal_epochs(first: SeriesByEpoch, second: SeriesByEpoch, pool: JointMeans, level: float) -> AtEpochs:
    """The mean difference of two series at equal epochs."""
    plain = AtEpochs(measure=pool.measure, first=first.series, second=second.series)
    without = next((one.series for one in (first, second) if not one.places), None)
    if without is not None:
        return replace(plain, why=f"epochs of {without.name} not known")
    if common := [epoch for epoch in first.places if epoch in second.places]:
        sides = [
            [ContrastTerm(one.places[epoch], sign) for one, sign in ((second, 1.0), (first, -1.0))]
            for epoch in common
        ]
        return _compared(replace(plain, how="common", epochs=tuple(common)), sides, pool, level)
    why = APART
    for line, other, sign in ((first, second, 1.0), (second, first, -1.0)):
        lines = {epoch: found for epoch in other.places if (found := line.line(epoch)) is not None}
        if lines and line.bend is None:
            why = "no epoch in common, and two checkpoints do not tell how straight the line between them is"
        elif lines:
            sides = [
                [
                    ContrastTerm(other.places[epoch], sign),
                    *(ContrastTerm(place, -sign * weight) for place, weight in found),
                ]
                for epoch, found in lines.items()
            ]
            made = replace(plain, how="interpolated", epochs=tuple(lines))
            return _compared(made, sides, pool, level, extra=line.bend or 0.0)
    return replace(plain, why=why)


def _compared(
    made: AtEpochs,
    sides: Sequence[Sequence[ContrastTerm]],
    pool: JointMeans,
    level: float,
    extra: float = 0.0,
) -> AtEpochs:
    """The comparison with the mean of the differences at its epochs, whose weights these are."""
    weights = [ContrastTerm(place, weight / len(sides)) for side in sides for place, weight in side]
    found = pool.contrast(weights, level=level, extra=extra)
    sign = pool.measure.sign
    gaps = tuple(sign * sum(weight * pool.means[place] for place, weight in side) for side in sides)
    return replace(made, contrast=found if sign > 0 else found.opposite, gaps=gaps)


def at_the_later_start(
    first: SeriesByEpoch, second: SeriesByEpoch, pool: JointMeans, level: float
) -> AtEpochs:
    """The difference of two series at the epoch at which the later of them begins."""
    begins = max((next(iter(one.places)) for one in (first, second) if one.places), default=0.0)

    def cut(one: SeriesByEpoch) -> SeriesByEpoch:
        late = next(iter(one.places), None) == begins
        return replace(one, places={begins: one.places[begins]}) if late else one

    return at_equal_epochs(cut(first), cut(second), pool, level)


# All of it, by measure


@dataclass(frozen=True, kw_only=True)
class SeriesComparison:
    """All of it for one measure. ``duels`` has every two series once; ``overall`` is the best of all."""

    measure: StudyMetric
    bests: tuple[Best, ...]
    overall: Best | None
    duels: tuple[BestVsBest, ...]
    epochs: tuple[AtEpochs, ...]
    starts: tuple[AtEpochs, ...]

    def duel(self, first: Series, second: Series) -> BestVsBest | None:
        """The duel of the two, turned so that ``told`` is about the second."""
        found = self._by_names.get((first.name, second.name))
        other = self._by_names.get((second.name, first.name))
        return found if found or other is None else other.turned

    @cached_property
    def _by_names(self) -> dict[tuple[str, str], BestVsBest]:
        return {(one.first.series.name, one.second.series.name): one for one in self.duels}


Test = TypeVar("Test", BestVsBest, AtEpochs)


def judged(tests: Sequence[Test], level: float) -> list[Test]:
    """The tests with verdicts, corrected together (Holm)."""
    adjusted = holm([one.test[1] for one in tests])
    return [
        replace(one, p=p, told=verdict_from_p(one.test[0], p, 1 - level))
        for one, p in zip(tests, adjusted, strict=True)
    ]


def verdict_from_p(moved: float | None, p: float | None, alpha: float) -> Told:
    """The verdict by a difference, where larger is better, and its p."""
    if not moved or p is None or p > alpha + 1e-12:
        return UNTOLD
    return "better" if moved > 0 else "worse"


FAMILIES: Final = ("benchmarks", "other metrics", "composites")
"""The measures whose bests are tested together."""


def family_of(measure: StudyMetric) -> str:
    """Return the family of a measure."""
    return FAMILIES[2 if measure.composite is not None else 0 if measure.primary else 1]


def compare_series(study: Study) -> list[SeriesComparison]:
    """Return series against series by each measure; ``study.once(between)`` keeps it."""
    found = [_of_measure(study, pool) for pool in study.once(pools_of).values()]
    duels = {
        family: iter(
            judged(
                [duel for one in found if family_of(one.measure) == family for duel in one.duels], study.level
            )
        )
        for family in FAMILIES
    }
    starts = iter(judged([start for one in found for start in one.starts], study.level))
    return [
        replace(
            one,
            duels=tuple(islice(duels[family_of(one.measure)], len(one.duels))),
            epochs=tuple(judged(one.epochs, study.level)),
            starts=tuple(islice(starts, len(one.starts))),
        )
        for one in found
    ]


def _of_measure(study: Study, pool: JointMeans) -> SeriesComparison:
    known = [(one, places) for one in study.series if (places := pool.places(one.points))]
    contest = SeriesContest(study, pool, known)
    lines = [line_of(one, pool) for one, _ in known]
    several = [line for line, (_, places) in zip(lines, known, strict=True) if len(places) > 1]
    return SeriesComparison(
        measure=pool.measure,
        bests=contest.bests,
        overall=max(contest.bests, key=lambda one: pool.measure.sign * one.value, default=None),
        duels=tuple(contest.duel(*pair) for pair in combinations(range(len(known)), 2)),
        epochs=tuple(at_equal_epochs(*pair, pool, study.level) for pair in combinations(lines, 2)),
        starts=tuple(at_the_later_start(*pair, pool, study.level) for pair in combinations(several, 2)),
    )


def by_length(study: Study) -> list[BestVsBest]:
    """Return the bests of the lengths of each training, the shorter one first."""
    duels = [
        duel if (one.seq_len or 0) < (other.seq_len or 0) else duel.turned
        for measure in study.once(compare_series)
        for duel in measure.duels
        for one, other in [duel.series]
        if one.training == other.training and None not in (one.seq_len, other.seq_len)
        if one.seq_len != other.seq_len
    ]
    return judged(duels, study.level)
