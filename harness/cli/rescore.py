"""Today's scorers on the stored answers of a finished run, without a model.

Every journalled item is started again from its row, its requests are compared with the stored ones, and it is sent
the stored answers. An item whose row or question has changed since cannot be scored again; it is listed with the
reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from harness.checkpoints import CheckpointInfo
from harness.checkpoints.info import info_from_plain
from harness.cli.command import Output, add_run, run_folder
from harness.core.benchmark import declared, generator_function
from harness.core.dataset import Example
from harness.core.draws import TOUCHSTONE
from harness.core.errors import BenchmarkError, DataError, HarnessError
from harness.core.few_shot import Sampling
from harness.core.files import load_module
from harness.core.requests import Answer, Refusal, Request, RunProgram, RunProgramAnswer, answer_from_plain
from harness.core.serialize import to_plain
from harness.engines.base import Done
from harness.plugin.collection import OWN_ARGUMENTS, Given, Loaded, load_benchmark
from harness.plugin.driver import Job, RunningBatch, journalled, run_batch
from harness.results.journal import latest, read_journal
from harness.results.records import Record
from harness.results.run_directory import RunDirectory


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_run(parser)
    parser.add_argument("--data", metavar="DIR", help="folder of datasets (default: the run's)")
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="the folder pytest ran in (default: the run's)"
    )


def run(options: argparse.Namespace) -> Output:
    """Print today's scores beside those of the run."""
    found = rescore(run_folder(options, "run.json"), data=options.data, root=options.root)
    return Output(asdict(found), "\n".join(_lines(found)))


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
    directory = RunDirectory(folder)
    manifest = directory.read_manifest()
    if not manifest:
        raise DataError(f"{folder}: no run.json; name the folder of a run")
    settings: dict[str, Any] = manifest.get("settings", {})
    root = root or Path(manifest.get("rootdir", "."))
    rows = {row["name"]: row for row in manifest.get("checkpoints", [])}
    benchmarks = _Benchmarks(root, data or settings.get("data"), settings)
    found = Rescored()
    sums: dict[str, list[tuple[float, float]]] = {}
    for record in latest(read_journal(folder)).values():
        if record.status != "scored":
            continue
        found.items += 1
        info = _info(rows, record.checkpoint)
        try:
            job = benchmarks.job(record, info)
        except BenchmarkError as error:
            found.unscored.append((record.item, str(error)))
            continue
        if job is None:
            found.unscored.append((record.item, "its row is not in the data any more, or has changed"))
            continue
        now = _again(job, _Stored(info, record.exchanges))
        if now.status != "scored":
            found.unscored.append((record.item, now.message or now.status))
            continue
        if different := _different(record.scores, now.scores):
            found.changes.append(Change(record.item, different))
        primary = job.spec.primary_score
        if primary in record.scores:
            pair = record.scores[primary], now.scores[primary]
            sums.setdefault(f"{job.spec.name} {primary}", []).append(pair)
    for name, pairs in sums.items():
        before, after = zip(*pairs, strict=True)
        found.means[name] = (sum(before) / len(pairs), sum(after) / len(pairs))
    return found


class _Stored:
    """An engine and a sandbox that give the stored answers, in order, to the same questions."""

    def __init__(self, info: CheckpointInfo, exchanges: Sequence[Mapping[str, Any]]) -> None:
        self.info = info
        self.usage: dict[str, Any] = {}
        # Programs are asked for as soon as a generator yields them, everything else a round later.
        self._programs = iter([one for one in exchanges if one["kind"] == RunProgram.__name__])
        self._others = iter([one for one in exchanges if one["kind"] != RunProgram.__name__])

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        del done  # all answers are there at once
        return [self._answer(request, self._others) for request in requests]

    def submit(self, request: RunProgram) -> Future[RunProgramAnswer | Refusal]:
        found: Future[RunProgramAnswer | Refusal] = Future()
        answer = self._answer(request, self._programs)
        assert isinstance(answer, (RunProgramAnswer, Refusal))
        found.set_result(answer)
        return found

    def prepare(self, requests: Sequence[Request]) -> None:
        """Nothing can be done ahead."""

    def close(self) -> None:
        """Nothing to free."""

    def _answer(self, request: Request, left: Iterator[Mapping[str, Any]]) -> Answer | Refusal:
        stored = next(left, None)
        if stored is None:
            return Refusal("it asks more than it did when the run was made")
        if stored["kind"] != type(request).__name__ or stored["request"] != journalled(to_plain(request)):
            return Refusal(
                "it asks something other than when the run was made; only the model could answer that"
            )
        return answer_from_plain(stored["kind"], stored["answer"])


class _Nowhere:
    """A journal that keeps nothing: the run's own stays as it is."""

    def append(self, record: Record) -> None:
        """Forgets it."""

    def sync(self, *, every: float = 0.0) -> None:
        """Nothing to write."""


class _Known(NamedTuple):
    """A benchmark of the run: its function, its data, and its rows by id."""

    function: Callable[..., Any]
    loaded: Loaded
    examples: dict[str, Example]


class _Benchmarks:
    """The benchmarks of a run with their data, loaded once each."""

    def __init__(self, root: Path, data: str | None, settings: Mapping[str, Any]) -> None:
        self._root, self._data = root, data
        self._shots, self._draw = settings.get("shots"), settings.get("fewshot", TOUCHSTONE)
        drawn = ("samples", "temperature", "top_p", "seed")
        self._sampling = Sampling(**{name: settings[name] for name in drawn if name in settings})
        self._modules: dict[Path, ModuleType] = {}
        self._known: dict[str, _Known] = {}

    def job(self, record: Record, info: CheckpointInfo) -> Job | None:
        """The item, ready to be started again; None where its row has changed."""
        known = self._benchmark(record)
        example = known.examples.get(record.example)
        if example is None or example.sha256 != record.row:
            return None
        given, function = Given(example, known.loaded), known.function
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        if foreign := [name for name in names if name not in (*OWN_ARGUMENTS, "checkpoint")]:
            raise BenchmarkError(f"takes {foreign[0]!r}, which only a run of pytest can give it")
        wanted = {name: info if name == "checkpoint" else OWN_ARGUMENTS[name](given) for name in names}
        spec = replace(known.loaded.spec, name=record.benchmark)
        return Job(record.item, spec, example, record.checkpoint, partial(function, **wanted))

    def _benchmark(self, record: Record) -> _Known:
        if (known := self._known.get(record.benchmark)) is not None:
            return known
        place, _, rest = record.item.partition("::")
        module = self._module(self._root / place)
        name = rest.partition("[")[0]
        function = getattr(module, name, None)
        spec = declared(function)
        if function is None or spec is None:
            raise HarnessError(f"{self._root / place} has no benchmark {name} any more")
        loaded = load_benchmark(spec, self._data, self._shots, self._sampling, draw=self._draw)
        examples = {example.id: example for example in loaded.dataset.examples}
        known = self._known[record.benchmark] = _Known(generator_function(function), loaded, examples)
        return known

    def _module(self, path: Path) -> ModuleType:
        if path not in self._modules:
            if not path.is_file():
                raise DataError(f"{path}: no such benchmark file; give --root, the folder that pytest ran in")
            self._modules[path] = load_module(path, f"touchstone_rescored_{len(self._modules)}")
        return self._modules[path]


def _again(job: Job, engine: _Stored) -> Record:
    return run_batch(RunningBatch([job], engine), engine, _Nowhere(), engine)[job.item].record


def _info(rows: Mapping[str, Mapping[str, Any]], name: str) -> CheckpointInfo:
    needed: dict[str, Any] = {"name": name, "source": name, "path": "", "kind": "causal", "format": "fake"}
    needed |= {"model_type": "", "architecture": "", "seq_len": 0}
    return info_from_plain({**needed, **rows.get(name, {}), "base": None, "tokenizer": None})


def _different(
    before: Mapping[str, float], now: Mapping[str, float]
) -> dict[str, tuple[float | None, float | None]]:
    names = dict.fromkeys((*before, *now))
    return {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)}
