"""The data of a page: which runs, checkpoints and benchmarks it has, and the blocks with their items."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pytest_touchstone.checkpoints.config_files import step_of_row
from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.formats.run import candidates_of
from pytest_touchstone.compare.gate.result import lines_from_json
from pytest_touchstone.compare.pair import PairComparison, compare_pair
from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.reports.comparison import pair_facts
from pytest_touchstone.reports.page.items import ENCODER, PageBenchmark, PagePart, filter_fields, ranks_of
from pytest_touchstone.reports.page.security import Redaction
from pytest_touchstone.results.item_view import data_rows
from pytest_touchstone.results.journal import read_record_at, record_locations
from pytest_touchstone.results.records import STATUSES, Record
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import Declaration, Summary
from pytest_touchstone.statistics.verdicts import ALPHA

FORMAT: Final = 3

ALL_PAIRS: Final = 8
"""With more checkpoints than this, verdicts are of neighbours and of all against the first."""


class DataBlock(NamedTuple):
    """A data block of the page: an element that no browser runs."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class PageRun:
    """A run as the page shows it: its summary, the parts with its items, and its checkpoints' results."""

    summary: Summary
    parts: tuple[PagePart, ...]
    candidates: tuple[CheckpointResults, ...]


class PageItems:
    """The runs of a page with their items, which are read from their journals; ``kinds`` are the benchmarks."""

    def __init__(self, redaction: Redaction) -> None:
        self.runs: list[PageRun] = []
        self.kinds: dict[str, PageBenchmark] = {}
        self._redaction = redaction

    def read(self, summary: Summary, *, compared: bool) -> PageRun:
        """Add a run, and return it.

        ``compared``: its checkpoints' results are wanted too.

        Raises ``HarnessError`` where the journal cannot be read.
        """
        folder = Path(summary.directory)
        collected, _, _ = RunDirectory(folder).read_collected()
        record_places = record_locations(folder)
        names = [str(row["name"]) for row in summary.checkpoints]
        parts: dict[tuple[str, str], PagePart] = {}
        records: list[Record] = []
        for declared in summary.declarations:
            items = [
                item
                for item in collected
                if item.benchmark == declared.name and item.checkpoint in names and item.item in record_places
            ]
            if not items:
                continue
            rows = {digest: ENCODER.encode(row) for digest, row in data_rows(summary, declared.name)}
            kind = self.kinds.setdefault(declared.name, _benchmark_kind(declared, rows))
            for item in items:
                key = item.checkpoint, declared.name
                if key not in parts:
                    parts[key] = PagePart(kind, item.checkpoint, self._redaction)
                record = read_record_at(record_places[item.item])
                parts[key].add(record, json.loads(rows.get(record.row, "{}")))
                if compared:
                    records.append(replace(record, exchanges=[]))
        candidates_by_name = (
            {candidate.name: candidate for candidate in candidates_of(summary, records, folder)}
            if compared
            else {}
        )
        origin = f"run {summary.run_id}"
        candidates = (
            candidates_by_name.get(name, CheckpointResults(name, origin)) for name in names if compared
        )
        self.runs.append(PageRun(summary, tuple(parts.values()), tuple(candidates)))
        return self.runs[-1]

    def meta_and_blocks(
        self, pairs: Sequence[JudgedPair], facts: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[DataBlock]]:
        """Return the page's meta data and its blocks; ``facts`` are its title and kind."""
        names = list(self.kinds)
        ranks = ranks_of(part for run in self.runs for part in run.parts)
        blocks: list[DataBlock] = []
        parts: list[dict[str, Any]] = []
        for run_index, run in enumerate(self.runs):
            checkpoints = [str(row["name"]) for row in run.summary.checkpoints]
            for part in run.parts:
                part_number = len(parts)
                texts = [
                    DataBlock(f"texts-{part_number}-{chunk}", text)
                    for chunk, text in enumerate(part.chunks())
                ]
                blocks += [DataBlock(f"columns-{part_number}", part.columns(ranks)), *texts]
                parts.append(
                    {
                        "columns": f"columns-{part_number}",
                        "texts": [block.id for block in texts],
                        "run": run_index,
                        "checkpoint": checkpoints.index(part.checkpoint),
                        "benchmark": names.index(part.kind.name),
                        "items": len(part.rows),
                        "size": part.size,
                    }
                )
        meta = {
            "format": FORMAT,
            **facts,
            "runs": [
                {
                    "id": run.summary.run_id,
                    "label": run.summary.run_id,
                    "checkpoints": [_checkpoint(row) for row in run.summary.checkpoints],
                }
                for run in self.runs
            ],
            "benchmarks": [
                {
                    "name": kind.name,
                    "primary": kind.score,
                    "metrics": list(kind.metrics),
                    "groups": list(kind.groups),
                    "fields": list(kind.fields),
                    "higher_is_better": kind.right_by is not None,
                }
                for kind in self.kinds.values()
            ],
            "statuses": list(STATUSES),
            "parts": parts,
            "verdicts": verdicts(pairs, names),
        }
        return meta, blocks


def _benchmark_kind(declared: Declaration, rows: Mapping[str, str]) -> PageBenchmark:
    aggregation = aggregation_of(declared.aggregate, declared.primary)
    fields = filter_fields(map(json.loads, rows.values()))
    return PageBenchmark(
        declared.name,
        aggregation.score,
        aggregation.score if aggregation.higher_score_is_better else None,
        fields,
        {},
        {},
    )


def _checkpoint(row: Mapping[str, Any]) -> dict[str, Any]:
    series = row.get("series")
    return {
        "name": row["name"],
        "series": None if series == "." else series,
        "step": step_of_row(row),
        "epoch": row.get("epoch"),
        "fingerprint": row.get("fingerprint"),
    }


# Verdicts


CheckpointIndex: TypeAlias = tuple[int, int]


class JudgedPair(NamedTuple):
    """Two checkpoints of the page, by run and number in it, and their comparison over all items."""

    a: CheckpointIndex
    b: CheckpointIndex
    pair: PairComparison


def compare_all_pairs(runs: Sequence[PageRun]) -> list[JudgedPair]:
    """Return the comparisons of the checkpoints of all runs: of each two, or of some where they are many.

    Where there are several runs, checkpoints have their run's id beside their names. What the gate of the later one's
    run has judged keeps that record, and the others its alpha.
    """
    places: dict[CheckpointIndex, CheckpointResults] = {}
    for position, run in enumerate(runs):
        label = f" ({run.summary.run_id})" if len(runs) > 1 else ""
        for index, candidate in enumerate(run.candidates):
            places[position, index] = replace(candidate, name=f"{candidate.name}{label}")
    names = {index: candidate.name for index, candidate in places.items()}
    order = list(places)
    pairs = []
    for position, a in enumerate(order):
        for b in order[position + 1 :]:
            neighbours = b == order[position + 1]
            if len(order) <= ALL_PAIRS or position == 0 or neighbours or a == counterpart_of(b, names):
                gate = runs[b[0]].summary.gate or {}
                with suppress(DataError):  # they have no benchmark in common
                    pair = compare_pair(places[a], places[b], alpha=gate.get("alpha", ALPHA))
                    pairs.append(JudgedPair(a, b, pair.with_records(_records_of(gate, runs, a, b))))
    return pairs


def _records_of(
    gate: Mapping[str, Any], runs: Sequence[PageRun], a: CheckpointIndex, b: CheckpointIndex
) -> list[BenchmarkComparison]:
    """Return the lines of a gate that compare ``b`` with ``a``."""
    baseline = runs[a[0]].summary.run_id, runs[a[0]].candidates[a[1]].name
    checkpoint = runs[b[0]].candidates[b[1]].name
    return [
        line
        for line in (*lines_from_json(gate), *lines_from_json(gate, "pooled"))
        if line.checkpoint == checkpoint and line.against is not None
        if (line.against.run_id, line.against.checkpoint) == baseline
    ]


def counterpart_of(index: CheckpointIndex, names: Mapping[CheckpointIndex, str]) -> CheckpointIndex | None:
    """Return the checkpoint of the first run that another run's is held against: the one of its name, else the
    first; None for those of the first run."""
    if index[0] == 0:
        return None
    first_run = [candidate for candidate in names if candidate[0] == 0]
    short = names[index].rpartition(" (")[0]
    namesakes = (candidate for candidate in first_run if names[candidate].rpartition(" (")[0] == short)
    return next(namesakes, first_run[0] if first_run else None)


_SHOWN: Final = (
    *("benchmark", "metric", "verdict", "why", "points", "low", "high", "p", "p_adjusted", "n"),
    *("gained", "lost", "paired"),
)


def verdicts(pairs: Iterable[JudgedPair], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the verdicts as the page has them; ``names`` are its benchmarks, whose number stands for each."""
    rows = []
    for pair in pairs:
        facts = pair_facts(pair.pair)
        lines = [line for line in facts["benchmarks"] if line["primary"] and line["benchmark"] in names]
        lines += [facts["pooled"]] if facts["pooled"] else []
        rows += [
            {
                "a": dict(zip(("run", "checkpoint"), pair.a, strict=True)),
                "b": dict(zip(("run", "checkpoint"), pair.b, strict=True)),
                **{name: line[name] for name in _SHOWN},
                "benchmark": None if line is facts["pooled"] else names.index(line["benchmark"]),
            }
            for line in lines
        ]
    return rows
