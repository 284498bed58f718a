"""The value of a measure at a point, with as much of an interval as the data hold.

    a run of ours            the result's own limits
    a table                  a share and its number of items: Wilson's limits, the error of right and wrong items;
                             a mean, its error and its number of items: Student's t; without the number: normal
    a composite              the run's own; else from the items; else from totals, where the errors of metrics of the
                             same items are added up, and those of different benchmarks add in squares

Where neither items nor an error is known there is no interval, and the reason says what would give one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pytest_touchstone.compare.candidate import AS_PUBLISHED, Candidate, Entry
from pytest_touchstone.compare.metric import is_share, metric_of
from pytest_touchstone.compare.ranking import composite_of_items
from pytest_touchstone.compare.study.points import Measure, Value
from pytest_touchstone.core.composite import Composite, composite_value
from pytest_touchstone.results.summary import Metric
from pytest_touchstone.statistics.comparison import LEVEL, z_quantile
from pytest_touchstone.statistics.moments import t_quantile
from pytest_touchstone.statistics.proportions import wilson_limits

_POSITIVE: Final = ("perplexity", "bits_per_byte")
"""Parts of the names of metrics that are not below 0."""


def value_of(candidate: Candidate, measure: Measure) -> Value | None:
    """The measure of this candidate; None where it was not measured."""
    if measure.composite is not None:
        return _composite(candidate, measure.composite)
    entry = candidate.entries.get(measure.benchmark)
    found = metric_of(entry, measure.metric) if entry else None
    if entry is None or found is None:
        return None
    return _value(with_limits(found, entry.saved.benchmark), [entry])


def with_limits(metric: Metric, benchmark: str) -> Metric:
    """The metric of a table with the limits that follow from its error or number of items; others as they are."""
    value = metric.value
    if metric.method != AS_PUBLISHED or value is None:
        return metric
    if metric.n and is_share(metric):
        low, high = wilson_limits(value, metric.n, z_quantile(LEVEL))
        error = math.sqrt(value * (1 - value) / (metric.n - 1)) if metric.n > 1 else None
        if error == 0:  # all right or all wrong: not without noise, which few items did not show
            error = (high - low) / z_quantile(LEVEL)
        return replace(metric, low=low, high=high, stderr=error, method="Wilson, from the number of items")
    if metric.stderr:
        known = metric.n > 1
        half = (t_quantile(metric.n - 1, LEVEL) if known else z_quantile(LEVEL)) * metric.stderr
        low = value - half
        if any(name in metric.name for name in _POSITIVE) and value >= 0:
            low = max(0.0, low)
        return replace(metric, low=low, high=value + half, method="t" if known else "normal")
    lacking = f"the number of items is not known (--items {benchmark}=N gives it)"
    return replace(metric, why=lacking if 0 <= value <= 1 else "its standard error is not known")


def _value(metric: Metric, entries: Sequence[Entry]) -> Value | None:
    if metric.value is None:
        return None
    return Value(
        value=metric.value,
        low=metric.low,
        high=metric.high,
        stderr=metric.stderr,
        n=metric.n,
        method=metric.method,
        why=metric.why,
        mark="; ".join(dict.fromkeys(entry.saved.mark for entry in entries if entry.saved.mark)),
        invalid=next((entry.saved.invalid for entry in entries if entry.saved.invalid), None),
    )


# Composites


def _composite(candidate: Candidate, composite: Composite) -> Value | None:
    entries = [candidate.entries[name] for name in composite.benchmarks if name in candidate.entries]
    if len(entries) < len(composite.benchmarks):
        return None
    known = candidate.composites.get(composite.name)
    if known is None and all(entry.items.examples for entry in entries):
        row = composite_of_items(composite, [(entry.saved, entry.items) for entry in entries])
        names = ("value", "low", "high", "stderr", "method", "why")
        n = sum(entry.saved.scored for entry in entries)
        known = Metric(name=composite.name, n=n, **{name: row[name] for name in names}) if row else None
    found = known or _of_totals(candidate, composite)
    return _value(found, entries) if found else None


def _of_totals(candidate: Candidate, composite: Composite) -> Metric | None:
    """The sum of totals; its limits are made of the parts' limits as its error is of their errors."""
    parts: dict[str, list[tuple[float, Metric]]] = {}
    values: dict[tuple[str, str], float | None] = {}
    for weight, name, metric in composite.parts:
        found = metric_of(candidate.entries[name], metric)
        if found is None:
            return None
        values[name, metric] = found.value
        parts.setdefault(name, []).append((weight, with_limits(found, name)))
    value = composite_value(composite, values)
    known = [part for same in parts.values() for _, part in same]
    lacking = next((part for part in known if part.low is None or part.high is None), None)
    n = sum(min(part.n for _, part in same) for same in parts.values())
    if value is None or lacking is not None:
        return Metric(
            name=composite.name,
            value=value,
            low=None,
            high=None,
            stderr=None,
            n=n,
            method="none",
            why=lacking.why if lacking else None,
        )

    def joined(distances: Sequence[Sequence[float]]) -> float:
        return math.hypot(*(math.fsum(same) for same in distances))

    down = joined([[w * ((p.value or 0) - (p.low or 0)) for w, p in same] for same in parts.values()])
    up = joined([[w * ((p.high or 0) - (p.value or 0)) for w, p in same] for same in parts.values()])
    errors = [[w * p.stderr for w, p in same if p.stderr is not None] for same in parts.values()]
    whole = all(len(own) == len(same) for own, same in zip(errors, parts.values(), strict=True))
    return Metric(
        name=composite.name,
        value=value,
        low=value - down,
        high=value + up,
        stderr=joined(errors) if whole else None,
        n=n,
        method="MOVER on totals; parts on the same items taken as wholly dependent",
    )
