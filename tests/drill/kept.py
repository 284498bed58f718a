"""What a run of the fake checkpoint keeps, by the product's own calls in a run's order, without pytest around it; and
all else that the product keeps."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.fingerprint import FingerprintCache
from pytest_touchstone.checkpoints.info import SERVES
from pytest_touchstone.compare.baseline_source import remove_named_baseline, set_named_baseline
from pytest_touchstone.compare.gate.accepted import AcceptedDrop, read_accepted, write_accepted
from pytest_touchstone.core.benchmark import Benchmark, Dataset
from pytest_touchstone.core.dataset import DatasetInfo, Example
from pytest_touchstone.core.files import read_checked
from pytest_touchstone.core.requests import Loglikelihood
from pytest_touchstone.engines.fake import FakeEngine
from pytest_touchstone.engines.sandbox.cache import TextFiles
from pytest_touchstone.engines.transformers import agreement
from pytest_touchstone.engines.transformers.agreement import VerifiedKernels
from pytest_touchstone.plugin.batches import Quarantine
from pytest_touchstone.plugin.driver import SYNC_EVERY, ItemJob, RunningBatch
from pytest_touchstone.plugin.gate import write_schedules
from pytest_touchstone.plugin.run_results import RunResults
from pytest_touchstone.reports import files as reports
from pytest_touchstone.results import journal as journals
from pytest_touchstone.results.journal import Journal, read_journal, records_with_locations
from pytest_touchstone.results.merging import ShardShare, find_shards, merge, write_share
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.reuse import (
    CrashHistory,
    InFlight,
    ItemKey,
    Reuse,
    find_earlier_runs,
    manifest_benchmarks,
    write_reuse_plan,
)
from pytest_touchstone.results.run_directory import (
    ProcessProgress,
    RunDirectory,
    remove_progress,
    write_progress,
)
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.summary import CollectedItem, Declaration, Summary, summary_json
from pytest_touchstone.results.usage import Usage
from tests.drill.disk import Clock, SimulatedDisk, State

SPEC: Final = Benchmark(
    name="b",
    version=1,
    data=Dataset(local="b/b"),
    asks=(Loglikelihood,),
    primary="acc",
    metrics=("acc", "f1"),
)
DECLARATION: Final = Declaration(
    name="b",
    version=1,
    primary="acc",
    aggregate={"acc": {"by": "mean", "of": "acc"}, "f1": {"by": "mean", "of": "f1"}},
    dataset=DatasetInfo(name="b", origin="folder", path="b.jsonl", rows=20, sha256="d" * 64),
    code="c" * 64,
)


def chance(*parts: str) -> float:
    """A number from 0 up to 1 that depends on the parts."""
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:4], "big") / 2**32


def _asks(checkpoint: str, seed: int, example: str) -> Any:
    answer = yield Loglikelihood(f"{checkpoint} {seed} {example} 가", " 1")
    return {"acc": float(answer.is_greedy), "f1": chance(checkpoint, str(seed), example)}


@dataclass(frozen=True, slots=True)
class Question:
    """What a command asks: so many items of each of the checkpoints, in batches, with a seed."""

    items: int
    checkpoints: tuple[str, ...] = ("step-1",)
    seed: int = 1
    batch: int = 4

    @property
    def collected(self) -> list[CollectedItem]:
        return [
            CollectedItem(f"t.py::test_b[{name}-b/{number}]", "b", name, f"b/{number}")
            for name in self.checkpoints
            for number in range(self.items)
        ]


class WatchedJournal:
    """The journal, which also notes what must be on the disk from now on."""

    def __init__(self, journal: Journal, disk: SimulatedDisk) -> None:
        self._journal, self._clock, self._promised = journal, disk.clock, disk.promised
        self._at: dict[str, float] = {}

    def append(self, record: Record) -> None:
        self._journal.append(replace(record, seconds=0.0))
        self._at[record.item] = self._clock.now

    def sync(self, *, every: float = 0.0) -> None:
        self._journal.sync(every=every)
        self._promised |= {item for item, at in self._at.items() if at <= self._clock.now - every}


@dataclass(slots=True)
class Attempt:
    """A run of the command: the items that it asked, the records that it named as damaged, and its report in the end;
    ``computing`` are the items in flight."""

    asked: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    computing: tuple[str, ...] = ()
    report: dict[str, Any] | None = None


def attempt(
    output: Path,
    question: Question,
    disk: SimulatedDisk,
    made: Attempt | None = None,
    *,
    number: int,
    whole: bool = False,
) -> Attempt:
    """Run the command from the beginning to its end; ``whole`` writes every file of a report too."""
    made = made or Attempt()
    for _ in steps(output, question, disk, made, number=number, whole=whole):
        pass
    return made


def steps(
    output: Path,
    question: Question,
    disk: SimulatedDisk,
    made: Attempt,
    *,
    number: int,
    whole: bool = False,
) -> Generator[None, None, None]:
    """Run the command, and stop after each batch, so that another can run meanwhile."""
    directory = RunDirectory(output / f"run-{number:03}", token=f"token {number}")
    directory.make(logs_at_top=whole)
    collected = question.collected
    directory.write_collected(collected, {"b": DECLARATION}, [])
    manifest = {
        "run_id": directory.run_id,
        "began": float(number),
        "settings": {"seed": question.seed},
        "checkpoints": [{"name": name, "fingerprint": name * 8} for name in question.checkpoints],
        "benchmarks": manifest_benchmarks({"b": DECLARATION}),
    }
    directory.write_manifest(manifest)
    write_reuse_plan(directory.path, find_earlier_runs(manifest, output, made.damaged))
    directory.log("begin")
    journal, in_flight = Journal(directory.path, "main"), InFlight(directory.path, "main")
    watched, reuse = WatchedJournal(journal, disk), Reuse(directory.path)
    try:
        yield from _answer(collected, question, made, watched, reuse, in_flight=in_flight)
        watched.sync()
        directory.write_usage("main", [Usage(who="main", checkpoint="step-1", engine={})])
        in_flight.close()
    finally:
        made.damaged += reuse.damaged
        journal.close()
    results = RunResults(directory)
    summary, records = results.whole(lambda item: "lost", 1.0)
    results.save(summary, records)
    if whole:
        write_progress(directory.path, ProcessProgress(who="main"))
        reports.write_results(summary)
    remove_progress(directory.path)
    directory.log("end")
    made.report = report_of(summary, records)


def _answer(
    collected: Sequence[CollectedItem],
    question: Question,
    made: Attempt,
    journal: WatchedJournal,
    reuse: Reuse,
    *,
    in_flight: InFlight,
) -> Iterator[None]:
    """Take what earlier runs have, and ask the others, batch by batch as the product does."""
    kills = CrashHistory(reuse)
    left: list[CollectedItem] = []
    for item in collected:
        found = None
        if reuse.has(item.checkpoint, "b", item.example):
            found = reuse.find(item.item, item.checkpoint, "b", item.example, _row(item.example))
        if found is None:
            left.append(item)
        else:
            journal.append(found)
            journal.sync(every=SYNC_EVERY)
    while left:
        key = ItemKey(left[0].checkpoint, "b", left[0].example)
        assert kills.given_up(key) is None
        size = 1 if kills.alone(key) else question.batch
        batch = [one for one in left[:size] if one.checkpoint == left[0].checkpoint]
        left = left[len(batch) :]
        in_flight.begin(ItemKey(one.checkpoint, "b", one.example) for one in batch)
        made.computing = tuple(one.example for one in batch)
        made.asked += [one.item for one in batch]
        info = CheckpointInfo(
            batch[0].checkpoint, "c", Path(), "causal", "folder", "fake", "Fake", 100, SERVES["causal"]
        )
        jobs = [
            ItemJob(
                one.item,
                SPEC,
                Example(one.example, None, {}, _row(one.example)),
                one.checkpoint,
                functools.partial(_asks, one.checkpoint, question.seed, one.example),
            )
            for one in batch
        ]
        engine = FakeEngine(info)
        RunningBatch(jobs, engine, journal).run(engine)
        in_flight.end()
        made.computing = ()
        yield


def _row(example: str) -> str:
    return hashlib.sha256(example.encode()).hexdigest()


def report_of(summary: Summary, records: Sequence[Record]) -> dict[str, Any]:
    """Every score, and every statistic but what tells where and how fast it was computed."""
    apart = ("seconds", "reused", "reused_from")
    results = [
        {key: value for key, value in one.items() if key not in apart}
        for one in summary_json(summary)["results"]
    ]
    return {
        "items": sorted((one.item, one.status, sorted(one.scores.items())) for one in records),
        "results": results,
        "composites": summary.composites,
        "faults": summary.faults,
    }


def simplified(patch: pytest.MonkeyPatch, clock: Clock) -> None:
    """The journal's clock is that one, a report's page is short, since nothing reads it back, and no model is looked
    at."""
    patch.setattr(journals, "time", SimpleNamespace(monotonic=clock.monotonic))
    patch.setattr(reports, "run_page", lambda summary: f"<html>{summary.run_id}</html>")
    patch.setattr(agreement, "_model_key", lambda model: "key")


# All else


def drop(to: float) -> AcceptedDrop:
    return AcceptedDrop(
        benchmark="b", metric="acc", before=0.9, to=to, because="x", by="me", on="2026-01-01", run="run-000",
        checkpoint="step-1", fingerprint="f" * 64,
    )  # fmt: skip


ACCEPTED: Final = ((drop(0.5),), (drop(0.5), replace(drop(0.4), metric="f1")))
STAMPS: Final = [["/model", 1, 2, 3, 4, 5]]


def others(output: Path) -> None:
    """Keep one of everything that no run of a single process keeps, in a folder that has a run."""
    for drops in ACCEPTED:
        write_accepted(output / "accepted.json", drops)
    FingerprintCache(output / "fingerprints").keep("model", STAMPS, "f" * 64, 10**12)
    texts = TextFiles(output / "texts", 1)
    for key in ("k1", "k2"):
        texts.keep(key, [key])
    texts.prune()
    ways(output).tried("packed", lambda: None)
    set_named_baseline(output, "pinned", "run-000", None)
    set_named_baseline(output, "gone", "run-000", None)
    remove_named_baseline(output, "gone")
    write_schedules(output / "run-000", {})
    Quarantine(output / "run-000" / "details" / "quarantine.txt").add(["x"])
    never_begun = RunDirectory(output / "never-begun", token="token")
    never_begun.make()
    never_begun.discard()


def ways(output: Path) -> VerifiedKernels:
    """The ways known for a model."""
    return VerifiedKernels(None, output / "ways")


def shards(output: Path, question: Question, disk: SimulatedDisk) -> list[Path]:
    """Two runs that are the shards of one."""
    folders = []
    for number in (1, 2):
        mine = replace(question, checkpoints=(question.checkpoints[number - 1],))
        attempt(output / f"shard-{number}", mine, disk, number=number)
        folder = output / f"shard-{number}" / f"run-{number:03}"
        places = {one.item: place for place, one in enumerate(mine.collected)}
        share = ShardShare(
            number=number,
            count=2,
            items=2 * len(places),
            digest="x",
            checkpoints=["step-1", "step-2"],
            places=places,
        )
        write_share(folder, share)
        folders.append(folder)
    return folders


def merged(folders: Sequence[Path], target: Path) -> list[tuple[str, Any]]:
    """The items and scores of the merged run."""
    merge(find_shards(folders), target)
    return scores_in(target)


def scores_in(folder: Path) -> list[tuple[str, Any]]:
    """The items and scores of a run's journal."""
    return sorted((one.item, sorted(one.scores.items())) for one in read_journal(folder))


@dataclass(slots=True)
class View:
    """What the product's own readers make of a disk, each content read once: a run that goes on sees no more of it."""

    scratch: Path
    known: dict[tuple[str, bytes], Any] = field(default_factory=dict)

    def of(self, state: State) -> int:
        """Return a hash of it."""
        return hash(frozenset((path, self._read(Path(path).name, data)) for path, data in state.items()))

    def _read(self, name: str, data: bytes | None) -> Any:
        if data is None or name.endswith((".log", ".tmp")) or name.startswith(("claim", "progress")):
            return data is None  # what nobody reads, or only a person
        kind = "items" if name.endswith(".jsonl") else "checked" if name.endswith(".json") else name
        if (kind, data) not in self.known:
            self.scratch.write_bytes(data)
            self.known[kind, data] = self._made_of(kind)
        return self.known[kind, data]

    def _made_of(self, kind: str) -> Any:
        if kind == "items":
            damaged: list[str] = []
            found = [str(record) for record, _ in records_with_locations(self.scratch, damaged)]
            return tuple(found), tuple(damaged)
        if kind == "checked":
            try:
                return str(read_checked(self.scratch))
            except ValueError as error:
                return type(error).__name__
        return self.scratch.read_bytes()


def check_kept(output: Path, drops: Sequence[tuple[AcceptedDrop, ...]] = ((), *ACCEPTED)) -> None:
    """Whatever is found of all else is as it was written, whole, or absent."""
    assert read_accepted(output / "accepted.json") in drops
    assert FingerprintCache(output / "fingerprints").find("model", STAMPS) in (None, "f" * 64)
    assert all(TextFiles(output / "texts", 1).find(key) in (None, [key]) for key in ("k1", "k2"))
    check_store(output)


def check_store(output: Path) -> None:
    """Every saved entry that is found has its scores."""
    store = ResultStore(output)
    for saved in store.find():
        assert store.items(saved).digest() == saved.items_sha256
    assert not store.left_out
