"""What is found about one benchmark -> a ``Line``: its verdict, and the reasons to fail or not to believe it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from harness.errors import GateError
from harness.gate.baselines import Found, incomplete
from harness.gate.config import Floor, Plan
from harness.gate.judging import Judged
from harness.gate.pairing import Entry, score_name
from harness.gate.report import STRICT, Against, Line
from harness.metrics.composites import COMPOSITES
from harness.saved.entry import Saved

FIRST: Final = "no baseline yet: this result is the first"

ROUNDING: Final = 1e-9
"""What the difference of two shares may be off by: a drop from 0.90 to 0.85 is one of 5 points, and no more."""


@dataclass(slots=True)
class Reasons:
    """Why a line fails, and why nothing can be said."""

    fails: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)


def metrics_of(entry: Entry, plan: Plan) -> tuple[str, ...]:
    """By what a benchmark is compared: its own choice in the plan, else those of the gate's metrics that it has, else
    the primary one. Raises ``GateError`` where its own choice is not there."""
    saved = entry.saved
    own = plan.own(saved.benchmark).metrics
    if own and entry.items.examples:
        for metric in own:
            score_name(saved, metric)
        return own
    return tuple(metric for metric in plan.metrics if metric in saved.metrics) or (saved.primary,)


def benchmark_line(
    entry: Entry, metric: str, found: Found, judged: Judged | None, plan: Plan, *, early: bool = False
) -> Line:
    """The line of one metric of a benchmark; one that was settled ``early`` may have items that were not asked."""
    saved, reasons = entry.saved, Reasons()
    whole = replace(saved, skipped=0).complete if early else saved.complete
    if not whole:
        reasons.invalid.append(f"the result is not whole: {incomplete(saved)}")
    elif found.state == "refused":
        reasons.invalid.append(found.reason)
    if found.state == "apart" and plan.mode == "strict":
        reasons.fails.append(STRICT)
    if entry.items.examples:
        others = metrics_of(entry, plan)
        known = {key: one.value for key, one in saved.metrics.items()}
        # Each floor once: with its own metric, or with the first.
        mine = [
            floor
            for floor in plan.own(saved.benchmark).floors
            if floor.metric == metric or (floor.metric not in others and metric == others[0])
        ]
        hold_floors(known, saved.benchmark, mine, reasons)
    score = score_name(saved, metric) if metric in saved.aggregate else metric
    notes = (
        *found.notes,
        *([f"values are means of {score}, by which {metric} is compared"] * (score != metric)),
        *_without(saved, plan),
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


def _without(saved: Saved, plan: Plan) -> list[str]:
    """What is said of a benchmark that has none of the metrics that were asked for."""
    named = plain_metrics(plan)
    if not named or plan.own(saved.benchmark).metrics or any(one in saved.metrics for one in named):
        return []
    return [f"{saved.benchmark} has no {' or '.join(named)}: judged by {saved.primary}, its primary metric"]


def plain_metrics(plan: Plan) -> list[str]:
    """The gate's metrics that are no composites."""
    composites = {one.name for one in COMPOSITES}
    return [name for name in plan.metrics if name not in composites]


def composite_line(line: Line, found: Found, judged: Judged | None, plan: Plan) -> Line:
    """The line of a composite; ``line`` has its names and value."""
    reasons = Reasons()
    if found.state == "refused":
        reasons.invalid.append(found.reason)
    if found.state == "apart" and plan.mode == "strict":
        reasons.fails.append(STRICT)
    line = replace(line, why=found.reason or FIRST, state=found.state, part=found.part)
    line = line if judged is None else _with_verdict(line, judged, found, plan, reasons)
    hold_floors({line.benchmark: line.value}, line.benchmark, plan.own(line.benchmark).floors, reasons)
    return _reasoned(line, reasons)


def hold_floors(
    known: Mapping[str, float | None], name: str, floors: Iterable[Floor], reasons: Reasons
) -> None:
    """Notes every floor that is not kept, or that nobody can tell of; raises ``GateError`` for an unknown metric."""
    for floor in floors:
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
