"""The data of a page: which runs, checkpoints and benchmarks it has, and the blocks with their items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pytest_touchstone.checkpoints.config_files import step_of_row
from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.formats.run import candidates_of
from pytest_touchstone.compare.pair import PairComparison, compare_pair
from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.reports.comparison import pair_facts
from pytest_touchstone.reports.page.items import DataRows, Kind, PagePart, Tell, ranks_of
from pytest_touchstone.reports.page.security import Redaction
from pytest_touchstone.results.item_view import data_rows
from pytest_touchstone.results.journal import each_record, latest
from pytest_touchstone.results.records import STATUSES, Record
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import Declaration, Summary

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


def read(summary: Summary, redaction: Redaction, *, compared: bool, tell: Tell | None = None) -> PageRun:
    """Return a run with its items; its journal is read once.

    ``compared``: its checkpoints' results are wanted too. ``tell`` is asked for what old records do not have.

    Raises ``HarnessError`` where the journal cannot be read.
    """
    folder = Path(summary.directory)
    collected, _, _ = RunDirectory(folder).read_collected()
    places = {item.item: number for number, item in enumerate(collected)}
    declared = {one.name: one for one in summary.declarations}
    parts: dict[tuple[str, str], PagePart] = {}
    kinds: dict[str, Kind] = {}
    light: list[Record] = []
    names = [str(row["name"]) for row in summary.checkpoints]
    for record in each_record(folder, having={"checkpoint": names}):
        if (number := places.get(record.item)) is None or record.benchmark not in declared:
            continue
        key = record.checkpoint, record.benchmark
        if key not in parts:
            if record.benchmark not in kinds:
                kinds[record.benchmark] = _kind(summary, declared[record.benchmark])
            parts[key] = PagePart(kinds[record.benchmark], record.checkpoint, redaction, tell)
        parts[key].add(record, number)
        if compared:
            light.append(replace(record, exchanges=[]))
    for kind in kinds.values():
        kind.rows.forget()
    known = (
        {one.name: one for one in candidates_of(summary, latest(light).values(), folder)} if compared else {}
    )
    found = (
        [known.get(name, CheckpointResults(name, f"run {summary.run_id}")) for name in names]
        if compared
        else []
    )
    return PageRun(summary, tuple(parts.values()), tuple(found))


def _kind(summary: Summary, declared: Declaration) -> Kind:
    rows = DataRows(data_rows(summary, declared.name))
    how = aggregation_of(declared.aggregate, declared.primary)
    return Kind(declared.name, how.of, how.of if how.higher_score_is_better else None, rows)


def meta_and_blocks(
    runs: Sequence[PageRun], found: Sequence[JudgedPair], facts: Mapping[str, Any]
) -> tuple[dict[str, Any], list[DataBlock]]:
    """Return the page's meta data and its blocks; ``facts`` are its title and kind."""
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
        for group in dict.fromkeys(row.group for row in part.rows if row.group is not None):
            groups[part.kind.name].setdefault(group, len(groups[part.kind.name]))
    ranks = ranks_of(part for run in runs for part in run.parts)
    blocks: list[DataBlock] = []
    parts: list[dict[str, Any]] = []
    scores: dict[str, dict[str, None]] = {name: {} for name in names}
    for number, run in enumerate(runs):
        for part in run.parts:
            name = part.kind.name
            scores[name] |= part.scores
            place = len(parts)
            texts = [DataBlock(f"texts-{place}-{chunk}", text) for chunk, text in enumerate(part.chunks())]
            columns = DataBlock(f"columns-{place}", part.columns(groups[name], ranks))
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
                "label": run.summary.run_id,
                "checkpoints": [_checkpoint(one) for one in run.summary.checkpoints],
            }
            for run in runs
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
        "verdicts": verdicts(found, names),
    }
    return meta, blocks


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


class JudgedPair(NamedTuple):
    """Two checkpoints of the page, by run and number in it, and their comparison over all items."""

    a: tuple[int, int]
    b: tuple[int, int]
    pair: PairComparison


def judged(runs: Sequence[PageRun]) -> list[JudgedPair]:
    """Return the comparisons of the checkpoints of all runs: of each two, or of some where they are many."""
    places = {
        (number, place): one
        for number, run in enumerate(runs)
        for place, one in enumerate(_named(run, several=len(runs) > 1))
    }
    found = []
    for a, b in _pairs(list(places), {at: one.name for at, one in places.items()}):
        with suppress(DataError):  # they have no benchmark in common
            found.append(JudgedPair(a, b, compare_pair(places[a], places[b])))
    return found


def _named(run: PageRun, *, several: bool) -> list[CheckpointResults]:
    """Return a run's checkpoints, each with the run's id where there are several runs."""
    if not several:
        return list(run.candidates)
    return [replace(one, name=f"{one.name} ({run.summary.run_id})") for one in run.candidates]


Place: TypeAlias = tuple[int, int]


def _pairs(places: Sequence[Place], names: Mapping[Place, str]) -> Iterator[tuple[Place, Place]]:
    for number, first in enumerate(places):
        for second in places[number + 1 :]:
            neighbours = second == places[number + 1]
            if (
                len(places) <= ALL_PAIRS
                or number == 0
                or neighbours
                or first == opposite(second, places, names)
            ):
                yield first, second


def opposite(place: Place, places: Iterable[Place], names: Mapping[Place, str]) -> Place | None:
    """Return the checkpoint of the first run that another run's is held against: the one of its name, else the
    first; None for those of the first run."""
    if place[0] == 0:
        return None
    own = [one for one in places if one[0] == 0]
    short = names[place].rpartition(" (")[0]
    same = (one for one in own if names[one].rpartition(" (")[0] == short)
    return next(same, own[0] if own else None)


_SHOWN: Final = (
    *("benchmark", "metric", "verdict", "why", "points", "low", "high", "p", "p_adjusted", "n"),
    *("gained", "lost", "paired"),
)


def verdicts(found: Iterable[JudgedPair], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the verdicts as the page has them; ``names`` are its benchmarks, whose number stands for each."""
    rows = []
    for one in found:
        facts = pair_facts(one.pair)
        lines = [line for line in facts["benchmarks"] if line["primary"] and line["benchmark"] in names]
        lines += [facts["pooled"]] if facts["pooled"] else []
        rows += [
            {
                "a": dict(zip(("run", "checkpoint"), one.a, strict=True)),
                "b": dict(zip(("run", "checkpoint"), one.b, strict=True)),
                **{name: line[name] for name in _SHOWN},
                "benchmark": None if line is facts["pooled"] else names.index(line["benchmark"]),
            }
            for line in lines
        ]
    return rows
