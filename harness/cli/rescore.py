"""Today's scorers on the stored answers of a finished run, without a model.

Every journalled item is started again from its row, its requests are compared with the stored ones, and it is sent
the stored answers. An item whose row or question has changed since cannot be scored again; it is listed with the
reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from harness.cli.command import Output, add_run, run_folder
from harness.core.errors import BenchmarkError
from harness.plugin.replay import Replay
from harness.results.aggregate import summarize
from harness.results.journal import latest, read_journal
from harness.results.records import Record
from harness.results.rows import results_csv
from harness.results.run_directory import RunDirectory
from harness.results.summary import Summary


@dataclass(frozen=True, slots=True)
class Change:
    """An item whose scores differ from before: by name, before and now (None where there is no such score)."""

    item: str
    scores: dict[str, tuple[float | None, float | None]]


@dataclass(slots=True)
class Rescored:
    """The results of a run by today's scorers."""

    items: int = 0
    changes: list[Change] = field(default_factory=list)
    unscored: list[tuple[str, str]] = field(default_factory=list)
    means: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By benchmark and primary score: the mean before and now, over the items scored both times."""
    records: list[Record] = field(default_factory=list)
    """Every item of the run as it is now; one that could not be scored again is in error."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_run(parser)
    parser.add_argument("--data", metavar="DIR", help="folder of datasets (default: the run's)")
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="the folder pytest ran in (default: the run's)"
    )


def run(options: argparse.Namespace) -> Output:
    """Print today's scores beside those of the run."""
    folder = run_folder(options, "run.json")
    found = rescore(folder, data=options.data, root=options.root)
    data = asdict(replace(found, records=[]))
    del data["records"]
    return Output(data, "\n".join(_lines(found)), csv=lambda: results_csv(_summary(folder, found.records)))


def _lines(found: Rescored) -> Iterator[str]:
    for change in found.changes:
        said = ", ".join(f"{name} {before} -> {now}" for name, (before, now) in change.scores.items())
        yield f"{change.item}: {said}"
    for item, why in found.unscored:
        yield f"{item}: not scored again: {why}"
    for name, (before, now) in found.means.items():
        yield f"{name}: {before:.4f} -> {now:.4f}"
    yield (
        f"{found.items} items, {len(found.changes)} with another verdict, {len(found.unscored)} not scored again"
    )


def rescore(folder: Path, *, data: str | None = None, root: Path | None = None) -> Rescored:
    """Scores a run's stored answers again; the run's folder is only read.

    ``data`` and ``root`` replace the data folder and the project's folder that the run had. Raises
    ``HarnessError`` where the run or its benchmarks cannot be read.
    """
    replay = Replay(folder, data=data, root=root)
    found = Rescored()
    sums: dict[str, list[tuple[float, float]]] = {}
    for record in latest(read_journal(folder)).values():
        if record.status != "scored":
            found.records.append(replace(record, exchanges=[]))
            continue
        found.items += 1
        try:
            primary = replay.job(record).spec.primary_score
            now = replay.run(record).record
        except BenchmarkError as error:
            now = replace(record, status="error", scores={}, message=str(error))
        found.records.append(replace(now, exchanges=[]))
        if now.status != "scored":
            found.unscored.append((record.item, now.message or now.status))
            continue
        if different := _different(record.scores, now.scores):
            found.changes.append(Change(record.item, different))
        if primary in record.scores:
            pair = record.scores[primary], now.scores[primary]
            sums.setdefault(f"{record.benchmark} {primary}", []).append(pair)
    for name, pairs in sums.items():
        before, after = zip(*pairs, strict=True)
        found.means[name] = (sum(before) / len(pairs), sum(after) / len(pairs))
    return found


def _summary(folder: Path, records: Sequence[Record]) -> Summary:
    """The results of the run by today's scores."""
    directory = RunDirectory(folder)
    items, declarations, deselected = directory.read_collected()
    manifest = directory.read_manifest()
    return summarize(
        records,
        declarations,
        items,
        run_id=directory.run_id,
        directory=str(folder),
        manifest=manifest,
        checkpoints=manifest.get("checkpoints", []),
        deselected=deselected,
    )


def _different(
    before: Mapping[str, float], now: Mapping[str, float]
) -> dict[str, tuple[float | None, float | None]]:
    names = dict.fromkeys((*before, *now))
    return {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)}
