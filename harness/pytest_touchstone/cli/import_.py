"""``touchstone import``: published results become saved ones, which comparisons and gates find by name."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pytest_touchstone.cli.command import Output, add_items, add_output
from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.formats.base import ResultTable
from pytest_touchstone.compare.load import check_sizes, parse_sizes, read_file
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.text import count
from pytest_touchstone.results.store import ResultStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a .csv or .json file of published results")
    add_output(parser)
    add_items(parser, "items of a benchmark, where the file does not say")


def run(options: argparse.Namespace) -> Output:
    """Import the file. Raises ``HarnessError`` for a mistake and for a file with no result."""
    path: Path = options.file
    if not path.is_file():
        raise HarnessError(f"{path}: no such file; give a .csv or .json file of results")
    sizes = parse_sizes(options.items)
    table = read_file(path, sizes)
    if not any(one.entries for one in table.candidates):
        why = [*table.bad, *(note for one in table.candidates for note in one.notes), "it has no results"]
        raise HarnessError(f"{path}: nothing could be read; {why[0]}")
    benchmarks = dict.fromkeys(name for one in table.candidates for name in one.entries)
    check_sizes(sizes, benchmarks)
    store = ResultStore(options.output)
    try:
        for candidate in table.candidates:
            save(store, candidate, time.time())
    except OSError as error:
        raise HarnessError(
            f"cannot write into {store.folder}: {error.strerror}; give --output DIR"
        ) from error
    data = {
        "file": str(path),
        "saved": str(store.folder),
        "imported": [_row(one) for one in table.candidates],
        "contradictions": [one._asdict() for one in table.contradictions],
        "not_read": [asdict(one) for one in table.bad],
    }
    return Output(data, "\n".join(_lines(path, table, store)))


def save(store: ResultStore, candidate: CheckpointResults, now: float) -> None:
    """Save a candidate's results as if they were scored now."""
    for entry in candidate.entries.values():
        digest = entry.items.digest() if entry.items.examples else ""
        store.save(replace(entry.saved, began=now, items_sha256=digest), entry.items)


def _row(one: CheckpointResults) -> dict[str, Any]:
    metrics = {
        f"{name}:{metric.name}": metric.value
        for name, entry in one.entries.items()
        for metric in entry.saved.metrics.values()
    }
    return {"name": one.name, **one.about, "metrics": metrics}


def _lines(path: Path, table: ResultTable, store: ResultStore) -> Iterator[str]:
    benchmarks = dict.fromkeys(name for one in table.candidates for name in one.entries)
    yield (
        f"{count(len(table.candidates), 'checkpoint')} of {path.name} imported into {store.folder}/: "
        f"{', '.join(benchmarks)}"
    )
    for one in table.candidates:
        yield f"  {one.name}"
    unknown = [
        name
        for name in benchmarks
        if any(name in one.entries and not one.entries[name].saved.scored for one in table.candidates)
    ]
    if unknown:
        yield f"numbers of items are not known of {', '.join(unknown)}; --items NAME=N gives them"
    if table.contradictions:
        rows = count(len(table.contradictions), "row")
        yield f"{rows} with a composite that contradicts its own parts by more than rounding:"
        for wrong in table.contradictions:
            yield (
                f"  {wrong.name}: {wrong.composite} is {wrong.reported:.4f} there, {wrong.computed:.4f} by the formula "
                f"({100 * (wrong.reported - wrong.computed):+.2f} points)"
            )
        yield "(composites are always computed from their parts; the written ones are not used)"
    if table.bad:
        yield f"{count(len(table.bad), 'row')} that cannot be read:"
        for bad in table.bad:
            yield f"  {bad}"
    for note in (note for one in table.candidates for note in one.notes):
        yield f"note: {note}"
