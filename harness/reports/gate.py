"""The gate on the terminal, and in words for all reports: the decision, and each line's numbers and reasons."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from harness.compare.baselines import FIRST_ON_ITEMS
from harness.compare.gate.result import KINDS, STRICT, GateLine, GateResult, lines_from_json, ordered
from harness.core.text import listed
from harness.reports.formatting import labelled, number, p_short, points, points_interval
from harness.statistics.verdicts import points_text

STYLES: Final = {
    "worse": "bold red",
    "failed": "bold red",
    "not valid": "bold red",
    "not judged": "bold red",
    "inconclusive": "yellow",
    "not compared": "bold yellow",
    "better": "bold green",
    "not worse": "green",
    "passed": "bold green",
    "mistake": "bold red",
}
"""The styles of verdicts and decisions."""


def print_gate(gate: Mapping[str, Any] | None, write: Callable[..., None]) -> None:
    """Print one line per benchmark, the most pressing first, each with its reasons below; last the decision."""
    from rich.text import Text

    if gate is None:
        return
    lines = ordered(tuple(lines_from_json(gate)))
    write(Text.assemble(("\ngate", "bold cyan"), f"  {heading(gate)}"))
    several = len({line.checkpoint for line in lines}) > 1
    rows: list[tuple[Text, Text]] = []
    for line in lines:
        rows.append((Text(line.kind, style=STYLES.get(line.kind, "")), Text(_numbers(line, several))))
        bad = (*line.fails, *line.invalid)
        rows += [
            (Text(), Text(text, style="" if text in bad else "dim"))
            for text in reason_texts(line, "baseline ")
        ]
    rows += [(Text("note", style="yellow"), Text(note)) for note in gate.get("notes", ())]
    write(labelled(rows, dim=False))
    style = STYLES.get(str(gate.get("decision")), "bold")
    write(Text(str(gate.get("text", "")), style=style), soft_wrap=True)  # one line, to be found by a search


def heading(gate: Mapping[str, Any]) -> str:
    """Return the mode, the baseline, the margin and alpha, in a few words."""
    mode = "verdicts only" if gate.get("mode") is None else gate["mode"]
    return (
        f"{mode}, against {gate['baseline']}, margin {points_text(gate['margin'])}, "
        f"alpha {gate['alpha']:g} over all benchmarks of a checkpoint"
    )


def _numbers(line: GateLine, several: bool) -> str:
    """Return benchmark, metric, value, difference with its interval, and p."""
    whose = f"{line.checkpoint}  " if several else ""
    metric = "" if line.metric == "composite" else f" {line.metric}"
    about = f" ({line.about})" if line.about else ""
    parts = [f"{whose}{line.benchmark}{metric}  {number(line.value)}{about}"]
    if line.difference is not None:
        holm = f" (Holm over {line.family})" if line.family > 1 else ""
        parts.append(f"{difference_text(line)} points")
        if line.p_adjusted is not None:
            parts.append(f"p {p_short(line.p_adjusted)}{holm}")
        elif line.p is not None and line.early:
            parts.append(f"p {p_short(line.p)} at its interim analysis")
    return ", ".join(parts)


NAMED: Final = 3
"""The most reasons that the decision names before "and N more"."""

_SAID: Final = re.compile(r"[+-][\d.]+ points( \[[^]]*\])?(, p = \S+( after Holm over \d+ tests)?)?[:;] ")
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
    invalid = [*faults, *(f"{_name(line, gate)}: {line.invalid[0]}" for line in gate.lines if line.invalid)]
    fails = [f"{_name(line, gate)} {_failure(line)}" for line in gate.lines if line.fails]
    if invalid:
        besides = f"; besides, {listed(fails, NAMED, between='; ')}" if fails else ""
        return f"gate not valid (exit code {code}): {listed(invalid, NAMED, between='; ')}{besides}"
    if fails:
        return f"gate failed (exit code {code}): {listed(fails, NAMED, between='; ')}"
    if gate.lines and all(line.kind == "first" for line in gate.lines):
        on = " on these items" if any(line.why == FIRST_ON_ITEMS for line in gate.lines) else ""
        return f"gate passed: no baseline yet{on}; this run is the first, and is saved"
    kinds = {line.kind for line in gate.lines}
    unsure = "; --eval-gate-mode strict would fail" if kinds & {"inconclusive", "not compared"} else ""
    without = "not compared" in kinds and not any(line.verdict for line in gate.lines)
    return f"gate passed{' WITHOUT A COMPARISON' * without}: {_counted(gate.lines)}{_parts(gate)}{unsure}"


def difference_text(line: GateLine) -> str:
    """Return ``-3.00 [-5.10, -0.90]`` in points, empty where nothing was compared."""
    if line.difference is None:
        return ""
    limits = "" if line.low is None or line.high is None else f" {points_interval(line.low, line.high)}"
    return f"{points(line.difference)}{limits}"


def baseline_text(line: GateLine) -> str:
    """Return the baseline, with its value as measured and, of several, after allowing for the choice."""
    one = line.against
    if one is None:
        return ""
    step = f", step {one.step}" if one.step is not None and str(one.step) not in one.checkpoint else ""
    which = f"{one.checkpoint}{step} of run {one.run_id}"
    if one.runs == 1:
        return f"{which}: {number(one.measured)}"
    moved = "" if line.as_measured is None else f" ({points(line.as_measured)} points)"
    return (
        f"{which}, best of {one.runs}: {number(one.measured)} as measured{moved}, "
        f"{number(one.shrunk)} after allowing for the choice"
    )


def reason_texts(line: GateLine, against: str | None = None) -> list[str]:
    """Return the reasons for a line's being not valid or failing, those for its verdict, and notes.

    ``against`` precedes the line's baseline, which then comes first.
    """
    baseline = baseline_text(line) if against is not None else ""
    fails = [reason for reason in line.fails if reason != "worse"]
    why = _SAID.sub("", line.why, count=1)
    said = [] if why in line.invalid else [why]
    return [*([f"{against}{baseline}"] if baseline else []), *line.invalid, *fails, *said, *line.notes]


def _parts(gate: GateResult) -> str:
    """Return the benchmarks that lack items of earlier results: those that were compared with nothing, then the
    others."""
    apart = [f"{_name(line, gate)} ({line.part})" for line in gate.lines if line.kind == "not compared"]
    some = [
        f"{_name(line, gate)} ({line.part})"
        for line in gate.lines
        if line.part and line.kind != "not compared"
    ]
    texts = [f"NOTHING WAS COMPARED for {listed(apart, NAMED, between='; ')}"] if apart else []
    texts += [f"only a part was asked of {listed(some, NAMED, between='; ')}"] if some else []
    return "".join(f"; {text}" for text in texts)


def _failure(line: GateLine) -> str:
    """Return the reasons for which a line fails, in a few words with its difference."""
    moved = "" if line.difference is None else f" ({points(line.difference)} points)"
    told = (
        f"was compared with nothing ({line.part})"
        if line.kind == "not compared"
        else f"cannot be told{moved}"
    )
    known = {"worse": f"is worse{moved}", STRICT: told}
    return ", ".join(known.get(reason, reason) for reason in line.fails)


def _name(line: GateLine, gate: GateResult) -> str:
    """Return the benchmark and metric; with the checkpoint where there are several."""
    several = len({one.checkpoint for one in gate.lines}) > 1
    metric = "" if line.metric == "composite" else f" {line.metric}"
    return f"{line.checkpoint + ', ' if several else ''}{line.benchmark}{metric}"


def _counted(lines: Iterable[GateLine]) -> str:
    counts = Counter(line.kind for line in lines)
    return ", ".join(f"{counts[kind]} {kind}" for kind in reversed(KINDS) if counts[kind])
