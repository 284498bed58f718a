"""Compare results item by item, and give verdicts that are corrected for multiple tests.

    compare             a new result against one baseline, or against the best of several
    compare_composite   a weighted sum of metrics of several benchmarks, against one baseline or the best of several
    compute_verdicts    a verdict for each comparison of a checkpoint, corrected for their number (Holm)
    pool                all items of a checkpoint's benchmarks together

These functions are pure; other modules decide which results may be compared. A point is 0.01 of the score; for a
perplexity, which is compared by its log-probabilities, it is about one per cent of the perplexity.

Two results share an item if its id and the hash of its row agree. A score of None counts as no item.

**Pooled**: is the model worse anywhere? A loss that is spread over a suite may be too small to detect on any single
benchmark, and clear on all of them together. The pooled test takes all items of all benchmarks as one sample. For right
and wrong answers it is McNemar's test on the sums of gained and lost items. Otherwise it is the permutation test of a
composite in which each benchmark is weighted by its number of items, with clusters kept whole.


If several earlier checkpoints have all the benchmarks, the best over all items is the baseline, and the test is
corrected for that choice.

The pooled test leaves out benchmarks with scores outside [0, 1] (log-probabilities), benchmarks whose lower scores are
better, and all but the first metric of each benchmark.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
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
    BestOfMany,
    PooledChoice,
    compare_composite_with_best,
    compare_with_best,
    nothing_chosen,
)
from pytest_touchstone.statistics.comparison import LEVEL, TOO_LARGE, are_too_large, undefined
from pytest_touchstone.statistics.composites import SharedItems, WeightedPart
from pytest_touchstone.statistics.paired import compare_flips, compare_with_references
from pytest_touchstone.statistics.resampling import compare_resampled
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN
from pytest_touchstone.statistics.verdicts import judge as judge_comparisons

NAMED: Final = 3
"""The number of items that are named before "and N more"."""


class ItemDifferences(NamedTuple):
    """The differences between the items of two results.

    These are ids of items that are missing from the new result, only in it, or with a changed row; and the number of
    items that are equal.
    """

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    changed: tuple[str, ...]
    shared: int

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.changed)

    def text(self) -> str:
        """Return the differences in words, as counts and the first names; empty if there are none."""
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
    """The ids and scores of the items that several results share: a list per baseline, and the new one's.

    ``clusters`` is None if no items are clustered.
    """

    names: list[str]
    baselines: list[list[float]]
    new: list[float]
    clusters: list[str | None] | None

    @property
    def lacking(self) -> str:
        """Return the reason why there are no means to compare; empty if there are."""
        if not self.new:
            return "no items in common"
        return TOO_LARGE if any(map(are_too_large, (*self.baselines, self.new))) else ""


def score_name(saved: StoredResult, metric: str) -> str:
    """Return the item score that a metric aggregates: mostly the metric's name, for a perplexity its log-probabilities.

    Raises ``GateError`` for a metric that the result lacks, and for a mean over groups, which no single item has.
    """
    if metric not in saved.metrics:
        names = ", ".join(saved.metrics)
        raise GateError(f"{saved.benchmark} has no metric {metric!r}; it has {names}")
    plain = metric.removesuffix(MACRO)
    if metric not in saved.aggregate and plain != metric and plain in saved.metrics:
        raise GateError(
            f"{saved.benchmark}: {metric} is a mean over groups, which cannot be compared item by item; use {plain}"
        )
    return saved.aggregation(metric).score


def item_differences(new: ItemScores, baseline: ItemScores, score: str) -> ItemDifferences:
    """Return the differences between the items of two results."""
    baseline = baseline.named_as(new)
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
    """Return the scores of the items that all results share, sorted by id."""
    baselines = [baseline.named_as(new) for baseline in baselines]
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
        [float(items.scores[score][index] or 0) for index in item_indices]
        for items, item_indices in zip(results, indices, strict=True)
    )
    names = [new.examples[index] for index in indices[-1]]
    clusters = [new.clusters[index] for index in indices[-1]]
    return AlignedScores(names, earlier, latest, clusters if clusters.count(None) < len(clusters) else None)


def _alike(new: ItemScores, other: ItemScores, score: str) -> bool:
    """Return whether both results have equal items in equal order, all scored: a frequent shortcut."""
    columns_ = (new.scores.get(score), other.scores.get(score))
    if any(column is None or None in column for column in columns_):
        return False
    return new.examples == other.examples and new.rows == other.rows


def rows_of(items: ItemScores, score: str) -> dict[str, str]:
    """Return the hash of the row of each scored item, by id."""
    column = items.scores.get(score, [])
    rows = zip(items.examples, items.rows, column, strict=False)
    return {name: row for name, row, value in rows if value is not None}


def _named(names: Iterable[str], what: str) -> str:
    listed = list(names)
    return f"{count(len(listed), 'item')} {what}: {join_names(listed, NAMED)}"


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
    """Compare a new result with its baseline, or with the best of several.

    Args:
        new: The new result, with its items.
        baselines: At least one earlier result.
        metric: The metric; by default the primary one.
        chosen: The index (from 0) of the baseline, if other items chose it or helped to; None: chosen by these items.
        level: The confidence level of the interval.

    Raises:
        GateError: If a result lacks the metric.
        ValueError: Without baselines.

    """
    metric = metric or new.saved.primary
    score, aggregation = score_name(new.saved, metric), new.saved.aggregation(metric)
    index = chosen.place if isinstance(chosen, PooledChoice) else chosen
    if aggregation.is_corpus_level:
        return _compare_corpus_metric(new, baselines, metric, chosen=index, level=level)
    aligned = columns(new.items, [baseline.items for baseline in baselines], score)
    if lacking := aligned.lacking:
        return _not_compared(new, baselines, metric, lacking, chosen=index, level=level)
    if baselines[0].saved.reference_runs:
        compared = compare_with_references(aligned.baselines[0], aligned.new, aligned.clusters, level=level)
        selection = nothing_chosen(0, 1, compared)
    else:
        selection = compare_aligned(
            aligned, higher=aggregation.higher_score_is_better, chosen=chosen, level=level
        )
    identical = _identical(new, baselines[selection.chosen], aligned, selection.chosen)
    return record_of(new, baselines, metric, selection, unit=aggregation.unit, identical=identical)


def _compare_corpus_metric(
    new: BenchmarkScores,
    baselines: Sequence[BenchmarkScores],
    metric: str,
    *,
    chosen: int | None,
    level: float,
) -> BenchmarkComparison:
    """Compare by a corpus-level metric, which has no item scores, by resampling (``statistics.resampling``)."""
    aggregation = new.saved.aggregation(metric)
    values = [values_of(result.items, aggregation) for result in (*baselines, new)]
    numbered = [
        replace(
            result.items,
            scores={
                aggregation.score: [
                    None if value is None else index for index, value in enumerate(result_values)
                ]
            },
        )
        for result, result_values in zip((*baselines, new), values, strict=True)
    ]
    aligned = columns(numbered[-1], numbered[:-1], aggregation.score)
    selection, why = None, _lacking(new, baselines, values)
    if aligned.new:
        *others, mine = (
            [result_values[int(index)] for index in column]
            for result_values, column in zip(values, (*aligned.baselines, aligned.new), strict=True)
        )
        try:
            selection = compare_resampled(
                others,
                mine,
                aligned.clusters,
                draws_of(aggregation, len(mine)),
                higher=aggregation.compared_higher_is_better,
                chosen=chosen,
                level=level,
            )
            why = "it has no value on the common items"
        except BenchmarkError as error:
            why = str(error)
    if selection is None:
        why = f"{NOT_COMPARED}: {metric}: {why}"
        return _not_compared(new, baselines, metric, why, chosen=chosen, level=level)
    if not aggregation.compared_higher_is_better:
        selection = mirrored_selection(selection)
    baseline = baselines[selection.chosen]
    same = bool(new.saved.fingerprint) and new.saved.fingerprint == baseline.saved.fingerprint
    identical = same and others[selection.chosen] == mine
    return record_of(new, baselines, metric, selection, unit=aggregation.unit, identical=identical)


def _lacking(new: BenchmarkScores, baselines: Sequence[BenchmarkScores], values: Sequence[list[Any]]) -> str:
    """Return the reason why the results share no item from which the metric can be computed."""
    unusable = [
        result
        for result, result_values in zip((*baselines, new), values, strict=True)
        if result_values.count(None) == len(result_values)
    ]
    if not unusable:
        return "no items in common"
    saved = unusable[0].saved
    return f"what it is made of was not kept for {saved.checkpoint} in {saved.run_id}; score it again"


def compare_aligned(
    aligned: AlignedScores,
    *,
    higher: bool,
    chosen: int | PooledChoice | None = None,
    level: float = LEVEL,
) -> BestOfMany:
    """Compare aligned scores; if lower is better, their distances from the largest possible score."""
    if higher:
        return compare_with_best(aligned.baselines, aligned.new, aligned.clusters, chosen=chosen, level=level)
    top = 1.0 if all(0 <= value <= 1 for run in (*aligned.baselines, aligned.new) for value in run) else 0.0
    baselines = [[top - value for value in run] for run in aligned.baselines]
    mirrored = compare_with_best(
        baselines, [top - value for value in aligned.new], aligned.clusters, chosen=chosen, level=level
    )
    return mirrored_selection(mirrored, top)


def mirrored_selection(selection: BestOfMany, top: float = 0.0) -> BestOfMany:
    """Return a selection with every value subtracted from ``top``, which reverses the better direction."""
    return replace(
        selection,
        comparison=selection.comparison.mirrored(top),
        as_measured=selection.as_measured.mirrored(top),
    )


def check_means(components: Iterable[tuple[BenchmarkScores, str]]) -> None:
    """Raise ``GateError`` for a metric that is not a mean of item scores.

    A composite needs sums item by item.
    """
    for entry, metric in components:
        if not entry.saved.aggregation(metric).is_mean:
            raise GateError(
                f"{entry.saved.benchmark} {metric} is not a mean of item scores, which a composite needs"
            )


def compare_composite(
    name: str, components: Sequence[CompositeComponent], *, chosen: int | None = None, level: float = LEVEL
) -> BenchmarkComparison:
    """Compare a new composite with the best of the baselines.

    All components list their baselines in one order. ``chosen`` is the index of the baseline if other items chose it.
    Raises like ``compare``, and ``GateError`` for a component that is not a mean of item scores.
    """
    check_means([(component.new, component.metric) for component in components])
    new, baselines = components[0].new, components[0].baselines
    by_benchmark: dict[str, list[tuple[CompositeComponent, AlignedScores]]] = {}
    for component in components:
        score = score_name(component.new.saved, component.metric)
        aligned = columns(component.new.items, [baseline.items for baseline in component.baselines], score)
        if lacking := aligned.lacking:
            record = _not_compared(new, baselines, COMPOSITE, lacking, level=level)
            return replace(record, benchmark=name)
        by_benchmark.setdefault(component.new.saved.benchmark, []).append((component, aligned))
    selection = compare_composite_with_best(
        [
            SharedItems(
                [
                    WeightedPart(component.weight, aligned.baselines, aligned.new)
                    for component, aligned in group
                ],
                group[0][1].clusters,
            )
            for group in by_benchmark.values()
        ],
        chosen=chosen,
        level=level,
    )
    identical = all(
        _identical(component.new, component.baselines[selection.chosen], aligned, selection.chosen)
        for group in by_benchmark.values()
        for component, aligned in group
    )
    record = record_of(new, baselines, COMPOSITE, selection, identical=identical)
    return replace(record, benchmark=name, counts=ItemCounts())


def compute_verdicts(
    compared: Mapping[Key, BenchmarkComparison],
    *,
    margin: float = MARGIN,
    margins: Mapping[Key, float] | None = None,
    alpha: float = ALPHA,
    flaws: Mapping[Key, str] = MappingProxyType({}),
) -> dict[Key, BenchmarkComparison]:
    """Return the comparisons of one checkpoint with their verdicts, in the given order.

    A checkpoint that is compared with itself and scores alike is "not worse" without a test, and does not count in
    Holm's correction.

    Args:
        compared: The comparisons, by any key.
        margin: The largest loss that still counts as not worse, as a share.
        margins: The margins of comparisons with another one.
        alpha: The chance of a false alarm over all comparisons.
        flaws: The reasons why comparisons are not valid.

    Raises:
        ValueError: If a margin or alpha is out of range, or a comparison's level is not 1 - alpha.

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
        flaws=flaws,
    )
    for name, record in compared.items():
        if record.identical and name not in flaws:
            kept = replace(judged[name], p=record.comparison.p, verdict="not worse")
            judged[name] = replace(kept, items_to_tell=None, why=IDENTICAL)
    return {
        name: replace(
            record,
            comparison=judged[name],
            invalid=(flaws[name],) if name in flaws else record.invalid,
        )
        for name, record in compared.items()
    }


def _identical(new: BenchmarkScores, baseline: BenchmarkScores, aligned: AlignedScores, index: int) -> bool:
    same = bool(new.saved.fingerprint) and new.saved.fingerprint == baseline.saved.fingerprint
    # References are of one model, whose engines have fingerprints and names of their own.
    same = same or bool(baseline.saved.reference_runs)
    return same and aligned.baselines[index] == aligned.new


NOT_COMPARED: Final = "not compared"
"""The prefix of a reason why a metric is not compared."""


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
"""The name of the metric of all items together."""


class PooledPart(NamedTuple):
    """One benchmark of the pooled test: the new result, its baselines, and their comparison."""

    new: BenchmarkScores
    baselines: Sequence[BenchmarkScores]
    compared: BenchmarkComparison

    @property
    def is_flips(self) -> bool:
        """Return whether the comparison is of one baseline by the flips of independent items."""
        comparison = self.compared.comparison
        return len(self.baselines) == 1 and comparison.flips is not None and comparison.units == comparison.n


class PooledComparison(NamedTuple):
    """The comparison of all items together, with the names of the benchmarks."""

    benchmarks: tuple[str, ...]
    compared: BenchmarkComparison


def pool(parts: Mapping[str, PooledPart], *, level: float) -> PooledComparison | None:
    """Compare all items of the benchmarks as one; None for fewer than two, or without complete checkpoints."""
    eligible = {
        name: result
        for name, result in parts.items()
        if are_pooled((result.new, *result.baselines), result.compared.metric)
    }
    if len(eligible) < 2:
        return None
    shared = of_the_same_checkpoints([result.baselines for result in eligible.values()])
    if not shared[0]:
        return None
    references = {
        result.baselines[result.compared.place].saved.checkpoint_key for result in eligible.values()
    }
    keys = [baseline.saved.checkpoint_key for baseline in shared[0]]
    chosen = keys.index(next(iter(references))) if len(references) == 1 and references <= {*keys} else None
    if all(result.is_flips for result in eligible.values()):
        compared = _by_flips([*eligible.values()], level)
    else:
        sizes = [_size(result) for result in eligible.values()]
        weighed = [
            CompositeComponent(size / sum(sizes), result.compared.metric, result.new, baselines)
            for size, result, baselines in zip(sizes, eligible.values(), shared, strict=True)
        ]
        compared = compare_composite(POOLED, weighed, chosen=chosen, level=level)
    compared = replace(compared, benchmark=count(len(eligible), "benchmark"), metric=POOLED)
    return PooledComparison(tuple(eligible), compared)


def of_the_same_checkpoints(
    results: Sequence[Sequence[BenchmarkScores]],
) -> list[tuple[BenchmarkScores, ...]]:
    """Return the results of the checkpoints that have all benchmarks, in the same order for each benchmark."""
    keyed = [{result.saved.checkpoint_key: result for result in group} for group in results]
    common = [key for key in keyed[0] if all(key in other for other in keyed[1:])]
    return [tuple(by_key[key] for key in common) for by_key in keyed]


def _by_flips(results: Sequence[PooledPart], level: float) -> BenchmarkComparison:
    """Compare all items from the gained and lost items of each benchmark."""
    n = right = gained = lost = 0
    for comparison in (result.compared.comparison for result in results):
        up, down = comparison.flips or (0, 0)
        n, gained, lost = n + comparison.n, gained + up, lost + down
        right += round((comparison.baseline or 0.0) * comparison.n) - down
    pooled = compare_flips(right, gained, lost, n - right - gained - lost, level=level)
    record = record_of(results[0].new, results[0].baselines, POOLED, nothing_chosen(0, 1, pooled))
    identical = all(result.compared.identical for result in results)
    return replace(record, identical=identical, counts=ItemCounts())


def _size(result: PooledPart) -> int:
    column = result.new.items.scores[score_name(result.new.saved, result.compared.metric)]
    return sum(value is not None for value in column)


def are_pooled(results: Sequence[BenchmarkScores], metric: str) -> bool:
    """Return whether the metric's scores may be pooled: within [0, 1], without a unit, higher being better."""
    try:
        score = score_name(results[0].saved, metric)
    except GateError:  # a mean over groups
        return False
    aggregation = results[0].saved.aggregation(metric)
    if not aggregation.is_mean or not aggregation.higher_score_is_better or aggregation.unit:
        return False
    columns = [result.items.scores.get(score) for result in results]
    return all(column and all(value is None or 0 <= value <= 1 for value in column) for column in columns)
