"""The comparison of two results on one benchmark by one metric.

It goes by items if at least half of the smaller result's are in the other too, with the same id and the same row; else
by totals, as runs on different items. Means over groups (``acc_macro``) have no items of their own and go by totals, as
does a perplexity that is asked for itself. A corpus-level metric (macro F1) is not compared by totals.

The comparison of two totals depends on what is known of them:

    both numbers of items, and errors as those of right and wrong items (or none)    shares: score test, Newcombe
    both numbers of items and errors                                                 means: Welch
    both errors                                                                      normal approximation
    otherwise                                                                        the difference alone

A mean of scores within [0, 1] varies most where all are 0 or 1. Taking it as a share when its error is unknown claims
too little rather than too much, unless items share a text, which a table does not say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.baselines import format_condition
from pytest_touchstone.compare.benchmark_comparison import (
    BenchmarkComparison,
    FlippedIds,
    ItemCounts,
    record_of,
)
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.comparison_verdicts import (
    NOT_COMPARED,
    AlignedScores,
    columns,
    compare,
    rows_of,
    score_name,
)
from pytest_touchstone.compare.formats.task_metrics import primary_of
from pytest_touchstone.compare.prompts import other_prompts
from pytest_touchstone.core.aggregation import Aggregation
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.core.settings import differences, differing_conditions
from pytest_touchstone.results.store_entry import NOT_KNOWN
from pytest_touchstone.results.summary import Metric
from pytest_touchstone.statistics.best_of_many import nothing_chosen
from pytest_touchstone.statistics.comparison import Comparison, undefined, z_quantile
from pytest_touchstone.statistics.unpaired import SummaryStatistics, compare_means, compare_rates


def compare_metric(
    baseline: BenchmarkScores, new: BenchmarkScores, metric: str, *, primary: bool, level: float
) -> BenchmarkComparison:
    """Compare a new result with the baseline's by a metric that both have."""
    how = new.saved.aggregation(metric)
    shared = shared_columns(baseline, new, metric) if not how.is_perplexity else None
    if shared is not None:
        record = compare(new, [baseline], metric, level=level)
        (before,), after = shared.columns.baselines, shared.columns.new
        common = shared.counts[2]
        return replace(
            record,
            primary=primary,
            # Asked differently, the same scores are luck.
            identical=record.identical and not conditions_that_differ(baseline, new),
            counts=ItemCounts(common, common, each=shared.counts, size=new.saved.size),
            flips=_flips(shared.columns.names, before, after, how.higher_score_is_better),
        )
    a, b = baseline.saved.metrics[metric], new.saved.metrics[metric]
    apart = [entry for entry in (how, baseline.saved.aggregation(metric)) if entry.is_corpus_level]
    comparison = (
        _not_compared(a, b, apart[0], level)
        if apart
        else compare_totals(a, b, benchmark=new.saved.benchmark, level=level)
    )
    comparison = replace(comparison, higher_is_better=how.higher_is_better)
    record = record_of(new, [baseline], metric, nothing_chosen(0, 1, comparison), unit=how.unit)
    counts = ItemCounts(a.n, b.n, paired=False, each=_counts(baseline, new, metric))
    return replace(record, primary=primary, counts=counts)


def _not_compared(a: Metric, b: Metric, how: Aggregation, level: float) -> Comparison:
    """Return both values of a corpus-level metric that only totals give, without a comparison."""
    why = f"{NOT_COMPARED}: {b.name} is not a mean of item scores ({how.by}), and only its totals are known"
    if a.value is None or b.value is None:
        return undefined(why, level=level)
    return _plain(a.value, b.value, level, why)


ANSWERS: Final = "answers"
"""The condition that says from what kind of file answers come, and how they were asked as far as it says so."""

HERE: Final = "asked here"


def conditions_that_differ(baseline: BenchmarkScores, new: BenchmarkScores) -> dict[str, tuple[Any, Any]]:
    """Return the conditions that both results record and that differ, the baseline's value first."""
    mine, other = baseline.saved.known, new.saved.known
    with_items = baseline.items.examples and new.items.examples
    differing = differing_conditions(mine, other) if with_items else differences(mine, other)
    both = {name for name in mine.keys() & other.keys() if NOT_KNOWN not in (mine[name], other[name])}
    if "seq_len" in differing:  # a setting of None leaves the checkpoint its own
        lengths = _seq_len(baseline), _seq_len(new)
        differing |= {"seq_len": lengths}
        both = both if lengths[0] != lengths[1] else both - {"seq_len"}
    if baseline.saved.published != new.saved.published:  # another program counts its versions by itself
        both = both - {"version"}
    if "shots" in differing:  # another number of examples has other examples
        both = both - {"few_shot"}
    apart = {name: values for name, values in differing.items() if name in both}
    if (sources := (mine.get(ANSWERS, HERE), other.get(ANSWERS, HERE)))[0] != sources[1]:
        apart[ANSWERS] = sources
    if not apart and (prompts := other_prompts(baseline, new)) is not None:
        apart["prompts"] = prompts.hashes
    return apart


def _seq_len(entry: BenchmarkScores) -> Any:
    given = entry.saved.conditions.get("seq_len")
    return entry.saved.checkpoint_info.get("seq_len") if given is None else given


def condition_text(name: str, values: Sequence[Any]) -> str:
    """Return a differing condition as text, such as ``shots 0 and 5``; hashes are shortened."""
    first, second = values
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        parts = differences(first, second)
        return ", ".join(condition_text(f"{name} {key}", pair) for key, pair in parts.items())
    return f"{name} {' and '.join(format_condition(value, unset='none') for value in values)}"


class MatchedItems(NamedTuple):
    """The items that two results share, and the numbers of items: each result's, common."""

    columns: AlignedScores
    counts: tuple[int, int, int]


def shared_columns(baseline: BenchmarkScores, new: BenchmarkScores, metric: str) -> MatchedItems | None:
    """Return the scores that two results share by a metric; None if there are too few to pair."""
    try:
        score = score_name(new.saved, metric)
    except GateError:  # a mean over groups
        return None
    aligned = columns(new.items, [baseline.items], score)
    counts = (len(rows_of(baseline.items, score)), len(rows_of(new.items, score)), len(aligned.new))
    return MatchedItems(aligned, counts) if aligned.new and 2 * counts[2] >= min(counts[:2]) else None


def _counts(baseline: BenchmarkScores, new: BenchmarkScores, metric: str) -> tuple[int, int, int] | None:
    if not baseline.items.examples or not new.items.examples:
        return None
    a, b = rows_of(baseline.items, metric), rows_of(new.items, metric)
    return (len(a), len(b), sum(a.get(name) == row for name, row in b.items()))


def _flips(
    names: Sequence[str], before: Sequence[float], after: Sequence[float], higher_is_better: bool
) -> FlippedIds:
    moved = list(zip(names, before, after, strict=True))
    up, down = (tuple(name for name, a, b in moved if sign * b > sign * a) for sign in (1, -1))
    return FlippedIds(up, down) if higher_is_better else FlippedIds(down, up)


def by_score(entry: BenchmarkScores, metric: str) -> str:
    """Return the metric by which another is compared: for a perplexity, the mean log-probability.

    A perplexity whose score is not a metric of the result is compared by itself, too.
    """
    how = entry.saved.aggregation(metric)
    return how.score if how.is_perplexity and how.score in entry.saved.metrics else metric


def best_scorer(entry: BenchmarkScores) -> str:
    """Return the metric that ranks this result alone."""
    saved = entry.saved
    if not saved.published:
        return by_score(entry, saved.primary)
    return by_score(entry, primary_of(saved.benchmark, saved.metrics))


def metric_of(entry: BenchmarkScores, name: str) -> Metric | None:
    """Return a metric of a result; None if it lacks the metric or its value."""
    metric = entry.saved.metrics.get(name)
    return metric if metric is not None and metric.value is not None else None


CLOSE: Final = 0.02
"""The largest relative difference of a written error from that of right and wrong items: errors are rounded."""


def compare_totals(baseline: Metric, new: Metric, *, benchmark: str, level: float) -> Comparison:
    """Compare two totals; undefined if either has no value."""
    a, b = baseline.value, new.value
    if a is None or b is None:
        return undefined((new if b is None else baseline).why or "no value", level=level)
    if baseline.n and new.n and is_share(baseline) and is_share(new):
        return compare_rates(a, baseline.n, b, new.n, level=level)
    if baseline.stderr and new.stderr:  # an error of 0 is of too few items, or of a program that knew none
        if baseline.n and new.n:
            return compare_means(
                SummaryStatistics(a, baseline.stderr, baseline.n),
                SummaryStatistics(b, new.stderr, new.n),
                level=level,
            )
        return _by_errors(a, b, math.hypot(baseline.stderr, new.stderr), level)
    sized = baseline.n and new.n
    what = "numbers of items" if _bounded(a) and _bounded(b) and not sized else "standard errors"
    remedy = f"; --items {benchmark}=N gives them" if what == "numbers of items" else ""
    return _plain(a, b, level, f"{what} are not known{remedy}")


def is_share(metric: Metric) -> bool:
    """Return whether the value may be a fraction of right items, judged by its error if it is not 0."""
    value, error = metric.value, metric.stderr
    if value is None or not _bounded(value):
        return False
    if not error:
        return True
    square = value * (1 - value)
    errors = (math.sqrt(square / metric.n), math.sqrt(square / max(1, metric.n - 1)))
    return any(
        math.isclose(error, candidate_error, rel_tol=CLOSE, abs_tol=1e-9) for candidate_error in errors
    )


def _bounded(value: float) -> bool:
    return 0 <= value <= 1


def _by_errors(a: float, b: float, error: float, level: float) -> Comparison:
    totals = _plain(a, b, level, "numbers of items are not known: normal approximation on different items")
    half = z_quantile(level) * error
    return replace(
        totals,
        low=b - a - half,
        high=b - a + half,
        stderr=error,
        p=2 * NormalDist().cdf(-abs(b - a) / error),
        method="z test of two means",
    )


def _plain(a: float, b: float, level: float, why: str) -> Comparison:
    return replace(undefined(why, level=level), baseline=a, new=b, difference=b - a)
