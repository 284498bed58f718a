"""What it costs to have chosen the best of several checkpoints.

Each standing (``compare.standings``) of a metric that is a mean over items, of a composite, and over all items: how
much of the best value is luck, and what further items of the kind would give, with an interval
(``statistics.best_of_many``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_touchstone.compare.standings import ALL, Standing, standings_of
from pytest_touchstone.compare.study.differences import (
    means_of_strata,
    noise_of_strata,
    strata,
)
from pytest_touchstone.compare.study.points import (
    Measure,
    Point,
    Study,
    interval_of,
    on_further_items,
    value_of,
)
from pytest_touchstone.core.composite import Composite, Part
from pytest_touchstone.statistics.best_of_many import best_of
from pytest_touchstone.statistics.contrasts import Weighted, contrast
from pytest_touchstone.statistics.curves import CURVE_DRAWS

ALL_ITEMS: Final = "all items"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceCost:
    """A standing's best value as ``measured``, and the value and interval ``expected`` on further items of the kind."""

    standing: Standing
    measure: Measure
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


def costs_of(study: Study) -> list[ChoiceCost]:
    """The costs of the study's standings, without those of which nothing is known."""
    standings = study.once(standings_in)
    measures = {(one.benchmark, one.metric): one for one in study.measures}
    found = []
    for one in standings:
        measure = measures.get((one.benchmark, one.metric))
        if measure is not None:
            parts = (
                measure.composite.parts
                if measure.composite
                else [Part(1.0, measure.benchmark, measure.metric)]
            )
            found.append(_cost(study, one, measure, parts))
        elif one.benchmark == ALL:
            found.append(_over_all(study, one, [known.measure for known in found if known is not None]))
    return [one for one in found if one is not None]


def without_cost(study: Study) -> list[Standing]:
    """The standings of benchmarks by metrics that are no means, of which the luck of the best is not told."""
    entries = {point.name: point.candidate.entries for point in study.points}
    return [
        one
        for one in study.once(standings_in)
        if (entry := entries.get(one.checkpoint, {}).get(one.benchmark)) is not None
        and not entry.saved.aggregation(one.metric).is_mean
    ]


def _over_all(study: Study, standing: Standing, measures: Iterable[Measure]) -> ChoiceCost | None:
    """The cost over all items: the mean of the benchmarks whose scores are shares, by their numbers of items."""
    kept = [one for one in measures if one.share and one.higher_is_better and one.composite is None]
    points = _runners(study, [one.benchmark for one in kept])
    sizes = [len(points[0].candidate.entries[one.benchmark].items.examples) for one in kept] if points else []
    parts = [
        Part(size / sum(sizes), one.benchmark, one.metric) for size, one in zip(sizes, kept, strict=True)
    ]
    if len(kept) < 2 or not points:
        return None
    whole = Composite(ALL_ITEMS, tuple(parts))
    return _cost(
        study,
        standing,
        Measure(benchmark=ALL, metric=standing.metric, label=ALL_ITEMS, composite=whole),
        parts,
    )


def _runners(study: Study, benchmarks: Collection[str]) -> list[Point]:
    """The points that have whole, valid results with items on all of the benchmarks."""

    def runs(point: Point) -> bool:
        entries = [point.candidate.entries.get(name) for name in benchmarks]
        return all(one is not None and one.saved.complete and one.items.examples for one in entries)

    return [point for point in study.points if runs(point)]


def _cost(study: Study, standing: Standing, measure: Measure, parts: Sequence[Part]) -> ChoiceCost | None:
    points = _runners(study, {part.benchmark for part in parts})
    sign = 1 if measure.higher_is_better else -1
    items = strata(study, points, [part._replace(weight=sign * part.weight) for part in parts])
    noise = noise_of_strata(items) if items and len(points) > 1 else None
    if items is None or noise is None:
        return None
    means = means_of_strata(items)
    choice = best_of(means, noise, level=study.level, draws=CURVE_DRAWS)
    best = points[choice.place]
    if best.name != standing.checkpoint and not standing.tied:  # a benchmark of its own was pooled otherwise
        return None
    value = value_of(best.candidate, measure) if measure.benchmark == ALL else study.value(best, measure)
    own = interval_of(value, measure) or contrast(
        means, noise.covariance, [Weighted(choice.place, 1.0)], units=noise.units, level=study.level
    )
    expected = on_further_items(own, choice, measure)
    if expected is None or expected.low is None or expected.high is None:  # nothing varies
        return None
    return ChoiceCost(
        standing=standing,
        measure=measure,
        measured=sign * choice.measured + 0.0,  # not -0.0
        expected=expected.value,
        low=expected.low,
        high=expected.high,
    )
