"""Plan a gate before anything is asked: what each benchmark, and all items pooled, can decide.

A composite that the gate compares has a row too, and joins the tests that are corrected together. So do all items
pooled, in the last row; without ``pooled = true`` in the gate's configuration they are a separate test.

The share of items that flip from one checkpoint to the next determines the power of a paired comparison
(``statistics.power``). For each benchmark and composite it comes from

1. pairs of saved results of neighbouring checkpoints of one series, on the same items and under the same conditions,
   compared like in the gate; otherwise pairs of checkpoints that were saved one after the other;
2. without a pair, one saved result, with an assumed correlation of 1/2 between two runs: the middle of what Miller
   found between models (2024, arXiv 2411.00640: 0.3 to 0.7). With accuracy p, a share p (1 - p) of right or wrong
   answers then flips. Metrics of one benchmark are assumed to flip together;
3. without any result, a given share or ``FLIPS``.

A file of references (``compare.formats.references``) tells the noise of two runs of one model; the plan is then for one
more of its runs. So do several runs of a served model, where nothing else is saved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from pytest_touchstone.compare.baselines import ROWS, BaselineSource, best_per_checkpoint, comparable_results
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.comparison_verdicts import (
    POOLED,
    CompositeComponent,
    check_means,
    columns,
    compare,
    compare_composite,
    of_the_same_checkpoints,
    score_name,
)
from pytest_touchstone.compare.formats.references import noise_of
from pytest_touchstone.compare.gate.config import GateConfig
from pytest_touchstone.core.aggregation import Aggregation, mean
from pytest_touchstone.core.composite import COMPOSITE, Composite
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.core.text import count
from pytest_touchstone.results.store_entry import StoredResult, composites_of
from pytest_touchstone.results.summary import Declaration
from pytest_touchstone.statistics.comparison import POINTS
from pytest_touchstone.statistics.intervals import are_shares, is_binary, moments_of
from pytest_touchstone.statistics.power import (
    CHURN,
    Design,
    binary_design,
    composite_design,
    design_of_comparison,
    items_for_drop,
    items_for_not_worse,
    mean_design,
    pooled_design,
    power_of_drop,
    reference_design,
    smallest_drop,
)
from pytest_touchstone.statistics.verdicts import MARGIN, POWER

FLIPS: Final = 0.15
"""The share of items that is assumed to flip in a benchmark without saved results."""

PAIRS: Final = 10
"""The largest number of pairs of saved results that are used for a benchmark: the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBenchmark:
    """A benchmark that will be run, with one metric (None: the primary one) and its number of items."""

    benchmark: str
    metric: str | None = None
    items: int
    version: int | None = None
    data: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedComponent:
    """A metric of a benchmark, with its weight in the comparison and its saved results.

    ``group`` has one for each checkpoint, and ``reruns`` all of the last one that were asked anew, if it is served.
    """

    target: PlannedBenchmark
    group: Sequence[StoredResult]
    weight: float = 1.0
    reruns: Sequence[StoredResult] = ()

    @property
    def metric(self) -> str:
        """Return the name of the metric; empty if unknown."""
        return self.target.metric or (self.group[-1].primary if self.group else "")


class PowerInput(NamedTuple):
    """The design of a metric, with its origin in words.

    ``assumed`` is true if no pair of results determined the design. ``size`` is the largest known number of items of
    the benchmark, 0 if unknown.
    """

    design: Design
    metric: str
    text: str
    assumed: bool
    aggregation: Aggregation = mean("")
    size: int = 0

    @property
    def is_pooled(self) -> bool:
        """Return whether the pooled verdict includes the metric, by the rule of ``comparison_verdicts.pool``."""
        aggregation = self.aggregation
        return (
            self.metric != COMPOSITE
            and self.design.bounded
            and aggregation.higher_score_is_better
            and not aggregation.unit
        )


Entries: TypeAlias = Sequence[BenchmarkScores]
"""The results of one checkpoint: one for each benchmark."""


@dataclass(frozen=True, slots=True)
class _SavedResults:
    """The saved results: the baselines, and the whole folder; ``flips`` is a share given by the user."""

    source: BaselineSource
    folder: BaselineSource
    flips: float | None

    def load(self, entry: BenchmarkScores) -> BenchmarkScores:
        """Return a result with its items."""
        return (self.source if entry.saved in self.source.saved else self.folder).load(entry.saved)

    def component(self, target: PlannedBenchmark, weight: float = 1.0) -> PlannedComponent:
        """Return the target with its comparable saved results, one for each checkpoint, oldest first.

        They are comparable with the largest baseline of the benchmark (the newest of equals).
        """

        def fits(saved: StoredResult) -> bool:
            return (
                saved.benchmark == target.benchmark
                and saved.complete
                and not saved.published
                and target.version in (None, saved.conditions.get("version"))
                and target.data in (None, saved.conditions.get("data"))
                and (target.metric is None or target.metric in saved.metrics)
            )

        baselines, others = (list(filter(fits, results.saved)) for results in (self.source, self.folder))
        first = max(baselines or others, key=lambda saved: (saved.scored, saved.began), default=None)
        if first is None:
            return PlannedComponent(target, (), weight)
        unique = {(saved.run_id, saved.checkpoint): saved for saved in (*others, *baselines)}
        comparable = comparable_results(replace(first, run_id="", began=math.inf), unique.values())
        group = best_per_checkpoint(comparable, target.metric or first.primary)
        reruns = [
            saved
            for saved in sorted(comparable, key=lambda saved: saved.began)
            if saved.checkpoint_info.get("served")
            and saved.checkpoint_key == group[-1].checkpoint_key
            and not saved.reused_from
        ]
        return PlannedComponent(target, group, weight, reruns)


def _power_input(name: str, components: Sequence[PlannedComponent], saved: _SavedResults) -> PowerInput:
    """Return the design of a metric or of a composite.

    Raises ``GateError`` if its size is unknown, and for a component of a composite that is not a mean.
    """
    by_benchmark: dict[str, list[PlannedComponent]] = {}
    for component in components:
        by_benchmark.setdefault(component.target.benchmark, []).append(component)
    firsts = [group[0] for group in by_benchmark.values()]
    is_composite = name not in by_benchmark
    if is_composite:
        check_means(
            (BenchmarkScores(component.group[-1]), component.metric)
            for component in components
            if component.group
        )
    shared = of_the_same_checkpoints([[*map(BenchmarkScores, component.group)] for component in firsts])
    pairs = _neighbouring_pairs(list(zip(*shared, strict=True)))[-PAIRS:]
    if saved.flips is None and pairs:
        design = mean_design([_design_of_pair(name, components, *pair, saved) for pair in pairs])
        text, assumed = _describe_pairs(pairs), False
    else:
        single = {id(component): _assumed_design(component, saved) for component in components}
        designs = [
            _weighted_design([(component.weight, single[id(component)][0]) for component in group])
            for group in by_benchmark.values()
        ]
        design = composite_design(designs) if is_composite else designs[0]
        texts = dict.fromkeys(text for _, text in single.values())
        text = next(iter(texts)) if len(texts) == 1 else "as of its benchmarks"
        assumed = any(not _has_noise(component, saved) for component in components)
    items = sum(component.target.items for component in firsts)
    design = replace(design, items=items or design.items)
    if is_composite:
        return PowerInput(design, COMPOSITE, text, assumed)
    (component,) = components
    if not component.group:
        return PowerInput(design, component.metric, text, assumed, size=items)
    last = component.group[-1]
    return PowerInput(
        design, component.metric, text, assumed, last.aggregation(component.metric), max(items, last.size)
    )


def _has_noise(component: PlannedComponent, saved: _SavedResults) -> bool:
    """Return whether there are several runs of one model, which tell its noise."""
    last = component.group[-1:]
    return saved.flips is None and (
        len(component.reruns) > 1 or any(result.reference_runs > 1 for result in last)
    )


def _weighted_design(weighted: Sequence[tuple[float, Design]]) -> Design:
    """Return the design of a weighted sum of metrics that flip together."""
    design = weighted[0][1]
    if len(weighted) == 1 and weighted[0][0] == 1:
        return design
    return replace(
        design, spread=math.fsum(weight * summand.spread for weight, summand in weighted), flips=None
    )


def _neighbouring_pairs(checkpoints: Sequence[Entries]) -> list[tuple[Entries, Entries]]:
    """Return the pairs of neighbouring checkpoints of each series, else of checkpoints in the order of saving."""
    by_series: dict[str, list[Entries]] = {}
    for entries in checkpoints:
        if (series := entries[0].saved.checkpoint_info.get("series")) is not None:
            by_series.setdefault(str(series), []).append(entries)

    in_order = (
        sorted(same, key=lambda entries: (entries[0].saved.step is None, entries[0].saved.step or 0))
        for same in by_series.values()
    )
    neighbours = [pair for same in in_order for pair in pairwise(same)]
    return neighbours or list(pairwise(checkpoints))


def _describe_pairs(pairs: Sequence[tuple[Entries, Entries]]) -> str:
    results = [entries[0].saved for pair in pairs for entries in pair]
    names = list(dict.fromkeys(saved.checkpoint for saved in results))
    series = {saved.checkpoint_info.get("series") for saved in results} - {None}
    where = f" of {next(iter(series))}" if len(series) == 1 else ""
    between = f"{names[0]} {'and' if len(names) == 2 else 'to'} {names[-1]}"
    return f"measured: {count(len(pairs), 'pair')} of saved results{where}, {between}"


def _design_of_pair(
    name: str, components: Sequence[PlannedComponent], earlier: Entries, later: Entries, saved: _SavedResults
) -> Design:
    """Return the design of two results, compared like in the gate."""
    before, after = (
        {entry.saved.benchmark: saved.load(entry) for entry in entries} for entries in (earlier, later)
    )
    if name in after:
        compared = compare(after[name], [before[name]], components[0].metric).as_measured
    else:
        weighed = [
            CompositeComponent(
                component.weight,
                component.metric,
                after[component.target.benchmark],
                [before[component.target.benchmark]],
            )
            for component in components
        ]
        compared = compare_composite(name, weighed).as_measured
    design = design_of_comparison(compared)
    if design is None:
        raise GateError(
            compared.why
            or f"no difference of {name} between {earlier[0].saved.checkpoint} and {later[0].saved.checkpoint}"
        )
    is_corpus_level = name in after and after[name].saved.aggregation(components[0].metric).is_corpus_level
    return replace(design, bounded=design.bounded and not is_corpus_level)


def _assumed_design(component: PlannedComponent, saved_results: _SavedResults) -> tuple[Design, str]:
    """Return the design for two runs like the last one, and its origin in words.

    The share of flips is the given one, else that of two runs with correlation 1/2.
    """
    target, metric, flips = component.target, component.metric, saved_results.flips
    origin = "assumed" if flips is None else "given"
    if not component.group:
        if target.items < 1:
            raise GateError(f"no result of it is saved; --items {target.benchmark}=N gives its size")
        share = FLIPS if flips is None else flips
        return binary_design(
            target.items, share
        ), f"{origin}: {100 * share:g} % of the items flip; no result is saved"
    saved = component.group[-1]
    if _has_noise(component, saved_results) and not saved.reference_runs:
        pairs = list(pairwise((BenchmarkScores(rerun),) for rerun in component.reruns))[-PAIRS:]
        designs = [_design_of_pair(target.benchmark, [component], *pair, saved_results) for pair in pairs]
        text = f"measured: {count(len(pairs), 'pair')} of runs of {saved.checkpoint} itself"
        return replace(mean_design(designs), churn=CHURN), text
    if _has_noise(component, saved_results):
        references = saved_results.load(BenchmarkScores(saved))
        noise, runs = noise_of(references) or 0.0, saved.reference_runs
        text = f"measured: {100 * noise:.3g} % of the items flip between two of {runs} runs in {saved.run_id}"
        return reference_design(saved.scored, noise, runs), text
    text = f"assumed: two runs of {saved.checkpoint} with correlation 1/2"
    if saved.aggregation(metric).is_corpus_level:
        error = saved.metrics[metric].stderr
        if error is None:
            raise GateError(f"how far {metric} varies is not known; two saved results would tell")
        return Design(items=saved.scored, spread=error * math.sqrt(saved.scored), bounded=False), text
    column = columns(saved_results.load(BenchmarkScores(saved)).items, [], score_name(saved, metric))
    if column.lacking:
        raise GateError(f"{saved.checkpoint}: {column.lacking}")
    moments = moments_of(column.new, column.clusters)
    effect = moments.variance / moments.plain if moments.variance and moments.plain else 1.0
    if not is_binary(column.new):
        spread = math.sqrt((moments.plain or 0.0) * moments.n)
        bounded = are_shares(column.new)
        return Design(items=moments.n, spread=spread, effect=max(1.0, effect), bounded=bounded), text
    share = max(moments.mean * (1 - moments.mean), 1 / (moments.n + 1)) if flips is None else flips
    text = f"{origin}: {100 * share:.3g} % of the items flip"
    like = f", as of two runs like {saved.checkpoint} with correlation 1/2" if flips is None else ""
    return binary_design(moments.n, share, effect=max(1.0, effect)), text + like


# The plan


DROP: Final = 0.02
"""The default drop of a plan: two points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """The power of a gate on one benchmark.

    Attributes:
        basis: The origin of the design, in words.
        assumed: Whether the design comes from assumptions, not from a pair of results.
        unit: The unit of ``margin``, ``drop`` and ``sees``.
        drop: The drop to detect. In a unit other than points it has one margin for each point of the plan's drop.
        sees: The smallest true drop that is detected with the plan's power.
        finds: The power to detect ``drop`` if only this benchmark regresses.
        items_for_drop: About how many items detect ``drop`` with the plan's power; None if no number does.
        items_for_not_worse: About how many items show "not worse" for an equal checkpoint; None if no number does.
        size: The largest known number of items of the benchmark, 0 if unknown.

    """

    benchmark: str
    metric: str
    design: Design
    basis: str
    assumed: bool
    margin: float
    unit: str
    drop: float
    sees: float | None
    finds: float
    items_for_drop: int | None
    items_for_not_worse: int | None
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePlan:
    """The plan of a gate; ``unknown`` has a reason for each benchmark that cannot be planned."""

    baseline: str
    drop: float
    power: float
    alpha: float
    margin: float
    rows: tuple[PlanRow, ...]
    unknown: Mapping[str, str]


def make_plan(
    targets: Sequence[PlannedBenchmark],
    source: BaselineSource,
    folder: BaselineSource,
    config: GateConfig,
    *,
    drop: float = DROP,
    power: float = POWER,
    flips: float | None = None,
    effects: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> GatePlan:
    """Plan a gate over several benchmarks.

    Args:
        targets: The benchmarks to plan for.
        source: The baselines.
        folder: All saved results of the results folder, from which the share of flips is estimated.
        config: The settings of the gate.
        drop: The drop to detect, as a share.
        power: The probability with which a drop should be detected.
        flips: The share of items that flip, in place of estimates.
        effects: Losses to detect in place of ``drop``, by benchmark and metric, in the metric's unit.

    Raises:
        GateError: If there is no benchmark to plan for.

    """
    if not targets:
        raise GateError(
            "nothing to plan for: no result is saved; name benchmarks and their sizes with --items NAME=N"
        )
    saved = _SavedResults(source, folder, flips)
    by_name = {target.benchmark: target for target in reversed(targets)}

    def parts_of(composite: Composite) -> Iterator[PlannedComponent]:
        for component in composite.parts:
            if component.benchmark not in by_name:
                raise GateError(f"it needs {component.benchmark}, which is not asked")
            yield saved.component(
                replace(by_name[component.benchmark], metric=component.metric), component.weight
            )

    tests: list[tuple[str, Iterable[PlannedComponent]]]
    tests = [(target.benchmark, [saved.component(target)]) for target in targets]
    composites = composites_of([*source.saved, *folder.saved], config.composites)
    tests += [
        (composite.name, parts_of(composite)) for composite in composites if composite.name in config.metrics
    ]
    inputs: list[tuple[str, PowerInput]] = []
    unknown: dict[str, str] = {}
    for name, components in tests:
        try:
            power_input = _power_input(name, list(components), saved)
            # A metric without a margin raises, and is listed as unknown.
            config.margin_of(name, power_input.metric, power_input.aggregation)
            inputs.append((name, power_input))

        except GateError as error:
            unknown[name] = str(error)
    shares = {name: power_input.design for name, power_input in reversed(inputs) if power_input.is_pooled}
    pooled = len(shares) > 1
    family = max(1, len(inputs) + (config.pooled and pooled))
    rows = [
        _plan_row(
            name,
            basis,
            config,
            family,
            drop=drop,
            power=power,
            effect=effects.get(name, {}).get(basis.metric),
        )
        for name, basis in inputs
    ]
    if pooled:
        text = f"all items of {count(len(shares), 'benchmark')}"
        pooled_input = PowerInput(
            pooled_design([*shares.values()]), "", text, any(row.assumed for row in rows)
        )
        rows.append(
            _plan_row(POOLED, pooled_input, config, family if config.pooled else 1, drop=drop, power=power)
        )
    return GatePlan(
        baseline=source.name,
        drop=drop,
        power=power,
        alpha=config.alpha,
        margin=config.margin,
        rows=tuple(rows),
        unknown=unknown,
    )


def planned_benchmarks(
    source: BaselineSource, folder: BaselineSource, sizes: Mapping[str, int], config: GateConfig
) -> list[PlannedBenchmark]:
    """Return the benchmarks of the baselines, else of all saved results, then the others of ``sizes``.

    Each benchmark is that of its newest complete result, but with as many items as the largest result on the same rows,
    so that a trial run does not set the size. ``sizes`` has numbers of items by benchmark.
    """
    newest: dict[str, StoredResult] = {}
    for saved in source.saved or folder.saved:
        if saved.complete and not saved.published:
            before = newest.get(saved.benchmark, saved)
            rows = [[result.conditions.get(name) for name in ROWS] for result in (before, saved)]
            if rows[0] != rows[1] or before.scored <= saved.scored:
                newest[saved.benchmark] = saved
    benchmarks = [
        PlannedBenchmark(
            benchmark=name,
            metric=metric,
            items=sizes.get(name, result.scored),
            version=result.conditions.get("version"),
            data=result.conditions.get("data"),
        )
        for name, result in newest.items()
        for metric in config.metrics_of(name, result.primary, result.metrics)
    ]
    return benchmarks + [
        PlannedBenchmark(benchmark=name, items=n) for name, n in sizes.items() if name not in newest
    ]


def planned_benchmarks_of_run(
    declared: Mapping[str, Declaration], sizes: Mapping[str, int], config: GateConfig
) -> list[PlannedBenchmark]:
    """Return the benchmarks of a collected run; ``sizes`` are their numbers of items for each checkpoint."""
    return [
        PlannedBenchmark(
            benchmark=name,
            metric=metric,
            items=n,
            version=declared[name].version,
            data=declared[name].dataset.sha256,
        )
        for name, n in sizes.items()
        for metric in config.metrics_of(name, declared[name].primary, declared[name].scores)
    ]


# The power of each test


def _drop_in_unit(name: str, basis: PowerInput, config: GateConfig, drop: float) -> float:
    """Return the drop in the metric's unit: one margin for each point."""
    return (
        drop / MARGIN * config.margin_of(name, basis.metric, basis.aggregation)
        if basis.aggregation.unit
        else drop
    )


def _plan_row(
    name: str,
    basis: PowerInput,
    config: GateConfig,
    family: int,
    *,
    drop: float,
    power: float,
    effect: float | None = None,
) -> PlanRow:
    design, margin = basis.design, config.margin_of(name, basis.metric, basis.aggregation)
    drop = _drop_in_unit(name, basis, config, drop) if effect is None else effect
    rule: dict[str, Any] = {"margin": margin, "alpha": config.alpha}
    return PlanRow(
        benchmark=name,
        metric=basis.metric,
        design=design,
        basis=basis.text,
        assumed=basis.assumed,
        margin=margin,
        unit=basis.aggregation.unit or POINTS.name,
        drop=drop,
        sees=smallest_drop(design, power=power, family=family, **rule),
        finds=power_of_drop(design, drop, family=family, **rule),
        items_for_drop=items_for_drop(design, drop, power=power, family=family, **rule),
        items_for_not_worse=items_for_not_worse(design, power=power, **rule),
        size=basis.size,
    )
