"""The items of a finished run, started again without a model.

An item is started from its row, what it asks is compared with what was asked then, and it is sent the stored answers.
``touchstone score`` takes today's scores from that, ``touchstone items`` what was read out of a text and which choice
is right.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.info import info_from_plain
from pytest_touchstone.core.benchmark import CHECKPOINT_FIXTURE, declaration_of, generator_function
from pytest_touchstone.core.dataset import HUB, Example
from pytest_touchstone.core.errors import BenchmarkError, DataError, HarnessError
from pytest_touchstone.core.eval_config import AS_THE_RUN
from pytest_touchstone.core.few_shot import Sampling
from pytest_touchstone.core.few_shot_sampling import TOUCHSTONE
from pytest_touchstone.core.files import load_module, shipped_evals
from pytest_touchstone.core.reasoning import AUTO
from pytest_touchstone.core.requests import (
    VERDICT_KINDS,
    Answer,
    Judge,
    Refusal,
    Request,
    RunProgram,
    RunProgramAnswer,
    answer_from_plain,
    to_plain,
)
from pytest_touchstone.engines.base import Done, Engine
from pytest_touchstone.metrics.solutions import function_named
from pytest_touchstone.plugin import is_lm_eval_file
from pytest_touchstone.plugin.collection import (
    OWN_ARGUMENTS,
    CollectedExample,
    LoadedBenchmark,
    load_benchmark,
)
from pytest_touchstone.plugin.driver import ItemJob, RunningBatch
from pytest_touchstone.plugin.lm_eval_tasks import declare_tasks
from pytest_touchstone.results.journal import shorten_request
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import Declaration


class ReplayedItem(NamedTuple):
    """An item that was run again: its record by today's code, its row, and the benchmark's return value.

    Its exchanges have their requests in full, as far as it asked them again.
    """

    record: Record
    row: Mapping[str, Any]
    returned: object
    exchanges: list[dict[str, Any]]


class _Replayable(NamedTuple):
    """A benchmark of the run: its function, its data, and its rows by id."""

    function: Callable[..., Any]
    loaded: LoadedBenchmark
    examples: dict[str, Example]


class Replay:
    """The items of one run, and its benchmarks with their data, loaded once each."""

    def __init__(self, folder: Path, *, data: str | None = None, root: Path | None = None) -> None:
        """Open a run's folder; ``data`` and ``root`` replace the run's data folder and project folder.

        Raises ``DataError`` if the folder is not that of a run.
        """
        self._directory = RunDirectory(folder)
        manifest = self._directory.read_manifest()
        if not manifest:
            raise DataError(f"{folder}: no run.json; name the folder of a run")
        settings: dict[str, Any] = manifest.get("settings", {})
        self._settings = settings
        if settings.get("lm_eval_path") is not None:
            self._settings = {
                **settings,
                "lm_eval_path": Path(manifest.get("folder", "."), settings["lm_eval_path"]),
            }
        self._rows = {row["name"]: row for row in manifest.get("checkpoints", [])}
        if data is None and settings.get("data") is not None:
            # Also for a process in another folder.
            there = Path(manifest.get("folder", ".")) / settings["data"]
            data = str(there) if settings["data"] != HUB and there.is_dir() else settings["data"]
        self._root, self._moved = root or Path(manifest.get("rootdir", ".")), root is not None
        self._data, self._shots, self._draw = data, settings.get("shots"), settings.get("fewshot", TOUCHSTONE)
        drawn = ("samples", "temperature", "top_p", "seed")
        self._asking = replace(AS_THE_RUN, think_end=settings.get("think_end", AUTO))
        self._sampling = Sampling(**{name: settings[name] for name in drawn if name in settings})
        self._modules: dict[Path, ModuleType] = {}
        self._benchmarks: dict[str, _Replayable] = {}

    @cached_property
    def _declarations(self) -> dict[str, Declaration]:
        return self._directory.read_collected()[1]

    def job(self, record: Record) -> ItemJob:
        """Return the item, ready to be started; raise ``BenchmarkError`` where it cannot be.

        Raises other errors of ours where the benchmark itself, or its data, cannot be had.
        """
        benchmark, info = self._benchmark(record), self._info(record.checkpoint)
        example = benchmark.examples.get(record.example)
        if example is None or example.sha256 != record.row:
            raise BenchmarkError("its row is not in the data any more, or has changed")
        given, function = CollectedExample(example, benchmark.loaded), benchmark.function
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        infos = ("checkpoint", CHECKPOINT_FIXTURE)
        if foreign := [name for name in names if name not in (*OWN_ARGUMENTS, *infos)]:
            raise BenchmarkError(f"takes {foreign[0]!r}, which only a run of pytest can give it")
        wanted = {name: info if name in infos else OWN_ARGUMENTS[name](given) for name in names}
        spec = replace(benchmark.loaded.spec, name=record.benchmark)
        start = benchmark.loaded.start(partial(function, **wanted), example)
        return ItemJob(record.item, spec, example, record.checkpoint, start, self._asking)

    def run(self, record: Record, exchanges: Sequence[Mapping[str, Any]] | None = None) -> ReplayedItem:
        """Return the record of the item with its stored answers, or with others to the same requests.

        Raises as ``job`` does.
        """
        job = self.job(record)
        returned: list[object] = []

        def start() -> Generator[Any, Any, Any]:
            returned_value = yield from job.start()
            returned.append(returned_value)
            return returned_value

        stored = record.exchanges if exchanges is None else exchanges
        engine = _StoredAnswers(self._info(record.checkpoint), stored)
        batch = RunningBatch(
            [replace(job, start=start)], engine, _DiscardingRecorder(), engine.programs, judge=engine
        )
        unseen = io.StringIO()  # what a benchmark prints would stand among what a command says
        with redirect_stdout(unseen), redirect_stderr(unseen):
            outcome = batch.run(engine)[job.item]
        whole = [
            {**exchange, "request": engine.requests.get(id(exchange), exchange["request"])}
            for exchange in stored
        ]
        return ReplayedItem(outcome.record, job.example.row, returned[0] if returned else None, whole)

    def _benchmark(self, record: Record) -> _Replayable:
        if (cached := self._benchmarks.get(record.benchmark)) is not None:
            return cached
        file, _, rest = record.item.partition("::")
        declaration = self._declarations.get(record.benchmark)
        path, name = self._path(file, declaration), rest.partition("[")[0]
        settings = {} if declaration is None else declaration.settings
        shots = settings.get("shots", self._shots)
        if path not in self._modules:
            self._modules[path] = load_module(path, f"touchstone_replayed_{len(self._modules)}")
        if is_lm_eval_file(path):
            task = name.removeprefix("test_")
            function = declare_tasks([task], {**self._settings, "data": self._data}, lambda _: shots)[0][task]
        else:
            function = function_named(self._modules[path], name)
        spec = declaration_of(function)
        if function is None or spec is None:
            raise HarnessError(f"{path} has no benchmark {name} any more")
        loaded = load_benchmark(spec, self._data, shots, self._sampling, draw=self._draw)
        examples = {example.id: example for example in loaded.dataset.examples}
        replayable = _Replayable(generator_function(function), loaded, examples)
        self._benchmarks[record.benchmark] = replayable
        return replayable

    def _path(self, file: str, declaration: Declaration | None) -> Path:
        """Return the benchmark's file.

        It is the one that the run used, else the same path below the project's folder, else the shipped file of this
        name. For a benchmark outside the project, pytest's ids have the name alone.
        """
        paths = [self._root / file]
        if declaration is not None and declaration.file and not self._moved:
            paths.insert(0, Path(declaration.file))
        for path in (*paths, shipped_evals() / Path(file).name):
            if path.is_file():
                return path
        raise DataError(
            f"{paths[0]}: no such benchmark file; give --root, the folder below which it is {file}"
        )

    def _info(self, name: str) -> CheckpointInfo:
        """Return the checkpoint as the run had it; of former results some facts may be lacking."""
        needed: dict[str, Any] = {
            "name": name,
            "source": name,
            "path": "",
            "kind": "causal",
            "format": "fake",
        }
        needed |= {"model_type": "", "architecture": "", "seq_len": 0}
        return info_from_plain({**needed, **self._rows.get(name, {}), "base": None, "tokenizer": None})


class _StoredAnswers(Engine):
    """An engine that gives the stored answers, in order, to the same questions, as the judge does too.

    ``programs`` is the sandbox, and ``requests`` has the requests in full by the identity of the exchange.
    """

    def __init__(self, info: CheckpointInfo, exchanges: Sequence[Mapping[str, Any]]) -> None:
        self.info = info
        self.requests: dict[int, dict[str, Any]] = {}
        self._kept = bool(exchanges)
        # Programs are asked for as soon as a generator yields them, verdicts last, everything else when the engine is
        # waited for.
        of_kind = {
            kind: [exchange for exchange in exchanges if exchange["kind"] == kind] for kind in VERDICT_KINDS
        }
        self.programs = _StoredPrograms(self, of_kind[RunProgram.__name__])
        self._verdicts = iter(of_kind[Judge.__name__])
        self._others = iter([exchange for exchange in exchanges if exchange["kind"] not in VERDICT_KINDS])

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        del done  # all answers are there at once
        return [self.stored(request, self._others) for request in requests]

    def answers(self, requests: Sequence[Judge]) -> list[Any]:
        """Return the stored verdicts."""
        return [self.stored(request, self._verdicts) for request in requests]

    def closed(self, engine: Engine) -> bool:
        """Return False: nothing is closed for the judge."""
        del engine
        return False

    def stored(self, request: Request, left: Iterator[Mapping[str, Any]]) -> Answer | Refusal:
        """Return the next stored answer, or a refusal where it belongs to another request."""
        stored = next(left, None)
        if stored is None and not self._kept:
            return Refusal("the run has kept no answers of it (log_samples is false)")
        if stored is None:
            return Refusal("it asks more than it did when the run was made")
        plain = to_plain(request)
        if stored["kind"] != type(request).__name__ or stored["request"] != shorten_request(plain):
            return Refusal(
                "it asks something other than when the run was made; only the model could answer that"
            )
        self.requests[id(stored)] = plain
        return answer_from_plain(stored["kind"], stored["answer"])


class _StoredPrograms:
    """A sandbox that gives the stored answers of programs."""

    def __init__(self, engine: _StoredAnswers, exchanges: Sequence[Mapping[str, Any]]) -> None:
        self._engine, self._exchanges = engine, iter(exchanges)

    def submit(self, request: RunProgram) -> Future[RunProgramAnswer | Refusal]:
        """Return the stored answer."""
        future: Future[RunProgramAnswer | Refusal] = Future()
        answer = self._engine.stored(request, self._exchanges)
        assert isinstance(answer, (RunProgramAnswer, Refusal))
        future.set_result(answer)
        return future


class _DiscardingRecorder:
    """A journal that keeps nothing, so that the run's own is unchanged."""

    def append(self, record: Record) -> None:
        """Forgets it."""

    def sync(self, *, every: float = 0.0) -> None:
        """Nothing to write."""
