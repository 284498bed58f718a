"""What it costs to have chosen the best of several checkpoints.

Each standing (``compare.standings``) of a metric that is a mean over items, of a composite, and over all items: how
much of the best value is luck, and what further items of the kind would give, with an interval
(``statistics.best_of_many``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from pytest_touchstone.compare.standings import ALL, Standing, standings_of
from pytest_touchstone.core.composite import Composite, Part
from pytest_touchstone.statistics.best_of_many import BestChoice, best_of
from pytest_touchstone.statistics.contrasts import Contrast, ContrastTerm
from pytest_touchstone.statistics.curves import CURVE_DRAWS
from pytest_touchstone.statistics.verdicts import ROUNDING
from pytest_touchstone.study.points import (
    Point,
    Study,
    StudyMetric,
    value_of,
)
from pytest_touchstone.study.pool import JointMeans, pool_over

ALL_ITEMS: Final = "all items"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionEstimate:
    """A standing's best value as ``measured``, and the value and interval ``expected`` on further items of the kind."""

    standing: Standing
    measure: StudyMetric
    measured: float
    expected: float
    low: float
    high: float

    @property
    def luck(self) -> float:
        """The part of the measured value that is luck: above 0, below it for a metric of which less is better."""
        return self.measured - self.expected


def standings_in(study: Study) -> list[Standing]:
    """The standings of all checkpoints of a study; ``study.once(standings_in)`` keeps them."""
    return standings_of(
        replace(entry, saved=replace(entry.saved, checkpoint=point.name, benchmark=name))
        for point in study.points
        for name, entry in point.candidate.entries.items()
    )


def selection_estimates(study: Study) -> list[SelectionEstimate]:
    """The costs of the study's standings, without those of which nothing is known."""
    costs = []
    for standing in study.once(standings_in):
        measure = measure_of(study, standing)
        cost = _cost(study, standing, measure) if measure is not None else None
        costs += [cost] if cost is not None else []
    return costs


def measure_of(study: Study, standing: Standing) -> StudyMetric | None:
    """The measure by which a standing was made; None where the study has none, as of means over groups."""
    measures = {(measure.benchmark, measure.metric): measure for measure in study.measures}
    if standing.benchmark != ALL:
        return measures.get((standing.benchmark, standing.metric))
    rows = [row for row in study.once(standings_in) if row.benchmark != ALL]
    shares = (measures.get((row.benchmark, row.metric)) for row in rows)
    return _over_all(study, standing, [measure for measure in shares if measure is not None])


def without_cost(study: Study) -> list[Standing]:
    """The standings of benchmarks by metrics that are no means, of which the luck of the best is not told."""
    entries = {point.name: point.candidate.entries for point in study.points}
    return [
        one
        for one in study.once(standings_in)
        if (entry := entries.get(one.checkpoint, {}).get(one.benchmark)) is not None
        and not entry.saved.aggregation(one.metric).is_mean
    ]


def _over_all(study: Study, standing: Standing, measures: Iterable[StudyMetric]) -> StudyMetric | None:
    """The mean over all items of the benchmarks whose scores are shares; None of a single one."""
    kept = [one for one in measures if one.share and one.higher_is_better and one.composite is None]
    points = complete_points(study, [one.benchmark for one in kept])
    if len(kept) < 2 or not points:
        return None
    sizes = [len(points[0].candidate.entries[one.benchmark].items.examples) for one in kept]
    parts = [
        Part(size / sum(sizes), one.benchmark, one.metric) for size, one in zip(sizes, kept, strict=True)
    ]
    whole = Composite(ALL_ITEMS, tuple(parts))
    return StudyMetric(benchmark=ALL, metric=standing.metric, label=ALL_ITEMS, composite=whole)


def complete_points(study: Study, benchmarks: Collection[str]) -> list[Point]:
    """The points that have whole, valid results with items on all of the benchmarks."""

    def runs(point: Point) -> bool:
        entries = [point.candidate.entries.get(name) for name in benchmarks]
        return all(one is not None and one.saved.complete and one.items.examples for one in entries)

    return [point for point in study.points if runs(point)]


def _cost(study: Study, standing: Standing, measure: StudyMetric) -> SelectionEstimate | None:
    pool = pool_over(study, measure, complete_points(study, measure.benchmarks))
    noise = pool.noise(range(len(pool.points)))
    if noise is None or len(pool.points) < 2 or any(pool.errors):
        return None
    choice = best_of(pool.means, noise, level=study.level, draws=CURVE_DRAWS)
    best = pool.points[choice.place]
    if best.name != standing.checkpoint and not standing.tied:  # a benchmark of its own was pooled otherwise
        return None
    expected = expected_of(study, pool, choice.place, choice)
    if expected is None or expected.low is None or expected.high is None:  # nothing varies
        return None
    return SelectionEstimate(
        standing=standing,
        measure=measure,
        measured=measure.sign * choice.measured + 0.0,  # not -0.0
        expected=expected.value,
        low=expected.low,
        high=expected.high,
    )


def expected_of(study: Study, pool: JointMeans, place: int, choice: BestChoice) -> Contrast | None:
    """Return the value on further items with its interval, both after allowing for the choice; None without one."""
    point, measure = pool.points[place], pool.measure
    value, own = study.value(point, measure) or value_of(point.candidate, measure), None
    if value is not None and value.low is not None and value.high is not None:
        own = Contrast(value=value.value, stderr=value.stderr, low=value.low, high=value.high, p=None)
        own = own if measure.higher_is_better else own.opposite
    # A perplexity goes by its log-probabilities.
    if own is None or abs(own.value - pool.means[place]) > ROUNDING:
        own = pool.contrast([ContrastTerm(place, 1.0)], level=study.level)
    if own.low is None or own.high is None:
        return None
    expected = own.value - (choice.measured - choice.shrunk)
    low, high = min(own.low - choice.depth, expected), max(own.high, expected)
    further = replace(own, value=expected, low=low, high=high, p=None)
    further = further if measure.higher_is_better else further.opposite
    if not measure.share or further.low is None or further.high is None:
        return further
    return replace(further, low=max(0.0, further.low), high=min(1.0, further.high))
