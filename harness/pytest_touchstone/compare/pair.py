"""The comparison of two candidates: every benchmark that both have, with verdicts; composites; the mean.

- The primary metrics of all benchmarks are one family: their p are corrected together (Holm). Composites are made of
  the same results and are a family of their own. Metrics beside the primary one have a p, and no verdict.
- Runs are judged by their benchmark's primary metric, published results by the best scorer that both sides have.
- A result that is not valid decides nothing: "inconclusive".
- The mean is over the valid benchmarks, each with the same weight, as comparison scripts of fine-tuning studies compute
  their average improvement; its interval adds up the benchmarks' errors as independent ones.
- All items of all valid benchmarks together have a verdict of their own (``compare.pooled``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_touchstone.compare.candidate import Candidate, Entry
from pytest_touchstone.compare.formats.task_metrics import primary_of
from pytest_touchstone.compare.groups import named_alike
from pytest_touchstone.compare.judge import Compared, compare_composite, judge
from pytest_touchstone.compare.judge import Weighed as Part
from pytest_touchstone.compare.metric import (
    MetricComparison,
    by_score,
    compare_metric,
    compared_totals,
    conditions_apart,
    metric_of,
    shared_columns,
)
from pytest_touchstone.compare.pooled import POOLED, pool
from pytest_touchstone.compare.pooled import Part as PooledPart
from pytest_touchstone.compare.prompts import known_by_prompts
from pytest_touchstone.core.composite import Composite
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.text import listed
from pytest_touchstone.results.store_entry import composites_of
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.composites import compare_composite_totals
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN, Kind, Verdict

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
class Pair:
    """The new candidate against the baseline; ``lines`` has each benchmark's primary metric, then those beside it."""

    baseline: Candidate
    new: Candidate
    lines: tuple[MetricComparison, ...]
    composites: tuple[MetricComparison, ...]
    mean: Mean | None
    pooled: MetricComparison | None = None

    @property
    def judged(self) -> dict[str, MetricComparison]:
        """The lines that verdicts are about, by benchmark."""
        return {line.benchmark: line for line in self.lines if line.primary}

    def of_kind(self, kind: Kind) -> list[str]:
        """The benchmarks with this verdict."""
        return [name for name, line in self.judged.items() if line.verdict and line.verdict.kind == kind]

    def only_in(self, one: Candidate, other: Candidate) -> list[str]:
        """The benchmarks of which ``other`` has no result."""
        return [name for name in one.entries if name not in other.entries]


def compare_pair(
    baseline: Candidate,
    new: Candidate,
    *,
    metric: str | None = None,
    every: bool = False,
    margin: float = MARGIN,
    alpha: float = ALPHA,
    composites: Iterable[Composite] = (),
) -> Pair:
    """The new candidate against the baseline. Benchmarks that have ``metric`` are judged by it in place of their
    primary one; ``every`` shows all metrics. ``composites`` are compared beside those that the results name.

    Raises ``DataError`` where they have nothing in common.
    """
    baseline, new = known_by_prompts(*named_alike(baseline, new))
    lines: list[MetricComparison] = []
    for name in (name for name in baseline.entries if name in new.entries):
        lines += _lines(baseline.entries[name], new.entries[name], metric, every, 1 - alpha)
    if not lines:
        raise DataError(
            f"{baseline.name} and {new.name} have no result of the same benchmark and metric; "
            f"the first has {_names(baseline)}; the second has {_names(new)}"
        )
    common = dict.fromkeys(_common(baseline, new))
    if metric is not None and metric not in common:
        raise DataError(f"no benchmark has the metric {metric!r} in both; there are: {listed(common)}")
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
    sound = [line for line in primary if not _invalid([line.benchmark], entries)]
    return Pair(
        baseline=baseline,
        new=new,
        lines=tuple(judged.get(line.benchmark, line) if line.primary else line for line in lines),
        composites=tuple(_judged(lined, entries, margin, alpha).values()),
        mean=_mean(sound, 1 - alpha),
        pooled=_pooled(sound, entries, margin, alpha),
    )


# Benchmarks


def _lines(a: Entry, b: Entry, wanted: str | None, every: bool, level: float) -> list[MetricComparison]:
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
    return [compare_metric(a, b, name, primary=name == ranked[0], level=level) for name in names]


def _comparable(a: Entry, b: Entry) -> list[str]:
    """The metrics that both have a value of."""
    names = dict.fromkeys(by_score(b, name) for name in b.saved.metrics)
    return [name for name in names if metric_of(a, name) is not None and metric_of(b, name) is not None]


def _common(a: Candidate, b: Candidate) -> Iterable[str]:
    return (
        name
        for benchmark in a.entries
        if benchmark in b.entries
        for name in _comparable(a.entries[benchmark], b.entries[benchmark])
    )


def _names(one: Candidate) -> str:
    return listed(one.entries)


# Composites


def compare_composite_in(
    composite: Composite, before: Mapping[str, Entry], after: Mapping[str, Entry], level: float
) -> MetricComparison | None:
    """The composite in both; None where a part is missing in either."""
    pairs = []
    for weight, benchmark, metric in composite.parts:
        a, b = before.get(benchmark), after.get(benchmark)
        if a is None or b is None or metric_of(a, metric) is None or metric_of(b, metric) is None:
            return None
        pairs.append((weight, metric, a, b))
    paired = all(shared_columns(a, b, metric) is not None for _, metric, a, b in pairs)
    compared: Compared
    if paired:
        compared = compare_composite(
            composite.name,
            [Part(weight, metric, b, [a]) for weight, metric, a, b in pairs],
            level=level,
        )
        if any(conditions_apart(a, b) for _, _, a, b in pairs):
            compared = replace(compared, identical=False)
    else:
        groups: dict[str, list[tuple[float, Comparison]]] = {}
        for weight, metric, a, b in pairs:
            line = compare_metric(a, b, metric, primary=False, level=level)
            groups.setdefault(b.saved.benchmark, []).append((weight, line.comparison))
        totals = compare_composite_totals(list(groups.values()), level=level)
        compared = compared_totals(composite.name, totals)
    # Its parts have items of their own: a number of items says nothing of the sum.
    compared = replace(compared, comparison=replace(compared.comparison, n=0))
    return MetricComparison(
        benchmark=composite.name,
        metric=composite.formula,
        primary=True,
        compared=compared,
        paired=paired,
        sizes=(0, 0),
        identical=compared.identical,
    )


# Verdicts


def _judged(
    lines: Sequence[MetricComparison],
    entries: tuple[Mapping[str, Entry], Mapping[str, Entry]],
    margin: float,
    alpha: float,
) -> dict[str, MetricComparison]:
    verdicts = judge({line.benchmark: line.compared for line in lines}, margin=margin, alpha=alpha)
    return {
        line.benchmark: replace(
            line, verdict=_believed(verdicts[line.benchmark].verdict, [line.benchmark], entries)
        )
        for line in lines
    }


def _believed(
    verdict: Verdict, names: Iterable[str], entries: tuple[Mapping[str, Entry], Mapping[str, Entry]]
) -> Verdict:
    """The verdict, "inconclusive" where a result of these benchmarks is not valid."""
    if reasons := _invalid(names, entries):
        return replace(verdict, kind="inconclusive", items=None, why=f"not valid: {reasons[0]}")
    return verdict


def _invalid(names: Iterable[str], entries: tuple[Mapping[str, Entry], Mapping[str, Entry]]) -> list[str]:
    """The reasons against the results of these benchmarks, where any is known."""
    known = [side[name].saved.invalid for name in names for side in entries if name in side]
    return [reason for reason in known if reason]


# All items


def _pooled(
    lines: Sequence[MetricComparison],
    entries: tuple[Mapping[str, Entry], Mapping[str, Entry]],
    margin: float,
    alpha: float,
) -> MetricComparison | None:
    """The verdict on the items of all benchmarks that are valid and compared item by item."""
    before, after = entries
    parts = {
        line.benchmark: PooledPart(
            line.metric, after[line.benchmark], [before[line.benchmark]], line.compared
        )
        for line in lines
        if line.paired
    }
    found = pool(parts, level=1 - alpha)
    if found is None:
        return None
    asked_apart = any(conditions_apart(before[name], after[name]) for name in found.benchmarks)
    compared = replace(found.compared, identical=found.compared.identical and not asked_apart)
    verdict = judge({found.name: compared}, margin=margin, alpha=alpha)[found.name].verdict
    n = compared.comparison.n
    return MetricComparison(
        benchmark=found.name,
        metric=POOLED,
        primary=True,
        compared=compared,
        paired=True,
        sizes=(n, n),
        identical=compared.identical,
        verdict=verdict,
    )


# The mean


def _mean(lines: Sequence[MetricComparison], level: float) -> Mean | None:
    """None for fewer than two benchmarks with values from 0 to 1 that are better when higher."""
    known = [line for line in lines if _is_share(line.comparison) and line.comparison.higher_is_better]
    if len(known) < 2:
        return None
    weight = 1 / len(known)
    comparison = compare_composite_totals([[(weight, line.comparison)] for line in known], level=level)
    percents = [line.percent for line in known if line.percent is not None]
    return Mean(
        replace(comparison, why=None if comparison.stderr else comparison.why),
        len(known),
        sum(percents) / len(percents) if percents else None,
        len(percents),
    )


def _is_share(one: Comparison) -> bool:
    return one.baseline is not None and one.new is not None and 0 <= one.baseline <= 1 and 0 <= one.new <= 1
