"""The summary of several runs side by side: the data that ``comparison.html.j2`` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_touchstone.compare.pair import PairComparison
from pytest_touchstone.reports import comparison
from pytest_touchstone.reports.page.payload import Judged, Read, opposite
from pytest_touchstone.results.run_directory import command_words


def content(runs: Sequence[Read], judged: Sequence[Judged]) -> dict[str, Any]:
    """Return what the template shows: the runs, and each checkpoint of a later one against its own in the first."""
    names = {
        at: one.name
        for found in judged
        for at, one in ((found.a, found.pair.baseline), (found.b, found.pair.new))
    }
    shown = [one for one in judged if one.a == opposite(one.b, list(names), names)]
    manifests = {run.summary.run_id: run.summary.manifest for run in runs}
    return {
        "runs": [(name, " ".join(command_words(one))) for name, one in manifests.items()],
        "pairs": [_pair(one.pair) for one in shown],
        "settings": _differing(list(manifests.values())),
    }


def _pair(pair: PairComparison) -> dict[str, Any]:
    header = comparison.header(pair.lines[0].comparison.level)
    lines = [*map(comparison.cells, pair.lines), *map(comparison.composite_cells, pair.composites)]
    return {
        "sides": [(one.name, comparison.about(one)) for one in (pair.baseline, pair.new)],
        "header": header,
        "rows": [
            (cells, about, line.primary)
            for cells, line in zip(lines, (*pair.lines, *pair.composites), strict=True)
            for about in [comparison.about_values(pair, line)]
        ],
        "findings": comparison.findings(pair),
        "notes": comparison.notes(pair),
    }


def _differing(manifests: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Return the settings that are not the same for all runs, with the value of each."""
    settings = [one.get("settings", {}) for one in manifests]
    names = dict.fromkeys(name for one in settings for name in one)
    rows = [(name, [one.get(name) for one in settings]) for name in names]
    return [(name, values) for name, values in rows if any(value != values[0] for value in values)]
