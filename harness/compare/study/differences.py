"""The difference of a measure between two points, or between one and the best of many.

Paired by items where both have them, else from totals as ``harness.compare.metric`` says. Runs of which only totals
are known are taken as independent; on the same items they rise and fall together, and the difference is known better
than that.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare.candidate import Entry
from harness.compare.items import AlignedScores, columns, score_name
from harness.compare.judge import (
    Compared,
    Weighed,
    compare,
    compare_composite,
    compared_of,
    mirrored_selection,
)
from harness.compare.metric import compare_metric, shared_columns
from harness.compare.pair import compare_composite_in
from harness.compare.study.points import Measure, Point, Study
from harness.core.errors import GateError
from harness.statistics.best_of_many import independent_noise, nothing_chosen, select
from harness.statistics.comparison import LEVEL, Comparison, undefined


def difference(baseline: Point, new: Point, measure: Measure, level: float = LEVEL) -> Comparison:
    """The new point against the baseline by a measure; undefined, with the reason, where one lacks it."""
    before, after = baseline.candidate.entries, new.candidate.entries
    if measure.composite is not None:
        found = compare_composite_in(measure.composite, before, after, level)
        return found.comparison if found else undefined("a part is missing", level=level)
    name = measure.benchmark
    if not all(name in side and measure.metric in side[name].saved.metrics for side in (before, after)):
        return undefined("not measured at both", level=level)
    line = compare_metric(before[name], after[name], measure.metric, primary=measure.primary, level=level)
    return line.comparison


def is_told(one: Comparison) -> bool:
    """Return whether the difference is more than noise: tested, with a p of at most 1 - level."""
    return one.p is not None and one.p <= 1 - one.level + 1e-12


def aligned(points: Sequence[Point], measure: Measure) -> AlignedScores | None:
    """The scores of the items that all of the points have, the last point's as ``new``.

    None for a composite, where a point's items are not known, and where fewer than half are common.
    """
    entries = [point.candidate.entries.get(measure.benchmark) for point in points]
    known = [entry for entry in entries if entry is not None and entry.items.examples]
    if measure.composite is not None or not known or len(known) < len(entries):
        return None
    *others, last = known
    try:
        score = score_name(last.saved, measure.metric)
    except GateError:  # a mean over groups
        return None
    found = columns(last.items, [one.items for one in others], score)
    least = min(len(entry.items.examples) for entry in known)
    return found if found.new and 2 * len(found.new) >= least else None


def best_against(
    study: Study, points: Sequence[Point], new: Point, measure: Measure, level: float | None = None
) -> Compared | None:
    """The best of the points against a new one, allowing for its having been chosen (``statistics.best_of_many``).

    ``Compared.comparison`` is against the value after the allowance, ``as_measured`` against the best as measured.
    None where one lacks the measure or its error.
    """
    wanted = study.level if level is None else level
    if measure.composite is not None:
        parts = _weighed(points, new, measure)
        if parts is not None:
            return compare_composite(measure.key, parts, level=wanted)
    elif aligned([*points, new], measure) is not None:
        entries = [point.candidate.entries[measure.benchmark] for point in points]
        return compare(new.candidate.entries[measure.benchmark], entries, measure.metric, level=wanted)
    return _of_totals(study, points, new, measure, wanted)


def _weighed(points: Sequence[Point], new: Point, measure: Measure) -> list[Weighed] | None:
    """The parts of a composite with their items; None where the items of one are not known."""
    found = []
    for weight, name, metric in measure.composite.parts if measure.composite else ():
        entries = [point.candidate.entries.get(name) for point in (*points, new)]
        known: list[Entry] = [entry for entry in entries if entry is not None]
        if len(known) < len(entries) or any(metric not in entry.saved.metrics for entry in known):
            return None
        if any(shared_columns(entry, known[-1], metric) is None for entry in known[:-1]):
            return None
        found.append(Weighed(weight, metric, known[-1], known[:-1]))
    return found


def _of_totals(
    study: Study, points: Sequence[Point], new: Point, measure: Measure, level: float
) -> Compared | None:
    values = [study.value(point, measure) for point in (*points, new)]
    known = [value for value in values if value is not None and value.stderr is not None]
    if len(known) < len(values):
        return None
    sign = 1 if measure.higher_is_better else -1
    *means, _ = [sign * value.value for value in known]
    best = means.index(max(means))
    plain = difference(points[best], new, measure, level)
    if plain.difference is None:
        return None
    noise = independent_noise([value.stderr or 0.0 for value in known], min(value.n for value in known))
    if len(means) == 1:
        found = nothing_chosen(0, means[0], 1, plain.oriented)
    else:
        found = select(best, means, plain.oriented, noise)
    return compared_of(measure.metric, found if measure.higher_is_better else mirrored_selection(found))
