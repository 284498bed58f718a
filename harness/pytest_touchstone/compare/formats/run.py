"""Runs of this harness as candidates: one per checkpoint, with their items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_touchstone.checkpoints.config_files import seq_len_of_row, step_in_name, step_of_row
from pytest_touchstone.compare.candidate import BenchmarkScores, CheckpointResults
from pytest_touchstone.compare.formats.base import ResultTable
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.store_entry import (
    ItemScores,
    RecordLocations,
    StoredResult,
    extra_facts_of,
    read_scores,
    results_from_records,
    results_with_items,
)
from pytest_touchstone.results.summary import SUMMARY, Metric, Summary, load_summary


class RunFolder:
    """The folder of a run that ended."""

    name = "run"
    patterns = ()

    def sniff(self, path: Path) -> bool:
        """Return whether it has a summary."""
        return (path / SUMMARY).is_file()

    def read(self, path: Path, sizes: Mapping[str, int]) -> ResultTable:
        """Read summary and journal."""
        del sizes  # a run has its items
        return ResultTable(tuple(read_run(path)))


def read_run(folder: Path) -> list[CheckpointResults]:
    """Return the checkpoints of a run, in its order.

    Raises ``HarnessError`` if its summary or journal cannot be read.
    """
    summary = load_summary(folder)
    found = read_scores(folder, extra_facts_of(summary))
    entries = results_with_items(summary, {place: one.items for place, one in found.items()})
    return _candidates(summary, entries, folder, {place: one.lines for place, one in found.items()})


def candidates_of(summary: Summary, records: Iterable[Record], folder: Path) -> list[CheckpointResults]:
    """Return the checkpoints of a run from its summary and its records, one record per item."""
    return _candidates(summary, results_from_records(summary, records), folder)


def _candidates(
    summary: Summary,
    entries: Iterable[tuple[StoredResult, ItemScores]],
    folder: Path,
    lines: Mapping[tuple[str, str], RecordLocations] = MappingProxyType({}),
) -> list[CheckpointResults]:
    found: dict[str, CheckpointResults] = {}
    for saved, items in entries:
        candidate = found.setdefault(
            saved.checkpoint,
            CheckpointResults(
                name=saved.checkpoint, origin=f"run {summary.run_id}", about=about(saved.checkpoint_info)
            ),
        )
        own = lines.get((saved.checkpoint, saved.benchmark))
        candidate.entries[saved.benchmark] = BenchmarkScores(saved, items, folder, own)
    for row in summary.composites:
        if row["checkpoint"] in found:
            found[row["checkpoint"]].composites[row["name"]] = composite_metric(row)
    return list(found.values())


def composite_metric(row: Mapping[str, Any]) -> Metric:
    """Return a composite of a run's summary as a metric."""
    sizes = {part["benchmark"]: part["n"] for part in row["parts"]}
    names = ("name", "value", "low", "high", "stderr", "method", "why")
    return Metric(**{name: row.get(name) for name in names}, n=sum(sizes.values()))  # type: ignore[arg-type]


def about(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a checkpoint's row that are shown beside its name.

    The step is the trainer's, else the one in the folder's name (``checkpoint-300``).
    """
    step = step_of_row(info)
    given = {
        "series": info.get("series"),
        "step": step_in_name(Path(str(info.get("path", ""))).name) if step is None else step,
        "epoch": info.get("epoch"),
        "seq_len": seq_len_of_row(info),
    }
    return {name: value for name, value in given.items() if value is not None}


def answers_of(saved: StoredResult) -> Path | None:
    """Return where the answers of a saved result are, if they still exist.

    That is the run's folder, or the samples file of an imported result.
    """
    place = Path(saved.directory)
    return place if saved.directory and place.exists() else None
