"""Compare two candidates: their common benchmarks with verdicts, composites, and the mean.

- The primary metrics of all benchmarks are one family: their p values are corrected together (Holm). Composites reuse
  the same results and are a family of their own. Other metrics have a p value but no verdict.
- Runs are judged by the primary metric of a benchmark, published results by the best scorer that both sides have.
- A result that is not valid is "inconclusive".
- The mean weights all valid benchmarks equally, like the average improvement in comparison scripts of fine-tuning
  studies; its interval treats the errors of the benchmarks as independent.
- All items of all valid benchmarks together have a verdict of their own (``compare.compute_verdicts``).

Benchmarks are paired even if their names differ. A run has all subjects of MMLU in one benchmark, while files have a
task for each, named as in lm-evaluation-harness (``mmlu_virology``, ``minerva_math_algebra``) or as this harness writes
them (``math_5000_Algebra``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pytest_touchstone.compare.baselines import flaw_of
from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison, ItemCounts, record_of
from pytest_touchstone.compare.candidate import BenchmarkScores, CheckpointResults
from pytest_touchstone.compare.comparison_verdicts import (
    CompositeComponent,
    PooledPart,
    compare_composite,
    compute_verdicts,
    pool,
)
from pytest_touchstone.compare.corpus_metrics import value_estimate, values_of
from pytest_touchstone.compare.formats.task_metrics import primary_of
from pytest_touchstone.compare.harnesses import HarnessDifference, explain_difference
from pytest_touchstone.compare.metric import (
    by_score,
    compare_metric,
    conditions_that_differ,
    metric_of,
    shared_columns,
)
from pytest_touchstone.compare.prompts import known_by_prompts
from pytest_touchstone.core.aggregation import Aggregation
from pytest_touchstone.core.composite import COMPOSITE, Composite
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.tasks import LM_EVAL_PREFIX, PREFIXES, translate_task
from pytest_touchstone.core.text import join_names
from pytest_touchstone.results.aggregate import as_metric
from pytest_touchstone.results.store_entry import ItemScores, composites_of, soft_score_mismatch
from pytest_touchstone.results.summary import Metric
from pytest_touchstone.statistics.best_of_many import nothing_chosen
from pytest_touchstone.statistics.comparison import Comparison, VerdictKind
from pytest_touchstone.statistics.composites import compare_composite_totals
from pytest_touchstone.statistics.intervals import mean_estimate
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN

_MATH: Final = {"minerva_math_": "minerva_exact", "hendrycks_math_": "hendrycks_exact"}
"""The scores that lm-evaluation-harness calls ``exact_match``, by the prefix of the task."""

_OF_MMLU: Final = ("mmlu", "mmlu_stem")
_GROUPED: Final = sorted({*PREFIXES.values(), "math"}, key=len, reverse=True)


def align_names(
    baseline: CheckpointResults, new: CheckpointResults
) -> tuple[CheckpointResults, CheckpointResults]:
    """Return both candidates with matching benchmark names, those of the baseline.

    The groups of a run's benchmark become the tasks that they are in the other candidate's file. A file's tasks and
    items are called as those of a run of lm-evaluation-harness's own tasks.
    """
    baseline, new = _with_prefix(baseline, new), _with_prefix(new, baseline)
    baseline, new = _split_groups(baseline, new), _split_groups(new, baseline)
    theirs = {_canonical_name(name): name for name in baseline.entries if name not in new.entries}
    renamed = {
        name: theirs.get(_canonical_name(name), name) for name in new.entries if name not in baseline.entries
    }
    after = {
        renamed.get(name, name): _rename(result, renamed.get(name, name))
        for name, result in new.entries.items()
    }
    before = dict(baseline.entries)
    for name in before.keys() & after.keys():
        before[name], after[name] = (
            _with_own_score_name(before[name], after[name]),
            _with_own_score_name(after[name], before[name]),
        )
    return replace(baseline, entries=before), replace(new, entries=after)


def _with_prefix(candidate: CheckpointResults, other: CheckpointResults) -> CheckpointResults:
    """Return the candidate with the tasks and items called ``lm_eval:...`` that are so called in the other."""
    entries = dict(candidate.entries)
    for name in [name for name in entries if LM_EVAL_PREFIX + name in other.entries]:
        entry = entries.pop(name)
        examples = [LM_EVAL_PREFIX + example for example in entry.items.examples]
        aggregate = other.entries[LM_EVAL_PREFIX + name].saved.aggregate
        saved = replace(entry.saved, aggregate={**entry.saved.aggregate, **aggregate})
        entry = replace(entry, saved=saved, items=replace(entry.items, examples=examples))
        entries[LM_EVAL_PREFIX + name] = _rename(entry, LM_EVAL_PREFIX + name)
    return replace(candidate, entries=entries)


def _split_groups(candidate: CheckpointResults, other: CheckpointResults) -> CheckpointResults:
    """Return the candidate with its benchmarks split into groups where the other has only the groups."""
    theirs = {_canonical_name(name): name for name in other.entries if name not in candidate.entries}
    entries: dict[str, BenchmarkScores] = {}
    for name, entry in candidate.entries.items():
        groups = {_fold(f"{name}/{group}"): group for group in entry.items.groups if group is not None}
        if name in _OF_MMLU:
            groups |= {_fold(f"mmlu/{group}"): group for group in groups.values()}
        tasks = {theirs[key]: group for key, group in groups.items() if key in theirs}
        if name in other.entries or not tasks:
            entries[name] = entry
        entries |= {task: _rename(extract_group(entry, group), task) for task, group in tasks.items()}
    return replace(candidate, entries=entries)


def _canonical_name(task: str) -> str:
    """Return ``BENCHMARK/GROUP`` for a task that is a group of one of our benchmarks, else the task."""
    task = task.removeprefix(LM_EVAL_PREFIX)
    names = translate_task(task.replace("hendrycks_math_", "minerva_math_"), (), theirs=True)
    if len(names) == 1 and "/" in names[0]:
        return _fold(names[0])
    prefix = next((prefix for prefix in _GROUPED if task.startswith(f"{prefix}_")), None)
    return task if prefix is None else _fold(f"{prefix}/{task.removeprefix(f'{prefix}_')}")


def _fold(name: str) -> str:
    return name.replace(" ", "_").casefold()


def _rename(entry: BenchmarkScores, name: str) -> BenchmarkScores:
    return (
        entry if entry.saved.benchmark == name else replace(entry, saved=replace(entry.saved, benchmark=name))
    )


def _with_own_score_name(entry: BenchmarkScores, other: BenchmarkScores) -> BenchmarkScores:
    """Return the result with ``exact_match`` renamed to this harness's name if the other result uses it."""
    saved = entry.saved
    ours = next((score for start, score in _MATH.items() if saved.benchmark.startswith(start)), "")
    if ours not in other.saved.metrics or ours in saved.metrics or "exact_match" not in saved.metrics:
        return entry
    metric = replace(saved.metrics["exact_match"], name=ours)
    column = entry.items.scores.get("exact_match")
    scores = {**entry.items.scores, **({ours: column} if column else {})}
    saved = replace(saved, metrics={**saved.metrics, ours: metric})
    return replace(entry, saved=saved, items=replace(entry.items, scores=scores))


def split_by_group(candidate: CheckpointResults) -> CheckpointResults:
    """Return the candidate with its benchmarks split into groups; only means over items are kept."""
    entries: dict[str, BenchmarkScores] = {}
    for name, entry in candidate.entries.items():
        groups = [group for group in dict.fromkeys(entry.items.groups) if group is not None]
        entries |= {f"{name}/{group}": extract_group(entry, group) for group in groups} or {name: entry}
    return replace(candidate, entries=entries)


def extract_group(entry: BenchmarkScores, group: str) -> BenchmarkScores:
    """Return one group as a benchmark of its own, with an unknown published size."""
    items = entry.items
    indices = [index for index, item_group in enumerate(items.groups) if item_group == group]
    group_items = ItemScores(
        examples=[items.examples[index] for index in indices],
        rows=[items.rows[index] for index in indices],
        groups=[group] * len(indices),
        clusters=[items.clusters[index] for index in indices],
        scores={name: [values[index] for index in indices] for name, values in items.scores.items()},
        facts={name: [values[index] for index in indices] for name, values in items.facts.items()},
    )
    aggregations = {name: entry.saved.aggregation(name) for name in entry.saved.metrics}
    kept = {
        name: aggregation
        for name, aggregation in aggregations.items()
        if aggregation.score in group_items.scores and not aggregation.is_perplexity
    }
    metrics = {name: _group_metric(name, aggregation, group_items) for name, aggregation in kept.items()}
    saved = replace(
        entry.saved,
        benchmark=f"{entry.saved.benchmark}/{group}",
        metrics=metrics,
        aggregate={name: aggregation for name, aggregation in entry.saved.aggregate.items() if name in kept},
        collected=len(indices),
        scored=len(indices),
        skipped=0,
        faults=0,
        items_sha256=group_items.digest(),
        of=0,
        mark="part of the items" if entry.saved.mark else "",
    )
    return replace(entry, saved=saved, items=group_items)


def _group_metric(name: str, aggregation: Aggregation, items: ItemScores) -> Metric:
    pairs = [
        (value, cluster)
        for value, cluster in zip(values_of(items, aggregation), items.clusters, strict=True)
        if value is not None
    ]
    values, clusters = [value for value, _ in pairs], [cluster for _, cluster in pairs]
    estimate = (
        mean_estimate(values, clusters)
        if aggregation.is_mean
        else value_estimate(values, clusters, aggregation)
    )
    return as_metric(name, estimate, len(pairs))


# The comparison of two candidates


Sides: TypeAlias = tuple[Mapping[str, BenchmarkScores], Mapping[str, BenchmarkScores]]
"""The results of the baseline and of the new candidate, by benchmark."""


@dataclass(frozen=True, slots=True)
class MeanComparison:
    """The mean over ``benchmarks`` benchmarks: values, difference and interval.

    ``percent`` is the mean of the relative differences, in per cent, of the ``relative`` benchmarks with a baseline
    above 0.
    """

    comparison: Comparison
    benchmarks: int
    percent: float | None
    relative: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairComparison:
    """The comparison of a new candidate with the baseline.

    ``lines`` has the primary metric of each benchmark, followed by its other metrics. ``harnesses`` say of benchmarks
    whose answers come from a file why the results differ.
    """

    baseline: CheckpointResults
    new: CheckpointResults
    lines: tuple[BenchmarkComparison, ...]
    composites: tuple[BenchmarkComparison, ...]
    mean: MeanComparison | None
    pooled: BenchmarkComparison | None = None
    harnesses: tuple[HarnessDifference, ...] = ()

    @property
    def judged(self) -> dict[str, BenchmarkComparison]:
        """Return the lines with verdicts, by benchmark."""
        return {line.benchmark: line for line in self.lines if line.primary}

    def of_kind(self, kind: VerdictKind) -> list[str]:
        """Return the benchmarks with this verdict."""
        return [name for name, line in self.judged.items() if line.comparison.verdict == kind]

    def with_records(self, records: Iterable[BenchmarkComparison]) -> PairComparison:
        """Return the comparison with a gate's records of the same benchmarks and metrics."""
        judged = {(record.benchmark, record.label): record for record in records}

        def judge(line: BenchmarkComparison, metric: str) -> BenchmarkComparison:
            record = judged.get((line.benchmark, metric))
            return (
                line
                if record is None
                else replace(line, comparison=record.comparison, against=record.against)
            )

        return replace(
            self,
            lines=tuple(judge(line, line.label) for line in self.lines),
            composites=tuple(judge(line, COMPOSITE) for line in self.composites),
            pooled=self.pooled and judge(self.pooled, self.pooled.metric),
        )

    def only_in(self, candidate: CheckpointResults, other: CheckpointResults) -> list[str]:
        """Return the benchmarks of a candidate that ``other`` lacks."""
        return [name for name in candidate.entries if name not in other.entries]


def compare_pair(
    baseline: CheckpointResults,
    new: CheckpointResults,
    *,
    metric: str | None = None,
    every: bool = False,
    margin: float | None = None,
    alpha: float = ALPHA,
    composites: Iterable[Composite] = (),
) -> PairComparison:
    """Compare a new candidate with the baseline.

    Args:
        baseline: The candidate to compare with.
        new: The candidate that is judged.
        metric: The metric to judge by, for benchmarks that have it; the others are judged by their primary one.
        every: Whether to list all metrics.
        margin: The margin of every metric. By default it is one point, or the margin that a metric with a unit
            declares; a metric with a unit and no margin has no verdict.
        alpha: The chance of a false alarm over all benchmarks.
        composites: Composites to compare in addition to those of the results.

    Raises:
        DataError: If the candidates have no benchmark and metric in common.

    """
    baseline, new = known_by_prompts(*align_names(baseline, new))
    both = [(result, new.entries[name]) for name, result in baseline.entries.items() if name in new.entries]
    lines: list[BenchmarkComparison] = []
    for pair in both:
        lines += _lines(*pair, metric, every, 1 - alpha)
    if not lines:
        apart = {text for pair in both if (text := differing_judges(*pair))}
        if apart:
            raise DataError(f"{baseline.name} and {new.name} cannot be compared: {'; '.join(sorted(apart))}")
        raise DataError(
            f"{baseline.name} and {new.name} have no result of the same benchmark and metric; "
            f"the first has {join_names(baseline.entries)}; the second has {join_names(new.entries)}"
        )
    common = dict.fromkeys(name for pair in both for name in _comparable(*pair))
    if metric is not None and metric not in common:
        raise DataError(f"no benchmark has the metric {metric!r} in both; there are: {join_names(common)}")
    entries = (baseline.entries, new.entries)
    all_composites = composites_of(
        (result.saved for side in (new, baseline) for result in side.entries.values()), composites
    )
    lined = [
        line
        for composite in all_composites
        if (line := compare_composite_in(composite, baseline.entries, new.entries, 1 - alpha)) is not None
    ]
    primary = [line for line in lines if line.primary]
    flaws = {line.benchmark: flaw for line in primary if (flaw := _flaw([line.benchmark], entries))}
    flaws |= {
        composite.name: flaw for composite in all_composites if (flaw := _flaw(composite.benchmarks, entries))
    }
    judged = _with_verdicts(primary, entries, margin, alpha, flaws)
    sound = [line for line in primary if line.benchmark not in flaws]
    explained = [
        explain_difference(baseline.entries[line.benchmark], new.entries[line.benchmark], line.metric)
        for line in primary
    ]
    return PairComparison(
        baseline=baseline,
        new=new,
        lines=tuple(judged.get(line.benchmark, line) if line.primary else line for line in lines),
        composites=tuple(_with_verdicts(lined, entries, margin, alpha, flaws).values()),
        mean=_mean(sound, 1 - alpha),
        pooled=_compare_pooled(sound, entries, margin, alpha),
        harnesses=tuple(filter(None, explained)),
    )


# Benchmarks


def _lines(
    a: BenchmarkScores, b: BenchmarkScores, wanted: str | None, every: bool, level: float
) -> list[BenchmarkComparison]:
    """Return the comparison by the primary metric of a benchmark, then by its other metrics."""
    common = _comparable(a, b)
    if not common:
        return []
    declared = [result.saved.primary for result in (a, b) if not result.saved.published]
    first = [by_score(b, name) for name in (wanted, *declared) if name is not None]
    ranked = [name for name in (*first, primary_of(b.saved.benchmark, common)) if name in common]
    composites = composites_of([b.saved])
    used = [
        component.metric
        for composite in composites
        for component in composite.parts
        if component.benchmark == b.saved.benchmark
    ]
    others = common if every else [name for name in common if name in used]
    names = dict.fromkeys((ranked[0], *others))
    stands_in = {
        score: b.saved.aggregation(name).compared(name)
        for name in b.saved.metrics
        if (score := by_score(b, name)) != name
    }
    return [
        replace(
            compare_metric(a, b, name, primary=name == ranked[0], level=level),
            stands_in=stands_in.get(name, ""),
        )
        for name in names
    ]


def _comparable(a: BenchmarkScores, b: BenchmarkScores) -> list[str]:
    """Return the metrics that both results have, measured alike; none if different judges graded them."""
    if differing_judges(a, b):
        return []
    scores = {name: by_score(b, name) for name in b.saved.metrics}
    names = dict.fromkeys(score if metric_of(a, score) else name for name, score in scores.items())
    return [
        name
        for name in names
        if metric_of(a, name) is not None
        and metric_of(b, name) is not None
        and not soft_score_mismatch(a.saved, b.saved, name)
    ]


def differing_judges(a: BenchmarkScores, b: BenchmarkScores) -> str:
    """Return the judges of two results in words if they differ; empty otherwise."""
    mine, other = (result.saved.known.get("judged_by") for result in (a, b))
    return "" if mine == other else f"judged_by {mine or 'no judge'} and {other or 'no judge'}"


# Composites


def compare_composite_in(
    composite: Composite,
    before: Mapping[str, BenchmarkScores],
    after: Mapping[str, BenchmarkScores],
    level: float,
) -> BenchmarkComparison | None:
    """Compare a composite of two candidates; None if either lacks a component."""
    pairs = []
    for weight, benchmark, metric in composite.parts:
        a, b = before.get(benchmark), after.get(benchmark)
        if a is None or b is None or metric_of(a, metric) is None or metric_of(b, metric) is None:
            return None
        pairs.append((weight, metric, a, b))
    paired = all(
        b.saved.aggregation(metric).is_mean and shared_columns(a, b, metric) is not None
        for _, metric, a, b in pairs
    )
    if paired:
        record = compare_composite(
            composite.name,
            [CompositeComponent(weight, metric, b, [a]) for weight, metric, a, b in pairs],
            level=level,
        )
        asked_alike = not any(conditions_that_differ(a, b) for _, _, a, b in pairs)
        record = replace(record, identical=record.identical and asked_alike)
    else:
        groups: dict[str, list[tuple[float, Comparison]]] = {}
        for weight, metric, a, b in pairs:
            line = compare_metric(a, b, metric, primary=False, level=level)
            groups.setdefault(b.saved.benchmark, []).append((weight, line.comparison))
        totals = compare_composite_totals(list(groups.values()), level=level)
        _, _, a, b = pairs[0]
        record = record_of(b, [a], "", nothing_chosen(0, 1, totals))
    return replace(
        record,
        benchmark=composite.name,
        metric=composite.formula,
        # The components have different items, so the sum has no number of items.
        comparison=replace(record.comparison, n=0),
        counts=ItemCounts(paired=paired),
    )


# Verdicts


def _with_verdicts(
    lines: Sequence[BenchmarkComparison],
    entries: Sides,
    margin: float | None,
    alpha: float,
    flaws: Mapping[str, str],
) -> dict[str, BenchmarkComparison]:
    """Return the lines with verdicts."""
    margins = {
        line.benchmark: aggregation.margin
        for line in lines
        if margin is None and (aggregation := _aggregation(line, entries)) is not None and aggregation.unit
    }
    judged = {line.benchmark: line for line in lines}
    with_margin = {name: line for name, line in judged.items() if margins.get(name, 0.0) is not None}
    return judged | compute_verdicts(
        with_margin,
        margin=MARGIN if margin is None else margin,
        margins={name: unit_margin for name, unit_margin in margins.items() if unit_margin is not None},
        alpha=alpha,
        flaws={name: flaw for name, flaw in flaws.items() if name in with_margin},
    )


def _aggregation(line: BenchmarkComparison, entries: Sides) -> Aggregation | None:
    """Return the aggregation of the new result's metric; None for a composite."""
    entry = entries[1].get(line.benchmark)
    return None if entry is None else entry.saved.aggregation(line.metric)


def _flaw(benchmarks: Iterable[str], entries: Sides) -> str:
    return flaw_of(side[name].saved for name in benchmarks for side in entries if name in side)


# All items


def _compare_pooled(
    lines: Sequence[BenchmarkComparison],
    entries: Sides,
    margin: float | None,
    alpha: float,
) -> BenchmarkComparison | None:
    """Return the verdict on the items of all benchmarks that are valid and compared item by item."""
    before, after = entries
    results = {
        line.benchmark: PooledPart(after[line.benchmark], [before[line.benchmark]], line)
        for line in lines
        if line.counts.paired
    }
    pooled = pool(results, level=1 - alpha)
    if pooled is None:
        return None
    asked_apart = any(conditions_that_differ(before[name], after[name]) for name in pooled.benchmarks)
    n, identical = pooled.compared.comparison.n, pooled.compared.identical and not asked_apart
    record = replace(pooled.compared, identical=identical, counts=ItemCounts(n, n))
    return compute_verdicts({"": record}, margin=MARGIN if margin is None else margin, alpha=alpha)[""]


# The mean


def _mean(lines: Sequence[BenchmarkComparison], level: float) -> MeanComparison | None:
    """Return the mean over benchmarks with shares that are better when higher; None for fewer than two."""
    shares = [line for line in lines if _is_share(line.comparison) and line.comparison.higher_is_better]
    if len(shares) < 2:
        return None
    weight = 1 / len(shares)
    comparison = compare_composite_totals([[(weight, line.comparison)] for line in shares], level=level)
    percents = [line.percent for line in shares if line.percent is not None]
    return MeanComparison(
        replace(comparison, why="" if comparison.stderr else comparison.why),
        len(shares),
        sum(percents) / len(percents) if percents else None,
        len(percents),
    )


def _is_share(comparison: Comparison) -> bool:
    return not comparison.unit and all(
        value is not None and 0 <= value <= 1 for value in (comparison.baseline, comparison.new)
    )
