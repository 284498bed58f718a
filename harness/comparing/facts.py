"""A comparison as plain data, as ``touchstone compare --json`` prints it.

    {"pairs": [{"baseline": {...}, "new": {...}, "benchmarks": [LINE], "composites": [LINE], "mean": {...},
                "improvements": [NAME], "regressions": [], "not_worse": [], "cannot_tell": [], "notes": [TEXT]}]}

A line has both values, ``difference`` (of the scores), ``points`` (hundredths), ``percent``, ``low`` and ``high`` of
the difference, ``p``, ``p_adjusted`` (Holm), ``n``, ``verdict`` (null beside a primary metric), ``why``. What is
undefined is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.comparing import wording
from harness.comparing.lines import Line, conditions_apart
from harness.comparing.pairs import Mean, Pair
from harness.imports.contender import Contender
from harness.statistics.verdicts import Kind

SCHEMA: Final = 1
KEYS: Final[tuple[tuple[Kind, str], ...]] = (
    ("better", "improvements"),
    ("worse", "regressions"),
    ("not worse", "not_worse"),
    ("cannot tell", "cannot_tell"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """An item that scores otherwise in the new run: the question, both answers, and the right one, as far as known."""

    example: str
    gained: bool
    question: str | None
    baseline: str | None
    new: str | None
    gold: str | None


Flips = Mapping[str, Sequence[Flip]]
"""Items to be shown, by benchmark."""


def pair_facts(pair: Pair, flips: Flips | None = None) -> dict[str, Any]:
    """The whole comparison."""
    return {
        "baseline": _contender(pair.baseline),
        "new": _contender(pair.new),
        "benchmarks": [_line(pair, line, (flips or {}).get(line.benchmark)) for line in pair.lines],
        "composites": [_line(pair, line, None) for line in pair.composites],
        "mean": None if pair.mean is None else _mean(pair.mean),
        **{key: pair.of_kind(kind) for kind, key in KEYS},
        "notes": wording.notes(pair),
    }


def _contender(one: Contender) -> dict[str, Any]:
    return {"name": one.name, "origin": one.origin, **one.about}


def _line(pair: Pair, line: Line, flips: Sequence[Flip] | None) -> dict[str, Any]:
    one, verdict = line.comparison, line.verdict
    a, b = pair.baseline.entries.get(line.benchmark), pair.new.entries.get(line.benchmark)
    found: dict[str, Any] = {
        "benchmark": line.benchmark,
        "metric": line.metric,
        "primary": line.primary,
        "baseline": one.baseline,
        "new": one.new,
        "difference": one.difference,
        "points": None if one.difference is None else 100 * one.difference,
        "percent": line.percent,
        "low": one.low,
        "high": one.high,
        "level": one.level,
        "stderr": one.stderr,
        "p": one.p,
        "p_adjusted": verdict.p_adjusted if verdict else None,
        "n": one.n or None,
        "paired": line.paired,
        "gained": len(line.flips.gained) if line.flips else None,
        "lost": len(line.flips.lost) if line.flips else None,
        "identical": line.identical,
        "verdict": verdict.kind if verdict else None,
        "why": verdict.why if verdict else one.why,
        "items_to_tell": verdict.items or None if verdict else None,
        "method": one.method,
        "baseline_about": a.saved.about if a else "",
        "new_about": b.saved.about if b else "",
        "conditions_differ": conditions_apart(a, b) if a and b else {},
    }
    if flips is not None and line.primary:
        found["flips"] = [{name: getattr(flip, name) for name in Flip.__dataclass_fields__} for flip in flips]
    return found


def _mean(found: Mean) -> dict[str, Any]:
    one = found.comparison
    return {
        "baseline": one.baseline,
        "new": one.new,
        "difference": one.difference,
        "points": None if one.difference is None else 100 * one.difference,
        "low": one.low,
        "high": one.high,
        "p": one.p,
        "percent": found.percent,
        "benchmarks": found.benchmarks,
    }
