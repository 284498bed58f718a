"""Shares in a gate's configuration: ``0.6`` or ``60%``; and bounds that no share can have.

A share is from 0 to 1. That is known of the metrics whose name says so (accuracies, exact matches, F1, pass@k and the
like), and of composites; of others it is told by results that were saved. A perplexity is none, nor is the
log-probability that it is made of, and a metric with a saved value below 0 or above 1 is none whatever its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from harness.compare.gate.config import Floor, GateConfig
from harness.core.aggregation import aggregation_of
from harness.core.errors import GateError
from harness.results.store_entry import StoredResult
from harness.results.summary import Declaration

_NAMED: Final = re.compile(
    r"(reference_)?(acc|exact_match|f1|em|(pass|real|lambada)@\d+|math_verify|minerva_exact|hendrycks_exact"
    r"|reachable|copy_baseline)(_.*)?"
)
"""Names of metrics that are shares in every benchmark that comes with the package."""


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
    """Whether the metric is a share; None where nobody knows."""
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
