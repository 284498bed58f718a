"""The groups of a benchmark (the subjects of MMLU) as benchmarks of their own, and names that mean the same.

A run has all subjects in one benchmark, while files have a task for each, by names of lm-evaluation-harness
(``mmlu_virology``, ``minerva_math_algebra``) or by those that this harness writes (``math_5000_Algebra``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pytest_touchstone.compare.candidate import Candidate, Entry
from pytest_touchstone.core.lm_eval_names import PREFIXES, translated
from pytest_touchstone.results.aggregate import as_metric
from pytest_touchstone.results.store_entry import ItemScores
from pytest_touchstone.results.summary import Metric
from pytest_touchstone.statistics.intervals import mean_estimate

_MATH: Final = {"minerva_math_": "minerva_exact", "hendrycks_math_": "hendrycks_exact"}
"""The score of this harness that lm-evaluation-harness calls ``exact_match``, by the beginning of its task."""

_OF_MMLU: Final = ("mmlu", "mmlu_stem")
_GROUPED: Final = sorted({*PREFIXES.values(), "math"}, key=len, reverse=True)


def named_alike(baseline: Candidate, new: Candidate) -> tuple[Candidate, Candidate]:
    """The candidates, with groups of a run as the tasks that they are in the other's file, and with the names of the
    baseline for tasks that have another in the new one's file."""
    baseline, new = _split(baseline, new), _split(new, baseline)
    theirs = {_meant(name): name for name in baseline.entries if name not in new.entries}
    renamed = {name: theirs.get(_meant(name), name) for name in new.entries if name not in baseline.entries}
    after = {
        renamed.get(name, name): _named(one, renamed.get(name, name)) for name, one in new.entries.items()
    }
    before = dict(baseline.entries)
    for name in before.keys() & after.keys():
        before[name], after[name] = _scored(before[name], after[name]), _scored(after[name], before[name])
    return replace(baseline, entries=before), replace(new, entries=after)


def _split(one: Candidate, other: Candidate) -> Candidate:
    """The candidate, with every benchmark that the other has only in parts as these parts."""
    theirs = {_meant(name): name for name in other.entries if name not in one.entries}
    entries: dict[str, Entry] = {}
    for name, entry in one.entries.items():
        groups = {_folded(f"{name}/{group}"): group for group in entry.items.groups if group is not None}
        if name in _OF_MMLU:
            groups |= {_folded(f"mmlu/{group}"): group for group in groups.values()}
        parts = {theirs[key]: group for key, group in groups.items() if key in theirs}
        if name in other.entries or not parts:
            entries[name] = entry
        entries |= {task: _named(part_of(entry, group), task) for task, group in parts.items()}
    return replace(one, entries=entries)


def _meant(task: str) -> str:
    """``BENCHMARK/GROUP`` for the name of a part of one of ours, else the name itself."""
    known = translated(task.replace("hendrycks_math_", "minerva_math_"), (), theirs=True)
    if len(known) == 1 and "/" in known[0]:
        return _folded(known[0])
    whole = next((one for one in _GROUPED if task.startswith(f"{one}_")), None)
    return task if whole is None else _folded(f"{whole}/{task.removeprefix(f'{whole}_')}")


def _folded(name: str) -> str:
    return name.replace(" ", "_").casefold()


def _named(entry: Entry, name: str) -> Entry:
    return (
        entry if entry.saved.benchmark == name else replace(entry, saved=replace(entry.saved, benchmark=name))
    )


def _scored(entry: Entry, other: Entry) -> Entry:
    """The result with ``exact_match`` by this harness's name for it, where the other has that one."""
    saved = entry.saved
    ours = next((score for start, score in _MATH.items() if saved.benchmark.startswith(start)), "")
    if ours not in other.saved.metrics or ours in saved.metrics or "exact_match" not in saved.metrics:
        return entry
    metric = replace(saved.metrics["exact_match"], name=ours)
    column = entry.items.scores.get("exact_match")
    scores = {**entry.items.scores, **({ours: column} if column else {})}
    saved = replace(saved, metrics={**saved.metrics, ours: metric})
    return replace(entry, saved=saved, items=replace(entry.items, scores=scores))


def by_group(candidate: Candidate) -> Candidate:
    """The candidate with each benchmark that has groups split into them; of its metrics the means over items stay."""
    entries: dict[str, Entry] = {}
    for name, entry in candidate.entries.items():
        groups = [group for group in dict.fromkeys(entry.items.groups) if group is not None]
        parts = {f"{name}/{group}": part_of(entry, group) for group in groups}
        entries |= parts or {name: entry}
    return replace(candidate, entries=entries)


def part_of(entry: Entry, group: str) -> Entry:
    """One group as a benchmark of its own. Of how many items it has with this data nothing is known."""
    items = entry.items
    places = [place for place, own in enumerate(items.groups) if own == group]
    part = ItemScores(
        examples=[items.examples[place] for place in places],
        rows=[items.rows[place] for place in places],
        groups=[group] * len(places),
        clusters=[items.clusters[place] for place in places],
        scores={name: [values[place] for place in places] for name, values in items.scores.items()},
    )
    ways = {name: entry.saved.aggregation(name) for name in entry.saved.metrics}
    means = {name: how for name, how in ways.items() if how.by == "mean" and how.of in part.scores}
    metrics = {name: _metric(name, how.of, part) for name, how in means.items()}
    saved = replace(
        entry.saved,
        benchmark=f"{entry.saved.benchmark}/{group}",
        metrics=metrics,
        aggregate={name: how.plain() for name, how in means.items() if name in entry.saved.aggregate},
        collected=len(places),
        scored=len(places),
        skipped=0,
        faults=0,
        items_sha256=part.digest(),
        of=0,
        mark="part of the items" if entry.saved.mark else "",
    )
    return replace(entry, saved=saved, items=part)


def _metric(name: str, score: str, items: ItemScores) -> Metric:
    pairs = [
        (value, cluster)
        for value, cluster in zip(items.scores[score], items.clusters, strict=True)
        if value is not None
    ]
    found = mean_estimate([value for value, _ in pairs], [cluster for _, cluster in pairs])
    return as_metric(name, found, len(pairs))
