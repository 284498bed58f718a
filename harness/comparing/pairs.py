"""Two contenders -> every benchmark that both have, with verdicts; composites; the mean.

- The primary metrics of all benchmarks are one family: their p are corrected together (Holm). Composites are made of
  the same results and are a family of their own. What is shown beside a primary metric has a p, and no verdict.
- Runs are judged by their benchmark's primary metric, published results by the best scorer that both sides have.
- A result that is not valid decides nothing: "cannot tell".
- The mean is over the benchmarks, each with the same weight, as comparison scripts of fine-tuning studies compute their
  average improvement; its interval adds up the benchmarks' errors as independent ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness.comparing.lines import (
    Line,
    by_score,
    compare_metric,
    compared_composite,
    conditions_apart,
    metric_of,
    shared_columns,
)
from harness.errors import DataError
from harness.gate.judging import Compared, compare_composite, judge
from harness.gate.judging import Weighed as Part
from harness.gate.pairing import Entry as Paired
from harness.imports.contender import Contender, Entry
from harness.imports.naming import listed
from harness.imports.task_metrics import primary_of
from harness.metrics.composites import COMPOSITES, Composite
from harness.statistics.comparison import Comparison
from harness.statistics.composites import compare_composite_totals
from harness.statistics.verdicts import ALPHA, MARGIN, Kind

KINDS: Final[tuple[Kind, ...]] = ("better", "worse", "not worse", "cannot tell")


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
    """The new contender against the baseline; ``lines`` has each benchmark's primary metric, then those beside it."""

    baseline: Contender
    new: Contender
    lines: tuple[Line, ...]
    composites: tuple[Line, ...]
    mean: Mean | None

    @property
    def judged(self) -> dict[str, Line]:
        """The lines that verdicts are about, by benchmark."""
        return {line.benchmark: line for line in self.lines if line.primary}

    def of_kind(self, kind: Kind) -> list[str]:
        """The benchmarks with this verdict."""
        return [name for name, line in self.judged.items() if line.verdict and line.verdict.kind == kind]

    def only_in(self, one: Contender, other: Contender) -> list[str]:
        """The benchmarks of which ``other`` has no result."""
        return [name for name in one.entries if name not in other.entries]


def compare_pair(
    baseline: Contender,
    new: Contender,
    *,
    metric: str | None = None,
    every: bool = False,
    margin: float = MARGIN,
    alpha: float = ALPHA,
) -> Pair:
    """The new contender against the baseline; ``metric`` is judged by where a benchmark has it, in place of its
    primary one, and ``every`` shows all metrics.

    Raises ``DataError`` where they have nothing in common.
    """
    lines: list[Line] = []
    for name in (name for name in baseline.entries if name in new.entries):
        lines += _lines(baseline.entries[name], new.entries[name], metric, every, 1 - alpha)
    if not lines:
        raise DataError(
            f"{baseline.name} and {new.name} have no result of the same benchmark and metric; "
            f"the first has {_names(baseline)}; the second has {_names(new)}"
        )
    known = dict.fromkeys(_common(baseline, new))
    if metric is not None and metric not in known:
        raise DataError(f"no benchmark has the metric {metric!r} in both; there are: {listed(known)}")
    entries = (baseline.entries, new.entries)
    composites = [
        line
        for composite in COMPOSITES
        if (line := _composite(composite, baseline.entries, new.entries, 1 - alpha)) is not None
    ]
    judged = _judged([line for line in lines if line.primary], entries, margin, alpha)
    return Pair(
        baseline=baseline,
        new=new,
        lines=tuple(judged.get(line.benchmark, line) if line.primary else line for line in lines),
        composites=tuple(_judged(composites, entries, margin, alpha).values()),
        mean=_mean([line for line in lines if line.primary], 1 - alpha),
    )


# Benchmarks


def _lines(a: Entry, b: Entry, wanted: str | None, every: bool, level: float) -> list[Line]:
    """The primary metric, then those beside it."""
    common = _comparable(a, b)
    if not common:
        return []
    declared = [one.saved.primary for one in (a, b) if not one.saved.published]
    first = [by_score(b, name) for name in (wanted, *declared) if name is not None]
    ranked = [name for name in (*first, primary_of(b.saved.benchmark, common)) if name in common]
    parts = [p.metric for c in COMPOSITES for p in c.parts if p.benchmark == b.saved.benchmark]
    others = common if every else [name for name in common if name in parts]
    names = dict.fromkeys((ranked[0], *others))
    return [compare_metric(a, b, name, primary=name == ranked[0], level=level) for name in names]


def _comparable(a: Entry, b: Entry) -> list[str]:
    """The metrics that both have a value of."""
    names = dict.fromkeys(by_score(b, name) for name in b.saved.metrics)
    return [name for name in names if metric_of(a, name) is not None and metric_of(b, name) is not None]


def _common(a: Contender, b: Contender) -> Iterable[str]:
    return (
        name
        for benchmark in a.entries
        if benchmark in b.entries
        for name in _comparable(a.entries[benchmark], b.entries[benchmark])
    )


def _names(one: Contender) -> str:
    return listed(one.entries)


# Composites


def _composite(
    composite: Composite, before: Mapping[str, Entry], after: Mapping[str, Entry], level: float
) -> Line | None:
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
            [Part(weight, metric, _items(b), [_items(a)]) for weight, metric, a, b in pairs],
            level=level,
        )
        if any(conditions_apart(a, b) for _, _, a, b in pairs):
            compared = replace(compared, identical=False)
    else:
        groups: dict[str, list[tuple[float, Comparison]]] = {}
        for weight, metric, a, b in pairs:
            line = compare_metric(a, b, metric, primary=False, level=level)
            groups.setdefault(b.saved.benchmark, []).append((weight, line.comparison))
        compared = compared_composite(
            composite.name, compare_composite_totals(list(groups.values()), level=level)
        )
    # Its parts have items of their own: a number of items says nothing of the sum.
    compared = replace(compared, comparison=replace(compared.comparison, n=0))
    return Line(
        benchmark=composite.name,
        metric=composite.formula,
        primary=True,
        compared=compared,
        paired=paired,
        sizes=(0, 0),
        identical=compared.identical,
    )


def _items(entry: Entry) -> Paired:
    assert entry.items is not None
    return Paired(entry.saved, entry.items)


# Verdicts


def _judged(
    lines: Sequence[Line],
    entries: tuple[Mapping[str, Entry], Mapping[str, Entry]],
    margin: float,
    alpha: float,
) -> dict[str, Line]:
    verdicts = judge({line.benchmark: line.compared for line in lines}, margin=margin, alpha=alpha)
    found = {}
    for line in lines:
        verdict = verdicts[line.benchmark].verdict
        wrong = [side[line.benchmark].saved.invalid for side in entries if line.benchmark in side]
        if reasons := [reason for reason in wrong if reason]:
            verdict = replace(verdict, kind="cannot tell", items=None, why=f"not valid: {reasons[0]}")
        found[line.benchmark] = replace(line, verdict=verdict)
    return found


# The mean


def _mean(lines: Sequence[Line], level: float) -> Mean | None:
    """None for fewer than two benchmarks with values from 0 to 1."""
    known = [line for line in lines if _is_share(line.comparison)]
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
