"""The groups of a benchmark (the subjects of MMLU) as benchmarks of their own, named BENCHMARK/GROUP."""

from __future__ import annotations

from dataclasses import replace

from harness.imports.contender import Contender, Entry
from harness.results import Metric
from harness.saved.entry import Items
from harness.statistics.intervals import mean_estimate


def by_group(contender: Contender) -> Contender:
    """The contender with each benchmark that has groups split into them; of its metrics the means over items stay."""
    entries: dict[str, Entry] = {}
    for name, entry in contender.entries.items():
        groups = dict.fromkeys(entry.items.groups) if entry.items else {}
        if entry.items is None or set(groups) <= {None}:
            entries[name] = entry
            continue
        for group in groups:
            if group is not None:
                entries[f"{name}/{group}"] = _part(entry, entry.items, group)
    return replace(contender, entries=entries)


def _part(entry: Entry, items: Items, group: str) -> Entry:
    places = [place for place, own in enumerate(items.groups) if own == group]
    part = Items(
        examples=[items.examples[place] for place in places],
        rows=[items.rows[place] for place in places],
        groups=[group] * len(places),
        clusters=[items.clusters[place] for place in places],
        scores={name: [values[place] for place in places] for name, values in items.scores.items()},
    )
    metrics = {name: _metric(name, part) for name in entry.saved.metrics if name in part.scores}
    saved = replace(
        entry.saved,
        benchmark=f"{entry.saved.benchmark}/{group}",
        metrics=metrics,
        aggregate={},
        collected=len(places),
        scored=len(places),
        skipped=0,
        faults=0,
        items_sha256=part.digest(),
    )
    return replace(entry, saved=saved, items=part)


def _metric(name: str, items: Items) -> Metric:
    pairs = [
        (value, cluster)
        for value, cluster in zip(items.scores[name], items.clusters, strict=True)
        if value is not None
    ]
    found = mean_estimate([value for value, _ in pairs], [cluster for _, cluster in pairs])
    return Metric(
        name=name,
        value=found.value,
        low=found.low,
        high=found.high,
        stderr=found.stderr,
        n=len(pairs),
        method=found.method,
        why=found.why,
    )
