"""Collected functions -> items: one per example and checkpoint, or a line that says why there is none."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.formats.base import CheckpointResources
from pytest_touchstone.checkpoints.info import LACKS, info_from_plain
from pytest_touchstone.checkpoints.resolve import FailedToLoad, find, find_checkpoints
from pytest_touchstone.compare.formats.references import (
    References,
    is_reference_file,
    read_references,
    sampled_examples,
)
from pytest_touchstone.core.benchmark import CHECKPOINT_FIXTURE, Benchmark, generator_function
from pytest_touchstone.core.dataset import (
    DatasetRows,
    Example,
    apply_limit,
    load_dataset,
    subsample,
)
from pytest_touchstone.core.errors import (
    CheckpointError,
    DataError,
    MissingDataError,
    ShotsError,
)
from pytest_touchstone.core.eval_config import (
    AS_THE_RUN,
    INCLUDED_WITH,
    LEFT_OUT,
    BenchmarkOptions,
    benchmark_options_of,
    is_shipped,
)
from pytest_touchstone.core.few_shot import FewShot, Sampling
from pytest_touchstone.core.few_shot_sampling import TOUCHSTONE, DrawnShots, resolve_few_shot
from pytest_touchstone.core.requests import NOT_OF_CHECKPOINTS, Generate, Judge
from pytest_touchstone.core.settings import ALL
from pytest_touchstone.core.tasks import TaskSelection, declared_groups
from pytest_touchstone.core.text import join_names
from pytest_touchstone.engines.judging import JudgeInfo, judge_from_plain, judge_info
from pytest_touchstone.engines.registry import choose_text_engine
from pytest_touchstone.metrics.samples import run_samples
from pytest_touchstone.metrics.solutions import forms_of
from pytest_touchstone.plugin import NO_CHECKPOINT
from pytest_touchstone.plugin.options import Settings, check_base, check_served, device_kind
from pytest_touchstone.plugin.source_hash import benchmark_code_hash

if TYPE_CHECKING:
    from pytest_touchstone.engines.sandbox.soundness import SelfCheckingSandbox


@dataclass(frozen=True, slots=True)
class LoadedBenchmark:
    """A benchmark with its rows and few-shot examples, and the run's options for its texts."""

    spec: Benchmark
    dataset: DatasetRows
    shots: DrawnShots
    sampling: Sampling
    code: str = ""
    asking: BenchmarkOptions = AS_THE_RUN

    def start(self, start: Callable[[], Any], example: Example) -> Callable[[], Any]:
        """Return a function that starts an example's generator, with its texts sampled where the run says so."""
        if Generate not in self.spec.asks or not self.sampling.temperature:
            return start
        return functools.partial(run_samples, start, self.spec, self.sampling.of(self.spec.name, example.id))


@dataclass(frozen=True, slots=True)
class SkipReason:
    """A reason to skip a benchmark; it counts only if an item of the benchmark is selected.

    The benchmark is then left out. A person's ``mistake`` ends the run where no other benchmark is left, and a
    ``fatal`` one in any case.
    """

    spec: Benchmark
    line: str
    mistake: bool = False
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class UnrunnableExample:
    """The parameter ``example`` of an item that is never run.

    It stands for items that cannot be run, and shows whether they are selected. Those of a user's benchmark are
    ``skipped`` if no checkpoint is given, as ordinary tests are that ask for one.
    """

    spec: Benchmark
    skipped: bool = False


@dataclass(slots=True)
class Collection:
    """The benchmarks and items that collection has found so far in this process.

    ``loaded`` and ``specs`` are keyed by the identity of the declarations: two may have one name, with only one of
    them selected. ``unchosen`` are those that --eval-tasks does not name. ``selected`` says whether any benchmark is.
    ``deselected`` counts what was left out; ``unasked`` are the benchmarks that are skipped for want of a checkpoint.
    ``nothing`` is the line about a selection that matches no item. ``lasting`` holds what is started for the
    checkpoints. ``references`` are those of the file that is the ``baseline``, if one is.
    """

    settings: Settings
    unchosen: set[int] = field(default_factory=set)
    judge: JudgeInfo | None = None
    checkpoints: list[CheckpointInfo] | None = None
    failed: list[FailedToLoad] = field(default_factory=list)
    loaded: dict[int, LoadedBenchmark] = field(default_factory=dict)
    specs: dict[int, Benchmark] = field(default_factory=dict)
    remarks: list[SkipReason] = field(default_factory=list)
    deselected: list[str] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)
    selected: bool = False
    nothing: str | None = None
    sandbox: SelfCheckingSandbox | None = None
    lasting: CheckpointResources | None = None
    baseline: Path | None = None
    references: dict[str, References] | None = None

    @property
    def tasks(self) -> TaskSelection:
        """The choice of ``--eval-tasks`` among the benchmarks that were found so far."""
        names = [spec.name for spec in self.specs.values()]
        return TaskSelection.of(self.settings.tasks, self.settings.groups, names)

    def groups_of(self, spec: Benchmark) -> Sequence[str] | None:
        """Return the groups of the benchmark's rows, as far as they are known."""
        if (loaded := self.loaded.get(id(spec))) is None:
            return declared_groups(spec, self.settings.data)
        return list(dict.fromkeys(filter(None, (example.group for example in loaded.dataset.examples))))

    def references_of(self, spec: Benchmark) -> References | None:
        """Return the references of a benchmark, None where the baseline is no file of any. Raises ``DataError``."""
        if self.references is None:
            path = self.baseline or Path()
            self.references = read_references(path) if is_reference_file(path) else {}
        return self.references.get(spec.name)

    def known_checkpoints(self) -> list[CheckpointInfo]:
        """Return the checkpoints that the options name, or the builtin ones that exist, recognised once.

        Raises ``CheckpointError``.
        """
        if self.checkpoints is None:
            settings = self.settings
            of_targets = {  # by the names that they have in ``TARGET?NAME=VALUE``
                "model": settings.model_name,
                "tokenizer": settings.tokenizer,
                "args": settings.server_args,
                "dtype": settings.model.dtype,
            }
            series = find_checkpoints(
                settings.checkpoint,
                steps=settings.steps,
                seq_len=settings.seq_len,
                base_model=settings.base_model,
                trust_remote_code=settings.trust_remote_code,
                options={name: value for name, value in of_targets.items() if value is not None},
                lasting=self.lasting,
            )
            texts = self._texts_by(lambda: series.infos) is not None
            check_served(settings, series.infos, some_failed=bool(series.failed), texts=texts)
            check_base(settings.base_model, series.infos, some_failed=bool(series.failed))
            # A base and its adapters follow each other: their model is loaded once.
            models = [info.model_key for info in series.infos]
            self.checkpoints = sorted(series.infos, key=lambda info: models.index(info.model_key))
            self.failed = series.failed
            self.deselected += series.left_out
        return self.checkpoints

    def known_judge(self) -> JudgeInfo:
        """Return the judge that --eval-judge names, recognised once. Raises ``CheckpointError`` where there is none."""
        if self.judge is None:
            settings, source = self.settings, self.settings.judge
            try:
                infos = find(
                    source, seq_len=None, trust_remote_code=settings.trust_remote_code, lasting=self.lasting
                ).infos
            except CheckpointError as error:
                raise CheckpointError(f"--eval-judge: {error}") from None
            if len(infos) != 1:
                raise CheckpointError(f"--eval-judge {source}: names {len(infos)} checkpoints; name one")
            self.judge = judge_info(infos[0])
        return self.judge

    def asking(self, spec: Benchmark) -> BenchmarkOptions:
        """Return the options of a benchmark that differ from the run's.

        They come from a file or from the demonstration; --eval-tasks may give the number of few-shot examples. The
        judge of its questions is among them.
        """
        options = self._asking(spec)
        if Generate in spec.asks:
            options = replace(options, texts_by=self._texts_by(self.known_checkpoints))
        if not spec.judge or self.settings.judge is None:
            return options
        return replace(
            options, judged_by=self.known_judge().judged_by(spec.judge, self.settings.judge_tokens)
        )

    def _texts_by(self, infos: Callable[[], Sequence[CheckpointInfo]]) -> str | None:
        """Return who writes the texts of these checkpoints; None for this process."""
        model = self.settings.model
        alone = self.settings.workers == 1 and model.engine is None and model.device_map is None
        alone = alone and ":" not in model.device
        return choose_text_engine(model.texts, infos, alone=alone, cuda=device_kind(model.device) == "cuda")

    def _asking(self, spec: Benchmark) -> BenchmarkOptions:
        settings, options = self.settings, replace(AS_THE_RUN, think_end=self.settings.model.think_end)
        if settings.file is not None:
            options = replace(
                settings.file.asking(spec).without(settings.by_hand), think_end=options.think_end
            )
            # "all" of a file does not replace a limit that something stronger gives for the run.
            if options.limit == ALL and settings.limit is None:
                options = replace(options, limit=None)
        elif settings.demonstration:
            options = replace(
                benchmark_options_of(spec).without(settings.by_hand), think_end=options.think_end
            )
        shots = None if "shots" in settings.by_hand else self.tasks.shots(spec)
        return options if shots is None else replace(options, shots=shots)

    def give(self) -> str | None:
        """Return the checkpoints as text for ``take``; None where nothing was recognised yet."""
        if self.checkpoints is None:
            return None
        rows = [info.plain() for info in self.checkpoints]
        judge = None if self.judge is None else self.judge.plain()
        return json.dumps({"checkpoints": rows, "left_out": self.deselected, "judge": judge}, default=str)

    def take(self, given: str | None) -> None:
        """Use the checkpoints that the controller recognised: a worker could later find different files."""
        if given is not None:
            state = json.loads(given)
            self.checkpoints = [info_from_plain(row) for row in state["checkpoints"]]
            self.deselected += state["left_out"]
            self.judge = None if state["judge"] is None else judge_from_plain(state["judge"])

    def close(self) -> None:
        """End the sandbox, if there is one."""
        if self.sandbox is not None:
            self.sandbox.close()
            self.sandbox = None


@dataclass(frozen=True, slots=True)
class CollectedExample:
    """The parameter ``example`` of an item: what the driver needs to start it."""

    example: Example
    loaded: LoadedBenchmark = field(
        repr=False
    )  # with all rows, which reports would show with each of their items

    @property
    def few_shot(self) -> FewShot:
        """The few-shot examples of the example."""
        return self.loaded.shots.few_shot(self.loaded.spec, self.example, self.loaded.sampling)


OWN_ARGUMENTS: Final[Mapping[str, Callable[[CollectedExample], Any]]] = {
    "example": lambda given: given.example.row,
    "fewshot": lambda given: given.few_shot,
}
"""Arguments that the plugin itself gives a benchmark, by name."""


OWN_NAMES: Final = frozenset({CHECKPOINT_FIXTURE, *OWN_ARGUMENTS})


def load_benchmark(
    spec: Benchmark, data: str | None, shots: int | None, sampling: Sampling, *, draw: str = TOUCHSTONE
) -> LoadedBenchmark:
    """Return a benchmark with its rows and that many few-shot examples, or as many as it declares.

    What is drawn comes from the run's seed in ``sampling``. Raises ``DataError`` as ``load_dataset`` and
    ``resolve_few_shot`` do.
    """
    dataset = load_dataset(spec, data)
    return LoadedBenchmark(
        spec, dataset, resolve_few_shot(spec, dataset, data, shots, sampling.seed, draw=draw), sampling
    )


def parametrize_benchmark(
    metafunc: pytest.Metafunc, spec: Benchmark, collection: Collection
) -> Callable[[], None]:
    """Parametrize a benchmark function by its checkpoints; return a function that does so by its examples.

    That function is to be called when all other parameters are known. Reasons against asking the benchmark are kept
    in ``collection.remarks``.
    """
    collection.specs[id(spec)] = spec
    parameters = inspect.signature(generator_function(metafunc.function)).parameters
    wanted = [name for name in OWN_ARGUMENTS if name in parameters]
    if not collection.tasks.chosen(spec):
        collection.unchosen.add(id(spec))
        return _example_parametrizer(metafunc, wanted, [(spec.name, UnrunnableExample(spec))])
    if "example" not in parameters:
        text = f"benchmark {spec.name}: {metafunc.function.__name__}() takes no argument named 'example'"
        collection.remarks.append(SkipReason(spec, text, fatal=True))
        return lambda: None
    if not (collection.settings.checkpoint or is_shipped(spec)):
        settings = collection.settings
        # A run without scores must not seem to have given these.
        if settings.gate or settings.gate_sequential or settings.dry_run:
            collection.remarks.append(SkipReason(spec, f"{spec.name}: {NO_CHECKPOINT}", fatal=True))
        ids = stand_in_ids(spec, metafunc.config)
        return _example_parametrizer(
            metafunc, wanted, [(name, UnrunnableExample(spec, skipped=True)) for name in ids]
        )
    try:
        suited = _capable_checkpoints(spec, collection)
        examples = _examples(metafunc, spec, collection) if suited else []
    except (CheckpointError, DataError) as error:
        collection.remarks.append(SkipReason(spec, str(error), fatal=True))
        examples = []
    if examples and isinstance(examples[0][1], CollectedExample):
        # A single checkpoint is not shown; with several, node ids read ``test_x[CHECKPOINT-BENCHMARK/ROW]``.
        several = len(collection.checkpoints or []) > 1
        names: list[Any] = [info.name if several else pytest.HIDDEN_PARAM for info in suited]
        metafunc.parametrize(CHECKPOINT_FIXTURE, suited, ids=names, scope="session")
    stand_ins = [(name, UnrunnableExample(spec)) for name in stand_in_ids(spec, metafunc.config)]
    return _example_parametrizer(metafunc, wanted, examples or stand_ins)


def keyword_words(config: pytest.Config) -> list[str]:
    """Return the words of ``-k`` without those that join them."""
    words = re.findall(r"[^\s()]+", config.option.keyword)
    return [word for word in words if word not in ("and", "or", "not")]


def stand_in_ids(spec: Benchmark, config: pytest.Config) -> list[str]:
    """Return placeholder ids for a benchmark whose examples are unknown.

    They are its name, and whatever may name an example of it in ``-k`` and in node ids on the command line.
    """
    words = [*keyword_words(config), *(argument.partition("[")[2] for argument in config.args)]
    named = [word.removesuffix("]") for word in words if f"{spec.name}/" in word]
    named += [f"{spec.name}/{word}" for word in words if word.isdecimal()]
    return list(dict.fromkeys([spec.name, *named]))


def form_items(
    collector: pytest.Module | pytest.Class, function: object, collection: Collection
) -> list[pytest.Item]:
    """Return the items of a benchmark's forms that --eval-tasks may name; none in a class."""
    if not any(term.of_form for term in collection.tasks.terms) or not isinstance(collector, pytest.Module):
        return []
    items: list[pytest.Item] = []
    for form in forms_of(function):
        setattr(collector.obj, form.__name__, form)  # pytest looks for an item's function there
        items += collector._genfunctions(form.__name__, form)  # private: no hook makes several of one
    return items


def _example_parametrizer(
    metafunc: pytest.Metafunc,
    wanted: Sequence[str],
    rows: Sequence[tuple[str, CollectedExample | UnrunnableExample]],
) -> Callable[[], None]:
    """Return what parametrizes by examples, or by what stands for them."""
    values = [tuple(value if name == "example" else None for name in wanted) for _, value in rows]
    ids = [name for name, _ in rows]
    return functools.partial(metafunc.parametrize, wanted, values, ids=ids) if wanted else lambda: None


def _capable_checkpoints(spec: Benchmark, collection: Collection) -> list[CheckpointInfo]:
    """Return the checkpoints that can answer what the benchmark asks; leave a remark for each kind that cannot.

    There are none where the demonstration leaves the benchmark out.
    """

    def leave_out(line: str, *, mistake: bool = False) -> None:
        collection.remarks.append(SkipReason(spec, f"{spec.name}: {line}", mistake=mistake))

    if absent := [package for package in spec.code.needs if find_spec(package) is None]:
        leave_out(f"needs the package {absent[0]}; {spec.code.needs[absent[0]]}")
        return []
    if Judge in spec.asks and collection.settings.judge is None:
        leave_out(
            "asks a judge; give --eval-judge PATH|URL, a checkpoint or a server that judges", mistake=True
        )
        return []
    if reason := collection.asking(spec).left_out:
        leave_out(f"{LEFT_OUT}{reason}; {INCLUDED_WITH}")
        return []
    infos = collection.known_checkpoints()
    if not infos:
        leave_out(f"{NO_CHECKPOINT}, or `touchstone checkpoint fetch smollm2-135m`")
        return []
    asked = [kind for kind in spec.asks if kind not in NOT_OF_CHECKPOINTS]
    suited = [info for info in infos if all(kind in info.serves for kind in asked)]
    named = ", ".join(kind.__name__ for kind in asked)
    unsuited: dict[tuple[str, str], list[str]] = {}
    for info in infos:
        if info not in suited:
            lacks = info.served.get("lacks", "") or info.extra.get(LACKS, "")
            unsuited.setdefault((info.kind, lacks), []).append(info.name)
    for (kind, lacks), names in unsuited.items():
        why = f"cannot answer; {lacks}" if lacks else f"({kind} LM) cannot answer"
        only_answers = all(info.answers for info in infos)  # which somebody means for this benchmark
        leave_out(f"asks {named}, which {join_names(names, 3)} {why}", mistake=only_answers)
    return suited


def _examples(
    metafunc: pytest.Metafunc, spec: Benchmark, collection: Collection
) -> Sequence[tuple[str, CollectedExample | UnrunnableExample]]:
    """Return the benchmark's examples by their ids.

    They are withheld where the benchmark cannot be given that many shots. Without data there are none, and a remark.
    """
    settings = collection.settings
    loaded = collection.loaded.get(id(spec))
    if loaded is None:
        try:
            dataset = load_dataset(spec, settings.data)
        except MissingDataError as error:
            collection.remarks.append(SkipReason(spec, str(error), mistake=settings.data is not None))
            return []
        try:
            options = collection.asking(spec)
            count = settings.shots if options.shots is None else options.shots
            shots = resolve_few_shot(
                spec, dataset, settings.data, count, settings.seed, draw=settings.fewshot
            )
        except ShotsError as error:
            collection.remarks.append(SkipReason(spec, str(error), mistake=True))
            return [
                (example.id, UnrunnableExample(spec))
                for example in _selected_examples(spec, dataset, collection)
            ]
        # Private: nothing public has the functions of fixtures.
        definitions = metafunc._arg2fixturedefs.items()
        theirs = (
            definitions_of_fixture
            for name, definitions_of_fixture in definitions
            if name != CHECKPOINT_FIXTURE
        )
        fixtures = [
            definition.func for definitions_of_fixture in theirs for definition in definitions_of_fixture
        ]
        code = benchmark_code_hash(
            [spec.code.form_of or metafunc.function, *fixtures], metafunc.config.rootpath, spec.code.digest
        )
        loaded = LoadedBenchmark(spec, dataset, shots, settings.sampling, code, options)
        collection.loaded[id(spec)] = loaded
    return [
        (example.id, CollectedExample(example, loaded))
        for example in _selected_examples(spec, loaded.dataset, collection)
    ]


def _selected_examples(spec: Benchmark, dataset: DatasetRows, collection: Collection) -> list[Example]:
    """Return the examples that --eval-limit and --eval-tasks select; of a file of references its own."""
    settings, tasks, own_limit = collection.settings, collection.tasks, collection.asking(spec).limit
    limit = settings.limit if own_limit is None else None if isinstance(own_limit, str) else own_limit
    if (references := collection.references_of(spec)) is not None:
        return sampled_examples(references, dataset.examples, limit, dataset.info.path)
    first = apply_limit(subsample(spec, dataset.examples, settings.seed), limit)
    return [example for example in first if tasks.takes(spec, example.group)]


def example_of(item: pytest.Item) -> object:
    """Return the parameter ``example`` of an item; None where it has none."""
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("example")


def collected_example(item: pytest.Item) -> CollectedExample | None:
    """Return the values that the plugin gave a benchmark item, None for any other item."""
    given = example_of(item)
    return given if isinstance(given, CollectedExample) else None
