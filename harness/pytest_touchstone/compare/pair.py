"""The comparison of two candidates: every benchmark that both have, with verdicts; composites; the mean.

- The primary metrics of all benchmarks are one family: their p are corrected together (Holm). Composites are made of
  the same results and are a family of their own. Metrics beside the primary one have a p, and no verdict.
- Runs are judged by their benchmark's primary metric, published results by the best scorer that both sides have.
- A result that is not valid decides nothing: "inconclusive".
- The mean is over the valid benchmarks, each with the same weight, as comparison scripts of fine-tuning studies compute
  their average improvement; its interval adds up the benchmarks' errors as independent ones.
- All items of all valid benchmarks together have a verdict of their own (``compare.compute_verdicts``).

Benchmarks are paired by names that mean the same. A run has all subjects of MMLU in one benchmark, while files have a
task for each, by names of lm-evaluation-harness (``mmlu_virology``, ``minerva_math_algebra``) or by those that this
harness writes (``math_5000_Algebra``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

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
from pytest_touchstone.compare.metric import (
    by_score,
    compare_metric,
    conditions_that_differ,
    metric_of,
    shared_columns,
)
from pytest_touchstone.compare.prompts import known_by_prompts
from pytest_touchstone.core.aggregation import Aggregation
from pytest_touchstone.core.composite import Composite
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.tasks import PREFIXES, translated
from pytest_touchstone.core.text import join_names
from pytest_touchstone.results.aggregate import as_metric
from pytest_touchstone.results.store_entry import ItemScores, composites_of, other_measure
from pytest_touchstone.results.summary import Metric
from pytest_touchstone.statistics.best_of_many import nothing_chosen
from pytest_touchstone.statistics.comparison import Comparison, Kind
from pytest_touchstone.statistics.composites import compare_composite_totals
from pytest_touchstone.statistics.intervals import mean_estimate
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN

_MATH: Final = {"minerva_math_": "minerva_exact", "hendrycks_math_": "hendrycks_exact"}
"""The score of this harness that lm-evaluation-harness calls ``exact_match``, by the beginning of its task."""

_OF_MMLU: Final = ("mmlu", "mmlu_stem")
_GROUPED: Final = sorted({*PREFIXES.values(), "math"}, key=len, reverse=True)


def named_alike(
    baseline: CheckpointResults, new: CheckpointResults
) -> tuple[CheckpointResults, CheckpointResults]:
    """The candidates, with groups of a run as the tasks that they are in the other's file, and with the names of the
    baseline for tasks that have another in the new one's file."""
    baseline, new = _split(baseline, new), _split(new, baseline)
    theirs = {_meant(name): name for name in baseline.entries if name not in new.entries}
    renamed = {name: theirs.get(_meant(name), name) for name in new.entries if name not in baseline.entries}
    after = {
        renamed.get(name, name): _named(one, renamed.get(name, name)) for name, one in new.entries.items()
    }
    before = dict(baseline.entries)
    for name in before.keys() & after.keys():
        before[name], after[name] = _scored(before[name], after[name]), _scored(after[name], before[name])
    return replace(baseline, entries=before), replace(new, entries=after)


def _split(one: CheckpointResults, other: CheckpointResults) -> CheckpointResults:
    """The candidate, with every benchmark that the other has only in parts as these parts."""
    theirs = {_meant(name): name for name in other.entries if name not in one.entries}
    entries: dict[str, BenchmarkScores] = {}
    for name, entry in one.entries.items():
        groups = {_folded(f"{name}/{group}"): group for group in entry.items.groups if group is not None}
        if name in _OF_MMLU:
            groups |= {_folded(f"mmlu/{group}"): group for group in groups.values()}
        parts = {theirs[key]: group for key, group in groups.items() if key in theirs}
        if name in other.entries or not parts:
            entries[name] = entry
        entries |= {task: _named(part_of(entry, group), task) for task, group in parts.items()}
    return replace(one, entries=entries)


def _meant(task: str) -> str:
    """``BENCHMARK/GROUP`` for the name of a part of one of ours, else the name itself."""
    known = translated(task.replace("hendrycks_math_", "minerva_math_"), (), theirs=True)
    if len(known) == 1 and "/" in known[0]:
        return _folded(known[0])
    whole = next((one for one in _GROUPED if task.startswith(f"{one}_")), None)
    return task if whole is None else _folded(f"{whole}/{task.removeprefix(f'{whole}_')}")


def _folded(name: str) -> str:
    return name.replace(" ", "_").casefold()


def _named(entry: BenchmarkScores, name: str) -> BenchmarkScores:
    return (
        entry if entry.saved.benchmark == name else replace(entry, saved=replace(entry.saved, benchmark=name))
    )


def _scored(entry: BenchmarkScores, other: BenchmarkScores) -> BenchmarkScores:
    """The result with ``exact_match`` by this harness's name for it, where the other has that one."""
    saved = entry.saved
    ours = next((score for start, score in _MATH.items() if saved.benchmark.startswith(start)), "")
    if ours not in other.saved.metrics or ours in saved.metrics or "exact_match" not in saved.metrics:
        return entry
    metric = replace(saved.metrics["exact_match"], name=ours)
    column = entry.items.scores.get("exact_match")
    scores = {**entry.items.scores, **({ours: column} if column else {})}
    saved = replace(saved, metrics={**saved.metrics, ours: metric})
    return replace(entry, saved=saved, items=replace(entry.items, scores=scores))


def by_group(candidate: CheckpointResults) -> CheckpointResults:
    """The candidate with each benchmark that has groups split into them; of its metrics the means over items stay."""
    entries: dict[str, BenchmarkScores] = {}
    for name, entry in candidate.entries.items():
        groups = [group for group in dict.fromkeys(entry.items.groups) if group is not None]
        parts = {f"{name}/{group}": part_of(entry, group) for group in groups}
        entries |= parts or {name: entry}
    return replace(candidate, entries=entries)


def part_of(entry: BenchmarkScores, group: str) -> BenchmarkScores:
    """One group as a benchmark of its own; of how many items it has with this data nothing is known."""
    items = entry.items
    places = [place for place, own in enumerate(items.groups) if own == group]
    part = ItemScores(
        examples=[items.examples[place] for place in places],
        rows=[items.rows[place] for place in places],
        groups=[group] * len(places),
        clusters=[items.clusters[place] for place in places],
        scores={name: [values[place] for place in places] for name, values in items.scores.items()},
        facts={name: [values[place] for place in places] for name, values in items.facts.items()},
    )
    ways = {name: entry.saved.aggregation(name) for name in entry.saved.metrics}
    made = {name: how for name, how in ways.items() if how.of in part.scores and not how.is_perplexity}
    metrics = {name: _metric(name, how, part) for name, how in made.items()}
    saved = replace(
        entry.saved,
        benchmark=f"{entry.saved.benchmark}/{group}",
        metrics=metrics,
        aggregate={name: how for name, how in entry.saved.aggregate.items() if name in made},
        collected=len(places),
        scored=len(places),
        skipped=0,
        faults=0,
        items_sha256=part.digest(),
        of=0,
        mark="part of the items" if entry.saved.mark else "",
    )
    return replace(entry, saved=saved, items=part)


def _metric(name: str, how: Aggregation, items: ItemScores) -> Metric:
    pairs = [
        (value, cluster)
        for value, cluster in zip(values_of(items, how), items.clusters, strict=True)
        if value is not None
    ]
    values, clusters = [value for value, _ in pairs], [cluster for _, cluster in pairs]
    found = mean_estimate(values, clusters) if how.is_mean else value_estimate(values, clusters, how)
    return as_metric(name, found, len(pairs))


# The comparison of two candidates


Sides: TypeAlias = tuple[Mapping[str, BenchmarkScores], Mapping[str, BenchmarkScores]]
"""The results of the baseline and of the new candidate, by benchmark."""

KINDS: Final[tuple[Kind, ...]] = ("better", "worse", "not worse", "inconclusive")


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean over ``benchmarks`` benchmarks: values, difference, interval; ``percent`` is the mean of their
    differences in per cent, over ``relative`` of them whose baseline is above 0."""

    comparison: Comparison
    benchmarks: int
    percent: float | None
    relative: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairComparison:
    """The new candidate against the baseline; ``lines`` has each benchmark's primary metric, then those beside it."""

    baseline: CheckpointResults
    new: CheckpointResults
    lines: tuple[BenchmarkComparison, ...]
    composites: tuple[BenchmarkComparison, ...]
    mean: Mean | None
    pooled: BenchmarkComparison | None = None

    @property
    def judged(self) -> dict[str, BenchmarkComparison]:
        """The lines that verdicts are about, by benchmark."""
        return {line.benchmark: line for line in self.lines if line.primary}

    def of_kind(self, kind: Kind) -> list[str]:
        """The benchmarks with this verdict."""
        return [name for name, line in self.judged.items() if line.comparison.verdict == kind]

    def only_in(self, one: CheckpointResults, other: CheckpointResults) -> list[str]:
        """The benchmarks of which ``other`` has no result."""
        return [name for name in one.entries if name not in other.entries]


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
    """The new candidate against the baseline. Benchmarks that have ``metric`` are judged by it in place of their
    primary one; ``every`` shows all metrics. ``margin`` is that of every metric; without it, it is one point, or what a
    metric with a unit declares; one that declares none has no verdict. ``composites`` are compared beside those that
    the results name.

    Raises ``DataError`` where they have nothing in common.
    """
    baseline, new = known_by_prompts(*named_alike(baseline, new))
    both = [(one, new.entries[name]) for name, one in baseline.entries.items() if name in new.entries]
    lines: list[BenchmarkComparison] = []
    for pair in both:
        lines += _lines(*pair, metric, every, 1 - alpha)
    if not lines:
        apart = {text for pair in both if (text := judged_apart(*pair))}
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
    known = composites_of(
        (one.saved for side in (new, baseline) for one in side.entries.values()), composites
    )
    lined = [
        line
        for composite in known
        if (line := compare_composite_in(composite, baseline.entries, new.entries, 1 - alpha)) is not None
    ]
    primary = [line for line in lines if line.primary]
    judged = _judged(primary, entries, margin, alpha)
    sound = [line for line in primary if not _invalid(line.benchmark, entries)]
    return PairComparison(
        baseline=baseline,
        new=new,
        lines=tuple(judged.get(line.benchmark, line) if line.primary else line for line in lines),
        composites=tuple(_judged(lined, entries, margin, alpha).values()),
        mean=_mean(sound, 1 - alpha),
        pooled=_pooled(sound, entries, margin, alpha),
    )


# Benchmarks


def _lines(
    a: BenchmarkScores, b: BenchmarkScores, wanted: str | None, every: bool, level: float
) -> list[BenchmarkComparison]:
    """The primary metric, then those beside it."""
    common = _comparable(a, b)
    if not common:
        return []
    declared = [one.saved.primary for one in (a, b) if not one.saved.published]
    first = [by_score(b, name) for name in (wanted, *declared) if name is not None]
    ranked = [name for name in (*first, primary_of(b.saved.benchmark, common)) if name in common]
    made = composites_of([b.saved])
    parts = [p.metric for c in made for p in c.parts if p.benchmark == b.saved.benchmark]
    others = common if every else [name for name in common if name in parts]
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
    """The metrics that both have a value of, by the same measure; another judge is another one for all of them."""
    if judged_apart(a, b):
        return []
    names = dict.fromkeys(by_score(b, name) for name in b.saved.metrics)
    return [
        name
        for name in names
        if metric_of(a, name) is not None
        and metric_of(b, name) is not None
        and not other_measure(a.saved, b.saved, name)
    ]


def judged_apart(a: BenchmarkScores, b: BenchmarkScores) -> str:
    """Return who has judged, and what was asked, in words, where that differs between two results; empty elsewhere."""
    mine, other = (one.saved.known.get("judged_by") for one in (a, b))
    return "" if mine == other else f"judged_by {mine or 'nobody'} and {other or 'nobody'}"


# Composites


def compare_composite_in(
    composite: Composite,
    before: Mapping[str, BenchmarkScores],
    after: Mapping[str, BenchmarkScores],
    level: float,
) -> BenchmarkComparison | None:
    """The composite in both; None where a part is missing in either."""
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
        # Its parts have items of their own: a number of items says nothing of the sum.
        comparison=replace(record.comparison, n=0),
        counts=ItemCounts(paired=paired),
    )


# Verdicts


def _judged(
    lines: Sequence[BenchmarkComparison],
    entries: Sides,
    margin: float | None,
    alpha: float,
) -> dict[str, BenchmarkComparison]:
    """The lines with verdicts: "inconclusive" where a result of the benchmark is not valid."""
    margins = {
        line.benchmark: how.margin
        for line in lines
        if margin is None and (how := _aggregation(line, entries)) is not None and how.unit
    }
    found = {line.benchmark: line for line in lines}
    compared = {name: line for name, line in found.items() if margins.get(name, 0.0) is not None}
    own = {name: value for name, value in margins.items() if value is not None}
    found |= compute_verdicts(compared, margin=MARGIN if margin is None else margin, margins=own, alpha=alpha)
    for name, line in found.items():
        if line.comparison.verdict is not None and (reasons := _invalid(name, entries)):
            comparison = replace(
                line.comparison, verdict="inconclusive", items_to_tell=None, why=f"not valid: {reasons[0]}"
            )
            found[name] = replace(line, comparison=comparison)
    return found


def _aggregation(line: BenchmarkComparison, entries: Sides) -> Aggregation | None:
    """How the new result's metric is made; None for a composite."""
    entry = entries[1].get(line.benchmark)
    return None if entry is None else entry.saved.aggregation(line.metric)


def _invalid(benchmark: str, entries: Sides) -> list[str]:
    """The reasons against the results of the benchmark, where any is known; an undefined primary metric is one."""
    known = [side[benchmark].saved for side in entries if benchmark in side]
    undefined = (
        f"{one.primary} is undefined, {found.why}"
        for one in known
        if (found := one.metrics.get(one.primary)) is not None and found.value is None
    )
    return [*(one.invalid for one in known if one.invalid), *undefined]


# All items


def _pooled(
    lines: Sequence[BenchmarkComparison],
    entries: Sides,
    margin: float | None,
    alpha: float,
) -> BenchmarkComparison | None:
    """The verdict on the items of all benchmarks that are valid and compared item by item."""
    before, after = entries
    parts = {
        line.benchmark: PooledPart(after[line.benchmark], [before[line.benchmark]], line)
        for line in lines
        if line.counts.paired
    }
    pooled = pool(parts, level=1 - alpha)
    if pooled is None:
        return None
    asked_apart = any(conditions_that_differ(before[name], after[name]) for name in pooled.benchmarks)
    n, identical = pooled.compared.comparison.n, pooled.compared.identical and not asked_apart
    record = replace(pooled.compared, identical=identical, counts=ItemCounts(n, n))
    return compute_verdicts({"": record}, margin=MARGIN if margin is None else margin, alpha=alpha)[""]


# The mean


def _mean(lines: Sequence[BenchmarkComparison], level: float) -> Mean | None:
    """None for fewer than two benchmarks with values from 0 to 1 that are better when higher."""
    known = [line for line in lines if _is_share(line.comparison) and line.comparison.higher_is_better]
    if len(known) < 2:
        return None
    weight = 1 / len(known)
    comparison = compare_composite_totals([[(weight, line.comparison)] for line in known], level=level)
    percents = [line.percent for line in known if line.percent is not None]
    return Mean(
        replace(comparison, why="" if comparison.stderr else comparison.why),
        len(known),
        sum(percents) / len(percents) if percents else None,
        len(percents),
    )


def _is_share(one: Comparison) -> bool:
    return not one.unit and all(value is not None and 0 <= value <= 1 for value in (one.baseline, one.new))
