"""A plan of a gate before anything is asked: what each benchmark, and all of them together, can decide.

``plan_basis`` tells the share of items that flip, from saved results where there are any. A composite that the gate
compares is a row too, and one more of the tests that are corrected together; so are all items together, where the
gate's configuration has ``pooled = true``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_touchstone.compare.baselines import BaselineSource
from pytest_touchstone.compare.gate.config import GateConfig
from pytest_touchstone.compare.plan_basis import Basis, Target, basis_of, basis_of_composite
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.results.store_entry import StoredResult, composites_of
from pytest_touchstone.results.summary import Declaration
from pytest_touchstone.statistics.power import (
    Design,
    all_of,
    any_of,
    chance_not_worse,
    items_for_drop,
    items_for_not_worse,
    pooled_design,
    power_of_drop,
    smallest,
    smallest_drop,
)
from pytest_touchstone.statistics.power_together import PlannedTest, powers_together
from pytest_touchstone.statistics.verdicts import POWER

DROP: Final = 0.02
"""The drop that a plan is about by default: two points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One benchmark of a plan. ``basis`` says where its design is from, ``assumed`` that no pair of results told it.

    ``sees``: the smallest true drop that is found with the power asked. ``finds``: the chance to find the drop asked
    for where this benchmark alone loses it, ``finds_too`` where all lose it, which Holm's later steps make larger.
    ``items_for_drop`` and ``items_for_not_worse``: about how many items it takes, None where more than there can
    be. ``not_worse``: the chance that a checkpoint as good is called not worse.
    """

    benchmark: str
    metric: str
    design: Design
    basis: str
    assumed: bool
    margin: float
    sees: float | None
    finds: float
    finds_too: float
    items_for_drop: int | None
    items_for_not_worse: int | None
    not_worse: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
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
class Plan:
    """The plan of a gate. ``unknown`` has the reason for each benchmark that nothing can be planned for."""

    baseline: str
    drop: float
    power: float
    alpha: float
    margin: float
    rows: tuple[PlanRow, ...]
    together: Together | None
    unknown: Mapping[str, str]


def make_plan(
    targets: Sequence[Target],
    source: BaselineSource,
    known: BaselineSource,
    config: GateConfig,
    *,
    drop: float = DROP,
    power: float = POWER,
    flips: float | None = None,
) -> Plan:
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
            bases.append((target.benchmark, basis_of(target, source, known, flips)))
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
    return Plan(
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
) -> list[Target]:
    """The benchmarks of the baselines, else of all saved results, each as its newest whole result has it; then those
    of ``sizes``, the numbers of items, that are not among them."""
    newest: dict[str, StoredResult] = {}
    for saved in source.saved or known.saved:
        if saved.complete and not saved.published:
            newest[saved.benchmark] = saved
    found = [
        Target(
            benchmark=name,
            metric=metric,
            items=sizes.get(name, one.scored),
            version=one.conditions.get("version"),
            data=one.conditions.get("data"),
        )
        for name, one in newest.items()
        for metric in _metrics(name, one.primary, one.metrics, config)
    ]
    return found + [Target(benchmark=name, items=n) for name, n in sizes.items() if name not in newest]


def targets_of_run(
    declared: Mapping[str, Declaration], sizes: Mapping[str, int], config: GateConfig
) -> list[Target]:
    """The benchmarks of a run that was collected, with so many items for each checkpoint."""
    return [
        Target(
            benchmark=name,
            metric=metric,
            items=n,
            version=declared[name].version,
            data=declared[name].dataset.sha256,
        )
        for name, n in sizes.items()
        for metric in _metrics(name, declared[name].primary, declared[name].scores, config)
    ]


def _metrics(name: str, primary: str, known: Iterable[str], config: GateConfig) -> tuple[str, ...]:
    """The metrics by which a gate would compare a benchmark."""
    there = set(known)
    return config.own(name).metrics or tuple(one for one in config.metrics if one in there) or (primary,)


# What they can decide


def _where_all_lose(
    bases: Sequence[tuple[str, Basis]], config: GateConfig, *, pooled: bool, drop: float
) -> list[float]:
    """The chance that each is called worse where all lose the drop."""
    first = {name: place for place, (name, _) in reversed([*enumerate(bases)])}
    tests = [
        PlannedTest(
            basis.design,
            drop,
            config.margin_of(name),
            {first[part]: error for part, error in basis.parts.items() if part in first},
        )
        for name, basis in bases
    ]
    if pooled:
        own = {place: bases[place][1].design for place in first.values() if not bases[place][1].parts}
        own = {place: one for place, one in own.items() if one.bounded} or own
        added = {place: one.items * one.error for place, one in own.items()}
        tests.append(PlannedTest(pooled_design([*own.values()]), drop, config.margin, added))
    return powers_together(tests, alpha=config.alpha)[: len(bases)]


def _row(
    name: str, basis: Basis, config: GateConfig, family: int, *, drop: float, power: float, too: float
) -> PlanRow:
    design, margin = basis.design, config.margin_of(name)
    rule: dict[str, Any] = {"margin": margin, "alpha": config.alpha}
    return PlanRow(
        benchmark=name,
        metric=basis.metric,
        design=design,
        basis=basis.text,
        assumed=basis.assumed,
        margin=margin,
        sees=smallest_drop(design, power=power, family=family, **rule),
        finds=power_of_drop(design, drop, family=family, **rule),
        finds_too=too,
        items_for_drop=items_for_drop(design, drop, power=power, family=family, **rule),
        items_for_not_worse=items_for_not_worse(design, power=power, **rule),
        not_worse=chance_not_worse(design, **rule),
    )


def _together(
    rows: Sequence[PlanRow], config: GateConfig, family: int, drop: float, power: float
) -> Together:
    """Composites and all items together move with their benchmarks: they count where they alone find more."""
    own = [row for row in rows if row.metric != COMPOSITE]
    made = [row for row in rows if row.metric == COMPOSITE]
    first = {row.benchmark: row.design for row in reversed(own) if row.design.bounded}
    whole = pooled_design(list(first.values()) or [row.design for row in own])
    rule: dict[str, Any] = {"margin": config.margin, "alpha": config.alpha}
    pooled = rule | {"family": family if config.pooled else 1}

    def found(some: Sequence[PlanRow], lost: float) -> list[float]:
        return [
            power_of_drop(row.design, lost, family=family, margin=row.margin, alpha=config.alpha)
            for row in some
        ]

    def fails(lost: float) -> float:
        more = [power_of_drop(whole, lost, **pooled)] if config.pooled else []
        return max([any_of(found(own, lost)), *found(made, lost), *more])

    return Together(
        false_alarm=fails(0.0),
        finds_all=fails(drop),
        sees_all=smallest(fails, power),
        not_worse=min([all_of(row.not_worse for row in own), *(row.not_worse for row in made)]),
        items=whole.items,
        pooled_sees=smallest_drop(whole, power=power, **pooled),
        pooled_finds=power_of_drop(whole, drop, **pooled),
    )
