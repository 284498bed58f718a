"""Series against series: their bests, at equal epochs, by sequence length, and how fast they learn.

What is told here holds for these checkpoints on more items of the same kind. Another seed of the same training is not
in the data, and nothing is said of it.

- **Bests**: the best of each series, as measured and after allowing for the choice; of every two series the difference
  of their bests (``statistics.bests``). All pairs of all primary metrics are one family (Holm),
  those of the composites another.
- **Equal epochs**: the mean difference over the epochs at which both have a checkpoint; without one in common, at the
  other's epochs by lines between checkpoints with their error; else not at all. Pairs of a measure are one family.
- **Lengths**: within each training, the best of one length against the best of another, by every metric; one family.
- **Efficiency**: the slope over the epochs, and the first epoch within one point of the peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from pytest_touchstone.compare.study.bests import Best, Contest, Duel, judged
from pytest_touchstone.compare.study.epochs import AtEpochs, at_equal_epochs, judged_epochs, line_of
from pytest_touchstone.compare.study.points import Measure, Point, Series, Study
from pytest_touchstone.compare.study.pool import Pool
from pytest_touchstone.statistics.curves import Trend, trend
from pytest_touchstone.statistics.verdicts import MARGIN


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


def between(study: Study, pools: Mapping[str, Pool]) -> list[Between]:
    """Series against series by each primary measure; ``pools`` are by the measures' keys."""
    found = [_of_measure(study, pools[one.key]) for one in study.measures if one.primary]
    alpha = 1 - study.level
    told: dict[str, tuple[Duel, ...]] = {}
    for composite in (False, True):
        mine = [one for one in found if (one.measure.composite is not None) == composite]
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
