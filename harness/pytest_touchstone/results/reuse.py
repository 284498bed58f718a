"""Scores that are reused from earlier runs, and items that are run alone or again.

A run's manifest says which checkpoints it had, by fingerprint, and under which settings. For each benchmark it has
its version, the hash of its data, its few-shot examples and its code. Where all of that agrees, an item with the same
example and row takes its record, with requests and answers, from the journal of that run. It does not matter how that
run ended.

``core.settings`` says which settings may differ: those that choose items or checkpoints, and those of speed
and place. Answers of ``fake:`` checkpoints are not reused (``cacheable``), nor is anything whose fingerprint is
unknown. A weak fingerprint, of a served model, may be that of other weights tomorrow. So a run takes the answers of
those before it that did not complete the benchmark: the same command goes on where it was stopped. Others are taken
only where ``--eval-set reuse_served`` says so.

The controller decides, before the first item, and writes down which runs to search; every process then finds its
items in their journals by itself. The set of items does not depend on it, so simultaneous runs do no harm: at worst
something is scored twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pytest_touchstone.checkpoints.fingerprint import WEAK
from pytest_touchstone.core import disk
from pytest_touchstone.core.errors import JournalError
from pytest_touchstone.core.files import (
    SCHEMA,
    DamagedError,
    from_plain,
    read_checked,
    read_json,
    shown_path,
    write_checked,
)
from pytest_touchstone.core.requests import Generate
from pytest_touchstone.core.settings import same_answers
from pytest_touchstone.results import file_path, file_paths
from pytest_touchstone.results.journal import (
    RecordLocation,
    iter_records,
    journal_files,
    journal_write_error,
    read_record_at,
    records_with_locations,
)
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.summary import SUMMARY, Declaration

FILE: Final = "reuse.json"

SETTINGS: Final = "settings"
"""The key of a run's settings in its manifest, and of those of a benchmark alone among its facts."""

MOST_RUNS: Final = 20
"""The most runs that are searched for one checkpoint and benchmark, the newest ones."""


class EarlierRun(NamedTuple):
    """A run that has scored a checkpoint, and the name it had for it."""

    directory: str
    checkpoint: str


ReusePlan: TypeAlias = dict[str, dict[str, list[EarlierRun]]]
"""Checkpoint -> benchmark -> the runs to search, newest first."""


# What runs are alike


def manifest_benchmarks(declarations: Mapping[str, Declaration]) -> dict[str, dict[str, Any]]:
    """Return what a manifest records of each benchmark, by which a later run recognises it."""
    return {
        name: {
            "version": declaration.version,
            "data": declaration.dataset.sha256,
            "few_shot": declaration.few_shot,
            "code": declaration.code,
        }
        | ({SETTINGS: declaration.settings} if declaration.settings else {})
        for name, declaration in declarations.items()
    }


def find_earlier_runs(
    manifest: Mapping[str, Any], output: Path, damaged: list[str] | None = None
) -> ReusePlan:
    """Return the other runs below ``output`` with answers that hold for this one too.

    A run whose manifest cannot be read is left out; one whose manifest is not what was written is named in ``damaged``.
    """
    fingerprints = {
        row["name"]: row["fingerprint"]
        for row in manifest["checkpoints"]
        if row.get("fingerprint") and row.get("cacheable", True)
    }
    decision: ReusePlan = {}
    if not fingerprints:
        return decision
    weak_too = bool(manifest.get(SETTINGS, {}).get("reuse_served"))
    closed: set[tuple[str, str]] = set()
    for directory, other in _earlier_manifests(manifest, output, [] if damaged is None else damaged):
        try:
            alike = [name for name in manifest["benchmarks"] if _is_same_benchmark(manifest, other, name)]
            by_print = {row.get("fingerprint"): str(row["name"]) for row in other.get("checkpoints", ())}
        except (AttributeError, KeyError, TypeError, ValueError):
            continue  # no manifest that this program writes
        for checkpoint, fingerprint in fingerprints.items():
            for benchmark in alike if fingerprint in by_print else ():
                if (checkpoint, benchmark) in closed:
                    continue
                if (
                    fingerprint.startswith(WEAK)
                    and not weak_too
                    and _is_complete(directory, by_print[fingerprint], benchmark)
                ):
                    closed.add((checkpoint, benchmark))
                    continue
                sources = decision.setdefault(checkpoint, {}).setdefault(benchmark, [])
                if len(sources) < MOST_RUNS:
                    sources.append(EarlierRun(str(directory), by_print[fingerprint]))
    return decision


def _is_complete(directory: Path, checkpoint: str, benchmark: str) -> bool:
    """Return whether a run has an answer for every item of a benchmark that it collected."""
    try:
        results = read_checked(directory / SUMMARY)["results"]
        rows = [
            result
            for result in results
            if (result["checkpoint"], result["benchmark"]) == (checkpoint, benchmark)
        ]
        return bool(rows) and not any(row["errors"] + row["timeouts"] + row["lost"] for row in rows)
    except (OSError, ValueError, KeyError, TypeError):
        return False  # it was stopped before it could write that


def _is_same_benchmark(manifest: Mapping[str, Any], other: Mapping[str, Any], benchmark: str) -> bool:
    """Return whether two runs have a benchmark of the same code and data, and ask it alike."""
    facts = [dict(run.get("benchmarks", {}).get(benchmark) or {}) for run in (manifest, other)]
    asked = [
        {**run.get(SETTINGS, {}), **facts[n].pop(SETTINGS, {})} for n, run in enumerate((manifest, other))
    ]
    return bool(facts[0].get("code")) and facts[0] == facts[1] and same_answers(*asked)


def _earlier_manifests(
    manifest: Mapping[str, Any], output: Path, damaged: list[str]
) -> list[tuple[Path, dict[str, Any]]]:
    """Return the manifests of the other runs, newest first; clocks may have been set back since."""
    earlier_runs = []
    for path in output.glob("*/run.json"):
        try:
            other = read_checked(path)
            if path.parent.name == manifest["run_id"] or _are_disjoint_shards(manifest, other):
                continue
            began = other.get("began")
        except (OSError, ValueError, AttributeError) as error:
            if isinstance(error, DamagedError):
                damaged.append(f"{shown_path(path)}: {error}")
            continue
        else:
            if isinstance(began, (int, float)):
                earlier_runs.append((began, path.parent, other))
    earlier_runs.sort(key=lambda earlier_run: earlier_run[0], reverse=True)
    return [(directory, other) for _, directory, other in earlier_runs]


def _are_disjoint_shards(manifest: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two runs are different shards out of equally many, without common items."""
    mine_of, other_of = (
        str(run.get(SETTINGS, {}).get("shard") or "").partition("/") for run in (manifest, other)
    )
    return mine_of[2] == other_of[2] != "" and mine_of[0] != other_of[0]


def write_reuse_plan(directory: Path, decision: ReusePlan) -> None:
    """Write the decision for the other processes of the run."""
    if decision:
        write_checked(file_path(directory, FILE), {"schema": SCHEMA, "sources": decision})


# Finding records


class Reuse:
    """The records of earlier runs that this run can reuse, read on demand."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._decision: ReusePlan | None = None
        self._runs: dict[str, _EarlierJournal] = {}

    @property
    def damaged(self) -> list[str]:
        """The damaged lines of the runs searched so far, each with its place and the reason."""
        return [line for stored in self._runs.values() for line in stored.damaged]

    @property
    def empty(self) -> bool:
        """Return whether no earlier run has anything for this one."""
        return not self._sources()

    def sources(self, checkpoint: str, benchmark: str) -> list[EarlierRun]:
        """Return the runs whose scores this run may take."""
        return self._sources().get(checkpoint, {}).get(benchmark, [])

    def has(self, checkpoint: str, benchmark: str, example: str) -> bool:
        """Return whether an earlier run has scored the example."""
        return next(self._places(checkpoint, benchmark, example), None) is not None

    def find(self, item: str, checkpoint: str, benchmark: str, example: str, row: str) -> Record | None:
        """Return the record of an item that an earlier run has scored, as this run's own."""
        for stored, source, location in self._places(checkpoint, benchmark, example):
            record = stored.read(location)
            if record is not None and record.row == row and record.status == "scored":
                origin = record.reused_from or Path(source.directory).name
                return replace(record, item=item, checkpoint=checkpoint, reused_from=origin)
        return None

    def _places(
        self, checkpoint: str, benchmark: str, example: str
    ) -> Iterator[tuple[_EarlierJournal, EarlierRun, RecordLocation]]:
        for source in self.sources(checkpoint, benchmark):
            if source.directory not in self._runs:
                self._runs[source.directory] = _EarlierJournal(Path(source.directory))
            stored = self._runs[source.directory]
            if (location := stored.places.get((source.checkpoint, benchmark, example))) is not None:
                yield stored, source, location

    def _sources(self) -> ReusePlan:
        if self._decision is None:
            path = file_path(self._directory, FILE)
            try:
                self._decision = from_plain(ReusePlan, read_checked(path)["sources"])
            except FileNotFoundError:
                self._decision = {}
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise JournalError(f"{path}: cannot be read ({error}); start the run anew") from None
        return self._decision


class _EarlierJournal:
    """The scored items of a run, by checkpoint, benchmark and example, with the place of each record."""

    def __init__(self, directory: Path) -> None:
        self.places: dict[tuple[str, str, str], RecordLocation] = {}
        self.damaged: list[str] = []
        items: dict[tuple[str, str, str], str] = {}
        doubtful: set[tuple[str, str, str]] = set()
        for path in journal_files(directory):
            try:
                for record, location in records_with_locations(path, self.damaged):
                    key = record.checkpoint, record.benchmark, record.example
                    if key in self.places and items[key] != record.item:
                        doubtful.add(key)  # two items with one example: it cannot be known which is meant
                    if record.status == "scored":
                        self.places[key], items[key] = location, record.item
                    elif record.status != "lost":
                        self.places.pop(key, None)
            except JournalError as error:
                self.damaged.append(str(error))
        for key in doubtful:
            self.places.pop(key, None)

    def read(self, location: RecordLocation) -> Record | None:
        """Return the record; None where it cannot be believed, or read any more."""
        try:
            return read_record_at(location)
        except JournalError as error:
            self.damaged.append(str(error))
            return None


# Items in flight


PATTERN: Final = "in-flight-*.json"

ALONE_AFTER: Final = 2
"""An item is computed alone when so many processes were killed with it in flight."""

MOST_ALONE: Final = 2
"""An item is given up when so many processes more were killed, and as many that computed nothing else."""


class ItemKey(NamedTuple):
    """An item, by what it has in common with that of another run."""

    checkpoint: str
    benchmark: str
    example: str


class InFlight:
    """The items that a process is computing, so that the next run knows which it died with.

    in-flight-WHO.json is in the run's folder while a batch is computed: the checkpoint, benchmark and example of each
    item. A process that ends by itself empties it, also after an error or Ctrl-C. So one that is not empty was left by
    a process that was killed.
    """

    def __init__(self, directory: Path, who: str) -> None:
        self._path = file_path(directory, f"in-flight-{who}.json")
        self._descriptor: int | None = None

    def begin(self, items: Iterable[ItemKey]) -> None:
        """Write what is computed from now on. Raises ``JournalError`` when the disk refuses."""
        text = json.dumps({"schema": SCHEMA, "items": list(items)}, ensure_ascii=False)
        data = text.encode("utf-8", "backslashreplace")
        try:
            if self._descriptor is None:
                self._descriptor = disk.open_to_append(self._path, lasting=False)
            disk.truncate(self._descriptor, 0)
            disk.write_all(self._descriptor, data)
        except OSError as error:
            raise journal_write_error(self._path, error) from error

    def end(self) -> None:
        """Write that nothing is computed. Raises ``JournalError`` as ``begin`` does."""
        if self._descriptor is not None:
            try:
                disk.truncate(self._descriptor, 0)
            except OSError as error:
                raise journal_write_error(self._path, error) from error

    def close(self) -> None:
        """Remove the file; where that cannot be, it is empty unless the disk has refused that too."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with suppress(OSError):
                disk.close(descriptor)
                disk.unlink(self._path)


class CrashHistory:
    """The earlier runs that were killed with an item in flight, among those that can be reused.

    After two of them an item is computed alone. After two more it is given up: an item that kills its process costs
    that item. Kills from outside hardly ever find the same item four times.
    """

    def __init__(self, reuse: Reuse) -> None:
        self._reuse = reuse
        self._left: dict[Path, list[list[ItemKey]]] = {}
        self._counted: dict[tuple[str, str], tuple[Counter[str], Counter[str]]] = {}

    def alone(self, item: ItemKey) -> bool:
        """Return whether an item is to be computed alone."""
        together, _ = self._counts(item)
        return together[item.example] >= ALONE_AFTER

    def given_up(self, item: ItemKey) -> str | None:
        """Return why an item is not computed any more, None where it is."""
        together, alone = self._counts(item)
        times = alone[item.example]
        if times < MOST_ALONE or together[item.example] < ALONE_AFTER + MOST_ALONE:
            return None
        return (
            f"the process was killed {times} times while it computed nothing but this item; it is given up, and "
            "--eval-no-cache computes it again"
        )

    def _counts(self, item: ItemKey) -> tuple[Counter[str], Counter[str]]:
        """Return, by example, the processes that were killed with it, and those that had nothing else in flight."""
        key = item.checkpoint, item.benchmark
        if key in self._counted:
            return self._counted[key]
        together: Counter[str] = Counter()
        alone: Counter[str] = Counter()
        for source in self._reuse.sources(*key):
            directory = Path(source.directory)
            if directory not in self._left:
                self._left[directory] = []
                for path in file_paths(directory, PATTERN):
                    # One that cannot be read was being written: nothing was computed yet.
                    with suppress(OSError, ValueError, KeyError, TypeError):
                        keys = [ItemKey(*map(str, row)) for row in read_json(path)["items"]]
                        self._left[directory].append(keys)
            for keys in self._left[directory]:
                examples = [key.example for key in keys if key[:2] == (source.checkpoint, item.benchmark)]
                together.update(set(examples))
                alone.update(examples if len(keys) == 1 else ())
        self._counted[key] = together, alone
        return together, alone


# Texts to be asked again
#
# A stop sequence ends a text within its trace where a server applies it there, and a trace that the server's chat
# template has opened looks like an answer where the limit of tokens cut it off. Once a text of the checkpoint has
# shown it, those texts are asked for again. They are found in the journal, which has the texts of all processes: the
# scores do not depend on the one that was asked first.


REASKED: Final = "trace"
"""The process in whose name the journal has what was asked again: it is read after all others, so its records count."""


class DoubtfulTexts(NamedTuple):
    """The items of a checkpoint that are to be asked again; ``opened``: its chat template opens traces."""

    opened: bool
    items: list[str]


def find_doubtful_texts(directory: Path) -> dict[str, DoubtfulTexts]:
    """Return the items to be asked again, by checkpoint. Raises ``JournalError``."""
    traced = {
        record.checkpoint
        for record in iter_records(directory, exchanges=False)
        if record.reasoned or record.traces_seen
    }
    opened: set[str] = set()
    doubts: dict[str, tuple[str, bool, bool]] = {}
    for record in iter_records(directory) if traced else ():
        if record.checkpoint in traced:
            samples = _samples(record)
            if any(sample.get("unopened") for sample in samples):
                opened.add(record.checkpoint)
            stopped = any(sample.get("stops_sent") for sample in samples)
            doubts[record.item] = record.checkpoint, stopped, any(map(_is_cut_off, samples))
    items: dict[str, list[str]] = {}
    for item, (checkpoint, stopped, cut_off) in doubts.items():
        if stopped or (cut_off and checkpoint in opened):
            items.setdefault(checkpoint, []).append(item)
    return {checkpoint: DoubtfulTexts(checkpoint in opened, names) for checkpoint, names in items.items()}


def _samples(record: Record) -> list[dict[str, Any]]:
    """Return the texts of a record."""
    answers = [exchange["answer"] for exchange in record.exchanges if exchange["kind"] == Generate.__name__]
    return [sample for answer in answers for sample in answer.get("samples", ())]


def _is_cut_off(sample: dict[str, Any]) -> bool:
    """Return whether a text without a trace was cut off at the limit of tokens."""
    return sample["finish_reason"] == "length" and sample.get("reasoning") is None and bool(sample["text"])
