"""The check of a plan's names before anything runs: benchmarks and metrics must exist, as far as is known.

Bounds that no share can have are refused. A share is from 0 to 1. Metrics whose names say so (accuracies, exact
matches, F1, pass@k and the like) are shares, and composites are; for others saved results tell. A perplexity is none,
nor is the log-probability that it is made of, and a metric with a saved value below 0 or above 1 is none whatever its
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Final

from pytest_touchstone.compare.gate.config import Floor, GateConfig, check_names
from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.composite import Composite, composites_from_plain
from pytest_touchstone.core.declared import declared_in
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.results.store_entry import StoredResult, composites_of
from pytest_touchstone.results.summary import Declaration, base_name

_NAMED: Final = re.compile(
    r"(reference_)?(acc|exact_match|f1|em|(pass|real|lambada)@\d+|math_verify|minerva_exact|hendrycks_exact"
    r"|reachable|copy_baseline)(_.*)?"
)
"""Names of metrics that are shares in every benchmark that comes with the package."""


def check_plan(
    plan: GateConfig,
    declared: Mapping[str, Declaration],
    saved: Sequence[StoredResult],
    files: Iterable[Path],
) -> None:
    """Raise ``GateError`` for an unknown benchmark, for a metric that its benchmark (for a gate's metric, every
    benchmark) is known to lack, and for a floor that no share can have.

    ``declared`` are the run's benchmarks; those that were saved, and those that stand in the same folders as the run's
    ``files``, are known too.
    """
    plan = replace(plan, composites=tuple(composites_of(saved, declared_composites(declared))))
    made = [one.name for one in plan.composites]
    _check_sequential(plan)
    found = [_metrics(name, declared, saved) for name in declared]
    if found and all(found):
        known = [metric for one in found for metric in one] + made
        check_names(plan.metrics, dict.fromkeys(known), "--eval-gate-metric", "metric")
    names = [*declared, *map(base_name, declared), *(one.benchmark for one in saved), *made]
    if any(name not in names for name in plan.benchmarks):
        names += declared_nearby(files)
    check_names(plan.benchmarks, sorted(set(names)), "gate", "benchmark")
    for name, own in plan.benchmarks.items():
        metrics = [name] if name in made else _metrics(name, declared, saved)
        wanted = [*(floor.metric for floor in own.floors), *own.metrics]
        if metrics:
            check_names(wanted, metrics, f"gate, {name}", "metric")
        if name in made and own.metrics not in ((), (name,)):
            raise GateError(f"gate, {name}: a composite has no other metric than itself")
    check_floors(plan, declared, saved)


def declared_composites(declared: Mapping[str, Declaration]) -> list[Composite]:
    """The composites that the benchmarks of a run name."""
    return composites_from_plain(row for one in declared.values() for row in one.composites or ())


def check_floors(
    plan: GateConfig, declared: Mapping[str, Declaration], saved: Sequence[StoredResult]
) -> None:
    """Raises ``GateError`` for a floor that its metric, a share, keeps always or never."""
    for name, own in plan.benchmarks.items():
        for floor in own.floors:
            if 0 <= floor.bound <= 1 and not floor.percent:
                continue
            same = [one for one in saved if one.benchmark == name]
            share = _share(name, floor, declared.get(name), same, plan)
            if share is False and floor.percent:
                raise GateError(f"gate, {name}: {floor.text!r}: {floor.metric} is no share; write a number")
            if share and not 0 <= floor.bound <= 1:
                raise GateError(f"gate, {name}: {floor.text!r}: {_remedy(floor)}")


def _share(
    name: str, floor: Floor, declared: Declaration | None, saved: Sequence[StoredResult], plan: GateConfig
) -> bool | None:
    """Return whether the metric is a share; None where that is not known."""
    metric = floor.metric
    ways = [one.aggregate for one in saved] + ([declared.aggregate] if declared is not None else [])
    for aggregate in ways:
        made = [
            aggregation_of(aggregate, key)
            for key in aggregate
            if key == metric or aggregate[key]["of"] == metric
        ]
        if any(how.by == "perplexity" or how.unit for how in made):
            return False
    found = [one.metrics[metric].value for one in saved if metric in one.metrics]
    values = [value for value in found if value is not None]
    if any(not 0 <= value <= 1 for value in values):
        return False
    if plan.composite_of(name) is not None or _NAMED.fullmatch(metric):
        return True
    # A mean of counts may have been small so far, and still have an upper bound above 1.
    return True if values and floor.how in (">=", ">") else None


def _remedy(floor: Floor) -> str:
    kind = f"{floor.metric} is a share, from 0 to 1"
    if floor.percent or not 1 < floor.bound <= 100:
        return kind
    per_cent = Decimal(f"{floor.bound:g}")
    share = per_cent / 100
    text = f"{share:.2f}" if share == round(share, 2) else f"{share.normalize():f}"
    return f"{kind}; write {text} or {per_cent.normalize():f}%"


def _check_sequential(plan: GateConfig) -> None:
    """Raises ``GateError`` for a composite, and for a pooled verdict, in a gate that may stop early."""
    whole = next((name for name in plan.metrics if plan.composite_of(name) is not None), None)
    needs = "pooled = true" if plan.pooled else None if whole is None else f"the composite {whole}"
    if plan.sequential and needs is not None:
        raise GateError(f"--eval-gate-sequential: {needs} needs all items; leave one of the two out")


def _metrics(name: str, declared: Mapping[str, Declaration], saved: Sequence[StoredResult]) -> list[str]:
    """The metrics that a benchmark is known to have, by its code or its saved results; empty where that is not
    known."""
    one = declared.get(name)
    same = [
        entry
        for entry in saved
        if entry.benchmark == name and (one is None or entry.conditions.get("version") == one.version)
    ]
    if not same and not (one is not None and one.scores):
        return []
    own = [one.primary, *one.scores, *one.aggregate] if one is not None else []
    if one is not None and one.grouped:
        own += [f"{name}_macro" for name in own]
    return list(dict.fromkeys([*own, *(metric for entry in same for metric in entry.metrics)]))


def declared_nearby(files: Iterable[Path]) -> list[str]:
    """The names of all benchmarks that are declared in the folders of these files."""
    folders = {path.parent for path in files}
    paths = sorted(file for folder in folders for file in folder.glob("*.py"))
    return [name for path in paths for name, _ in declared_in(path)]
