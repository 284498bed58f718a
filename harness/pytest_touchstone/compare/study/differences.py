"""The difference of a measure between two points, between one and the best of many, and what many have in common.

Paired by items where both have them, else from totals as ``compare.metric`` says. Runs of which only totals
are known are taken as independent; on the same items they rise and fall together, and the difference is known better
than that. A perplexity that is asked for itself is compared from totals too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.judge import (
    AlignedScores,
    Compared,
    compare_aligned,
    compared_of,
    mirrored_selection,
    score_name,
)
from pytest_touchstone.compare.judge import columns as shared
from pytest_touchstone.compare.metric import compare_metric
from pytest_touchstone.compare.pair import compare_composite_in
from pytest_touchstone.compare.study.points import Measure, Point, Study
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.statistics.best_of_many import nothing_chosen, select
from pytest_touchstone.statistics.comparison import Comparison, undefined
from pytest_touchstone.statistics.contrasts import (
    JointNoise,
    NoiseDraws,
    independent_noise,
    noise_of,
    noise_of_sum,
    sample_of,
)
from pytest_touchstone.statistics.curves import CURVE_DRAWS
from pytest_touchstone.statistics.intervals import any_shared, is_binary
from pytest_touchstone.statistics.paired import compare_flips

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class ScoreColumn:
    """The scores of all items of a result, in order of the items' ids.

    ``digest`` is that of the items: columns with the same one can be compared item by item. ``clusters`` is None where
    items share nothing; ``binary``: all are right or wrong.
    """

    digest: str
    names: list[str]
    values: np.ndarray
    clusters: list[str | None] | None
    binary: bool


class Columns:
    """The columns of a study, made when they are asked for: ``study.once(Columns).of(entry, metric)``."""

    def __init__(self, study: Study) -> None:
        del study  # it keeps this
        self._known: dict[tuple[int, str], ScoreColumn | None] = {}

    def of(self, entry: BenchmarkScores, metric: str) -> ScoreColumn | None:
        """The scores by which a metric is compared; None without items, where one has no such score, and for a metric
        that is no mean of scores."""
        key = id(entry), metric
        if key not in self._known:
            self._known[key] = _column(entry, metric)
        return self._known[key]


def is_mean(entry: BenchmarkScores, metric: str) -> bool:
    """Return whether the metric is the mean of a score of the items, or of nothing that is known otherwise."""
    try:
        score_name(entry.saved, metric)
    except GateError:  # a mean over groups, or no such metric
        return False
    return entry.saved.aggregation(metric).is_mean


def _column(entry: BenchmarkScores, metric: str) -> ScoreColumn | None:
    import numpy as np

    items = entry.items
    if not items.examples or not is_mean(entry, metric):
        return None
    scores = items.scores.get(score_name(entry.saved, metric))
    if scores is None or None in scores:
        return None
    order = sorted(range(len(items.examples)), key=items.examples.__getitem__)
    values = np.asarray([scores[place] for place in order], dtype=float)
    clusters = [items.clusters[place] for place in order]
    return ScoreColumn(
        digest=entry.saved.items_sha256 or items.digest(),
        names=[items.examples[place] for place in order],
        values=values,
        clusters=clusters if any_shared(clusters) else None,
        binary=is_binary(values.tolist()),
    )


# Differences of points


MORE: Final = "more than noise"
NOT_MORE: Final = "not more than noise"
UNTESTED: Final = "cannot be tested"
"""The verdicts on a difference, a trend, or a change."""


def difference(study: Study, baseline: Point, new: Point, measure: Measure) -> Comparison:
    """The new point against the baseline by a measure; undefined, with the reason, where one lacks it."""
    level, columns = study.level, study.once(Columns)
    before, after = baseline.candidate.entries, new.candidate.entries
    if measure.composite is not None:
        found = compare_composite_in(measure.composite, before, after, level)
        return found.comparison if found else undefined("a part is missing", level=level)
    a, b, metric = before.get(measure.benchmark), after.get(measure.benchmark), measure.metric
    if a is None or b is None or metric not in a.saved.metrics or metric not in b.saved.metrics:
        return undefined("not measured at both", level=level)
    one, other = columns.of(a, metric), columns.of(b, metric)
    if one is not None and other is not None and one.digest == other.digest:
        return _of_items(one, other, level, higher=b.saved.aggregation(metric).higher_score_is_better)
    return compare_metric(a, b, metric, primary=measure.primary, level=level).comparison


def _of_items(baseline: ScoreColumn, new: ScoreColumn, level: float, *, higher: bool) -> Comparison:
    """The comparison of two columns of the same items, as ``compare.judge.compare`` makes it."""
    if new.clusters is None and baseline.binary and new.binary:
        return _of_flips(baseline, new, level, higher=higher)
    aligned = AlignedScores(new.names, [baseline.values.tolist()], new.values.tolist(), new.clusters)
    return compare_aligned(aligned, higher=higher, level=level).comparison


def _of_flips(baseline: ScoreColumn, new: ScoreColumn, level: float, *, higher: bool) -> Comparison:
    """The same of right and wrong answers to items that share nothing, which are counted."""
    n, before, after = len(new.values), int(baseline.values.sum()), int(new.values.sum())
    both = int(baseline.values @ new.values)
    gained, lost, neither = after - both, before - both, n - before - after + both
    if higher:
        return compare_flips(both, gained, lost, neither, level=level)
    return compare_flips(neither, lost, gained, both, level=level).mirrored(1.0)


def verdict_on(p: float | None, level: float) -> str:
    """Return the verdict by a p, which may be corrected for the number of tests."""
    if p is None:
        return UNTESTED
    return MORE if p <= 1 - level + 1e-12 else NOT_MORE


class Aligned(NamedTuple):
    """The scores of the items that all of some points have, a row for each point; their ids, and their clusters, None
    where they share nothing."""

    names: list[str]
    scores: np.ndarray
    clusters: list[str | None] | None


def aligned(study: Study, points: Sequence[Point], measure: Measure) -> Aligned | None:
    """The scores of the items that all of the points have.

    None for a composite, where a point's items are not known, for a metric that is no mean of its items' scores, and
    where fewer than half are common.
    """
    if measure.composite is not None:
        return None
    return _aligned(study, points, measure.benchmark, measure.metric)


@dataclass(frozen=True, slots=True)
class PointsTogether:
    """The values of several points by one measure, in their order, and the noise that they have in common.

    ``items``: from the items that all of them have, so that what they share cancels; else from totals, as independent
    runs. ``best`` compares one point with the best of others.
    """

    study: Study
    points: tuple[Point, ...]
    measure: Measure
    means: tuple[float, ...]
    noise: JointNoise
    items: bool

    def sample(self) -> NoiseDraws:
        """Draws of the noise, a row for each point."""
        return sample_of(self.noise.covariance, CURVE_DRAWS)

    def best(self, among: Sequence[int], new: int, sample: NoiseDraws) -> Compared | None:
        """The best of the points at these places against the one at ``new``, allowing for its having been chosen
        (``statistics.best_of_many``); ``sample`` are draws of the noise.

        ``Compared.chosen`` is a place in ``among``. ``comparison`` is against the value after the allowance,
        ``as_measured`` against the best as measured. None where there is no difference.
        """
        import numpy as np

        sign = 1 if self.measure.higher_is_better else -1
        means = [sign * self.means[place] for place in among]
        chosen = means.index(max(means))
        plain = difference(self.study, self.points[among[chosen]], self.points[new], self.measure)
        if plain.difference is None:
            return None
        order = [*among, new]
        if len(among) == 1:
            found = nothing_chosen(0, means[0], 1, plain.oriented)
        else:
            noise = JointNoise(self.noise.covariance[np.ix_(order, order)], self.noise.units)
            found = select(chosen, means, plain.oriented, noise, sample=sample.of(order, sign))
        return compared_of(self.measure.key, found if sign > 0 else mirrored_selection(found))


def together(study: Study, points: Sequence[Point], measure: Measure) -> PointsTogether | None:
    """The values and the common noise of the points; None where one lacks the measure or its error is not known."""
    if not points:
        return None
    found = _composite_noise(study, points, measure) if measure.composite else _noise(study, points, measure)
    if found is not None:
        return PointsTogether(study, tuple(points), measure, *found, items=True)
    values = [study.value(point, measure) for point in points]
    known = [value for value in values if value is not None and value.stderr is not None]
    if len(known) < len(values):
        return None
    noise = independent_noise([value.stderr or 0.0 for value in known], min(value.n for value in known))
    return PointsTogether(
        study, tuple(points), measure, tuple(one.value for one in known), noise, items=False
    )


def _aligned(study: Study, points: Sequence[Point], benchmark: str, metric: str) -> Aligned | None:
    import numpy as np

    entries = [point.candidate.entries.get(benchmark) for point in points]
    known = [entry for entry in entries if entry is not None and entry.items.examples]
    if not known or len(known) < len(entries) or not all(is_mean(entry, metric) for entry in known):
        return None
    columns = [study.once(Columns).of(entry, metric) for entry in known]
    alike = [one for one in columns if one is not None and columns[-1] and one.digest == columns[-1].digest]
    if len(alike) == len(columns):
        return Aligned(alike[-1].names, np.stack([one.values for one in alike]), alike[-1].clusters)
    *others, last = known
    found = shared(last.items, [one.items for one in others], score_name(last.saved, metric))
    if not found.new or 2 * len(found.new) < min(len(entry.items.examples) for entry in known):
        return None
    return Aligned(found.names, np.asarray([*found.baselines, found.new], dtype=float), found.clusters)


def _noise(
    study: Study, points: Sequence[Point], measure: Measure
) -> tuple[tuple[float, ...], JointNoise] | None:
    """The means of the points and their noise; None where their items are not known, or are one unit."""
    found = aligned(study, points, measure)
    noise = noise_of(found.scores[:-1], found.scores[-1], found.clusters) if found else None
    return (_means(found.scores), noise) if found and noise else None


def _means(scores: np.ndarray) -> tuple[float, ...]:
    return tuple(math.fsum(row) / len(row) for row in scores.tolist())


def _composite_noise(
    study: Study, points: Sequence[Point], measure: Measure
) -> tuple[tuple[float, ...], JointNoise] | None:
    """The composites of the points from their items, and their noise; None where the items of a part are not known."""
    found = strata(study, points, measure.composite.parts if measure.composite else ())
    noise = noise_of_strata(found) if found else None
    return (means_of_strata(found), noise) if found and noise else None


def strata(
    study: Study, points: Sequence[Point], parts: Iterable[tuple[float, str, str]]
) -> list[Aligned] | None:
    """Of each benchmark the items that all points have, with the weighted sums of their scores; ``parts`` are weights,
    benchmarks and metrics. None where they are not known, or where metrics of a benchmark are of different items."""
    found: dict[str, Aligned] = {}
    for weight, name, metric in parts:
        own = _aligned(study, points, name, metric)
        before = found.get(name)
        if own is None or (before is not None and before.names != own.names):
            return None
        scores = weight * own.scores
        found[name] = own._replace(scores=scores if before is None else before.scores + scores)
    return list(found.values())


def means_of_strata(found: Sequence[Aligned]) -> tuple[float, ...]:
    """The sums of the benchmarks' means, of each point."""
    return tuple(map(math.fsum, zip(*(_means(one.scores) for one in found), strict=True)))


def noise_of_strata(found: Sequence[Aligned]) -> JointNoise | None:
    """The noise of these sums: benchmarks are independent of each other."""
    parts = [noise_of(one.scores[:-1], one.scores[-1], one.clusters) for one in found]
    known = [one for one in parts if one is not None]
    if not known or len(known) < len(parts):
        return None
    return noise_of_sum(known)
