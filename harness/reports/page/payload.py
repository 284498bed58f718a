"""The data of a page: which runs, checkpoints and benchmarks it has, and the blocks with their items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.checkpoints.training_state import step_of_row
from harness.compare.candidate import Candidate
from harness.compare.formats.run import candidates_of
from harness.compare.pair import Pair, compare_pair
from harness.core.aggregation import aggregation_of
from harness.core.errors import DataError
from harness.reports.comparison import pair_facts
from harness.reports.page.data import DataRows
from harness.reports.page.items import Kind, Part, Tell
from harness.reports.page.security import Redaction
from harness.results.data_rows import data_rows
from harness.results.journal import each_record, latest
from harness.results.records import STATUSES, Record
from harness.results.run_directory import RunDirectory
from harness.results.summary import Declaration, Summary

FORMAT: Final = 1

ALL_PAIRS: Final = 8
"""With more checkpoints than this, verdicts are of neighbours and of all against the first."""


class Block(NamedTuple):
    """A data block of the page: an element that no browser runs."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Read:
    """A run as the page shows it: its summary, the parts with its items, and its checkpoints' results."""

    summary: Summary
    parts: tuple[Part, ...]
    order: Mapping[str, int]
    candidates: tuple[Candidate, ...]


def read(summary: Summary, redaction: Redaction, *, compared: bool, tell: Tell | None = None) -> Read:
    """Return a run with its items; its journal is read once.

    ``compared``: its checkpoints' results are wanted too. ``tell`` is asked for what old records do not have.

    Raises ``HarnessError`` where the journal cannot be read.
    """
    folder = Path(summary.directory)
    collected, _, _ = RunDirectory(folder).read_collected()
    order = {one.item: number for number, one in enumerate(collected)}
    declared = {one.name: one for one in summary.declarations}
    parts: dict[tuple[str, str], Part] = {}
    kinds: dict[str, Kind] = {}
    light: list[Record] = []
    for record in each_record(folder):
        if record.item not in order or record.benchmark not in declared:
            continue
        key = record.checkpoint, record.benchmark
        if key not in parts:
            if record.benchmark not in kinds:
                kinds[record.benchmark] = _kind(summary, declared[record.benchmark])
            parts[key] = Part(kinds[record.benchmark], record.checkpoint, redaction, tell)
        parts[key].add(record)
        if compared:
            light.append(replace(record, exchanges=[]))
    found = candidates_of(summary, latest(light).values(), folder) if compared else []
    return Read(summary, tuple(parts.values()), order, tuple(found))


def _kind(summary: Summary, declared: Declaration) -> Kind:
    rows = DataRows(data_rows(summary, declared.name))
    how = aggregation_of(declared.aggregate, declared.primary)
    return Kind(declared.name, how.of, how.of if how.higher_score_is_better else None, rows)


def meta_and_blocks(
    runs: Sequence[Read], labels: Sequence[str], facts: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Block]]:
    """Return the page's meta data and its blocks; ``facts`` are title, kind, verdicts and notes."""
    checkpoints = [[str(row["name"]) for row in run.summary.checkpoints] for run in runs]
    kinds: dict[str, Kind] = {}
    declared: dict[str, Declaration] = {}
    for run in runs:
        for part in run.parts:
            kinds.setdefault(part.kind.name, part.kind)
        declared |= {one.name: one for one in run.summary.declarations if one.name not in declared}
    names = list(kinds)
    groups = {name: dict[str, int]() for name in names}
    for part in (part for run in runs for part in run.parts):
        for group in part.groups:
            groups[part.kind.name].setdefault(group, len(groups[part.kind.name]))
    blocks: list[Block] = []
    parts: list[dict[str, Any]] = []
    scores: dict[str, dict[str, None]] = {name: {} for name in names}
    for number, run in enumerate(runs):
        for part in run.parts:
            name = part.kind.name
            scores[name] |= part.scores
            place = len(parts)
            texts = [Block(f"texts-{place}-{chunk}", text) for chunk, text in enumerate(part.chunks())]
            columns = Block(f"columns-{place}", part.columns(run.order, groups[name]))
            blocks += [columns, *texts]
            parts.append(
                {
                    "columns": columns.id,
                    "texts": [one.id for one in texts],
                    "run": number,
                    "checkpoint": checkpoints[number].index(part.checkpoint),
                    "benchmark": names.index(name),
                    "items": len(part),
                    "size": part.size,
                }
            )
    meta = {
        "format": FORMAT,
        **facts,
        "runs": [
            {
                "id": run.summary.run_id,
                "label": label,
                "checkpoints": [_checkpoint(one) for one in run.summary.checkpoints],
            }
            for run, label in zip(runs, labels, strict=True)
        ],
        "benchmarks": [
            {
                "name": name,
                "primary": kind.score,
                "metrics": list(scores[name]),
                "groups": list(groups[name]),
                "fields": list(kind.fields),
                "higher_is_better": kind.right_by is not None,
            }
            for name, kind in kinds.items()
        ],
        "statuses": list(STATUSES),
        "parts": parts,
    }
    return meta, blocks


def _checkpoint(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": row["name"],
        "series": row.get("series"),
        "step": step_of_row(row),
        "epoch": row.get("epoch"),
    }


# Verdicts


def verdicts(runs: Sequence[Read]) -> list[dict[str, Any]]:
    """Return the verdicts of the paired tests between the checkpoints of all runs, over all items."""
    places = [
        ({"run": number, "checkpoint": place}, one)
        for number, run in enumerate(runs)
        for place, one in enumerate(run.candidates)
    ]
    found: list[dict[str, Any]] = []
    for (at_a, a), (at_b, b) in _pairs(places):
        try:
            pair = compare_pair(a, b)
        except DataError:  # they have no benchmark in common
            continue
        found += [{"a": at_a, "b": at_b, **line} for line in _lines(pair)]
    return found


def _pairs(places: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    for first in range(len(places)):
        for second in range(first + 1, len(places)):
            if len(places) <= ALL_PAIRS or first == 0 or second == first + 1:
                yield places[first], places[second]


_SHOWN: Final = (
    *("benchmark", "metric", "verdict", "why", "points", "low", "high", "p", "p_adjusted", "n"),
    *("gained", "lost", "paired"),
)


def _lines(pair: Pair) -> list[dict[str, Any]]:
    return [{name: one[name] for name in _SHOWN} for one in pair_facts(pair)["benchmarks"] if one["primary"]]
