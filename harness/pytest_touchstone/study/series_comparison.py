"""Compares series: their bests, equal epochs, sequence lengths and beginnings.

All statements are about these checkpoints on more items of the same kind. They do not cover another seed of the same
training, which is not in the data.

- **Bests**: the best of each series, as measured and corrected for selection, and the difference of the bests of every
  two series (``statistics.best_of_many``). All pairs of all primary metrics are one family (Holm), those of other
  metrics in composites are a second, and those of composites a third.
- **Equal epochs**: the mean difference over the epochs at which both have a checkpoint. Without a common epoch, one
  series is interpolated at the epochs of the other. Pairs of a measure are one family.
- **Lengths**: within each training, the best of one length against the best of another; one family.
- **Beginnings**: two series at the epoch at which the later one begins. First values at epochs 0.5 and 2.5 differ by
  two epochs of training, whatever else the series differ by. All pairs of all measures are one family.

Values between two checkpoints are interpolated on a straight line. Their error adds the errors of both checkpoints to
that of the line, which is estimated from how far checkpoints lie from the lines through their neighbours
(``statistics.contrasts``). Two checkpoints are too few for that estimate. No curve is continued beyond its checkpoints.
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
from pytest_touchstone.study.pool import JointMeans, compare_points, pools_of

ComparisonVerdict = Literal["better", "worse", "cannot tell"]
UNDECIDED: Final[ComparisonVerdict] = "cannot tell"
OPPOSITE: Final[dict[ComparisonVerdict, ComparisonVerdict]] = {
    "better": "worse",
    "worse": "better",
    UNDECIDED: UNDECIDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfSeries:
    """The best point of a series by a measure.

    ``value`` is measured; ``corrected`` allows for the selection, and is None if the noise is unknown. ``rivals`` are
    the points that do not differ significantly from the best, in the order of training. ``of`` is the number of points.
    ``by_totals`` is set if some points lack item scores.
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
    """The comparison of the bests of two series, corrected for both selections, and as measured.

    ``items`` is the number of items compared, 0 if unknown: those of the side with fewer; for a composite, summed over
    its benchmarks. ``told`` is the verdict on the second series; ``p`` is corrected by Holm's method.
    """

    measure: StudyMetric
    first: BestOfSeries
    second: BestOfSeries
    comparison: Comparison
    as_measured: Comparison
    items: int
    p: float | None = None
    told: ComparisonVerdict = UNDECIDED

    @property
    def test(self) -> tuple[float | None, float | None]:
        """The difference, oriented so that more is better, and its uncorrected p."""
        return self.as_measured.oriented.difference, self.comparison.p

    @property
    def series(self) -> tuple[Series, Series]:
        """The two series, the first as the baseline."""
        return self.first.series, self.second.series

    @property
    def turned(self) -> BestVsBest:
        """The comparison with the series exchanged."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            comparison=self.comparison.turned,
            as_measured=self.as_measured.turned,
            told=OPPOSITE[self.told],
        )


class SeriesContest:
    """Groups of points, each of a series, whose bests can be compared with each other.

    A group lists indices of ``JointMeans``.
    """

    def __init__(
        self, study: Study, pool: JointMeans, groups: Sequence[tuple[Series, Sequence[int]]]
    ) -> None:
        self._study = study
        self._pool = pool
        self._bests = GroupedBests(pool.means, pool.spread, pool.units, [indices for _, indices in groups])
        self.bests = tuple(self._best(number, *group) for number, group in enumerate(groups))

    def _best(self, group_index: int, series: Series, indices: Sequence[int]) -> BestOfSeries:
        pool, index = self._pool, self._bests.places[group_index]
        luck = self._bests.luck(group_index)
        return BestOfSeries(
            series=series,
            point=pool.points[index],
            value=pool.measure.sign * pool.means[index],
            corrected=None if luck is None else pool.measure.sign * (pool.means[index] - luck),
            rivals=tuple(pool.points[rival] for rival in pool.rivals(index, indices, self._study.level)),
            of=len(indices),
            by_totals=any(pool.errors[index] for index in indices),
        )

    def duel(self, first: int, second: int) -> BestVsBest:
        """Compare the best of the second group with that of the first; arguments are indices of groups."""
        first_best, second_best, measure = self.bests[first], self.bests[second], self._pool.measure
        as_measured = compare_points(self._study, first_best.point, second_best.point, measure)
        corrected = self._bests.compare(first, second, as_measured.oriented)
        return BestVsBest(
            measure=measure,
            first=first_best,
            second=second_best,
            comparison=corrected if as_measured.higher_is_better else corrected.mirrored(),
            as_measured=as_measured,
            items=_composite_items(first_best.point, second_best.point, measure)
            if measure.composite
            else as_measured.n,
        )


def _composite_items(first: Point, second: Point, composite: StudyMetric) -> int:
    """Return the number of items of a composite that both points have; 0 if unknown.

    Each benchmark counts the items of the point with fewer.
    """
    sides = [
        [point.candidate.entries[name].saved.scored for point in (first, second)]
        for name in composite.benchmarks
    ]
    return sum(min(side) for side in sides) if all(min(side) for side in sides) else 0


# Equal epochs


DECIMALS: Final = 2
"""The decimals of an epoch; epochs that agree in them count as equal."""

NO_OVERLAP: Final = "their epochs do not overlap"


@dataclass(frozen=True, slots=True)
class SeriesByEpoch:
    """The points of a series by epoch.

    ``places`` are indices of ``JointMeans``, in the order of epochs. ``bend`` is the variance of interpolation; None if
    unknown.
    """

    series: Series
    places: Mapping[float, int]
    bend: float | None

    def line(self, epoch: float) -> list[ContrastTerm] | None:
        """Return the weights that interpolate the value at an epoch; None outside the series."""
        return between_weights([*self.places.values()], [*self.places], epoch)


def series_by_epoch(series: Series, pool: JointMeans) -> SeriesByEpoch:
    """Return the points of a series by epoch, the last one of each; none on another axis."""
    epochs = {
        index: round(point.epoch, DECIMALS)
        for point in series.points
        for index in pool.places([point])
        if series.axis == "epoch" and point.epoch is not None
    }
    indices = {epoch: index for index, epoch in sorted(epochs.items(), key=lambda pair: pair[1])}
    bend = interpolation_variance(pool.means, pool.spread, [*indices.values()], [*indices])
    return SeriesByEpoch(series, indices, bend)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochComparison:
    """The comparison of two series at equal epochs.

    ``contrast`` is the mean difference (second - first) over ``epochs``; ``gaps`` are the differences at each of them.
    ``why`` is the reason for "not at all".
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
    told: ComparisonVerdict = UNDECIDED

    @property
    def test(self) -> tuple[float | None, float | None]:
        """The difference, oriented so that more is better, and its uncorrected p."""
        if self.contrast is None:
            return None, None
        return self.measure.sign * self.contrast.value, self.contrast.p

    @property
    def series(self) -> tuple[Series, Series]:
        """The two series, the first as the baseline."""
        return self.first, self.second


def compare_at_equal_epochs(
    first: SeriesByEpoch, second: SeriesByEpoch, pool: JointMeans, level: float
) -> EpochComparison:
    """Compare two series at their common epochs, else by interpolation."""
    comparison = EpochComparison(measure=pool.measure, first=first.series, second=second.series)
    missing = next((series.series for series in (first, second) if not series.places), None)
    if missing is not None:
        return replace(comparison, why=f"epochs of {missing.name} not known")
    if common := [epoch for epoch in first.places if epoch in second.places]:
        sides = [
            [ContrastTerm(series.places[epoch], sign) for series, sign in ((second, 1.0), (first, -1.0))]
            for epoch in common
        ]
        return _contrast_at_epochs(
            replace(comparison, how="common", epochs=tuple(common)), sides, pool, level
        )
    reason = NO_OVERLAP
    for interpolating, other, sign in ((first, second, 1.0), (second, first, -1.0)):
        lines = {epoch: terms for epoch in other.places if (terms := interpolating.line(epoch)) is not None}
        if lines and interpolating.bend is None:
            reason = (
                "no epoch in common, and two checkpoints do not tell how straight the line between them is"
            )
        elif lines:
            sides = [
                [
                    ContrastTerm(other.places[epoch], sign),
                    *(ContrastTerm(index, -sign * weight) for index, weight in terms),
                ]
                for epoch, terms in lines.items()
            ]
            interpolated = replace(comparison, how="interpolated", epochs=tuple(lines))
            return _contrast_at_epochs(interpolated, sides, pool, level, extra=interpolating.bend or 0.0)
    return replace(comparison, why=reason)


def _contrast_at_epochs(
    comparison: EpochComparison,
    sides: Sequence[Sequence[ContrastTerm]],
    pool: JointMeans,
    level: float,
    extra: float = 0.0,
) -> EpochComparison:
    """Return the comparison with the mean of the differences at its epochs.

    Args:
        comparison: The series and epochs.
        sides: The weights of the difference at each epoch.
        pool: The means of the measure.
        level: The level of the interval.
        extra: The variance of interpolation.

    """
    weights = [ContrastTerm(index, weight / len(sides)) for side in sides for index, weight in side]
    contrast = pool.contrast(weights, level=level, extra=extra)
    sign = pool.measure.sign
    gaps = tuple(sign * sum(weight * pool.means[index] for index, weight in side) for side in sides)
    return replace(comparison, contrast=contrast if sign > 0 else contrast.opposite, gaps=gaps)


def compare_at_later_start(
    first: SeriesByEpoch, second: SeriesByEpoch, pool: JointMeans, level: float
) -> EpochComparison:
    """Compare two series at the epoch at which the later one begins."""
    begins = max((next(iter(series.places)) for series in (first, second) if series.places), default=0.0)

    def trim(series: SeriesByEpoch) -> SeriesByEpoch:
        begins_later = next(iter(series.places), None) == begins
        return replace(series, places={begins: series.places[begins]}) if begins_later else series

    return compare_at_equal_epochs(trim(first), trim(second), pool, level)


# All of it, by measure


@dataclass(frozen=True, kw_only=True)
class SeriesComparison:
    """The comparisons of all series by one measure.

    ``duels`` has every pair of series once; ``overall`` is the best of all series.
    """

    measure: StudyMetric
    bests: tuple[BestOfSeries, ...]
    overall: BestOfSeries | None
    duels: tuple[BestVsBest, ...]
    epochs: tuple[EpochComparison, ...]
    starts: tuple[EpochComparison, ...]

    def duel(self, first: Series, second: Series) -> BestVsBest | None:
        """Return the comparison of two series; its verdict is about the second."""
        duel = self._by_names.get((first.name, second.name))
        reverse = self._by_names.get((second.name, first.name))
        return duel if duel or reverse is None else reverse.turned

    @cached_property
    def _by_names(self) -> dict[tuple[str, str], BestVsBest]:
        return {(duel.first.series.name, duel.second.series.name): duel for duel in self.duels}


Test = TypeVar("Test", BestVsBest, EpochComparison)


def judge_tests(tests: Sequence[Test], level: float) -> list[Test]:
    """Return the tests with verdicts, corrected together by Holm's method."""
    adjusted = holm([test.test[1] for test in tests])
    return [
        replace(test, p=p, told=verdict_from_p(test.test[0], p, 1 - level))
        for test, p in zip(tests, adjusted, strict=True)
    ]


def verdict_from_p(moved: float | None, p: float | None, alpha: float) -> ComparisonVerdict:
    """Return the verdict for a difference, oriented so that larger is better."""
    if not moved or p is None or p > alpha + 1e-12:
        return UNDECIDED
    return "better" if moved > 0 else "worse"


FAMILIES: Final = ("benchmarks", "other metrics", "composites")
"""The families of measures whose bests are tested together."""


def family_of(measure: StudyMetric) -> str:
    """Return the family of a measure."""
    return FAMILIES[2 if measure.composite is not None else 0 if measure.primary else 1]


def compare_series(study: Study) -> list[SeriesComparison]:
    """Compare all series by each measure; use ``study.compute_once(compare_series)``."""
    comparisons = [_compare_by_measure(study, pool) for pool in study.compute_once(pools_of).values()]
    duels = {
        family: iter(
            judge_tests(
                [
                    duel
                    for comparison in comparisons
                    if family_of(comparison.measure) == family
                    for duel in comparison.duels
                ],
                study.level,
            )
        )
        for family in FAMILIES
    }
    starts = iter(
        judge_tests([start for comparison in comparisons for start in comparison.starts], study.level)
    )
    return [
        replace(
            comparison,
            duels=tuple(islice(duels[family_of(comparison.measure)], len(comparison.duels))),
            epochs=tuple(judge_tests(comparison.epochs, study.level)),
            starts=tuple(islice(starts, len(comparison.starts))),
        )
        for comparison in comparisons
    ]


def _compare_by_measure(study: Study, pool: JointMeans) -> SeriesComparison:
    series_indices = [(series, indices) for series in study.series if (indices := pool.places(series.points))]
    contest = SeriesContest(study, pool, series_indices)
    lines = [series_by_epoch(series, pool) for series, _ in series_indices]
    several = [line for line, (_, indices) in zip(lines, series_indices, strict=True) if len(indices) > 1]
    return SeriesComparison(
        measure=pool.measure,
        bests=contest.bests,
        overall=max(contest.bests, key=lambda best: pool.measure.sign * best.value, default=None),
        duels=tuple(contest.duel(*pair) for pair in combinations(range(len(series_indices)), 2)),
        epochs=tuple(compare_at_equal_epochs(*pair, pool, study.level) for pair in combinations(lines, 2)),
        starts=tuple(compare_at_later_start(*pair, pool, study.level) for pair in combinations(several, 2)),
    )


def compare_lengths(study: Study) -> list[BestVsBest]:
    """Compare the bests of the lengths of each training, the shorter length first."""
    duels = [
        duel if (first.seq_len or 0) < (second.seq_len or 0) else duel.turned
        for measure in study.compute_once(compare_series)
        for duel in measure.duels
        for first, second in [duel.series]
        if first.training == second.training and None not in (first.seq_len, second.seq_len)
        if first.seq_len != second.seq_len
    ]
    return judge_tests(duels, study.level)
