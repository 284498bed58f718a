"""The gate in all reports: its decision, and the numbers and reasons of each line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pytest_touchstone.compare.baselines import FIRST_ON_ITEMS
from pytest_touchstone.compare.benchmark_comparison import STRICT, BenchmarkComparison
from pytest_touchstone.compare.comparison_verdicts import POOLED
from pytest_touchstone.compare.gate.result import (
    KINDS,
    UNSURE,
    GateResult,
    lines_from_json,
    ordered,
    shown_lines,
)
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.document import Facts, Section, Table
from pytest_touchstone.document.formatting import NOTHING, interval, number, p_short
from pytest_touchstone.statistics.comparison import POINTS, MetricUnit
from pytest_touchstone.statistics.verdicts import POWER

APART: Final = 20
"""Lines that are shown one by one in a short report, apart from those that fail; more share a line per verdict."""


def gate_sections(gate: Mapping[str, Any] | None, *, details: bool) -> list[Section]:
    """Return what the gate judged, for a terminal and for wider forms; none without a gate."""
    return [] if gate is None else [_verdicts_section(gate, details=details), gate_section(gate)]


def _verdicts_section(gate: Mapping[str, Any], *, details: bool) -> Section:
    """Return a row per benchmark, the most pressing first, with the reasons of failures.

    Without details, passing lines without a comparison, or too many passing lines, share a row per verdict. With
    details, every line has its reasons and its baseline.
    """
    lines = ordered(tuple(lines_from_json(gate)))
    several = len({line.checkpoint for line in lines}) > 1
    rows: list[tuple[str, str]] = []
    shown_reasons: set[str] = set()
    apart = lines
    if not details:
        bad_lines = [line for line in lines if line.fails or line.invalid or line.accepted]
        compared = [
            line for line in lines if line not in bad_lines and line.comparison.difference is not None
        ]
        apart = bad_lines[:APART] + (compared if len(compared) <= APART else [])
    for line in apart:
        bad = (*line.fails, *line.invalid)
        shown = details or line.fails or line.accepted
        reasons = reason_texts(line, "baseline ") if shown else reason_texts(line) if bad else []
        if details and line.comparison.verdict != "inconclusive":
            reasons.append(detectable_text(line))
        elif not details:  # reasons that several lines share are told by the first of them
            reasons = [text for text in reasons if text not in shown_reasons]
            shown_reasons.update(bad)
        rows.append(
            (line.kind, "\n".join([_numbers(line, several, details=details), *filter(None, reasons)]))
        )
    seen = [line for line in lines if line.comparison.verdict == "inconclusive" and line.sees is not None]
    if drops := [
        f"{_drop(line)} on {_label(line, several)}" for line in seen if not line.fails and not details
    ]:
        rows.append(("sees", f"this gate sees a drop of {join_names(drops, NAMED)} with {100 * POWER:.0f} %"))
    together: dict[str, list[str]] = {}
    for line in lines:
        if line not in apart:
            together.setdefault(line.kind, []).append(_label(line, several))
    for kind, names in together.items():
        rows.append((kind, f"{len(names)}: {join_names(names, NAMED)}" if len(names) > 1 else names[0]))
    pooled = [line for line in shown_lines(gate) if line not in lines]
    for line in pooled if details or len(pooled) <= NAMED else []:
        numbers = _numbers(replace(line, metric=COMPOSITE), several, details=details)
        reasons = [f"{line.kind} over {numbers}; decides nothing"]
        reasons += reason_texts(line) if details else []
        reasons += [detectable_text(line)] if details and line.comparison.verdict != "inconclusive" else []
        rows.append((POOLED, "\n".join(filter(None, reasons))))
    rows += [("note", note) for note in gate.get("notes", ())]
    table = Table(header=("", ""), rows=tuple(rows), text_columns=2)
    return Section(key="gate", parts=(Facts((("gate", heading(gate)),)), table), views=("terminal",))


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
    table = Table(header=(*header, "baseline and reasons"), rows=rows, text_columns=3, words=True)
    parts = (*([table] if rows else []), f"Judged: {heading(gate)}.", *gate.get("notes", ()))
    return Section(key="gate", title="Gate", parts=parts, views=("markdown", "page"))


def failure_facts(gate: Mapping[str, Any]) -> Facts:
    """Return what dropped in the lines that the decision names: by how much, and against what."""
    lines = [line for line in lines_from_json(gate) if line.fails][:NAMED]
    return Facts(
        tuple((f"{_label(line, several=False)} of {line.checkpoint}", _drop_text(line)) for line in lines)
    )


def _drop_text(line: BenchmarkComparison) -> str:
    compared, against = line.comparison, line.against
    values = [number(line.as_measured.baseline)] * (against is not None) + [number(compared.new)]
    texts = [" to ".join(values)]
    if compared.difference is not None:
        p = f", p {p_short(compared.p_adjusted)}" * (compared.p_adjusted is not None)
        texts.append(f"{difference_text(line)}{p} over {count(compared.n, 'item')}")
    if against is not None:
        texts.append(f"against {against.checkpoint} of run {against.run_id}")
    return ", ".join([*texts, *(reason for reason in line.fails if reason != "worse")])


def detectable_text(line: BenchmarkComparison) -> str:
    """Return the drop that a line detects with power 0.8, empty if unknown."""
    if line.sees is None:
        return ""
    which = line.benchmark if line.metric != POOLED else f"{line.benchmark} pooled"
    return f"this gate sees a drop of {_drop(line)} on {which} with {100 * POWER:.0f} %"


def _drop(line: BenchmarkComparison) -> str:
    """Return the drop that a line sees: ``2.3 points``, ``0.0123 bits``."""
    unit = POINTS._replace(digits=1) if line.comparison.told_in is POINTS else line.comparison.told_in
    return unit.told(line.sees).removeprefix("+")


def heading(gate: Mapping[str, Any]) -> str:
    """Return the mode, the baseline, the margin and alpha, in a few words."""
    mode = "verdicts only" if gate.get("mode") is None else gate["mode"]
    comparisons = [(line.metric, line.comparison) for line in lines_from_json(gate)]
    margins = [
        (metric, comparison.margin, comparison.told_in)
        for metric, comparison in comparisons
        if comparison.margin is not None
    ]
    return (
        f"{mode}, against {gate['baseline']}, margin {margins_text(gate['margin'], margins)}, "
        f"alpha {gate['alpha']:g} over all benchmarks of a checkpoint"
    )


def margins_text(margin: float, rows: Sequence[tuple[str, float, MetricUnit]]) -> str:
    """Return the common margin, then margins in other units: ``1 point, 0.01 bits of bits_per_byte``."""
    with_units = [f"{unit.size(size)} of {metric}" for metric, size, unit in rows if unit is not POINTS]
    points = [POINTS.size(margin)] if len(with_units) < len(rows) or not rows else []
    return ", ".join(dict.fromkeys((*points, *with_units)))


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
    """Return the decision and its reasons in one line. ``code`` replaces the gate's exit code."""
    code = gate.exit_code if code is None else code
    if gate.mistake is not None:
        return f"gate not judged: {gate.mistake}"
    if gate.mode is None:
        outcome = gate.fault or _counted(gate.lines) or "none"
        return f"verdicts: {outcome}{_parts(gate)}{HINT}"
    by_reason: dict[str, list[str]] = {}
    for line in gate.lines:
        if line.invalid:  # what to do about it is left to the line's own reasons
            by_reason.setdefault(line.invalid[0].partition("; ")[0], []).append(_name(line, gate))
    invalid = [gate.fault] if gate.fault is not None else []
    invalid += [f"{join_names(names, NAMED)}: {reason}" for reason, names in by_reason.items()]
    fails = [f"{_name(line, gate)} {_failure(line)}" for line in gate.lines if line.fails]
    if invalid:
        besides = f"; besides, {join_names(fails, NAMED, between='; ')}" if fails else ""
        return f"gate not valid (exit code {code}): {join_names(invalid, NAMED, between='; ')}{besides}"
    if fails:
        return f"gate failed (exit code {code}): {join_names(fails, NAMED, between='; ')}"
    if gate.lines and all(line.kind == "first" for line in gate.lines):
        on = " on these items" if any(line.comparison.why == FIRST_ON_ITEMS for line in gate.lines) else ""
        return f"gate passed: no baseline yet{on}; this run is the first, and is saved"
    kinds = {line.kind for line in gate.lines}
    unsure = "; --eval-gate-mode strict would fail" if kinds.intersection(UNSURE) else ""
    without = "not compared" in kinds and not any(line.comparison.verdict for line in gate.lines)
    return f"gate passed{' WITHOUT A COMPARISON' * without}: {_counted(gate.lines)}{_parts(gate)}{unsure}"


def sign_key(gate: Mapping[str, Any]) -> str:
    """Return the decision as a key of ``document.SIGNS_OF_VERDICTS``.

    "first" and "unsure" pass, but are no plain success.
    """
    kinds = {line.kind for line in lines_from_json(gate)}
    if gate["decision"] != "passed":
        return str(gate["decision"])
    # A gate without a line has compared nothing.
    return (
        "first" if kinds == {"first"} else "unsure" if not kinds or kinds.intersection(UNSURE) else "passed"
    )


def difference_text(line: BenchmarkComparison) -> str:
    """Return ``-3.00 [-5.10, -0.90] points``, empty where nothing was compared."""
    comparison, unit = line.comparison, line.comparison.told_in
    if comparison.difference is None:
        return ""
    low, high = comparison.low, comparison.high
    limits = "" if low is None or high is None else f" {interval(low, high, unit.moved)}"
    return f"{unit.moved(comparison.difference)}{limits} {unit.name}".rstrip()


def baseline_text(line: BenchmarkComparison) -> str:
    """Return the baseline with its measured value and, of several runs, the corrected one."""
    baseline = line.against
    if baseline is None:
        return ""
    name = baseline.checkpoint
    step = f", step {baseline.step}" if baseline.step is not None and str(baseline.step) not in name else ""
    which = f"{name}{step} of run {baseline.run_id}"
    measured = line.as_measured
    if baseline.runs == 1:
        return f"{which}: {number(measured.baseline)}"
    moved = "" if measured.difference is None else f" ({measured.told_in.told(measured.difference)})"
    return (
        f"{which}, best of {baseline.runs}: {number(measured.baseline)} as measured{moved}, "
        f"{number(line.comparison.baseline)} after allowing for the choice"
    )


def reason_texts(line: BenchmarkComparison, against: str | None = None) -> list[str]:
    """Return why a line is invalid or fails, the reasons of its verdict, and notes.

    With ``against`` the baseline comes first, preceded by that text.
    """
    baseline = baseline_text(line) if against is not None else ""
    fails = [reason for reason in line.fails if reason != "worse"]
    why = _SAID.sub("", line.comparison.why, count=1)
    sees = detectable_text(line) if line.comparison.verdict == "inconclusive" else ""
    texts = [f"{against}{baseline}" if baseline else "", *line.invalid, *fails, line.accepted]
    return list(filter(None, [*texts, "" if why in line.invalid else why, sees, *line.notes]))


def _parts(gate: GateResult) -> str:
    """Return the benchmarks that lack items of the baseline, uncompared ones first."""
    apart = [line for line in gate.lines if line.kind == "not compared"]
    some = [line for line in gate.lines if line.part and line not in apart]
    texts = []
    for text, lines in (("NOTHING WAS COMPARED for", apart), ("only a part was asked of", some)):
        names = [f"{_name(line, gate)} ({line.part or line.comparison.why})" for line in lines]
        texts += [f"; {text} {join_names(names, NAMED, between='; ')}"] if names else []
    return "".join(texts)


def _failure(line: BenchmarkComparison) -> str:
    """Return why a line fails in a few words, with its difference."""
    comparison = line.comparison
    moved = "" if comparison.difference is None else f" ({comparison.told_in.told(comparison.difference)})"
    strict = f"is inconclusive{moved}"
    if line.kind == "not compared":
        strict = f"was compared with nothing ({line.part or comparison.why})"
    words = {"worse": f"is worse{moved}", STRICT: strict}
    floors = [f"misses its {reason}" for reason in line.fails if reason.startswith("floor ")]
    others = [words.get(reason, reason) for reason in line.fails if not reason.startswith("floor ")]
    return " and ".join([*floors, *others])


def _name(line: BenchmarkComparison, gate: GateResult) -> str:
    return _label(line, len({other.checkpoint for other in gate.lines}) > 1)


def _counted(lines: Iterable[BenchmarkComparison]) -> str:
    counts = Counter(line.kind for line in lines)
    return ", ".join(f"{counts[kind]} {kind}" for kind in reversed(KINDS) if counts[kind])
