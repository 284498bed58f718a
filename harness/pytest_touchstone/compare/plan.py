"""A plan of a gate before anything is asked: what each benchmark, and all of them together, can decide.

A composite that the gate compares is a row too, and one more of the tests that are corrected together; so are all items
together, where the gate's configuration has ``pooled = true``.

The share of items that flip from one checkpoint to the next decides what a paired comparison can see
(``statistics.power``). It is taken, for each benchmark, from

1. pairs of saved results of neighbouring checkpoints of one series on the same items, asked alike; else from those of
   checkpoints that were saved one after the other;
2. without a pair, from one saved result: two runs correlate by 1/2, in the middle of what Miller found between models
   (2024, arXiv 2411.00640: 0.3 to 0.7). Of right or wrong answers with accuracy p, p (1 - p) then flip;
3. without any result, from a number that is given, or from ``FLIPS``.

Of a composite each item's difference is the weighted sum over all metrics of its benchmark, as the gate compares it.
Against the best of several saved results, those that may be the best count, as in the gate.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from pytest_touchstone.compare.baselines import ROWS, BaselineSource, comparable, one_each
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.config import GateConfig
from pytest_touchstone.compare.judge import AlignedScores, check_means, columns, compare, score_name
from pytest_touchstone.core.aggregation import Aggregation, mean
from pytest_touchstone.core.composite import COMPOSITE, Composite
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.core.text import count
from pytest_touchstone.results.store_entry import ItemScores, StoredResult, composites_of
from pytest_touchstone.results.summary import Declaration
from pytest_touchstone.statistics.best_of_many import compare_with_best
from pytest_touchstone.statistics.comparison import TOO_LARGE
from pytest_touchstone.statistics.intervals import is_binary, moments_of
from pytest_touchstone.statistics.power import (
    Design,
    PlannedTest,
    all_of,
    any_of,
    binary_design,
    chance_not_worse,
    composite_design,
    design_of,
    design_of_comparison,
    items_for_drop,
    items_for_not_worse,
    mean_design,
    pooled_design,
    power_of_drop,
    powers_together,
    smallest,
    smallest_drop,
)
from pytest_touchstone.statistics.units import POINTS
from pytest_touchstone.statistics.verdicts import MARGIN, POWER

FLIPS: Final = 0.15
"""The share of items that are taken to flip where nothing is known of a benchmark."""

PAIRS: Final = 10
"""The most pairs of saved results that are looked at for a benchmark: the newest."""


Weights: TypeAlias = Mapping[str, float]
"""The weight of each metric of a benchmark in what is compared: 1 for a single one, else those of a composite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBenchmark:
    """A benchmark that is to be asked, by one metric (None: its primary one, not known yet), with so many items."""

    benchmark: str
    metric: str | None = None
    items: int
    version: int | None = None
    data: str | None = None


class Basis(NamedTuple):
    """A design, the metric that it is of, where it is from in words, and whether it was assumed.

    ``how`` says how the metric is made, ``size`` is the most items that the benchmark is known to have, 0 where nothing
    is known. A composite has the standard error that each of its benchmarks adds (``parts``).
    """

    design: Design
    metric: str
    text: str
    assumed: bool
    parts: Mapping[str, float] = MappingProxyType({})
    how: Aggregation = mean("")
    size: int = 0


def basis_of(
    target: PlannedBenchmark,
    source: BaselineSource,
    known: BaselineSource,
    flips: float | None,
    weights: Weights | None = None,
) -> Basis:
    """The design of a benchmark by one metric, or by the ``weights`` of several; ``flips`` is a share that is given.

    Raises ``GateError`` where nothing tells its size.
    """
    group = _group(target, source, known)
    metric = target.metric or (group[-1].primary if group else "")
    weights = weights or {metric: 1.0}
    if not group:
        if target.items < 1:
            raise GateError(f"no result of it is saved; --items {target.benchmark}=N gives its size")
        share = FLIPS if flips is None else flips
        text = f"{'assumed' if flips is None else 'given'}: {100 * share:g} % of the items flip; no result is saved"
        design = _weighted(binary_design(target.items, share), weights)
        return Basis(design, metric, text, True, size=target.items)
    loader = _either(source, known)
    runs = _rivals(
        group if source.kind == "best" else [one for one in group if one in source.saved], weights, loader
    )
    pairs = _pairs(group)[-PAIRS:]
    if flips is None and pairs:
        designs = [_of_pair(one, other, weights, loader) for one, other in pairs]
        design, text, assumed = mean_design(designs), _pairs_text(pairs), False
    else:
        design, text = _of_one(group[-1], weights, loader, flips)
        assumed = True
    design = replace(design, items=target.items or design.items, runs=runs)
    last = group[-1]
    return Basis(
        design, metric, text, assumed, how=last.aggregation(metric), size=max(target.items, last.size)
    )


def basis_of_composite(
    composite: Composite,
    targets: Mapping[str, PlannedBenchmark],
    source: BaselineSource,
    known: BaselineSource,
    flips: float | None,
) -> Basis:
    """The design of a composite, whose benchmarks are among the targets; raises ``GateError`` where one is not."""
    parts = []
    for name in composite.benchmarks:
        if name not in targets:
            raise GateError(f"it needs {name}, which is not asked")
        weights = {one.metric: one.weight for one in composite.parts if one.benchmark == name}
        for one in _group(targets[name], source, known)[-1:]:
            check_means([(BenchmarkScores(one), metric) for metric in weights])
        parts.append(
            basis_of(replace(targets[name], metric=next(iter(weights))), source, known, flips, weights)
        )
    texts = dict.fromkeys(one.text for one in parts)
    text = next(iter(texts)) if len(texts) == 1 else "as of its benchmarks"
    design = composite_design([one.design for one in parts])
    added = dict(zip(composite.benchmarks, (one.design.error for one in parts), strict=True))
    return Basis(design, COMPOSITE, text, any(one.assumed for one in parts), added)


def _either(source: BaselineSource, known: BaselineSource) -> BaselineSource:
    """A source that finds the items of the results of both."""
    own = {(one.run_id, one.checkpoint, one.benchmark) for one in source.saved}

    def items(saved: StoredResult) -> ItemScores:
        where = source if (saved.run_id, saved.checkpoint, saved.benchmark) in own else known
        return where.load(saved).items

    return replace(source, items=items)


def _weighted(design: Design, weights: Weights) -> Design:
    """The design of a sum of metrics that flip together, where no scores tell how they do."""
    if _is_single(weights):
        return design
    return replace(design, spread=math.fsum(weights.values()) * design.spread, flips=None)


def _is_single(weights: Weights) -> bool:
    return list(weights.values()) == [1.0]


def _group(target: PlannedBenchmark, source: BaselineSource, known: BaselineSource) -> list[StoredResult]:
    """The saved results that are comparable with each other and with the target, one per checkpoint, oldest first: of
    the source where it has any, and of several groups one that has pairs, the most items, and the most checkpoints."""
    groups = [found for where in (source, known) for found in _groups(target, where.saved, known.saved)]
    return max(groups, key=lambda group: (len(group) > 1, group[-1].scored, len(group)), default=[])


def _groups(
    target: PlannedBenchmark, results: Iterable[StoredResult], known: Iterable[StoredResult]
) -> list[list[StoredResult]]:
    whole = [one for one in (*results, *known) if one.benchmark == target.benchmark and one.complete]
    mine = [
        one
        for one in whole
        if not one.published
        and target.version in (None, one.conditions.get("version"))
        and target.data in (None, one.conditions.get("data"))
        and (target.metric is None or target.metric in one.metrics)
    ]
    found, left = [], list({(one.run_id, one.checkpoint): one for one in mine}.values())
    while left:
        last = max(left, key=lambda one: one.began)
        alike = [
            last,
            *comparable(replace(last, run_id="", began=math.inf), (one for one in left if one is not last)),
        ]
        found.append(one_each(alike, target.metric or last.primary))
        left = [one for one in left if one not in alike]
    return found


def _pairs(group: Sequence[StoredResult]) -> list[tuple[StoredResult, StoredResult]]:
    """Neighbouring checkpoints of a series; where no series has two, those that were saved one after the other."""
    by_series: dict[str, list[StoredResult]] = {}
    for one in group:
        if (series := one.checkpoint_info.get("series")) is not None:
            by_series.setdefault(str(series), []).append(one)
    found = [
        pair
        for same in by_series.values()
        for pair in pairwise(sorted(same, key=lambda one: (one.step is None, one.step or 0)))
    ]
    return found or list(pairwise(group))


def _pairs_text(pairs: Sequence[tuple[StoredResult, StoredResult]]) -> str:
    names = dict.fromkeys(one.checkpoint for pair in pairs for one in pair)
    first, last = next(iter(names)), list(names)[-1]
    series = {pair[0].checkpoint_info.get("series") for pair in pairs} - {None}
    where = f" of {next(iter(series))}" if len(series) == 1 else ""
    pair = count(len(pairs), "pair")
    return f"measured: {pair} of saved results{where}, {first} {'and' if len(names) == 2 else 'to'} {last}"


def _of_pair(one: StoredResult, other: StoredResult, weights: Weights, source: BaselineSource) -> Design:
    if (metric := _corpus_metric(other, weights)) is not None:
        compared = compare(source.load(other), [source.load(one)], metric).as_measured
        if (known := design_of_comparison(compared)) is None:
            raise GateError(compared.why or f"{other.checkpoint}: no difference of {metric}")
        return replace(known, bounded=False)
    found = _columns(other, [one], weights, source)
    if not found.new:
        raise GateError(f"{one.checkpoint} and {other.checkpoint} have no scored item in common")
    return design_of(found.baselines[0], found.new, found.clusters)


def _corpus_metric(saved: StoredResult, weights: Weights) -> str | None:
    """The single corpus-level metric; None for any other, and for a composite."""
    metric = next(iter(weights))
    return metric if saved.aggregation(metric).is_corpus_level else None


def _columns(
    new: StoredResult, others: Sequence[StoredResult], weights: Weights, source: BaselineSource
) -> AlignedScores:
    """The scores of the items that all results have, summed over the metrics."""
    items, before = source.load(new).items, [source.load(one).items for one in others]
    by_metric = [columns(items, before, score_name(new, metric)) for metric in weights]
    if TOO_LARGE in (one.lacking for one in by_metric):
        raise GateError(TOO_LARGE)
    first = by_metric[0]
    if _is_single(weights):
        return first
    if any(one.names != first.names for one in by_metric):
        raise GateError(f"{new.checkpoint}: not every item has all of {', '.join(weights)}")

    def summed(runs: Sequence[Sequence[float]]) -> list[float]:
        return [math.fsum(map(operator.mul, weights.values(), item)) for item in zip(*runs, strict=True)]

    baselines = [summed(runs) for runs in zip(*(one.baselines for one in by_metric), strict=True)]
    return AlignedScores(first.names, baselines, summed([one.new for one in by_metric]), first.clusters)


def _of_one(
    saved: StoredResult, weights: Weights, source: BaselineSource, flips: float | None
) -> tuple[Design, str]:
    """The design of two runs like this one that correlate by 1/2, or with this share of flips."""
    if (metric := _corpus_metric(saved, weights)) is not None:
        error, text = (
            saved.metrics[metric].stderr,
            f"assumed: two runs of {saved.checkpoint} with correlation 1/2",
        )
        if error is None:
            raise GateError(f"how far {metric} varies is not known; two saved results would tell")
        return Design(items=saved.scored, spread=error * math.sqrt(saved.scored), bounded=False), text
    found = _columns(saved, [saved], weights, source)
    if not found.new:
        raise GateError(f"{saved.checkpoint} has no scored item")
    moments = moments_of(found.new, found.clusters)
    effect = moments.variance / moments.plain if moments.variance and moments.plain else 1.0
    if not _is_single(weights) and flips is not None:
        given = binary_design(moments.n, flips, effect=max(1.0, effect))
        return _weighted(given, weights), f"given: {100 * flips:.3g} % of the items flip"
    if is_binary(found.new):
        share = max(moments.mean * (1 - moments.mean), 1 / (moments.n + 1)) if flips is None else flips
        which = f"given: {100 * share:.3g} % of the items flip"
        if flips is None:
            alike = f"as of two runs like {saved.checkpoint} with correlation 1/2"
            which = f"assumed: {100 * share:.3g} % of the items flip, {alike}"
        return binary_design(moments.n, share, effect=max(1.0, effect)), which
    spread = math.sqrt((moments.plain or 0.0) * moments.n)
    bounded = all(0 <= value <= 1 for value in found.new)
    text = f"assumed: two runs of {saved.checkpoint} with correlation 1/2"
    return Design(items=moments.n, spread=spread, effect=max(1.0, effect), bounded=bounded), text


def _rivals(results: Sequence[StoredResult], weights: Weights, source: BaselineSource) -> int:
    """The number of results that may be the best of them."""
    if len(results) < 2:
        return 1
    *others, last = results
    if (metric := _corpus_metric(last, weights)) is not None:
        return max(1, compare(source.load(last), [source.load(one) for one in others], metric).candidates)
    found = _columns(last, others, weights, source)
    if not found.new:
        return 1
    runs = [*found.baselines, found.new]
    up = all(last.aggregation(metric).higher_score_is_better for metric in weights)
    sign = 1 if up else -1
    turned = [[sign * value for value in run] for run in runs]
    return len(compare_with_best(turned, turned[-1], found.clusters).candidates)


# The plan


DROP: Final = 0.02
"""The drop that a plan is about by default: two points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One benchmark of a plan. ``basis`` says where its design is from, ``assumed`` that no pair of results told it.

    ``sees``: the smallest true drop that is found with the power asked. ``finds``: the chance to find the drop asked
    for where this benchmark alone loses it, ``finds_too`` where all lose it, which Holm's later steps make larger.
    ``items_for_drop`` and ``items_for_not_worse``: about how many items it takes, None where more than there can
    be. ``not_worse``: the chance that a checkpoint as good is called not worse. ``size``: the most items that the
    benchmark is known to have, 0 where nothing is known. ``pooled``: the pooled verdict takes it in. Of a
    metric with a ``unit`` margin, ``drop`` and ``sees`` are in that, and the drop is as many margins as the plan's has
    points.
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
    finds_too: float
    items_for_drop: int | None
    items_for_not_worse: int | None
    not_worse: float
    size: int
    pooled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JointPlan:
    """The decisions of all benchmarks and composites together.

    ``false_alarm`` and ``finds_all`` are the chances that the gate fails where nothing is lost, and where each loses
    the drop. ``sees_all`` is the smallest drop of all that it finds, ``not_worse`` the chance that each is called so
    where nothing is lost. The pooled verdict is on ``items``.
    """

    false_alarm: float
    finds_all: float
    sees_all: float | None
    not_worse: float
    items: int
    pooled_sees: float | None
    pooled_finds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePlan:
    """The plan of a gate. ``unknown`` has the reason for each benchmark that nothing can be planned for."""

    baseline: str
    drop: float
    power: float
    alpha: float
    margin: float
    rows: tuple[PlanRow, ...]
    together: JointPlan | None
    unknown: Mapping[str, str]


def make_plan(
    targets: Sequence[PlannedBenchmark],
    source: BaselineSource,
    known: BaselineSource,
    config: GateConfig,
    *,
    drop: float = DROP,
    power: float = POWER,
    flips: float | None = None,
) -> GatePlan:
    """The plan of a gate over these benchmarks against the ``source``; flips are learnt from ``known``, the saved
    results of the folder. ``flips`` is the share to take where nothing is saved.

    Raises ``GateError`` where there is no benchmark to plan for.
    """
    if not targets:
        raise GateError(
            "nothing to plan for: no result is saved; name benchmarks and their sizes with --items NAME=N"
        )
    unknown: dict[str, str] = {}
    bases: list[tuple[str, Basis]] = []
    for target in targets:
        try:
            basis = basis_of(target, source, known, flips)
            config.margin_of(target.benchmark, basis.metric, basis.how)  # or it is unknown
            bases.append((target.benchmark, basis))
        except GateError as error:
            unknown[target.benchmark] = str(error)
    by_name = {target.benchmark: target for target in reversed(targets)}
    pooled = config.pooled and len({name for name, _ in bases}) > 1
    for one in composites_of([*source.saved, *known.saved], config.composites):
        if one.name in config.metrics:
            try:
                bases.append((one.name, basis_of_composite(one, by_name, source, known, flips)))
            except GateError as error:
                unknown[one.name] = str(error)
    family = max(1, len(bases) + pooled)
    too = _where_all_lose(bases, config, pooled=pooled, drop=drop)
    rows = tuple(
        _row(*one, config, family, drop=drop, power=power, too=found)
        for one, found in zip(bases, too, strict=True)
    )
    return GatePlan(
        baseline=source.name,
        drop=drop,
        power=power,
        alpha=config.alpha,
        margin=config.margin,
        rows=rows,
        together=_together(rows, config, family, drop, power) if len(rows) > 1 else None,
        unknown=unknown,
    )


def targets_of(
    source: BaselineSource, known: BaselineSource, sizes: Mapping[str, int], config: GateConfig
) -> list[PlannedBenchmark]:
    """The benchmarks of the baselines, else of all saved results, each as its newest whole result has it, but with as
    many items as the largest one of the same rows: a trial is no size to plan for. Then those of ``sizes``, the numbers
    of items, that are not among them."""
    newest: dict[str, StoredResult] = {}
    for saved in source.saved or known.saved:
        if saved.complete and not saved.published:
            before = newest.get(saved.benchmark, saved)
            rows = [[one.conditions.get(name) for name in ROWS] for one in (before, saved)]
            if rows[0] != rows[1] or before.scored <= saved.scored:
                newest[saved.benchmark] = saved
    found = [
        PlannedBenchmark(
            benchmark=name,
            metric=metric,
            items=sizes.get(name, one.scored),
            version=one.conditions.get("version"),
            data=one.conditions.get("data"),
        )
        for name, one in newest.items()
        for metric in config.metrics_of(name, one.primary, one.metrics)
    ]
    return found + [
        PlannedBenchmark(benchmark=name, items=n) for name, n in sizes.items() if name not in newest
    ]


def targets_of_run(
    declared: Mapping[str, Declaration], sizes: Mapping[str, int], config: GateConfig
) -> list[PlannedBenchmark]:
    """The benchmarks of a run that was collected, with so many items for each checkpoint."""
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


# What they can decide


def _where_all_lose(
    bases: Sequence[tuple[str, Basis]], config: GateConfig, *, pooled: bool, drop: float
) -> list[float]:
    """The chance that each is called worse where all lose the drop."""
    first = {name: place for place, (name, _) in reversed([*enumerate(bases)])}
    tests = [
        PlannedTest(
            basis.design,
            _drop_of(name, basis, config, drop),
            config.margin_of(name, basis.metric, basis.how),
            {first[part]: error for part, error in basis.parts.items() if part in first},
        )
        for name, basis in bases
    ]
    if pooled:
        own = {place: bases[place][1].design for place in first.values() if not bases[place][1].parts}
        shares = [place for place, one in own.items() if one.bounded and _is_pooled(bases[place][1].how)]
        own = {place: own[place] for place in shares} or own
        added = {place: one.items * one.error for place, one in own.items()}
        tests.append(PlannedTest(pooled_design([*own.values()]), drop, config.margin, added))
    return powers_together(tests, alpha=config.alpha)[: len(bases)]


def _is_pooled(how: Aggregation) -> bool:
    """Return whether the pooled verdict takes in shares that are made so, as ``judge.pool`` does."""
    return how.higher_score_is_better and not how.unit


def _drop_of(name: str, basis: Basis, config: GateConfig, drop: float) -> float:
    """The drop in the metric's unit: for each point one margin."""
    return drop / MARGIN * config.margin_of(name, basis.metric, basis.how) if basis.how.unit else drop


def _row(
    name: str, basis: Basis, config: GateConfig, family: int, *, drop: float, power: float, too: float
) -> PlanRow:
    design, margin = basis.design, config.margin_of(name, basis.metric, basis.how)
    drop = _drop_of(name, basis, config, drop)
    rule: dict[str, Any] = {"margin": margin, "alpha": config.alpha}
    return PlanRow(
        benchmark=name,
        metric=basis.metric,
        design=design,
        basis=basis.text,
        assumed=basis.assumed,
        margin=margin,
        unit=basis.how.unit or POINTS.name,
        drop=drop,
        sees=smallest_drop(design, power=power, family=family, **rule),
        finds=power_of_drop(design, drop, family=family, **rule),
        finds_too=too,
        items_for_drop=items_for_drop(design, drop, power=power, family=family, **rule),
        items_for_not_worse=items_for_not_worse(design, power=power, **rule),
        not_worse=chance_not_worse(design, **rule),
        size=basis.size,
        pooled=_is_pooled(basis.how),
    )


def _together(
    rows: Sequence[PlanRow], config: GateConfig, family: int, drop: float, power: float
) -> JointPlan:
    """Composites and all items together move with their benchmarks: they count where they alone find more."""
    own = [row for row in rows if row.metric != COMPOSITE]
    made = [row for row in rows if row.metric == COMPOSITE]
    first = {row.benchmark: row.design for row in reversed(own) if row.design.bounded and row.pooled}
    whole = pooled_design(list(first.values()) or [row.design for row in own])
    rule: dict[str, Any] = {"margin": config.margin, "alpha": config.alpha}
    pooled = rule | {"family": family if config.pooled else 1}

    def found(some: Sequence[PlanRow], lost: float) -> list[float]:
        return [
            power_of_drop(
                row.design, lost * row.drop / drop, family=family, margin=row.margin, alpha=config.alpha
            )
            for row in some
        ]

    def fails(lost: float) -> float:
        more = [power_of_drop(whole, lost, **pooled)] if config.pooled else []
        return max([any_of(found(own, lost)), *found(made, lost), *more])

    return JointPlan(
        false_alarm=fails(0.0),
        finds_all=fails(drop),
        sees_all=smallest(fails, power),
        not_worse=min([all_of(row.not_worse for row in own), *(row.not_worse for row in made)]),
        items=whole.items,
        pooled_sees=smallest_drop(whole, power=power, **pooled),
        pooled_finds=power_of_drop(whole, drop, **pooled),
    )
