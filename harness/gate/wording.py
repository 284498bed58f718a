"""A gate in words: the decision in one sentence, and each line's numbers, baseline and reasons."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from harness.gate.baselines import FIRST_ON_ITEMS
from harness.gate.report import KINDS, STRICT, Gate, Line

NAMED: Final = 3
"""Reasons that the decision names before "and N more"."""

_SAID: Final = re.compile(r"[+-][\d.]+ points( \[[^]]*\])?(, p = \S+( after Holm over \d+ tests)?)?[:;] ")
"""What a verdict's reason begins with and a line shows already."""

HINT: Final = "; --gate makes the exit code depend on them"


def decision_text(gate: Gate, code: int | None = None) -> str:
    """The decision and its reasons, in one line; ``code`` is the exit code of the run, where that is not the gate's."""
    code = gate.exit_code if code is None else code
    if gate.mistake is not None:
        return f"gate not judged: {gate.mistake}"
    if gate.mode is None:
        found = gate.broken or _counted(gate.lines) or "none"
        return f"verdicts: {found}{_parts(gate)}{HINT}"
    broken = [gate.broken] if gate.broken is not None else []
    invalid = [*broken, *(f"{_name(line, gate)}: {line.invalid[0]}" for line in gate.lines if line.invalid)]
    fails = [f"{_name(line, gate)} {_failure(line)}" for line in gate.lines if line.fails]
    if invalid:
        besides = f"; besides, {_listed(fails)}" if fails else ""
        return f"gate not valid (exit code {code}): {_listed(invalid)}{besides}"
    if fails:
        return f"gate failed (exit code {code}): {_listed(fails)}"
    if gate.lines and all(line.kind == "first" for line in gate.lines):
        on = " on these items" if any(line.why == FIRST_ON_ITEMS for line in gate.lines) else ""
        return f"gate passed: no baseline yet{on}; this run is the first, and is saved"
    kinds = {line.kind for line in gate.lines}
    unsure = "; --gate strict would fail" if kinds & {"cannot tell", "not compared"} else ""
    without = "not compared" in kinds and not any(line.verdict for line in gate.lines)
    return f"gate passed{' WITHOUT A COMPARISON' * without}: {_counted(gate.lines)}{_parts(gate)}{unsure}"


def value_text(value: float | None) -> str:
    """A score with four decimals, ``-`` for none."""
    return "-" if value is None else f"{value:.4f}"


def difference_text(line: Line) -> str:
    """``-3.00 points [-5.10, -0.90]``, empty where nothing was compared."""
    if line.difference is None:
        return ""
    limits = (
        "" if line.low is None or line.high is None else f" [{100 * line.low:+.2f}, {100 * line.high:+.2f}]"
    )
    return f"{100 * line.difference:+.2f}{limits}"


def points_text(share: float) -> str:
    """``1 point``, ``2.5 points``."""
    return "1 point" if f"{100 * share:g}" == "1" else f"{100 * share:g} points"


def p_text(p: float | None) -> str:
    """A p-value with two digits, ``< 0.0001`` below that, ``-`` for none."""
    return "-" if p is None else "< 0.0001" if p < 0.0001 else f"{p:.2g}"


def baseline_text(line: Line) -> str:
    """Which baseline, and its value as measured and, of several, after allowing for the choice."""
    one = line.against
    if one is None:
        return ""
    step = f", step {one.step}" if one.step is not None and str(one.step) not in one.checkpoint else ""
    which = f"{one.checkpoint}{step} of run {one.run_id}"
    if one.runs == 1:
        return f"{which}: {value_text(one.measured)}"
    moved = "" if line.as_measured is None else f" ({100 * line.as_measured:+.2f} points)"
    return (
        f"{which}, best of {one.runs}: {value_text(one.measured)} as measured{moved}, "
        f"{value_text(one.shrunk)} after allowing for the choice"
    )


def reason_texts(line: Line) -> list[str]:
    """Why the line is not valid, why it fails, what the verdict rests on, and notes."""
    fails = [reason for reason in line.fails if reason != "worse"]
    why = _SAID.sub("", line.why, count=1)
    return [*line.invalid, *fails, *([why] if why not in line.invalid else []), *line.notes]


def _parts(gate: Gate) -> str:
    """Which benchmarks lack items that earlier results have: those that were compared with nothing, then the others."""
    apart = [f"{_name(line, gate)} ({line.part})" for line in gate.lines if line.kind == "not compared"]
    some = [
        f"{_name(line, gate)} ({line.part})"
        for line in gate.lines
        if line.part and line.kind != "not compared"
    ]
    texts = [f"NOTHING WAS COMPARED for {_listed(apart)}"] if apart else []
    texts += [f"only a part was asked of {_listed(some)}"] if some else []
    return "".join(f"; {text}" for text in texts)


def _failure(line: Line) -> str:
    """Why a line fails, in a few words with its difference."""
    moved = "" if line.difference is None else f" ({100 * line.difference:+.2f} points)"
    told = (
        f"was compared with nothing ({line.part})"
        if line.kind == "not compared"
        else f"cannot be told{moved}"
    )
    known = {"worse": f"is worse{moved}", STRICT: told}
    return ", ".join(known.get(reason, reason) for reason in line.fails)


def _name(line: Line, gate: Gate) -> str:
    """The benchmark and metric; with the checkpoint where there are several."""
    several = len({one.checkpoint for one in gate.lines}) > 1
    metric = "" if line.metric == "composite" else f" {line.metric}"
    return f"{line.checkpoint + ', ' if several else ''}{line.benchmark}{metric}"


def _counted(lines: Iterable[Line]) -> str:
    counts = Counter(line.kind for line in lines)
    return ", ".join(f"{counts[kind]} {kind}" for kind in reversed(KINDS) if counts[kind])


def _listed(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return "; ".join(texts[:NAMED]) + more
