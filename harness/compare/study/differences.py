"""The difference of a measure between two points, between one and the best of many, and what many have in common.

Paired by items where both have them, else from totals as ``harness.compare.metric`` says. Runs of which only totals
are known are taken as independent; on the same items they rise and fall together, and the difference is known better
than that. A metric that is no mean of scores (a perplexity) is compared from totals too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.compare.candidate import Entry
from harness.compare.items import AlignedScores, columns, score_name
from harness.compare.judge import Compared, compared_of, mirrored_selection
from harness.compare.metric import compare_metric, compare_totals
from harness.compare.pair import compare_composite_in
from harness.compare.study.points import Measure, Point, Study
from harness.core.errors import GateError
from harness.statistics.best_of_many import (
    Noise,
    RunsOfBenchmark,
    RunsOfPart,
    independent_noise,
    noise_of,
    noise_of_composite,
    nothing_chosen,
    sample_of,
    select,
)
from harness.statistics.comparison import LEVEL, Comparison, undefined
from harness.statistics.curves import DRAWS

if TYPE_CHECKING:
    import numpy as np

MORE: Final = "more than noise"
NOT_MORE: Final = "not more than noise"
UNTESTED: Final = "cannot be tested"
"""The verdicts on a difference, a trend, or a change."""


def difference(baseline: Point, new: Point, measure: Measure, level: float = LEVEL) -> Comparison:
    """The new point against the baseline by a measure; undefined, with the reason, where one lacks it."""
    before, after = baseline.candidate.entries, new.candidate.entries
    if measure.composite is not None:
        found = compare_composite_in(measure.composite, before, after, level)
        return found.comparison if found else undefined("a part is missing", level=level)
    a, b, metric = before.get(measure.benchmark), after.get(measure.benchmark), measure.metric
    if a is None or b is None or metric not in a.saved.metrics or metric not in b.saved.metrics:
        return undefined("not measured at both", level=level)
    if not (_is_mean(a, metric) and _is_mean(b, metric)):
        totals = a.saved.metrics[metric], b.saved.metrics[metric]
        return compare_totals(*totals, benchmark=measure.benchmark, level=level)
    return compare_metric(a, b, metric, primary=measure.primary, level=level).comparison


def is_told(one: Comparison) -> bool:
    """Return whether the difference is more than noise: tested, with a p of at most 1 - level."""
    return verdict_on(one.p, one.level) == MORE


def verdict_on(p: float | None, level: float) -> str:
    """Return the verdict by a p, which may be corrected for the number of tests."""
    if p is None:
        return UNTESTED
    return MORE if p <= 1 - level + 1e-12 else NOT_MORE


def aligned(points: Sequence[Point], measure: Measure) -> AlignedScores | None:
    """The scores of the items that all of the points have, the last point's as ``new``.

    None for a composite, where a point's items are not known, for a metric that is no mean of its items' scores, and
    where fewer than half are common.
    """
    if measure.composite is not None:
        return None
    return _aligned(points, measure.benchmark, measure.metric)


@dataclass(frozen=True, slots=True)
class Together:
    """The values of several points by one measure, in their order, and the noise that they have in common.

    ``items``: from the items that all of them have, so that what they share cancels; else from totals, as independent
    runs. ``best`` compares one point with the best of others.
    """

    points: tuple[Point, ...]
    measure: Measure
    means: tuple[float, ...]
    noise: Noise
    items: bool

    def sample(self) -> np.ndarray:
        """Draws of the noise, a column for each point."""
        return sample_of(self.noise.covariance, DRAWS)

    def best(
        self,
        among: Sequence[int],
        new: int,
        *,
        sample: np.ndarray | None = None,
        level: float = LEVEL,
    ) -> Compared | None:
        """The best of the points at these places against the one at ``new``, allowing for its having been chosen
        (``statistics.best_of_many``).

        ``Compared.chosen`` is a place in ``among``. ``comparison`` is against the value after the allowance,
        ``as_measured`` against the best as measured. None where there is no difference.
        """
        import numpy as np

        sign = 1 if self.measure.higher_is_better else -1
        means = [sign * self.means[place] for place in among]
        chosen = means.index(max(means))
        plain = difference(self.points[among[chosen]], self.points[new], self.measure, level)
        if plain.difference is None:
            return None
        order = [*among, new]
        if len(among) == 1:
            found = nothing_chosen(0, means[0], 1, plain.oriented)
        else:
            noise = Noise(self.noise.covariance[np.ix_(order, order)], self.noise.units)
            drawn = None if sample is None else sign * sample[:, order]
            found = select(chosen, means, plain.oriented, noise, draws=DRAWS, sample=drawn)
        return compared_of(self.measure.key, found if sign > 0 else mirrored_selection(found))


def together(study: Study, points: Sequence[Point], measure: Measure) -> Together | None:
    """The values and the common noise of the points; None where one lacks the measure or its error is not known."""
    if not points:
        return None
    if measure.composite is not None:
        found = _composite_noise(points, measure)
    else:
        scores = aligned(points, measure)
        runs = [*scores.baselines, scores.new] if scores else []
        noise = noise_of(runs[:-1], runs[-1], scores.clusters) if scores else None
        found = (tuple(math.fsum(run) / len(run) for run in runs), noise) if noise else None
    if found is not None:
        return Together(tuple(points), measure, *found, items=True)
    values = [study.value(point, measure) for point in points]
    known = [value for value in values if value is not None and value.stderr is not None]
    if len(known) < len(values):
        return None
    noise = independent_noise([value.stderr or 0.0 for value in known], min(value.n for value in known))
    return Together(tuple(points), measure, tuple(value.value for value in known), noise, items=False)


def best_against(
    study: Study, points: Sequence[Point], new: Point, measure: Measure, level: float | None = None
) -> Compared | None:
    """The best of the points against a new one, as ``Together.best``; None where one lacks the measure or its
    error."""
    found = together(study, [*points, new], measure)
    if found is None or not points:
        return None
    return found.best(range(len(points)), len(points), level=study.level if level is None else level)


def _aligned(points: Sequence[Point], benchmark: str, metric: str) -> AlignedScores | None:
    entries = [point.candidate.entries.get(benchmark) for point in points]
    known = [entry for entry in entries if entry is not None and entry.items.examples]
    if not known or len(known) < len(entries) or not all(_is_mean(entry, metric) for entry in known):
        return None
    *others, last = known
    found = columns(last.items, [one.items for one in others], score_name(last.saved, metric))
    least = min(len(entry.items.examples) for entry in known)
    return found if found.new and 2 * len(found.new) >= least else None


def _is_mean(entry: Entry, metric: str) -> bool:
    """Return whether the metric is the mean of a score of the items, or of nothing that is known otherwise."""
    try:
        score_name(entry.saved, metric)
    except GateError:  # a mean over groups, or no such metric
        return False
    return entry.saved.aggregation(metric).by == "mean"


def _composite_noise(points: Sequence[Point], measure: Measure) -> tuple[tuple[float, ...], Noise] | None:
    """The composites of the points from their items, and their noise; None where the items of a part are not known."""
    by_benchmark: dict[str, list[tuple[float, AlignedScores]]] = {}
    for weight, name, metric in measure.composite.parts if measure.composite else ():
        scores = _aligned(points, name, metric)
        if scores is None:
            return None
        by_benchmark.setdefault(name, []).append((weight, scores))
    if any(len({tuple(own.names) for _, own in same}) > 1 for same in by_benchmark.values()):
        return None
    benchmarks = [
        RunsOfBenchmark([RunsOfPart(w, own.baselines, own.new) for w, own in same], same[0][1].clusters)
        for same in by_benchmark.values()
    ]
    noise = noise_of_composite(benchmarks, len(points) - 1)
    if noise is None:
        return None
    parts = [part for one in by_benchmark.values() for part in one]
    sums = [[w * math.fsum(run) / len(run) for run in (*own.baselines, own.new)] for w, own in parts]
    return tuple(math.fsum(column) for column in zip(*sums, strict=True)), noise
