"""Results of a run, baselines and a plan -> a ``Gate``.

Each checkpoint's benchmarks are judged together, as one family. A line fails where its verdict is "worse" (for a
strict gate also where nobody can tell, or nothing was compared because the run lacks items), where the measured value
is lower than the baseline's measured value by more than max_drop, and where a floor is not kept. It is not valid where
the result is not whole, or could not be held against a baseline that should have been there.

A composite that ``--gate-metric`` names is a line of its own; the baseline of its benchmarks is then the checkpoint
with the best composite. Any other metric that it names chooses and compares on the benchmarks that have it; the
others go by their primary metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from harness.errors import GateError
from harness.gate.baselines import Found, Source, find
from harness.gate.config import Plan
from harness.gate.judging import Compared, Judged, Weighed, compare, compare_composite, judge
from harness.gate.lines import Reasons, benchmark_line, composite_line, hold_floors, metric_of
from harness.gate.pairing import Entry
from harness.gate.report import Gate, Line
from harness.metrics.composites import COMPOSITES, Composite
from harness.results import base_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One checkpoint's results: entries by benchmark, and its composites' values by name."""

    checkpoint: str
    entries: Mapping[str, Entry]
    composites: Mapping[str, float | None]


def cases_of(entries: Sequence[Entry], composites: Sequence[Mapping[str, Any]]) -> list[Case]:
    """A run's results by checkpoint."""
    return [
        Case(
            checkpoint=name,
            entries={entry.saved.benchmark: entry for entry in entries if entry.saved.checkpoint == name},
            composites={one["name"]: one["value"] for one in composites if one["checkpoint"] == name},
        )
        for name in dict.fromkeys(entry.saved.checkpoint for entry in entries)
    ]


class Early(NamedTuple):
    """A verdict that was settled before all items were asked, and what it was held against."""

    found: Found
    judged: Judged


def decide(
    cases: Sequence[Case],
    source: Source,
    plan: Plan,
    early: Mapping[tuple[str, str], Early] = MappingProxyType({}),
) -> Gate:
    """What the gate finds over all checkpoints. ``early`` has the verdicts that are settled already, by checkpoint and
    benchmark. Raises ``GateError`` for a metric that was asked for and that no
    result has."""
    _check_metric(cases, plan)
    lines = [line for case in cases for line in judge_case(case, source, plan, early)]
    lines += _floors_not_run(cases, plan)
    nothing = source.kind == "run" and all(line.state == "absent" for line in lines)
    return Gate(
        mode=plan.mode,
        baseline=source.name,
        margin=plan.margin,
        alpha=plan.alpha,
        lines=tuple(lines),
        notes=tuple(_left_out(cases, source, lines)),
        broken=f"{source.name} has no result of any benchmark of this run" if nothing else None,
    )


def judge_case(
    case: Case,
    source: Source,
    plan: Plan,
    early: Mapping[tuple[str, str], Early] = MappingProxyType({}),
) -> list[Line]:
    """The lines of one checkpoint."""
    settled = {name: early[key] for name in case.entries if (key := (case.checkpoint, name)) in early}
    found = {
        name: settled[name].found if name in settled else _find(entry, source, plan)
        for name, entry in case.entries.items()
    }
    composite = composite_of(plan.metric)
    together = _together(case, composite, found) if composite is not None else None
    left = {name: one for name, one in found.items() if name not in settled}
    compared = _compare(case, composite, together, left, plan)
    names = (*case.entries, *plan.benchmarks)
    own = {name: margin for name in names if (margin := plan.own(name).margin) is not None}
    judged = judge(compared, margin=plan.margin, margins=own, alpha=plan.alpha)
    judged |= {name: one.judged for name, one in settled.items()}
    lines = [
        benchmark_line(entry, found[name], judged.get(name), plan, early=name in settled)
        for name, entry in case.entries.items()
    ]
    if composite is not None and together is not None:
        line = _plain_composite(case, composite)
        lines.append(composite_line(line, together, judged.get(composite.name), plan))
    return lines + _composite_floors(case, composite, plan)


def composite_of(name: str | None) -> Composite | None:
    """The composite of this name, if there is one."""
    return next((one for one in COMPOSITES if one.name == name), None)


def _find(entry: Entry, source: Source, plan: Plan) -> Found:
    if source.kind == "none":
        return Found(state="absent", reason="held against no baseline")
    if not entry.items.examples:
        return Found(state="refused", reason="no item was scored")
    return find(entry, source, metric=metric_of(entry, plan), allow=plan.allow)


def _compare(
    case: Case, composite: Composite | None, together: Found | None, found: Mapping[str, Found], plan: Plan
) -> dict[str, Compared]:
    """The comparisons that can be made; a composite's benchmarks go with the checkpoint that it chose."""
    level, parts = 1 - plan.alpha, set()
    compared: dict[str, Compared] = {}
    whole = None
    if composite is not None and together is not None and together.state == "chosen":
        parts = {part.benchmark for part in composite.parts}
        weighed = [
            Weighed(part.weight, part.metric, case.entries[part.benchmark], found[part.benchmark].baselines)
            for part in composite.parts
        ]
        whole = compare_composite(composite.name, weighed, level=level)
    for name, one in found.items():
        if one.state == "chosen":
            chosen = whole.chosen if whole is not None and name in parts else None
            entry = case.entries[name]
            compared[name] = compare(entry, one.baselines, metric_of(entry, plan), chosen=chosen, level=level)
    return compared if whole is None else {**compared, whole.metric: whole}


# Composites


def _together(case: Case, composite: Composite, found: dict[str, Found]) -> Found:
    """What a composite is held against; its benchmarks' baselines become those that have all of its parts."""
    names = list(dict.fromkeys(part.benchmark for part in composite.parts))
    missing = [name for name in names if name not in case.entries]
    if missing:
        return Found(
            state="refused", reason=f"{composite.name} needs {', '.join(missing)}, which was not run"
        )
    for name in names:
        if found[name].state != "chosen":
            one = found[name]
            return replace(one, reason=f"{name}: {one.reason}" if one.reason else "", notes=())
    keys = [
        {one.saved.fingerprint or one.saved.checkpoint: one for one in found[name].baselines}
        for name in names
    ]
    common = [key for key in keys[0] if all(key in other for other in keys[1:])]
    if not common:
        return Found(state="refused", reason=f"no saved checkpoint has all parts of {composite.name}")
    for name, by_key in zip(names, keys, strict=True):
        found[name] = replace(found[name], baselines=tuple(by_key[key] for key in common))
    part = next((found[name].part for name in names if found[name].part), "")
    return Found(state="chosen", baselines=found[names[0]].baselines, part=part)


def _plain_composite(case: Case, composite: Composite) -> Line:
    return Line(
        checkpoint=case.checkpoint,
        benchmark=composite.name,
        metric="composite",
        verdict=None,
        why="only its floors are checked; --gate-metric compares it",
        value=case.composites.get(composite.name),
        state="absent",
        about="; ".join(
            f"{name}: {case.entries[name].saved.mark}"
            for name in dict.fromkeys(part.benchmark for part in composite.parts)
            if name in case.entries and case.entries[name].saved.mark
        ),
    )


def _composite_floors(case: Case, compared: Composite | None, plan: Plan) -> list[Line]:
    """A line for each composite that has floors and is not compared."""
    lines = []
    for composite in COMPOSITES:
        if (
            composite is not compared
            and composite.name in case.composites
            and plan.own(composite.name).floors
        ):
            line, reasons = _plain_composite(case, composite), Reasons()
            hold_floors({composite.name: line.value}, composite.name, plan, reasons)
            lines.append(replace(line, fails=tuple(reasons.fails), invalid=tuple(reasons.invalid)))
    return lines


# What was asked for and is not there


def _check_metric(cases: Sequence[Case], plan: Plan) -> None:
    if plan.metric is None or composite_of(plan.metric) is not None:
        return
    known = dict.fromkeys(
        metric for case in cases for entry in case.entries.values() for metric in entry.saved.metrics
    )
    if known and plan.metric not in known:
        names = ", ".join((*known, *(one.name for one in COMPOSITES)))
        raise GateError(f"--gate-metric: no benchmark of this run has {plan.metric!r}; there are {names}")


def _floors_not_run(cases: Sequence[Case], plan: Plan) -> list[Line]:
    """A line for each benchmark or composite that has floors and was not run."""
    measured = {name for case in cases for name in (*case.entries, *case.composites)}
    measured |= {base_name(name) for name in measured}
    measured |= {one.name for one in COMPOSITES if one.name == plan.metric}
    return [
        Line(
            checkpoint=", ".join(case.checkpoint for case in cases),
            benchmark=name,
            metric=own.floors[0].metric,
            verdict=None,
            why="it has floors and was not run",
            invalid=(f"floor {own.floors[0].text}: it was not measured in this run",),
            state="absent",
        )
        for name, own in plan.benchmarks.items()
        if own.floors and name not in measured
    ]


def _left_out(cases: Sequence[Case], source: Source, lines: Sequence[Line]) -> list[str]:
    """Benchmarks that the baselines have and this run has not."""
    run = {name for case in cases for name in case.entries}
    used = {(line.against.run_id, line.against.checkpoint) for line in lines if line.against is not None}
    names = {
        saved.benchmark
        for saved in source.saved
        if saved.complete and (source.kind == "run" or (saved.run_id, saved.checkpoint) in used)
    }
    missing = ", ".join(sorted(names - run))
    return (
        [f"the baseline has results of {missing}, which this run did not ask: not judged"] if missing else []
    )
