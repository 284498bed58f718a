"""The scores of items as columns, and the difference of a measure between two points.

Paired by items where both have them, else from totals as ``compare.metric`` says. Runs of which only totals
are known are taken as independent; on the same items they rise and fall together, and the difference is known better
than that. A perplexity that is asked for itself is compared from totals too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.judge import score_name
from pytest_touchstone.compare.metric import compare_metric
from pytest_touchstone.compare.pair import compare_composite_in
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.statistics.comparison import Comparison, undefined
from pytest_touchstone.statistics.intervals import any_shared, is_binary
from pytest_touchstone.statistics.paired import compare_flips
from pytest_touchstone.study.points import Measure, Point, Study

if TYPE_CHECKING:
    import numpy as np


ItemName: TypeAlias = tuple[str, str]
"""The id of an item, and the hash of its row."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreColumn:
    """The scores of all items of a result, in order of the items' names; NaN where one is missing.

    ``digest`` is that of the items: columns with the same one can be compared item by item. ``clusters`` is None where
    items share nothing. ``flips``: they share nothing, and each is right or wrong.
    """

    digest: str
    names: list[ItemName]
    values: np.ndarray
    clusters: list[str | None] | None
    flips: bool

    def at(self, names: Sequence[ItemName]) -> np.ndarray:
        """Return the scores of these items, in their order."""
        places = {name: place for place, name in enumerate(self.names)}
        found: np.ndarray = self.values[[places[name] for name in names]]
        return found


def column_of(study: Study, entry: BenchmarkScores, metric: str) -> ScoreColumn | None:
    """The scores by which a metric is compared, made once; None without items, and for a metric that is no mean of
    scores."""
    key = id(entry), metric
    if key not in study.made:
        study.made[key] = _column(entry, metric)
    found: ScoreColumn | None = study.made[key]
    return found


def _column(entry: BenchmarkScores, metric: str) -> ScoreColumn | None:
    import numpy as np

    items = entry.items
    try:
        scores = items.scores.get(score_name(entry.saved, metric))
    except GateError:  # a mean over groups, or no such metric
        return None
    if scores is None or not items.examples or not entry.saved.aggregation(metric).is_mean:
        return None
    order = sorted(range(len(items.examples)), key=lambda place: (items.examples[place], items.rows[place]))
    values = np.asarray([scores[place] for place in order], dtype=float)
    clusters = [items.clusters[place] for place in order]
    shared = any_shared(clusters)
    return ScoreColumn(
        digest=entry.saved.items_sha256 or items.digest(),
        names=[(items.examples[place], items.rows[place]) for place in order],
        values=values,
        clusters=clusters if shared else None,
        flips=not shared and is_binary(values.tolist()),
    )


def shared_items(columns: Sequence[ScoreColumn], least: float = 0.5) -> ScoreColumn | None:
    """The items that all columns have, with a row of scores for each; None where these are none, or less than that
    share of the smallest column."""
    import numpy as np

    first = columns[0]
    complete = [
        {name for name, missing in zip(one.names, np.isnan(one.values), strict=True) if not missing}
        for one in columns
    ]
    names = sorted(set.intersection(*complete))
    if not names or len(names) < least * min(len(one.values) for one in columns):
        return None
    clusters = dict(zip(first.names, first.clusters, strict=True)) if first.clusters else None
    return replace(
        first,
        names=names,
        values=np.stack([one.at(names) for one in columns]),
        clusters=None if clusters is None else [clusters[name] for name in names],
    )


# Differences of points


MORE: Final = "more than noise"
NOT_MORE: Final = "not more than noise"
UNTESTED: Final = "cannot be tested"
"""The verdicts on a change along a series."""


def difference(study: Study, baseline: Point, new: Point, measure: Measure) -> Comparison:
    """The new point against the baseline by a measure; undefined, with the reason, where one lacks it."""
    level = study.level
    before, after = baseline.candidate.entries, new.candidate.entries
    if measure.composite is not None:
        found = compare_composite_in(measure.composite, before, after, level)
        return found.comparison if found else undefined("a part is missing", level=level)
    a, b, metric = before.get(measure.benchmark), after.get(measure.benchmark), measure.metric
    if a is None or b is None or metric not in a.saved.metrics or metric not in b.saved.metrics:
        return undefined("not measured at both", level=level)
    one, other = column_of(study, a, metric), column_of(study, b, metric)
    if one is not None and other is not None and one.digest == other.digest and one.flips and other.flips:
        return _of_flips(one, other, level, higher=b.saved.aggregation(metric).higher_score_is_better)
    return compare_metric(a, b, metric, primary=measure.primary, level=level).comparison


def _of_flips(baseline: ScoreColumn, new: ScoreColumn, level: float, *, higher: bool) -> Comparison:
    """The comparison of right and wrong answers to the same items, which share nothing: the answers are counted."""
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
