"""Which of several checkpoints is the best: by each benchmark and composite, and over all items.

The **standing** of a benchmark has the checkpoint whose primary metric is the best, and the one that it is least told
from. Only what is whole, valid, and was asked alike and of the same items, is compared, item by item, and corrected for
choosing the best of many (``statistics.best_of_many``). Where a result beside it was asked otherwise there is no
standing, nor where fewer than two checkpoints have a whole result.

**Over all items**, those of all benchmarks with a standing are taken as one (``comparison_verdicts.pool``), of the
checkpoints that have all of them. Benchmarks whose scores are no shares, or better when lower, take no part.

A gate against the best, and its interim analyses, ask the same rule for the **reference** (``choose_references``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from pytest_touchstone.compare.baselines import orient_higher_is_better
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.changes import values_of
from pytest_touchstone.compare.comparison_verdicts import (
    POOLED,
    CompositeComponent,
    PooledPart,
    are_pooled,
    columns,
    compare,
    compare_composite,
    of_the_same_checkpoints,
    pool,
    score_name,
)
from pytest_touchstone.compare.metric import conditions_that_differ
from pytest_touchstone.core.aggregation import MACRO
from pytest_touchstone.core.composite import COMPOSITE, Composite, composite_value
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.results.store_entry import composites_of
from pytest_touchstone.statistics.best_of_many import PooledChoice, choose_over_all, corrected_for_choice
from pytest_touchstone.statistics.verdicts import ALPHA

ALL: Final = ""
"""The name of the standing over all items."""

Runner = TypeVar("Runner")


class Standing(NamedTuple):
    """The best of several checkpoints by a benchmark's metric, by a composite, or over all items.

    ``rival`` is the nearest checkpoint that it cannot be told apart from; if it is ``told`` from each, the one with the
    largest ``p``, which is corrected for the choice; None without a test. ``tied``: both have the same value.
    ``rivals`` are all that it cannot be told apart from, ``worse`` those that it can; of one benchmark of several, and
    of a composite, the nearest rival alone.
    """

    benchmark: str
    metric: str
    checkpoint: str
    of: int
    told: bool
    rival: str
    p: float | None
    tied: bool = False
    rivals: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()


def standings_of(entries: Iterable[BenchmarkScores], alpha: float = ALPHA) -> list[Standing]:
    """Return the standings of several checkpoints: of benchmarks, then composites, and over all items."""
    whole = [entry for entry in entries if entry.saved.complete and entry.items.examples]
    by_benchmark: dict[str, list[BenchmarkScores]] = {}
    for entry in whole:
        by_benchmark.setdefault(entry.saved.benchmark, []).append(entry)
    compared = {name: same for name, same in by_benchmark.items() if len(same) > 1 and _asked_alike(same)}
    standings = [_of_benchmark(same, alpha, every=len(compared) == 1) for same in compared.values()]
    composites = composites_of(entry.saved for entry in whole)
    standings += [_of_composite(composite, compared, alpha) for composite in composites]
    standings.append(_over_all(compared, alpha))
    return [standing for standing in standings if standing is not None]


def clear_leaders(rows: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Return benchmark and checkpoint of each best one that can be told apart from all others.

    ``rows`` are standings in plain form.
    """
    return {(row["benchmark"], row["checkpoint"]) for row in rows if row["told"]}


def _of_benchmark(entries: Sequence[BenchmarkScores], alpha: float, *, every: bool) -> Standing | None:
    metric = entries[0].saved.primary

    def against(best: BenchmarkScores, other: BenchmarkScores) -> float | None:
        return compare(best, [other], metric, level=1 - alpha).comparison.p

    # Checkpoints without a value take no part.
    runners = {
        entry.saved.checkpoint: (value, entry)
        for value, entry in zip(_values_by(entries, metric), entries, strict=True)
        if math.isfinite(value)
    }
    return _standing(entries[0].saved.benchmark, metric, runners, against, alpha, every=every)


def _values_by(entries: Sequence[BenchmarkScores], metric: str) -> list[float]:
    """Return the values by which results of a benchmark are ranked; larger is better.

    They are over the items that all share. A metric that is not a mean of item scores has its saved values.
    """
    aggregation = entries[0].saved.aggregation(metric)
    if aggregation.is_corpus_level or metric.endswith(MACRO):
        return [orient_higher_is_better(entry.saved, metric) for entry in entries]
    aligned = columns(
        entries[0].items, [entry.items for entry in entries], score_name(entries[0].saved, metric)
    )
    sign = 1 if aggregation.higher_score_is_better else -1
    return [sign * math.fsum(run) / len(run) if run else -math.inf for run in aligned.baselines]


def _of_composite(
    composite: Composite, compared: Mapping[str, Sequence[BenchmarkScores]], alpha: float
) -> Standing | None:
    if not all(name in compared for name in composite.benchmarks):
        return None
    runners = {}
    for name, results in _of_all(compared, composite.benchmarks).items():
        value = composite_value(composite, values_of(entry.saved for entry in results.values()))
        if value is not None:
            runners[name] = value, results

    def against(best: Mapping[str, BenchmarkScores], other: Mapping[str, BenchmarkScores]) -> float | None:
        weighed = [
            CompositeComponent(weight, metric, best[name], [other[name]])
            for weight, name, metric in composite.parts
        ]
        return compare_composite(composite.name, weighed, level=1 - alpha).comparison.p

    return _standing(composite.name, COMPOSITE, runners, against, alpha)


def _over_all(compared: Mapping[str, Sequence[BenchmarkScores]], alpha: float) -> Standing | None:
    """Return the standing over all items of two or more benchmarks."""
    if len(compared) < 2:
        return None
    results = _of_all(compared, compared)
    if len(results) < 2:
        return None
    benchmarks = [[entries[name] for entries in results.values()] for name in compared]
    choice = choose_best((same, same[0].saved.primary) for same in benchmarks)
    if choice is None:
        return None
    runners = {
        name: (mean, entries) for mean, (name, entries) in zip(choice.means, results.items(), strict=True)
    }

    def against(best: Mapping[str, BenchmarkScores], other: Mapping[str, BenchmarkScores]) -> float | None:
        parts = {
            name: PooledPart(entry, [other[name]], compare(entry, [other[name]], level=1 - alpha))
            for name, entry in best.items()
            if are_pooled((entry, other[name]), entry.saved.primary)
        }
        pooled = pool(parts, level=1 - alpha)
        return None if pooled is None else pooled.compared.comparison.p

    return _standing(ALL, POOLED, runners, against, alpha, every=True)


def _of_all(
    compared: Mapping[str, Sequence[BenchmarkScores]], benchmarks: Iterable[str]
) -> dict[str, dict[str, BenchmarkScores]]:
    """Return the results of each checkpoint that has all of these benchmarks."""
    names = tuple(benchmarks)
    by_checkpoint: dict[str, dict[str, BenchmarkScores]] = {}
    for name in names:
        for entry in compared[name]:
            by_checkpoint.setdefault(entry.saved.checkpoint, {})[name] = entry
    return {name: results for name, results in by_checkpoint.items() if len(results) == len(names)}


def _standing(
    benchmark: str,
    metric: str,
    runners: Mapping[str, tuple[float, Runner]],
    against: Callable[[Runner, Runner], float | None],
    alpha: float,
    *,
    every: bool = False,
) -> Standing | None:
    """Return the standing of checkpoints by their values, which are better when larger.

    Those nearest to the best are tested first, up to the first that it cannot be told apart from, or with ``every``
    all.
    """
    if len(runners) < 2:
        return None
    best, *others = sorted(runners, key=lambda name: (-runners[name][0], name))  # whatever order they came in
    count = len(runners)
    nearest, largest = others[0], 0.0
    rivals: dict[str, float | None] = {}
    for other in others:
        try:
            p = against(runners[best][1], runners[other][1])
        except GateError:  # a mean over groups has no items to compare
            p = None
        p = None if p is None else corrected_for_choice(p, count)
        if p is None or p > alpha:
            rivals[other] = p
            if not every:
                break
        elif p > largest:
            nearest, largest = other, p
    worse = tuple(other for other in others if other not in rivals) if every or not rivals else ()
    if not rivals:
        return Standing(benchmark, metric, best, count, True, nearest, largest, worse=worse)
    nearest, p = next(iter(rivals.items()))
    tied = runners[best][0] == runners[nearest][0]
    return Standing(benchmark, metric, best, count, False, nearest, p, tied, tuple(rivals), worse)


def _asked_alike(entries: Sequence[BenchmarkScores]) -> bool:
    first = entries[0]
    return all(
        entry.saved.items_sha256 == first.saved.items_sha256 and not conditions_that_differ(first, entry)
        for entry in entries[1:]
    )


def best_checkpoint(standings: Sequence[Standing]) -> Standing | None:
    """Return the standing that says which checkpoint is best: everything that names a best checkpoint asks here.

    It is that over all items; with a single benchmark that one's; and where nothing is pooled the first composite's.
    None where there is none of them.
    """
    benchmarks = [row for row in standings if row.benchmark != ALL and row.metric != COMPOSITE]
    if len(benchmarks) == 1:
        return benchmarks[0]
    overall = [row for row in standings if row.benchmark == ALL]
    return next(iter([*overall, *(row for row in standings if row.metric == COMPOSITE)]), None)


def choose_best(benchmarks: Iterable[tuple[Sequence[BenchmarkScores], str]]) -> PooledChoice | None:
    """Choose the checkpoint that is the best over all items of those benchmarks that can be pooled.

    A benchmark is given by its results, which stand in one order of checkpoints, and its metric. None for fewer than
    two that can be pooled.
    """
    scores = []
    for results, metric in benchmarks:
        if are_pooled(results, metric):
            items = [result.items for result in results]
            aligned = columns(items[0], items, score_name(results[0].saved, metric))
            scores.append((aligned.baselines, aligned.clusters))
    return choose_over_all(scores) if len(scores) > 1 else None


class EarlierBest(NamedTuple):
    """The earlier results to compare a benchmark with, one per checkpoint, and the best of them."""

    results: tuple[BenchmarkScores, ...]
    chosen: PooledChoice | int


def choose_references(
    earlier: Mapping[str, Sequence[BenchmarkScores]], metrics: Mapping[str, str]
) -> dict[str, EarlierBest]:
    """Choose what each benchmark is compared with among its earlier results: the best over all items.

    Where no two checkpoints have all benchmarks that several have, one checkpoint is chosen for those benchmarks that
    form the largest block, of checkpoints times benchmarks; then another for the rest. Benchmarks of a block that
    cannot be pooled go with those that can: nothing of them was chosen. Where fewer than two can, each has the best by
    its own metric.
    """
    references: dict[str, EarlierBest] = {}
    while waiting := {name: results for name, results in earlier.items() if name not in references}:
        having: dict[str, set[str]] = {}
        for name, results in waiting.items():
            for result in results:
                having.setdefault(result.saved.checkpoint_key, set()).add(name)
        sets = Counter(map(frozenset, having.values()))
        counts = {names: sum(sets[other] for other in sets if names <= other) for names in sets}
        several = frozenset(name for name, results in waiting.items() if len(results) > 1)
        block = max(counts, key=lambda names: len(names) * counts[names])
        if several and sum(sets[other] for other in sets if several <= other) > 1:
            block = several
        names = [name for name in waiting if name in block]
        by_name = [sorted(waiting[name], key=lambda result: result.saved.checkpoint) for name in names]
        shared = of_the_same_checkpoints(by_name)
        choice = choose_best((results, metrics[name]) for name, results in zip(names, shared, strict=True))
        for name, results in zip(names, shared, strict=True):
            if choice is None:
                values = _values_by(results, metrics[name])
                references[name] = EarlierBest(results, values.index(max(values)))
            elif are_pooled(results, metrics[name]):
                references[name] = EarlierBest(results, choice)
            else:
                references[name] = EarlierBest((results[choice.place],), 0)
    return references


def leads_of(standings: Iterable[Standing]) -> Counter[str]:
    """Return on how many benchmarks each checkpoint leads alone."""
    return Counter(
        row.checkpoint
        for row in standings
        if row.benchmark != ALL and row.metric != COMPOSITE and not row.tied
    )
