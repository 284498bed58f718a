"""Pairs of results -> comparisons -> verdicts.

    compare             a new result against one baseline, or against the best of several
    compare_composite   the same for a weighted sum of several benchmarks' metrics
    judge               the comparisons of a checkpoint -> a verdict each, corrected for their number (Holm)

Pure; which results may be compared at all is decided elsewhere. A point is 0.01 of the score; for a perplexity,
which is compared by its log-probabilities, that is about one per cent of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

from pytest_touchstone.compare.candidate import Entry
from pytest_touchstone.compare.items import AlignedScores, columns, score_name
from pytest_touchstone.statistics.best_of_many import (
    RunsOfBenchmark,
    RunsOfPart,
    Selection,
    compare_composite_with_best,
    compare_with_best,
)
from pytest_touchstone.statistics.comparison import LEVEL, Comparison, undefined
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN, Verdict
from pytest_touchstone.statistics.verdicts import judge as judge_comparisons

Key = TypeVar("Key", bound=Hashable)

IDENTICAL: Final = "the same checkpoint, and every item scores as before"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A new result against baselines on the items that all of them have.

    ``chosen`` is the place of the baseline that is compared with. ``comparison`` is the one to judge by; it is against
    ``shrunk``, the baseline's value after allowing for its having been chosen as the best of ``runs``, of which
    ``candidates`` may be the best. ``measured`` is the value as it was; both are None without items. ``identical``:
    the same checkpoint with the same score of every item.
    """

    metric: str
    chosen: int = 0
    comparison: Comparison
    as_measured: Comparison
    measured: float | None = None
    shrunk: float | None = None
    runs: int = 1
    candidates: int = 1
    identical: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A comparison and its verdict."""

    compared: Compared
    verdict: Verdict


class Weighed(NamedTuple):
    """One part of a composite: its weight, the metric, and the results on its benchmark."""

    weight: float
    metric: str
    new: Entry
    baselines: Sequence[Entry]


def compare(
    new: Entry,
    baselines: Sequence[Entry],
    metric: str | None = None,
    *,
    chosen: int | None = None,
    level: float = LEVEL,
) -> Compared:
    """The new result against the only baseline or the best of several, by the benchmark's primary metric or another.

    ``chosen`` is the place of a baseline that was chosen by something else. Raises ``GateError`` for a metric
    that there is not, ``ValueError`` without baselines.
    """
    metric = metric or new.saved.primary
    score = score_name(new.saved, metric)
    found = columns(new.items, [one.items for one in baselines], score)
    if not found.new:
        return _nothing(metric, chosen or 0, len(baselines), level)
    higher = new.saved.aggregation(metric).higher_score_is_better
    selection = compare_aligned(found, higher=higher, chosen=chosen, level=level)
    return compared_of(
        metric, selection, _identical(new, baselines[selection.chosen], found, selection.chosen)
    )


def compare_aligned(
    found: AlignedScores, *, higher: bool, chosen: int | None = None, level: float = LEVEL
) -> Selection:
    """The new scores against the others'. Where lower is better, the distances of the scores from the largest possible
    one are compared."""
    if higher:
        return compare_with_best(found.baselines, found.new, found.clusters, chosen=chosen, level=level)
    top = 1.0 if all(0 <= value <= 1 for run in (*found.baselines, found.new) for value in run) else 0.0
    baselines = [[top - value for value in run] for run in found.baselines]
    mirrored = compare_with_best(
        baselines, [top - value for value in found.new], found.clusters, chosen=chosen, level=level
    )
    return mirrored_selection(mirrored, top)


def mirrored_selection(one: Selection, top: float = 0.0) -> Selection:
    """The selection of ``top`` less each value, which is better in the other direction."""
    return replace(
        one,
        measured=top - one.measured,
        shrunk=top - one.shrunk,
        comparison=one.comparison.mirrored(top),
        as_measured=one.as_measured.mirrored(top),
    )


def compare_composite(name: str, parts: Sequence[Weighed], *, level: float = LEVEL) -> Compared:
    """The new composite against the best of the baselines', which stand in the same order in every part.

    Raises as ``compare`` does.
    """
    by_benchmark: dict[str, list[tuple[Weighed, AlignedScores]]] = {}
    for part in parts:
        score = score_name(part.new.saved, part.metric)
        found = columns(part.new.items, [one.items for one in part.baselines], score)
        if not found.new:
            return _nothing(name, 0, len(part.baselines), level)
        by_benchmark.setdefault(part.new.saved.benchmark, []).append((part, found))
    selection = compare_composite_with_best(
        [
            RunsOfBenchmark(
                [RunsOfPart(part.weight, found.baselines, found.new) for part, found in same],
                same[0][1].clusters,
            )
            for same in by_benchmark.values()
        ],
        level=level,
    )
    identical = all(
        _identical(part.new, part.baselines[selection.chosen], found, selection.chosen)
        for same in by_benchmark.values()
        for part, found in same
    )
    return compared_of(name, selection, identical)


def judge(
    compared: Mapping[Key, Compared],
    *,
    margin: float = MARGIN,
    margins: Mapping[Key, float] | None = None,
    alpha: float = ALPHA,
) -> dict[Key, Judged]:
    """A verdict for each comparison of one checkpoint, in the order given; ``margins`` are those that differ.

    A checkpoint that is compared with itself and scores alike is "not worse" without a test: nothing is left to
    chance, and nothing counts in Holm's correction. Raises ``ValueError`` for margins and alphas out of range, and for
    comparisons of another level than 1 - alpha.
    """
    verdicts = judge_comparisons(
        {
            name: replace(one.comparison, p=None) if one.identical else one.comparison
            for name, one in compared.items()
        },
        margin=margin,
        margins={name: value for name, value in (margins or {}).items() if name in compared},
        alpha=alpha,
    )
    return {
        name: Judged(
            compared=one,
            verdict=replace(verdicts[name], kind="not worse", items=None, why=IDENTICAL)
            if one.identical
            else verdicts[name],
        )
        for name, one in compared.items()
    }


def compared_of(metric: str, selection: Selection, identical: bool = False) -> Compared:
    """The selection in the form that is judged."""
    plain = selection.as_measured
    return Compared(
        metric=metric,
        chosen=selection.chosen,
        comparison=plain if identical else selection.comparison,
        as_measured=plain,
        measured=selection.measured,
        shrunk=selection.measured if identical else selection.shrunk,
        runs=selection.runs,
        candidates=len(selection.candidates),
        identical=identical,
    )


def _identical(new: Entry, baseline: Entry, found: AlignedScores, place: int) -> bool:
    same = bool(new.saved.fingerprint) and new.saved.fingerprint == baseline.saved.fingerprint
    return same and found.baselines[place] == found.new


def _nothing(metric: str, chosen: int, runs: int, level: float) -> Compared:
    one = undefined("no items in common", level=level)
    return Compared(metric=metric, chosen=chosen, comparison=one, as_measured=one, runs=runs, candidates=0)
