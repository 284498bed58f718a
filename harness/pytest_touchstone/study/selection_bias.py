"""Estimates the selection bias of the best of several checkpoints (the winner's curse).

The best measured value is partly luck. For each standing (``compare.standings``) of a metric that is a mean over items,
of a composite, and over all items, the estimate is the value to expect on further items of the same kind, with an
interval (``statistics.best_of_many``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from pytest_touchstone.compare.standings import ALL, Standing, standings_of
from pytest_touchstone.core.composite import Composite, WeightedMetric
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
from pytest_touchstone.study.pool import JointMeans, pool_points

ALL_ITEMS: Final = "all items"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionEstimate:
    """The best value as ``measured``, and the value ``expected`` on further items with its interval."""

    standing: Standing
    measure: StudyMetric
    measured: float
    expected: float
    low: float
    high: float

    @property
    def luck(self) -> float:
        """The selection bias of the measured value; negative if lower is better."""
        return self.measured - self.expected


def standings_in(study: Study) -> list[Standing]:
    """Return the standings of all checkpoints; use ``study.compute_once(standings_in)``."""
    return standings_of(
        replace(entry, saved=replace(entry.saved, checkpoint=point.name, benchmark=name))
        for point in study.points
        for name, entry in point.candidate.entries.items()
    )


def selection_estimates(study: Study) -> list[SelectionEstimate]:
    """Return an estimate for each standing whose noise is known."""
    estimates = []
    for standing in study.compute_once(standings_in):
        measure = measure_of(study, standing)
        estimate = _estimate(study, standing, measure) if measure is not None else None
        estimates += [estimate] if estimate is not None else []
    return estimates


def measure_of(study: Study, standing: Standing) -> StudyMetric | None:
    """Return the measure of a standing; None if the study lacks it, such as a mean over groups."""
    measures = {(measure.benchmark, measure.metric): measure for measure in study.measures}
    if standing.benchmark != ALL:
        return measures.get((standing.benchmark, standing.metric))
    rows = [row for row in study.compute_once(standings_in) if row.benchmark != ALL]
    shares = (measures.get((row.benchmark, row.metric)) for row in rows)
    return _pooled_measure(study, standing, [measure for measure in shares if measure is not None])


def standings_without_estimate(study: Study) -> list[Standing]:
    """Return the standings by metrics that are not means, which have no estimate."""
    entries = {point.name: point.candidate.entries for point in study.points}
    return [
        standing
        for standing in study.compute_once(standings_in)
        if (entry := entries.get(standing.checkpoint, {}).get(standing.benchmark)) is not None
        and not entry.saved.aggregation(standing.metric).is_mean
    ]


def _pooled_measure(study: Study, standing: Standing, measures: Iterable[StudyMetric]) -> StudyMetric | None:
    """Return the mean over the items of all benchmarks whose scores are shares; None for fewer than two."""
    shares = [
        measure
        for measure in measures
        if measure.share and measure.higher_is_better and measure.composite is None
    ]
    points = complete_points(study, [measure.benchmark for measure in shares])
    if len(shares) < 2 or not points:
        return None
    sizes = [len(points[0].candidate.entries[measure.benchmark].items.examples) for measure in shares]
    parts = [
        WeightedMetric(size / sum(sizes), measure.benchmark, measure.metric)
        for size, measure in zip(sizes, shares, strict=True)
    ]
    composite = Composite(ALL_ITEMS, tuple(parts))
    return StudyMetric(benchmark=ALL, metric=standing.metric, label=ALL_ITEMS, composite=composite)


def complete_points(study: Study, benchmarks: Collection[str]) -> list[Point]:
    """Return the points with complete results and item scores on all benchmarks."""

    def is_complete(point: Point) -> bool:
        entries = [point.candidate.entries.get(name) for name in benchmarks]
        return all(entry is not None and entry.saved.complete and entry.items.examples for entry in entries)

    return [point for point in study.points if is_complete(point)]


def _estimate(study: Study, standing: Standing, measure: StudyMetric) -> SelectionEstimate | None:
    pool = pool_points(study, measure, complete_points(study, measure.benchmarks))
    noise = pool.noise(range(len(pool.points)))
    if noise is None or len(pool.points) < 2 or any(pool.errors):
        return None
    choice = best_of(pool.means, noise, level=study.level, draws=CURVE_DRAWS)
    best = pool.points[choice.place]
    if best.name != standing.checkpoint and not standing.tied:  # a benchmark of its own was pooled otherwise
        return None
    expected = expected_value(study, pool, choice.place, choice)
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


def expected_value(study: Study, pool: JointMeans, index: int, choice: BestChoice) -> Contrast | None:
    """Return the value to expect on further items, with its interval; None without an interval.

    Args:
        study: The study.
        pool: The joint means among which the best was chosen.
        index: The index of the chosen point.
        choice: The choice, with its selection bias.

    """
    point, measure = pool.points[index], pool.measure
    value, interval = study.value(point, measure) or value_of(point.candidate, measure), None
    if value is not None and value.low is not None and value.high is not None:
        interval = Contrast(value=value.value, stderr=value.stderr, low=value.low, high=value.high, p=None)
        interval = interval if measure.higher_is_better else interval.opposite
    # The pooled mean of a perplexity is that of its log-probabilities.
    if interval is None or abs(interval.value - pool.means[index]) > ROUNDING:
        interval = pool.contrast([ContrastTerm(index, 1.0)], level=study.level)
    if interval.low is None or interval.high is None:
        return None
    expected = interval.value - (choice.measured - choice.shrunk)
    low, high = min(interval.low - choice.depth, expected), max(interval.high, expected)
    further = replace(interval, value=expected, low=low, high=high, p=None)
    further = further if measure.higher_is_better else further.opposite
    if not measure.share or further.low is None or further.high is None:
        return further
    return replace(further, low=max(0.0, further.low), high=min(1.0, further.high))
