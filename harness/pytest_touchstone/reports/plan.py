"""A plan of a gate in words, and as plain data.

``touchstone baseline plan --format json`` prints the plain data; numbers are shares, not points, and what cannot be is
null:

    {"schema": 1, "kind": "plan", "baseline": "best", "drop": 0.02, "power": 0.8, "alpha": 0.05, "margin": 0.01,
     "benchmarks": [{"benchmark": "gsm8k", "metric": "exact_match", "items": 1319, "flips": 0.14,
                     "sees": 0.041, "finds": 0.23, "basis": "...", "assumed": false, ...}],
     "unknown": {"NAME": "why"}}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pytest_touchstone.compare.judge import POOLED
from pytest_touchstone.compare.plan import GatePlan, PlanRow
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.files import SCHEMA
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.document import Facts, Section, Table, render_text
from pytest_touchstone.document.formatting import NOTHING
from pytest_touchstone.results.summary import finite
from pytest_touchstone.statistics.comparison import POINTS, MetricUnit, unit_of
from pytest_touchstone.statistics.power import MOST_ITEMS
from pytest_touchstone.statistics.verdicts import cannot_tell


def plan_facts(plan: GatePlan) -> dict[str, Any]:
    """Return the whole plan."""
    plain: dict[str, Any] = finite(asdict(plan))
    rows = [{**row.pop("design"), **row} for row in plain.pop("rows")]
    return {"schema": SCHEMA, "kind": "plan", **plain, "benchmarks": rows}


def render(plan: GatePlan, *, width: int, color: bool, checkpoints: int = 1) -> str:
    """Return the plan as text of at most ``width`` columns; it holds for each of so many checkpoints."""
    parts = (_heading(plan, checkpoints), _table(plan), Facts(tuple(_notes(plan))))
    return render_text([Section(parts=parts)], width=width, color=color)


def _heading(plan: GatePlan, checkpoints: int) -> str:
    tests = [row for row in plan.rows if row.benchmark != POOLED]
    made = sum(row.metric == COMPOSITE for row in tests)
    whole = f" and {count(made, 'composite')}" if made else ""
    over = f" over {count(len(tests) - made, 'benchmark')}{whole}" if len(tests) > 1 else ""
    each = f", for each of {checkpoints} checkpoints" if checkpoints > 1 else ""
    return f"plan  against {plan.baseline}, margin {_margins(plan)}, alpha {plan.alpha:g}{over}{each}"


def _margins(plan: GatePlan) -> str:
    """Return the margin of all, and those of metrics with a unit: ``1 point, 0.01 bits of bits_per_byte``."""
    own = [f"{_unit(row).size(row.margin)} of {row.metric}" for row in plan.rows if _unit(row) is not POINTS]
    points = [POINTS.size(plan.margin)] if len(own) < len(plan.rows) or not plan.rows else []
    return ", ".join(dict.fromkeys((*points, *own)))


def _unit(row: PlanRow) -> MetricUnit:
    return unit_of(row.unit, share=row.unit == POINTS.name)


def _table(plan: GatePlan) -> Table:
    sees, finds = f"sees,\n{_percent(plan.power)}", f"finds\n{_drop(plan)}"
    return Table(
        header=("benchmark", "items", "flips", sees, finds, "items\nit takes", 'for\n"not worse"'),
        rows=tuple(map(_cells, plan.rows)),
    )


def _cells(row: PlanRow) -> tuple[str, ...]:
    flips = f"{100 * row.design.flips:.1f} %" if row.design.flips is not None else NOTHING
    return (
        f"{row.benchmark} {row.metric}".rstrip(),
        f"{row.design.items:,}",
        flips + "?" * row.assumed,
        _told(row.sees, _unit(row)),
        _percent(row.finds),
        "never" if _never(row) else _about(row.items_for_drop, beyond=row.finds > 0),
        _about(row.items_for_not_worse, beyond=True),
    )


def _notes(plan: GatePlan) -> Iterator[tuple[str, str]]:
    if never := [row.benchmark for row in plan.rows if _never(row)]:
        whose = "" if len(never) == len(plan.rows) else f" of {listed(never, 3)}"
        why = f"the drop is {'within' if any(row.drop < row.margin for row in plan.rows) else 'equal to'} the margin"
        yield "never", f"{why}{whose}, so no number of items calls it worse; give a larger --drop"
    for text in _too_few(plan):
        yield "too few", text
    for basis in dict.fromkeys(row.basis for row in plan.rows):
        names = [row.benchmark for row in plan.rows if row.basis == basis]
        yield "from", f"{listed(names, 3)}: {basis}"
    for row in plan.rows:
        if row.design.effect > 1.005:
            same = f"its {row.design.items:,} items tell as much as {row.design.effective:,.0f} that share no text"
            yield "note", f"{row.benchmark}: {same}"
    if plan.baseline == "best":
        text = 'against the best of several results losses are found more often, "not worse" more rarely'
        yield "note", text
    for name, why in plan.unknown.items():
        yield "note", f"{name}: {why}"


def _too_few(plan: GatePlan) -> list[str]:
    """Return a line for each benchmark that has fewer items than it takes to find the drop, or to call as good."""
    found = []
    for row in plan.rows:
        drop = None if _never(row) else row.items_for_drop
        for what, items in ((_drop(plan), drop), ('"not worse"', row.items_for_not_worse)):
            if text := cannot_tell(items and _rounded_up(items), row.size):
                found.append(f"{row.benchmark}, {what}: {text}")
                break
    return found


def _never(row: PlanRow) -> bool:
    """Return whether no number of items finds the drop, since it is within the margin."""
    return row.drop <= row.margin


def _drop(plan: GatePlan) -> str:
    """Return the drop of the plan in the units of its metrics: ``2 points``, or ``2 points (0.02 bits)``."""
    told = dict.fromkeys(_unit(row).size(row.drop) for row in plan.rows if _unit(row) is not POINTS)
    points = POINTS.size(plan.drop)
    return f"{points} ({listed(told, 3)})" if told else points


def _told(share: float | None, unit: MetricUnit = POINTS) -> str:
    one = POINTS._replace(digits=1) if unit is POINTS else unit
    return one.told(share).removeprefix("+")


def _percent(share: float) -> str:
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * min(share, 0.999 if share < 1 else 1):.3g} %"


def _about(items: int | None, *, beyond: bool) -> str:
    """Return a number of items, rounded up."""
    if items is None:
        return f"> {MOST_ITEMS // 1_000_000} million" if beyond else NOTHING
    return f"{_rounded_up(items):,}"


def _rounded_up(items: int) -> int:
    """Return a number with two digits."""
    unit = int(f"1{'0' * (len(str(items)) - 2)}")
    return -(-items // unit) * unit
