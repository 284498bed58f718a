"""What is found about one benchmark -> a ``Line``: its verdict, and the reasons to fail or not to believe it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from harness.errors import GateError
from harness.gate.baselines import Found, incomplete
from harness.gate.config import Plan
from harness.gate.judging import Judged
from harness.gate.pairing import Entry, score_name
from harness.gate.report import STRICT, Against, Line

FIRST: Final = "no baseline yet: this result is the first"

ROUNDING: Final = 1e-9
"""What the difference of two shares may be off by: a drop from 0.90 to 0.85 is one of 5 points, and no more."""


@dataclass(slots=True)
class Reasons:
    """Why a line fails, and why nothing can be said."""

    fails: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)


def metric_of(entry: Entry, plan: Plan) -> str:
    """By what a benchmark is compared: its own choice in the plan, else the gate's metric where it has that, else the
    primary one. Raises ``GateError`` where its own choice is not there."""
    saved = entry.saved
    own = plan.own(saved.benchmark).metric
    if own is not None and entry.items.examples:
        score_name(saved, own)
        return own
    return plan.metric if plan.metric in saved.metrics else saved.primary


def benchmark_line(
    entry: Entry, found: Found, judged: Judged | None, plan: Plan, *, early: bool = False
) -> Line:
    """The line of a benchmark; one that was settled ``early`` may have items that were not asked."""
    saved, reasons = entry.saved, Reasons()
    metric = metric_of(entry, plan)
    whole = replace(saved, skipped=0).complete if early else saved.complete
    if not whole:
        reasons.invalid.append(f"the result is not whole: {incomplete(saved)}")
    elif found.state == "refused":
        reasons.invalid.append(found.reason)
    if found.state == "apart" and plan.mode == "strict":
        reasons.fails.append(STRICT)
    if entry.items.examples:
        hold_floors({key: one.value for key, one in saved.metrics.items()}, saved.benchmark, plan, reasons)
    score = score_name(saved, metric) if metric in saved.aggregate else metric
    notes = (
        *found.notes,
        *([f"values are means of {score}, by which {metric} is compared"] * (score != metric)),
    )
    line = Line(
        checkpoint=saved.checkpoint,
        benchmark=saved.benchmark,
        metric=metric,
        verdict=None,
        why=found.reason or FIRST,
        value=saved.metrics[metric].value,
        notes=notes,
        state=found.state,
        part=found.part,
        early=early,
        about=saved.about,
    )
    return _reasoned(line if judged is None else _with_verdict(line, judged, found, plan, reasons), reasons)


def composite_line(line: Line, found: Found, judged: Judged | None, plan: Plan) -> Line:
    """The line of a composite; ``line`` has its names and value."""
    reasons = Reasons()
    if found.state == "refused":
        reasons.invalid.append(found.reason)
    if found.state == "apart" and plan.mode == "strict":
        reasons.fails.append(STRICT)
    line = replace(line, why=found.reason or FIRST, state=found.state, part=found.part)
    line = line if judged is None else _with_verdict(line, judged, found, plan, reasons)
    hold_floors({line.benchmark: line.value}, line.benchmark, plan, reasons)
    return _reasoned(line, reasons)


def hold_floors(known: Mapping[str, float | None], name: str, plan: Plan, reasons: Reasons) -> None:
    """Notes every floor of the benchmark that is not kept, or that nobody can tell of; raises ``GateError`` for an
    unknown metric."""
    for floor in plan.own(name).floors:
        if floor.metric not in known:
            raise GateError(f"floor {floor.text!r} of {name}: no such metric; it has {', '.join(known)}")
        value = known[floor.metric]
        if value is None:
            reasons.invalid.append(f"floor {floor.text}: the metric is undefined in this run")
        elif not floor.holds(value):
            reasons.fails.append(f"floor {floor.text}: it is {value:.4g}")


def _reasoned(line: Line, reasons: Reasons) -> Line:
    return replace(line, fails=tuple(reasons.fails), invalid=tuple(reasons.invalid))


def _with_verdict(line: Line, judged: Judged, found: Found, plan: Plan, reasons: Reasons) -> Line:
    compared, verdict = judged.compared, judged.verdict
    comparison, baseline = compared.comparison, found.baselines[compared.chosen].saved
    if verdict.kind == "worse":
        reasons.fails.append("worse")
    if plan.mode == "strict" and verdict.kind == "cannot tell":
        reasons.fails.append(STRICT)
    most, moved = plan.own(line.benchmark).max_drop, compared.as_measured.difference
    if most is not None and moved is not None and moved < -most - ROUNDING:
        reasons.fails.append(f"dropped by {-100 * moved:.2f} points as measured; max_drop is {100 * most:g}")
    return replace(
        line,
        verdict=verdict.kind,
        why=verdict.why,
        value=line.value if comparison.new is None else comparison.new,
        against=Against(
            checkpoint=baseline.checkpoint,
            run_id=baseline.run_id,
            step=baseline.step,
            measured=compared.measured,
            shrunk=compared.shrunk,
            runs=compared.runs,
            contenders=compared.contenders,
        ),
        difference=comparison.difference,
        as_measured=moved,
        low=comparison.low,
        high=comparison.high,
        p=comparison.p,
        p_adjusted=verdict.p_adjusted,
        family=verdict.family,
        n=comparison.n,
        margin=verdict.margin,
        items=verdict.items,
        method=comparison.method,
    )
