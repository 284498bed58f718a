"""The gate on the terminal, and in words for all reports: the decision, and each line's numbers and reasons."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pytest_touchstone.compare.baselines import FIRST_ON_ITEMS
from pytest_touchstone.compare.benchmark_comparison import STRICT, BenchmarkComparison
from pytest_touchstone.compare.gate.result import (
    KINDS,
    UNSURE,
    GateResult,
    lines_from_json,
    ordered,
    shown_lines,
)
from pytest_touchstone.compare.judge import POOLED
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.text import listed
from pytest_touchstone.document import Section, Table
from pytest_touchstone.document.formatting import NOTHING, interval, number, p_short
from pytest_touchstone.statistics.comparison import POINTS
from pytest_touchstone.statistics.verdicts import POWER

APART: Final = 20
"""Lines that are shown one by one in a short report, apart from those that fail; more share a line per verdict."""


def verdicts_section(gate: Mapping[str, Any] | None, *, details: bool) -> Section | None:
    """Return a line per benchmark, the most pressing first, with the reasons of those that fail; None for no gate.

    Without details, lines that pass without a comparison, or are too many, share a line per verdict. With details, all
    have their reasons, and their baselines.
    """
    if gate is None:
        return None
    lines = ordered(tuple(lines_from_json(gate)))
    several = len({line.checkpoint for line in lines}) > 1
    rows: list[tuple[str, str]] = []
    known: set[str] = set()
    apart = lines if details else _apart(lines)
    for line in apart:
        bad = (*line.fails, *line.invalid)
        shown = details or line.fails or line.accepted
        reasons = reason_texts(line, "baseline ") if shown else reason_texts(line) if bad else []
        if details and line.comparison.verdict != "inconclusive":
            reasons.append(sees_text(line))
        elif not details:  # reasons that several lines share are told by the first of them
            reasons = [text for text in reasons if text not in known]
            known.update(bad)
        rows.append(
            (line.kind, "\n".join([_numbers(line, several, details=details), *filter(None, reasons)]))
        )
    if not details and (text := _seen([line for line in lines if not line.fails], several)):
        rows.append(("sees", text))
    together: dict[str, list[str]] = {}
    for line in lines:
        if line not in apart:
            together.setdefault(line.kind, []).append(_label(line, several))
    for kind, names in together.items():
        rows.append((kind, f"{len(names)}: {listed(names, NAMED)}" if len(names) > 1 else names[0]))
    pooled = [line for line in shown_lines(gate) if line not in lines]
    for line in pooled if details or len(pooled) <= NAMED else []:
        numbers = _numbers(replace(line, metric=COMPOSITE), several, details=details)
        reasons = [f"{line.kind} over {numbers}; decides nothing"]
        reasons += reason_texts(line) if details else []
        reasons += [sees_text(line)] if details and line.comparison.verdict != "inconclusive" else []
        rows.append((POOLED, "\n".join(filter(None, reasons))))
    rows += [("note", note) for note in gate.get("notes", ())]
    table = Table(header=("", ""), rows=tuple(rows), left=2)
    return Section(key="gate", parts=(f"gate  {heading(gate)}", table))


def gate_section(gate: Mapping[str, Any]) -> Section:
    """Return what the gate judged, each line with its numbers and reasons, and its notes."""
    rows = tuple(
        (
            line.kind,
            line.checkpoint,
            _label(line, several=False),
            number(line.comparison.new) + (f" ({line.about})" if line.about else ""),
            difference_text(line).removesuffix(f" {POINTS.name}") or NOTHING,
            p_short(line.comparison.p_adjusted),
            "\n".join(reason_texts(line, "against ")),
        )
        for line in shown_lines(gate)
    )
    level = 100 * (1 - float(gate["alpha"]))
    header = ("verdict", "checkpoint", "benchmark", "value", f"points [{level:g} %]", "p (Holm)")
    table = Table(header=(*header, "baseline and reasons"), rows=rows, left=3, words=True)
    parts = (*([table] if rows else []), f"Judged: {heading(gate)}.", *gate.get("notes", ()))
    return Section(key="gate", title="Gate", parts=parts)


def _apart(lines: Sequence[BenchmarkComparison]) -> list[BenchmarkComparison]:
    """Return the lines that a short report shows one by one."""
    bad = [line for line in lines if line.fails or line.invalid or line.accepted]
    compared = [line for line in lines if line not in bad and line.comparison.difference is not None]
    return bad[:APART] + (compared if len(compared) <= APART else [])


def sees_text(line: BenchmarkComparison) -> str:
    """Return the drop that a line calls worse with power 0.8, in words; empty where it is not known."""
    if line.sees is None:
        return ""
    which = line.benchmark if line.metric != POOLED else f"{line.benchmark} pooled"
    return f"this gate sees a drop of {_drop(line)} on {which} with {100 * POWER:.0f} %"


def _drop(line: BenchmarkComparison) -> str:
    """Return the drop that a line sees: ``2.3 points``, ``0.0123 bits``."""
    unit = POINTS._replace(digits=1) if line.comparison.told_in is POINTS else line.comparison.told_in
    return unit.told(line.sees).removeprefix("+")


def _seen(lines: Sequence[BenchmarkComparison], several: bool) -> str:
    """Return the same of those that are inconclusive, in one sentence."""
    seen = [line for line in lines if line.comparison.verdict == "inconclusive" and line.sees is not None]
    twice = len({(line.checkpoint, line.benchmark) for line in seen}) < len(seen)
    told = [
        f"{_drop(line).removesuffix(' points')} on {f'{line.checkpoint}, ' * several}{line.benchmark}"
        f"{f' {line.metric}' * twice}"
        for line in seen
    ]
    if len(told) > 1:
        points = ", in points," if all(line.comparison.told_in is POINTS for line in seen) else ""
        return f"this gate sees drops{points} of {listed(told, NAMED)}, with {100 * POWER:.0f} %"
    return sees_text(seen[0]) if seen else ""


def heading(gate: Mapping[str, Any]) -> str:
    """Return the mode, the baseline, the margin and alpha, in a few words."""
    mode = "verdicts only" if gate.get("mode") is None else gate["mode"]
    return (
        f"{mode}, against {gate['baseline']}, margin {_margins(gate)}, "
        f"alpha {gate['alpha']:g} over all benchmarks of a checkpoint"
    )


def _margins(gate: Mapping[str, Any]) -> str:
    """Return the margin of all, and those of metrics with a unit: ``1 point, 0.01 bits of bits_per_byte``."""
    lines = [line for line in lines_from_json(gate) if line.comparison.margin is not None]
    own = [
        f"{line.comparison.told_in.size(line.comparison.margin or 0)} of {line.metric}"
        for line in lines
        if line.comparison.told_in is not POINTS
    ]
    points = [POINTS.size(gate["margin"])] if len(own) < len(lines) or not lines else []
    return ", ".join(dict.fromkeys((*points, *own)))


def _numbers(line: BenchmarkComparison, several: bool, *, details: bool) -> str:
    """Benchmark, metric, value, difference with its interval, and p."""
    about = f" ({line.about})" if line.about and details else ""
    comparison = line.comparison
    parts = [f"{_label(line, several)}  {number(comparison.new)}{about}"]
    if comparison.difference is not None:
        holm = f" (Holm over {comparison.family})" if comparison.family > 1 else ""
        parts.append(difference_text(line))
        if comparison.p_adjusted is not None:
            parts.append(f"p {p_short(comparison.p_adjusted)}{holm}")
        elif comparison.p is not None and line.early:
            parts.append(f"p {p_short(comparison.p)} at its interim analysis")
    return ", ".join(parts)


def _label(line: BenchmarkComparison, several: bool) -> str:
    """Return benchmark and metric; of several checkpoints with the checkpoint."""
    metric = "" if line.metric == COMPOSITE else f" {line.label}"
    return f"{f'{line.checkpoint}, ' * several}{line.benchmark}{metric}"


NAMED: Final = 3
"""The most reasons that the decision names before "and N more"."""

_SAID: Final = re.compile(r"[+-][\d.]+( \w+)?( \[[^]]*\])?(, p = \S+( after Holm over \d+ tests)?)?[:;] ")
"""The start of a verdict's reason, which a line shows already."""

HINT: Final = "; --gate makes the exit code depend on them"


def decision_text(gate: GateResult, code: int | None = None) -> str:
    """Return the decision and its reasons, in one line; ``code`` is the run's exit code, if that is not the
    gate's."""
    code = gate.exit_code if code is None else code
    if gate.mistake is not None:
        return f"gate not judged: {gate.mistake}"
    if gate.mode is None:
        found = gate.fault or _counted(gate.lines) or "none"
        return f"verdicts: {found}{_parts(gate)}{HINT}"
    faults = [gate.fault] if gate.fault is not None else []
    invalid = [*faults, *_by_reason(gate)]
    fails = [f"{_name(line, gate)} {_failure(line)}" for line in gate.lines if line.fails]
    if invalid:
        besides = f"; besides, {listed(fails, NAMED, between='; ')}" if fails else ""
        return f"gate not valid (exit code {code}): {listed(invalid, NAMED, between='; ')}{besides}"
    if fails:
        return f"gate failed (exit code {code}): {listed(fails, NAMED, between='; ')}"
    if gate.lines and all(line.kind == "first" for line in gate.lines):
        on = " on these items" if any(line.comparison.why == FIRST_ON_ITEMS for line in gate.lines) else ""
        return f"gate passed: no baseline yet{on}; this run is the first, and is saved"
    kinds = {line.kind for line in gate.lines}
    unsure = "; --eval-gate-mode strict would fail" if kinds.intersection(UNSURE) else ""
    without = "not compared" in kinds and not any(line.comparison.verdict for line in gate.lines)
    return f"gate passed{' WITHOUT A COMPARISON' * without}: {_counted(gate.lines)}{_parts(gate)}{unsure}"


def standing(gate: Mapping[str, Any]) -> str:
    """Return the decision, as ``SIGNS`` of reports have it: "first" and "unsure" are passed, but no plain success."""
    kinds = {line.kind for line in lines_from_json(gate)}
    if gate["decision"] != "passed" or not kinds:
        return str(gate["decision"])
    return "first" if kinds == {"first"} else "unsure" if kinds.intersection(UNSURE) else "passed"


def _by_reason(gate: GateResult) -> list[str]:
    """Return each reason for which lines are not valid, once, after the names of those lines.

    What to do about it is left to the line's own reasons.
    """
    found: dict[str, list[str]] = {}
    for line in gate.lines:
        if line.invalid:
            found.setdefault(line.invalid[0], []).append(_name(line, gate))
    return [f"{listed(names, NAMED)}: {reason.partition('; ')[0]}" for reason, names in found.items()]


def difference_text(line: BenchmarkComparison) -> str:
    """Return ``-3.00 [-5.10, -0.90] points``, empty where nothing was compared."""
    comparison, unit = line.comparison, line.comparison.told_in
    if comparison.difference is None:
        return ""
    low, high = comparison.low, comparison.high
    limits = "" if low is None or high is None else f" {interval(low, high, unit.moved)}"
    return f"{unit.moved(comparison.difference)}{limits} {unit.name}".rstrip()


def baseline_text(line: BenchmarkComparison) -> str:
    """Return the baseline, with its value as measured and, of several, after allowing for the choice."""
    one = line.against
    if one is None:
        return ""
    step = f", step {one.step}" if one.step is not None and str(one.step) not in one.checkpoint else ""
    which = f"{one.checkpoint}{step} of run {one.run_id}"
    measured = line.as_measured
    if one.runs == 1:
        return f"{which}: {number(measured.baseline)}"
    moved = "" if measured.difference is None else f" ({measured.told_in.told(measured.difference)})"
    return (
        f"{which}, best of {one.runs}: {number(measured.baseline)} as measured{moved}, "
        f"{number(line.comparison.baseline)} after allowing for the choice"
    )


def reason_texts(line: BenchmarkComparison, against: str | None = None) -> list[str]:
    """Return the reasons for a line's being not valid or failing, those for its verdict, and notes.

    ``against`` precedes the line's baseline, which then comes first.
    """
    baseline = baseline_text(line) if against is not None else ""
    fails = [reason for reason in line.fails if reason != "worse"]
    why = _SAID.sub("", line.comparison.why, count=1)
    said = [] if why in line.invalid else [why]
    said += [sees_text(line)] if line.comparison.verdict == "inconclusive" and line.sees is not None else []
    held = [line.accepted] if line.accepted else []
    return [*([f"{against}{baseline}"] if baseline else []), *line.invalid, *fails, *held, *said, *line.notes]


def _parts(gate: GateResult) -> str:
    """Return the benchmarks that lack items of earlier results: those that were compared with nothing, then the
    others."""
    apart = [
        f"{_name(line, gate)} ({line.part or line.comparison.why})"
        for line in gate.lines
        if line.kind == "not compared"
    ]
    some = [
        f"{_name(line, gate)} ({line.part})"
        for line in gate.lines
        if line.part and line.kind != "not compared"
    ]
    texts = [f"NOTHING WAS COMPARED for {listed(apart, NAMED, between='; ')}"] if apart else []
    texts += [f"only a part was asked of {listed(some, NAMED, between='; ')}"] if some else []
    return "".join(f"; {text}" for text in texts)


def _failure(line: BenchmarkComparison) -> str:
    """Return the reasons for which a line fails, in a few words with its difference."""
    comparison = line.comparison
    moved = "" if comparison.difference is None else f" ({comparison.told_in.told(comparison.difference)})"
    told = (
        f"was compared with nothing ({line.part or comparison.why})"
        if line.kind == "not compared"
        else f"cannot be told{moved}"
    )
    known = {"worse": f"is worse{moved}", STRICT: told}
    reasons = sorted(line.fails, key=lambda reason: reason not in known)
    return " and ".join(
        known.get(reason, f"misses its {reason}" if reason.startswith("floor ") else reason)
        for reason in reasons
    )


def _name(line: BenchmarkComparison, gate: GateResult) -> str:
    return _label(line, len({one.checkpoint for one in gate.lines}) > 1)


def _counted(lines: Iterable[BenchmarkComparison]) -> str:
    counts = Counter(line.kind for line in lines)
    return ", ".join(f"{counts[kind]} {kind}" for kind in reversed(KINDS) if counts[kind])
