"""The lines below the tables of a report that fits a screen: one per kind of fact, with the details left to ``-v``.

Errors, lost items and checkpoints that failed to load are told as fully as in a long report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.eval_config import LEFT_OUT
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.engines.base import SLOW_WAYS
from pytest_touchstone.reports import by_checkpoint, formatting, notes, validity
from pytest_touchstone.results.summary import Summary, totals, wholes

NAMED: Final = 4
"""Names before "and N more"."""

FAULTS_SHOWN: Final = 5

REASONS: Final = 6
"""Lines about benchmarks that were left out."""

SHORT: Final = 100
"""Characters of what helps where a benchmark was left out; what is longer is left to ``-v``."""

DETAILS: Final = "-v says what helps"

_ASIDE: Final = re.compile(r" \([^)]*\)")


class Line(NamedTuple):
    """A line with its label; ``style`` is that of the text."""

    label: str
    text: str
    style: str = ""


def lines(summary: Summary) -> list[Line]:
    """Return all facts, those that matter most at the end."""
    texts = {
        "reused": _reused(summary),
        "cut": notes.cut(summary),
        "no answer": "; ".join(notes.unanswered(summary)),
        "weak tests": _weak_tests(summary),
        "slow": _slow_ways(summary),
        "prompts": "; ".join(notes.other_prompts(summary)),
        "note": listed([*notes.journal(summary), *notes.engines(summary)], 1, between="; "),
        "limit": "; ".join(notes.short_of_limit(summary)),
    }
    found = [Line(label, text) for label, text in texts.items() if text not in ("", "none")]
    found += [Line("left out", text) for text in _left_out(summary)]
    return [_items(summary), *found, *loud(summary)]


def loud(summary: Summary) -> list[Line]:
    """Return the facts that are never shortened away: what failed, ran without isolation, or is not valid."""
    found = [Line("failed", text, "bold red") for text in notes.failed_to_load(summary)]
    faults = notes.faults(summary)
    found += [Line(status, text, "red") for status, text in faults[:FAULTS_SHOWN]]
    if (rest := len(faults) - FAULTS_SHOWN) > 0:
        found.append(Line("", f"and {rest} other messages, in errors.log", "red"))
    if names := [one.benchmark for one in wholes(summary) if one.unsandboxed]:
        found.append(Line("no sandbox", f"{_names(names)}: programs ran without isolation", "bold red"))
    return found + [Line("not valid", text, "bold red") for text in validity.not_valid(summary)]


def legend(summary: Summary, *, many: bool) -> str:
    """Return the meaning of each sign that occurs in the tables; ``many``: they are by checkpoint."""
    found = []
    if many:
        signs = by_checkpoint.occurring(summary)
        found += [f"{sign} {by_checkpoint.SIGNS[sign]}" for sign in signs]
        if "*" not in signs:
            found.append("no best of a column is marked: none is told from all others")
        found.append(f"{by_checkpoint.SPREAD} half the widest 95 % interval of the column")
    elif summary.leaders:
        found.append(f"best: {by_checkpoint.TOLD}")
    if any(one.of or one.published for one in wholes(summary)):
        found.append("n/N items scored of those published (or, of other data, of all)")
    own = formatting.own_rows(summary)
    if not many and any(
        formatting.is_sample(one.mark) for one in wholes(summary) if one.benchmark not in own
    ):
        found.append(f"{formatting.SAMPLE}: shipped rows, a few of those published")
    if not many and own:
        found.append(f"{formatting.OWN}: none was published")
    if why := _undefined(summary):
        found.append(f"{formatting.NOTHING} undefined ({why})")
    if lower := _lower(summary):
        found.append(f"lower is better for {listed(lower, NAMED)}")
    return "; ".join(found)


def _items(summary: Summary) -> Line:
    found = totals(summary)
    parts = [f"{found['scored']:,} scored"]
    words = {"skipped": "skipped", "errors": "error", "timeouts": "timeout", "lost": "lost"}
    for name, word in words.items():
        if number := found[name]:
            parts.append(f"{number} {word}" if name in ("skipped", "lost") else count(number, word))
    took = f" in {formatting.duration(summary.seconds)}" if summary.seconds else ""
    return Line("items", ", ".join(parts) + took, "bold red" if summary.faults else "")


def _names(names: Iterable[str]) -> str:
    return listed(dict.fromkeys(names), NAMED)


def _reused(summary: Summary) -> str:
    found = [one for one in wholes(summary) if one.reused]
    runs = {run for one in found for run in one.reused_from}
    number = sum(one.reused for one in found)
    return (
        f"{number:,} of {totals(summary)['scored']:,} scores, from {listed(sorted(runs), 1)}" if found else ""
    )


def _weak_tests(summary: Summary) -> str:
    """Return the tasks of each benchmark whose tests accept wrong programs."""
    tasks: dict[str, set[str]] = {}
    for one in wholes(summary):
        if one.weak_tests:
            tasks.setdefault(one.benchmark, set()).update(one.weak_tests)
    parts = [f"{name} {count(len(found), 'task')}" for name, found in tasks.items()]
    return f"{listed(parts, NAMED)}: their tests accept a wrong program" if parts else ""


def _slow_ways(summary: Summary) -> str:
    """Return the slow ways that checkpoints had to take, with their costs."""
    ways: dict[str, list[tuple[str, int, int]]] = {}
    for row in summary.effort:
        for one in row.engine.get("slow", ()):
            ways.setdefault(one["way"], []).append((row.checkpoint, one["computed"], one["enough"]))
    found = []
    for way, costs in ways.items():
        names, computed, enough = zip(*costs, strict=True)
        what, unit = SLOW_WAYS[way]
        found.append(
            f"{_names(names)}: {what}, {sum(computed) / max(1, sum(enough)):.1f} times the {unit} needed"
        )
    return "; ".join(found)


def _left_out(summary: Summary) -> list[str]:
    """Return the benchmarks without a result, by the beginning of the reason, in a few lines.

    Those that a checkpoint without any result could not be asked are among them.
    """
    asked = {one.benchmark for one in wholes(summary)}
    known = formatting.checkpoints(summary)
    # Of several reasons the last: that a kind of checkpoint cannot be asked comes before data that is not there.
    reasons = {
        name: reason
        for name, _, reason in (line.partition(": ") for line in summary.deselected)
        if name not in asked or not any(checkpoint in reason for checkpoint in known)
    }
    classes: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        classes.setdefault(_ASIDE.sub("", reason.removeprefix(LEFT_OUT)).partition(";")[0], []).append(name)
    found = [_class(kind, {name: reasons[name] for name in names}) for kind, names in classes.items()]
    lines: list[str] = []
    for remedy, same in groupby(found, key=itemgetter(1)):  # it is told once, after those that it helps
        several = [text for text, _ in same]
        own = [remedy] if remedy else []
        lines += [*several, *own] if len(several) > 1 else ["; ".join([*several, *own])]
    rest = len(lines) - REASONS
    return [*lines[:REASONS], "and others; -v names them"] if rest > 1 else lines


def _class(kind: str, reasons: Mapping[str, str]) -> tuple[str, str]:
    """Return benchmarks that were left out for reasons that begin alike, and what helps if it is the same and short.

    Of a single benchmark the whole reason is told where it names what is nearest.
    """
    (first, *others), names = reasons.values(), _names(reasons)
    if not others and "; nearest: " in first:
        return f"{names}: {first}", ""
    remedies = {reason.partition("; ")[2] for reason in reasons.values()}
    remedy = remedies.pop() if len(remedies) == 1 else DETAILS
    return f"{names}: {kind}" if kind else names, remedy if len(remedy) <= SHORT else DETAILS


def _undefined(summary: Summary) -> str:
    """Return the reasons for which primary metrics lack a value or an interval."""
    metrics = [one.metrics[one.primary] for one in wholes(summary)]
    whys = [one.why for one in metrics if one.why and (one.value is None or one.low is None)]
    whys += [one["why"] for one in summary.composites if one.get("why") and one["low"] is None]
    return listed(dict.fromkeys(whys), 1) if whys else ""


def _lower(summary: Summary) -> list[str]:
    aggregates = {one.name: one.aggregate for one in summary.declarations}
    return list(
        dict.fromkeys(
            one.primary
            for one in wholes(summary)
            if not aggregation_of(aggregates.get(one.benchmark, {}), one.primary).higher_is_better
        )
    )
