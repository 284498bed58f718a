"""Results of one benchmark, or of several -> their items in one order -> comparisons -> verdicts.

    compare             a new result against one baseline, or against the best of several
    compare_composite   the same for a weighted sum of several benchmarks' metrics
    judge               the comparisons of a checkpoint -> a verdict each, corrected for their number (Holm)
    pool                all items of a checkpoint's benchmarks together

Pure; which results may be compared at all is decided elsewhere. A point is 0.01 of the score; for a perplexity,
which is compared by its log-probabilities, that is about one per cent of it.

An item is the same in two results where its id and the hash of its row are. A score of None counts as no item.

**Pooled**: is the model worse, wherever that shows? A loss that is spread over a suite may be too small to be seen on
any one benchmark, and plain on all of them together. The pooled test takes all items of all benchmarks as one. For
right and wrong answers it is McNemar's on the sums of gained and lost items. Else it is a permutation test, as that of
a composite in which each benchmark weighs as many items as it has, with clusters whole.

Of several earlier checkpoints that have all the benchmarks the one that is best over all items is the baseline. That it
was chosen is allowed for.

Benchmarks are left out whose scores are no shares (log-probabilities), or better when lower, and what was compared by
another metric than the first of its benchmark.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison, ItemCounts, record_of
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.corpus_metrics import draws_of, values_of
from pytest_touchstone.core.aggregation import MACRO
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.errors import BenchmarkError, GateError
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.results.store_entry import ItemScores, StoredResult
from pytest_touchstone.statistics.best_of_many import (
    PooledChoice,
    Selection,
    compare_composite_with_best,
    compare_with_best,
    nothing_chosen,
)
from pytest_touchstone.statistics.comparison import LEVEL, TOO_LARGE, are_too_large, undefined
from pytest_touchstone.statistics.composites import SharedItems, WeightedPart
from pytest_touchstone.statistics.paired import compare_flips
from pytest_touchstone.statistics.resampling import compare_resampled
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN
from pytest_touchstone.statistics.verdicts import judge as judge_comparisons

NAMED: Final = 3
"""The number of items that are named before "and N more"."""


class ItemDifferences(NamedTuple):
    """The differences between the items of two results, by ids: missing in the new one, only in the new one, other
    rows; and how many items are the same."""

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    changed: tuple[str, ...]
    shared: int

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.changed)

    def text(self) -> str:
        """The differences in words: counts and the first names; empty where there are none."""
        parts = [
            _named(names, what)
            for names, what in (
                (self.missing, "missing here"),
                (self.extra, "not in the baseline"),
                (self.changed, "with another row"),
            )
            if names
        ]
        return "; ".join(parts)


class AlignedScores(NamedTuple):
    """The ids and scores of the items that all of several results have: a list per result, the new one's apart.

    ``clusters`` is None where items share nothing.
    """

    names: list[str]
    baselines: list[list[float]]
    new: list[float]
    clusters: list[str | None] | None

    @property
    def lacking(self) -> str:
        """The reason why they have no means to compare; empty where they have."""
        if not self.new:
            return "no items in common"
        return TOO_LARGE if any(map(are_too_large, (*self.baselines, self.new))) else ""


def score_name(saved: StoredResult, metric: str) -> str:
    """The item score that a metric is made of: for a perplexity its log-probabilities, else mostly its own name.

    Raises ``GateError`` for a metric that the result has not, and for a mean over groups, which no items have.
    """
    if metric not in saved.metrics:
        known = ", ".join(saved.metrics)
        raise GateError(f"{saved.benchmark} has no metric {metric!r}; it has {known}")
    plain = metric.removesuffix(MACRO)
    if metric not in saved.aggregate and plain != metric and plain in saved.metrics:
        raise GateError(
            f"{saved.benchmark}: {metric} is a mean over groups, which cannot be compared item by item; use {plain}"
        )
    return saved.aggregation(metric).of


def item_differences(new: ItemScores, baseline: ItemScores, score: str) -> ItemDifferences:
    """The items that the two results do not share."""
    if _alike(new, baseline, score):
        return ItemDifferences((), (), (), len(new.examples))
    mine, other = rows_of(new, score), rows_of(baseline, score)
    return ItemDifferences(
        missing=tuple(name for name in other if name not in mine),
        extra=tuple(name for name in mine if name not in other),
        changed=tuple(name for name, row in mine.items() if name in other and other[name] != row),
        shared=sum(other.get(name) == row for name, row in mine.items()),
    )


def columns(new: ItemScores, baselines: Sequence[ItemScores], score: str) -> AlignedScores:
    """The scores of the items that all results share, in order of the ids."""
    results = (*baselines, new)
    if all(_alike(new, baseline, score) for baseline in baselines):
        order = sorted(range(len(new.examples)), key=new.examples.__getitem__)
        indices = [order] * len(results)
    else:
        *others, mine = (rows_of(items, score) for items in results)
        shared = sorted(name for name, row in mine.items() if all(rows.get(name) == row for rows in others))
        by_name = [{name: index for index, name in enumerate(items.examples)} for items in results]
        indices = [[index_of[name] for name in shared] for index_of in by_name]
    *earlier, latest = (
        [float(items.scores[score][index] or 0) for index in own]
        for items, own in zip(results, indices, strict=True)
    )
    names = [new.examples[index] for index in indices[-1]]
    clusters = [new.clusters[index] for index in indices[-1]]
    return AlignedScores(names, earlier, latest, clusters if clusters.count(None) < len(clusters) else None)


def _alike(one: ItemScores, other: ItemScores, score: str) -> bool:
    """Return whether both have the same items in the same order, all with the score: the usual case, which is quick
    to tell."""
    columns_ = (one.scores.get(score), other.scores.get(score))
    if any(column is None or None in column for column in columns_):
        return False
    return one.examples == other.examples and one.rows == other.rows


def rows_of(items: ItemScores, score: str) -> dict[str, str]:
    """The hash of the row of every item that has the score."""
    column = items.scores.get(score, [])
    rows = zip(items.examples, items.rows, column, strict=False)
    return {name: row for name, row, value in rows if value is not None}


def _named(names: Iterable[str], what: str) -> str:
    known = list(names)
    return f"{count(len(known), 'item')} {what}: {join_names(known, NAMED)}"


# Comparisons and verdicts


Key = TypeVar("Key", bound=Hashable)

IDENTICAL: Final = "the same checkpoint, and every item scores as before"


class CompositeComponent(NamedTuple):
    """One part of a composite: its weight, the metric, and the results on its benchmark."""

    weight: float
    metric: str
    new: BenchmarkScores
    baselines: Sequence[BenchmarkScores]


def compare(
    new: BenchmarkScores,
    baselines: Sequence[BenchmarkScores],
    metric: str | None = None,
    *,
    chosen: int | PooledChoice | None = None,
    level: float = LEVEL,
) -> BenchmarkComparison:
    """The new result against the only baseline or the best of several, by the benchmark's primary metric or another.

    ``chosen`` is the baseline that was chosen by something else, or by more than these items. Raises ``GateError`` for
    a metric that there is not, ``ValueError`` without baselines.
    """
    metric = metric or new.saved.primary
    score, how = score_name(new.saved, metric), new.saved.aggregation(metric)
    place = chosen.place if isinstance(chosen, PooledChoice) else chosen
    if how.is_corpus_level:
        return _compare_corpus_metric(new, baselines, metric, chosen=place, level=level)
    aligned = columns(new.items, [baseline.items for baseline in baselines], score)
    if lacking := aligned.lacking:
        return _not_compared(new, baselines, metric, lacking, chosen=place, level=level)
    selection = compare_aligned(aligned, higher=how.higher_score_is_better, chosen=chosen, level=level)
    identical = _identical(new, baselines[selection.chosen], aligned, selection.chosen)
    return record_of(new, baselines, metric, selection, unit=how.unit, identical=identical)


def _compare_corpus_metric(
    new: BenchmarkScores,
    baselines: Sequence[BenchmarkScores],
    metric: str,
    *,
    chosen: int | None,
    level: float,
) -> BenchmarkComparison:
    """The same by a corpus-level metric: by its own value (``statistics.resampling``)."""
    how = new.saved.aggregation(metric)
    values = [values_of(one.items, how) for one in (*baselines, new)]
    places = [
        replace(
            entry.items, scores={how.of: [None if one is None else place for place, one in enumerate(own)]}
        )
        for entry, own in zip((*baselines, new), values, strict=True)
    ]
    found = columns(places[-1], places[:-1], how.of)
    selection, why = None, _lacking(new, baselines, values)
    if found.new:
        *others, mine = (
            [own[int(place)] for place in column]
            for own, column in zip(values, (*found.baselines, found.new), strict=True)
        )
        try:
            selection = compare_resampled(
                others,
                mine,
                found.clusters,
                draws_of(how, len(mine)),
                higher=how.compared_higher_is_better,
                chosen=chosen,
                level=level,
            )
            why = "it has no value on the common items"
        except BenchmarkError as error:
            why = str(error)
    if selection is None:
        why = f"{NOT_COMPARED}: {metric}: {why}"
        return _not_compared(new, baselines, metric, why, chosen=chosen, level=level)
    if not how.compared_higher_is_better:
        selection = mirrored_selection(selection)
    baseline = baselines[selection.chosen]
    same = bool(new.saved.fingerprint) and new.saved.fingerprint == baseline.saved.fingerprint
    identical = same and others[selection.chosen] == mine
    return record_of(new, baselines, metric, selection, unit=how.unit, identical=identical)


def _lacking(new: BenchmarkScores, baselines: Sequence[BenchmarkScores], values: Sequence[list[Any]]) -> str:
    """Why two results have no item in common of which the metric can be made."""
    entries = [one for one, own in zip((*baselines, new), values, strict=True) if own.count(None) == len(own)]
    if not entries:
        return "no items in common"
    saved = entries[0].saved
    return f"what it is made of was not kept for {saved.checkpoint} in {saved.run_id}; score it again"


def compare_aligned(
    found: AlignedScores,
    *,
    higher: bool,
    chosen: int | PooledChoice | None = None,
    level: float = LEVEL,
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
    return replace(one, comparison=one.comparison.mirrored(top), as_measured=one.as_measured.mirrored(top))


def check_means(parts: Iterable[tuple[BenchmarkScores, str]]) -> None:
    """Raises ``GateError`` for a metric that is no mean of its items' scores, of which no sum is made item by item."""
    for entry, metric in parts:
        if not entry.saved.aggregation(metric).is_mean:
            raise GateError(
                f"{entry.saved.benchmark} {metric} is no mean of its items' scores, of which a composite is made"
            )


def compare_composite(
    name: str, parts: Sequence[CompositeComponent], *, chosen: int | None = None, level: float = LEVEL
) -> BenchmarkComparison:
    """The new composite against the best of the baselines', which stand in the same order in every part.

    ``chosen`` is the place of a baseline that was chosen by something else.

    Raises as ``compare`` does, and for a part that is no mean of its items' scores.
    """
    check_means([(part.new, part.metric) for part in parts])
    new, baselines = parts[0].new, parts[0].baselines
    by_benchmark: dict[str, list[tuple[CompositeComponent, AlignedScores]]] = {}
    for part in parts:
        score = score_name(part.new.saved, part.metric)
        found = columns(part.new.items, [one.items for one in part.baselines], score)
        if lacking := found.lacking:
            record = _not_compared(new, baselines, COMPOSITE, lacking, level=level)
            return replace(record, benchmark=name)
        by_benchmark.setdefault(part.new.saved.benchmark, []).append((part, found))
    selection = compare_composite_with_best(
        [
            SharedItems(
                [WeightedPart(part.weight, found.baselines, found.new) for part, found in same],
                same[0][1].clusters,
            )
            for same in by_benchmark.values()
        ],
        chosen=chosen,
        level=level,
    )
    identical = all(
        _identical(part.new, part.baselines[selection.chosen], found, selection.chosen)
        for same in by_benchmark.values()
        for part, found in same
    )
    record = record_of(new, baselines, COMPOSITE, selection, identical=identical)
    return replace(record, benchmark=name, counts=ItemCounts())


def compute_verdicts(
    compared: Mapping[Key, BenchmarkComparison],
    *,
    margin: float = MARGIN,
    margins: Mapping[Key, float] | None = None,
    alpha: float = ALPHA,
) -> dict[Key, BenchmarkComparison]:
    """The comparisons of one checkpoint with a verdict each, in the order given; ``margins`` are those that differ.

    A checkpoint that is compared with itself and scores alike is "not worse" without a test: nothing is left to
    chance, and nothing counts in Holm's correction. Raises ``ValueError`` for margins and alphas out of range, and for
    comparisons of another level than 1 - alpha.
    """
    judged = judge_comparisons(
        {
            name: replace(record.comparison, p=None) if record.identical else record.comparison
            for name, record in compared.items()
        },
        margin=margin,
        margins=margins,
        alpha=alpha,
        sizes={name: record.counts.size for name, record in compared.items()},
    )
    for name, record in compared.items():
        if record.identical:
            kept = replace(judged[name], p=record.comparison.p, verdict="not worse")
            judged[name] = replace(kept, items_to_tell=None, why=IDENTICAL)
    return {name: replace(record, comparison=judged[name]) for name, record in compared.items()}


def _identical(new: BenchmarkScores, baseline: BenchmarkScores, found: AlignedScores, place: int) -> bool:
    same = bool(new.saved.fingerprint) and new.saved.fingerprint == baseline.saved.fingerprint
    return same and found.baselines[place] == found.new


NOT_COMPARED: Final = "not compared"
"""The beginning of the reason why a metric is not compared."""


def _not_compared(
    new: BenchmarkScores,
    baselines: Sequence[BenchmarkScores],
    metric: str,
    why: str,
    *,
    chosen: int | None = None,
    level: float,
) -> BenchmarkComparison:
    selection = nothing_chosen(chosen or 0, len(baselines), undefined(why, level=level))
    return record_of(new, baselines, metric, replace(selection, candidates=()))


# All items of a checkpoint's benchmarks together


POOLED: Final = "pooled"
"""The word that stands for the metric of all items together."""


class PooledPart(NamedTuple):
    """One benchmark: the new result, its baselines, and their comparison."""

    new: BenchmarkScores
    baselines: Sequence[BenchmarkScores]
    compared: BenchmarkComparison

    @property
    def is_flips(self) -> bool:
        """Return whether a single baseline and gained and lost items of their own say everything."""
        comparison = self.compared.comparison
        return len(self.baselines) == 1 and comparison.flips is not None and comparison.units == comparison.n


class Pooled(NamedTuple):
    """All items together: the names of the benchmarks, and the comparison."""

    benchmarks: tuple[str, ...]
    compared: BenchmarkComparison


def pool(parts: Mapping[str, PooledPart], *, level: float) -> Pooled | None:
    """The benchmarks as one; None for fewer than two, and where no earlier checkpoint has all of them."""
    kept = {
        name: part
        for name, part in parts.items()
        if are_pooled((part.new, *part.baselines), part.compared.metric)
    }
    if len(kept) < 2:
        return None
    shared = of_the_same_checkpoints([part.baselines for part in kept.values()])
    if not shared[0]:
        return None
    references = {part.baselines[part.compared.place].saved.checkpoint_key for part in kept.values()}
    keys = [one.saved.checkpoint_key for one in shared[0]]
    chosen = keys.index(next(iter(references))) if len(references) == 1 and references <= {*keys} else None
    if all(part.is_flips for part in kept.values()):
        compared = _by_flips([*kept.values()], level)
    else:
        sizes = [_size(part) for part in kept.values()]
        weighed = [
            CompositeComponent(size / sum(sizes), part.compared.metric, part.new, baselines)
            for size, part, baselines in zip(sizes, kept.values(), shared, strict=True)
        ]
        compared = compare_composite(POOLED, weighed, chosen=chosen, level=level)
    compared = replace(compared, benchmark=count(len(kept), "benchmark"), metric=POOLED)
    return Pooled(tuple(kept), compared)


def of_the_same_checkpoints(
    results: Sequence[Sequence[BenchmarkScores]],
) -> list[tuple[BenchmarkScores, ...]]:
    """The results on each of several benchmarks of those checkpoints alone that have all of them, in one order."""
    keyed = [{one.saved.checkpoint_key: one for one in same} for same in results]
    common = [key for key in keyed[0] if all(key in other for other in keyed[1:])]
    return [tuple(by_key[key] for key in common) for by_key in keyed]


def _by_flips(parts: Sequence[PooledPart], level: float) -> BenchmarkComparison:
    """The comparison of all items from what each benchmark has gained and lost against one and the same checkpoint."""
    n = right = gained = lost = 0
    for comparison in (part.compared.comparison for part in parts):
        up, down = comparison.flips or (0, 0)
        n, gained, lost = n + comparison.n, gained + up, lost + down
        right += round((comparison.baseline or 0.0) * comparison.n) - down
    whole = compare_flips(right, gained, lost, n - right - gained - lost, level=level)
    record = record_of(parts[0].new, parts[0].baselines, POOLED, nothing_chosen(0, 1, whole))
    identical = all(part.compared.identical for part in parts)
    return replace(record, identical=identical, counts=ItemCounts())


def _size(part: PooledPart) -> int:
    column = part.new.items.scores[score_name(part.new.saved, part.compared.metric)]
    return sum(value is not None for value in column)


def are_pooled(results: Sequence[BenchmarkScores], metric: str) -> bool:
    """Return whether the metric's scores may be pooled: within [0, 1], without a unit, higher being better."""
    try:
        score = score_name(results[0].saved, metric)
    except GateError:  # a mean over groups
        return False
    how = results[0].saved.aggregation(metric)
    if not how.is_mean or not how.higher_score_is_better or how.unit:
        return False
    columns = [result.items.scores.get(score) for result in results]
    return all(column and all(value is None or 0 <= value <= 1 for value in column) for column in columns)
