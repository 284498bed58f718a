"""A plan of a gate in words, and as plain data; and a dry run, which says what would be asked and what it costs.

``touchstone baseline plan --format json`` prints the plain data; numbers are shares, not points, and what cannot be is
null:

    {"schema": 1, "kind": "plan", "baseline": "best", "drop": 0.02, "power": 0.8, "alpha": 0.05, "margin": 0.01,
     "benchmarks": [{"benchmark": "gsm8k", "metric": "exact_match", "items": 1319, "flips": 0.14,
                     "sees": 0.041, "finds": 0.23, "basis": "...", "assumed": false, ...}],
     "unknown": {"NAME": "why"}}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pytest_touchstone.compare.comparison_verdicts import POOLED
from pytest_touchstone.compare.plan import GatePlan, PlanRow
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.files import SCHEMA
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.document import Facts, Part, Section, Table, render_text
from pytest_touchstone.document.formatting import NOTHING
from pytest_touchstone.reports.gate import margins_text
from pytest_touchstone.results.summary import replace_non_finite
from pytest_touchstone.statistics.comparison import POINTS, MetricUnit, unit_of
from pytest_touchstone.statistics.power import MOST_ITEMS
from pytest_touchstone.statistics.verdicts import cannot_tell


def plan_facts(plan: GatePlan) -> dict[str, Any]:
    """Return the whole plan."""
    plain: dict[str, Any] = replace_non_finite(asdict(plan))
    rows = [{**row.pop("design"), **row} for row in plain.pop("rows")]
    return {"schema": SCHEMA, "kind": "plan", **plain, "benchmarks": rows}


def render(plan: GatePlan, *, width: int, color: bool, checkpoints: int = 1) -> str:
    """Return the plan for a number of checkpoints as text of at most ``width`` columns."""
    parts = (_heading(plan, checkpoints), _table(plan), Facts(tuple(_notes(plan))))
    return render_text([Section(parts=parts)], width=width, color=color)


def _heading(plan: GatePlan, checkpoints: int) -> str:
    tests = [row for row in plan.rows if row.benchmark != POOLED]
    made = sum(row.metric == COMPOSITE for row in tests)
    whole = f" and {count(made, 'composite')}" if made else ""
    over = f" over {count(len(tests) - made, 'benchmark')}{whole}" if len(tests) > 1 else ""
    margins = [(row.metric, row.margin, _unit(row)) for row in plan.rows]
    each = f", for each of {checkpoints} checkpoints" if checkpoints > 1 else ""
    margin = margins_text(plan.margin, margins)
    return f"plan  against {plan.baseline}, margin {margin}, alpha {plan.alpha:g}{over}{each}"


def _unit(row: PlanRow) -> MetricUnit:
    return unit_of(row.unit, share=row.unit == POINTS.name)


def _table(plan: GatePlan) -> Table:
    rows = []
    for row in plan.rows:
        unit = POINTS._replace(digits=1) if _unit(row) is POINTS else _unit(row)
        flips = f"{100 * row.design.flips:.1f} %" if row.design.flips is not None else NOTHING
        rows.append(
            (
                f"{row.benchmark} {row.metric}".rstrip(),
                f"{row.design.items:,}",
                flips + "?" * row.assumed,
                unit.told(row.sees).removeprefix("+"),
                _percent(row.finds),
                "never" if _is_undetectable(row) else _about(row.items_for_drop, beyond=row.finds > 0),
                _about(row.items_for_not_worse, beyond=True),
            )
        )
    sees, finds = f"sees,\n{_percent(plan.power)}", f"finds\n{_drop(plan)}"
    header = ("benchmark", "items", "flips", sees, finds, "items\nit takes", 'for\n"not worse"')
    return Table(header=header, rows=tuple(rows))


def _notes(plan: GatePlan) -> Iterator[tuple[str, str]]:
    if never := [row.benchmark for row in plan.rows if _is_undetectable(row)]:
        whose = "" if len(never) == len(plan.rows) else f" of {join_names(never, 3)}"
        why = f"the drop is {'within' if any(row.drop < row.margin for row in plan.rows) else 'equal to'} the margin"
        yield "never", f"{why}{whose}, so no number of items calls it worse; give a larger --drop"
    for row in plan.rows:
        drop = None if _is_undetectable(row) else row.items_for_drop
        for what, items in ((_drop(plan), drop), ('"not worse"', row.items_for_not_worse)):
            if text := cannot_tell(items and _rounded_up(items), row.size):
                yield "too few", f"{row.benchmark}, {what}: {text}"
                break
    for basis in dict.fromkeys(row.basis for row in plan.rows):
        names = [row.benchmark for row in plan.rows if row.basis == basis]
        yield "from", f"{join_names(names, 3)}: {basis}"
    for row in plan.rows:
        if row.design.effect > 1.005:
            same = f"its {row.design.items:,} items tell as much as {row.design.effective:,.0f} that share no text"
            yield "note", f"{row.benchmark}: {same}"
    if plan.baseline == "best":
        text = 'against the best of several results losses are found more often, "not worse" more rarely'
        yield "note", text
    for name, why in plan.unknown.items():
        yield "note", f"{name}: {why}"


def _is_undetectable(row: PlanRow) -> bool:
    """Return whether the drop is within the margin: no number of items detects such a drop."""
    return row.drop <= row.margin


def _drop(plan: GatePlan) -> str:
    """Return the planned drop, and those of a metric's unit or of a proof: ``2 points (0.02 bits)``."""
    special = [row for row in plan.rows if _unit(row) is not POINTS or row.drop != plan.drop]
    sizes = dict.fromkeys(_unit(row).size(row.drop) for row in special)
    points = POINTS.size(plan.drop)
    return f"{points} ({join_names(sizes, 3)})" if sizes else points


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


# A dry run

NAMED: Final = 3
"""Items that are named."""


@dataclass(slots=True, kw_only=True)
class DryRunRow:
    """The planned requests of a benchmark to a checkpoint. Counts are None where the number is unknown.

    Of the ``sampled`` items, those in ``too_long`` exceed the checkpoint's maximum length (``takes``). Their contexts
    are ``cut``, or they are skipped.
    """

    checkpoint: str
    benchmark: str
    items: int
    shots: int = 0
    sampled: int = 0
    requests: int | None = None
    prompt_tokens: int | None = None
    new_tokens: int | None = None
    cost: float | None = None
    exact: bool = False
    too_long: Sequence[str] = ()
    takes: int = 0
    cut: bool = True


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting that differs from its default: its option, its value, and the source of the value."""

    flag: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class DryRun:
    """The rows of a dry run. ``lacks`` names the requests that served models do not support."""

    rows: Sequence[DryRunRow]
    left_out: Sequence[str]
    settings: Sequence[SettingRow]
    lacks: Sequence[str]


def render_dry_run(plan: DryRun, *, width: int, color: bool) -> str:
    """Return a dry run as text of at most ``width`` columns."""
    names = dict.fromkeys(row.checkpoint for row in plan.rows)
    parts: list[Part] = [
        _table_of_questions(name, [row for row in plan.rows if row.checkpoint == name]) for name in names
    ]
    parts.append(Facts(tuple(_notes_on_questions(plan))))
    cells = tuple((row.flag, _value(row.value), row.origin) for row in plan.settings)
    parts.append(Table(header=("setting", "value", "from"), rows=cells, text_columns=3))
    return render_text([Section(parts=tuple(parts))], width=width, color=color)


def _table_of_questions(checkpoint: str, rows: Sequence[DryRunRow]) -> Table:
    cells = []
    for row in rows:
        counts = (row.requests, row.prompt_tokens, row.new_tokens)
        numbers = _numbers(counts, (row.sampled == row.items, row.exact, row.exact))
        cells.append((f"  {row.benchmark}", f"{row.items:,}", str(row.shots), *numbers))
    if len(rows) > 1:
        names = ("requests", "prompt_tokens", "new_tokens")
        sums = [sum(getattr(row, name) or 0 for row in rows) for name in names]
        is_exact = all(row.exact for row in rows)
        numbers = _numbers(sums, (all(row.sampled == row.items for row in rows), is_exact, is_exact))
        cells.append(("  together", f"{sum(row.items for row in rows):,}", "", *numbers))
    return Table(
        header=("  benchmark", "items", "shots", "requests", "prompt tokens", "new tokens,\nat most"),
        rows=tuple(cells),
        title=checkpoint,
        close=True,
    )


def _numbers(counts: Sequence[int | None], exact: Sequence[bool]) -> list[str]:
    """Return counts as table cells, with a tilde before estimates."""
    return [
        NOTHING if number is None else f"{'' if is_exact or not number else '~'}{number:,}"
        for number, is_exact in zip(counts, exact, strict=True)
    ]


def _notes_on_questions(plan: DryRun) -> Iterator[tuple[str, str]]:
    if not plan.rows:
        yield "asked", "nothing: no item is left"
    costs = [row.cost for row in plan.rows if row.cost is not None]
    if costs:
        yield "cost", f"at most {sum(costs):,.4g} by --eval-set price"
    if any(row.requests is None for row in plan.rows):
        yield NOTHING, "not known before it is asked: only shipped benchmarks are started for their sizes"
    several = len({row.checkpoint for row in plan.rows}) > 1
    for row in (row for row in plan.rows if row.too_long):
        name = f"{row.checkpoint} {row.benchmark}" if several else row.benchmark
        of = f"{row.sampled:,}" if row.sampled == row.items else f"{row.sampled:,} sampled"
        what = "contexts are cut on their left" if row.cut else "not asked: errors"
        items = f"{len(row.too_long):,} of {of} items, for {row.takes:,} tokens ({what})"
        yield "too long", f"{name}: {items}: {join_names(row.too_long, NAMED)}"
    yield from (("cannot", line) for line in plan.lacks)
    yield from (("left out", line) for line in plan.left_out)
    yield "scored", "nothing"


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return NOTHING if value is None else str(value)
