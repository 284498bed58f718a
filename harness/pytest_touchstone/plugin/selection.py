"""The benchmark items that pytest's selection leaves, and the benchmarks that --eval-config enables.

pytest selects by ``-k``, ``-m``, paths, node ids, ``--lf`` and others. Only benchmarks that are selected may stop a
run, or say why they are left out.
"""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.aggregation import is_of_samples
from pytest_touchstone.core.benchmark import Benchmark, declaration_of
from pytest_touchstone.core.errors import ExitCode, HarnessError
from pytest_touchstone.core.eval_config import PRIORITIES, EnabledBenchmark, EvalConfig
from pytest_touchstone.core.files import load_module, shipped_evals, shown_path
from pytest_touchstone.core.tasks import (
    KnownBenchmark,
    TaskSelection,
    benchmark_names_in,
    declared_groups,
    find_metrics,
    shipped_names,
)
from pytest_touchstone.core.text import count, join_names, similar_names
from pytest_touchstone.metrics.solutions import forms_of
from pytest_touchstone.plugin.collection import (
    CollectedExample,
    Collection,
    SkipReason,
    UnrunnableExample,
    example_of,
    keyword_words,
)
from pytest_touchstone.plugin.planned import PlannedItem, planned_of

MOST_NAMES = 3
"""The most names that are suggested for an unknown one."""

LIKENESS = 0.55
"""The least likeness to a word of a name that is suggested, by ``difflib``'s ratio."""


def finish_selection(
    items: list[pytest.Item], collection: Collection, config: pytest.Config, *, whole: bool
) -> list[pytest.Item]:
    """Take out the items that are never run, and return them.

    Note in ``collection`` what the selected benchmarks have to say: what is left out and why. ``whole`` says that every
    file could be collected, so that an unknown name is a mistake. Raises ``pytest.UsageError`` for the first mistake.
    """
    tasks, unchosen = collection.tasks, collection.unchosen
    # A benchmark may have been chosen by a tag that is the name of one which was collected after it.
    unchosen |= {key for key, spec in collection.specs.items() if not tasks.chosen(spec)}
    selected: dict[int, Benchmark] = {}
    withheld: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    names: set[str] = set()
    asked = meant = False
    for item in items:
        given, spec = example_of(item), _benchmark_of(item)
        if id(spec) not in unchosen:
            meant = True
            selected |= {} if spec is None else {id(spec): spec}
        # ``--keep-duplicates`` collects an item several times; its scores are kept once.
        runs = isinstance(given, CollectedExample) and id(spec) not in unchosen and item.nodeid not in names
        names.add(item.nodeid)
        asked = asked or runs
        skipped = isinstance(given, UnrunnableExample) and given.skipped
        (kept if spec is None or runs or skipped else withheld).append(item)
        collection.unasked += [spec.name] if spec is not None and skipped else []
    remarks = [remark for remark in collection.remarks if id(remark.spec) in selected]
    fault = (
        (_unknown_task(collection) if whole else None)
        or _ambiguous_task(collection)
        or _fault(selected.values(), remarks, asked=asked)
    )
    if fault is not None:
        raise pytest.UsageError(fault)
    collection.selected = bool(selected)
    collection.deselected += dict.fromkeys(remark.line for remark in remarks if not remark.fatal)
    if collection.specs and not meant:
        collection.nothing = nothing_selected(collection, config)
    items[:] = kept
    return withheld


def _ambiguous_task(collection: Collection) -> str | None:
    """Return a line about a benchmark that was left out, or given few-shot examples, for such a tag."""
    for key, spec in collection.specs.items():
        loaded = collection.loaded.get(key)
        is_asked_otherwise = loaded is not None and loaded.asking != collection.asking(spec)
        if collection.tasks.chosen(spec) and (key in collection.unchosen or is_asked_otherwise):
            return f"{spec.name}: a tag of it is the name of another benchmark; give the tag another name"
    return None


def _unknown_task(collection: Collection) -> str | None:
    """Return a line about the first unknown name in --eval-tasks or a file of benchmarks."""
    groups_by_spec = [(spec, collection.groups_of(spec)) for spec in collection.specs.values()]
    file = collection.settings.file
    if file is None:
        return collection.tasks.unknown(groups_by_spec)
    missing = shipped_names() - {spec.name for spec, _ in groups_by_spec}
    collection.deselected += [
        f"{name}: {shown_path(file.path)} enables it, but it is not in the files that were collected"
        for name in dict.fromkeys(choice.name for choice in file.choices)
        if name in missing
    ]
    if faults := config_faults(file, file.choices, groups_by_spec):
        return faults[0]
    is_by_file = collection.settings.origins["tasks"] == shown_path(file.path)
    return None if is_by_file else collection.tasks.unknown(groups_by_spec)


def _benchmark_of(item: pytest.Item) -> Benchmark | None:
    """Return the benchmark that an item belongs to, or stands for."""
    match example_of(item):
        case CollectedExample(loaded=loaded):
            return loaded.spec
        case UnrunnableExample(spec):
            return spec
    return declaration_of(getattr(item, "function", None))


def _fault(selected: Iterable[Benchmark], remarks: Sequence[SkipReason], *, asked: bool) -> str | None:
    """Return the first mistake that must end the run, and the number of further ones."""
    for name, times in Counter(spec.name for spec in selected).items():
        if times > 1:
            return f"two benchmarks are named {name!r}; give one of them another name"
    if fatal := next((remark.line for remark in remarks if remark.fatal), None):
        return fatal
    lines = list(dict.fromkeys(remark.line for remark in remarks if remark.mistake and not asked))
    more = f"; and {count(len(lines) - 1, 'other benchmark')} likewise" if len(lines) > 1 else ""
    return f"{lines[0]}{more}" if lines else None


def nothing_selected(collection: Collection, config: pytest.Config) -> str:
    """Return a line about a selection that matches no item, with the names nearest to its words."""
    specs = collection.specs.values()
    options = {
        "--eval-tasks": ",".join(collection.settings.tasks),
        "-k": config.option.keyword,
        "-m": config.option.markexpr,
    }
    given = " ".join(f"{flag} {value!r}" for flag, value in options.items() if value)
    none = f"none of {len(specs)} benchmarks" if len(specs) > 1 else "no benchmark"
    line = f"nothing selected (exit code {ExitCode.NOTHING}): {none} {f'matches {given}' if given else 'is left'}"
    groups = (group for spec in specs for group in collection.groups_of(spec) or ())
    names = {name.lower(): name for name in (*(spec.name for spec in specs), *groups)}
    words = (word.lower().partition("/")[0] for word in keyword_words(config))
    unknown = [word for word in words if not any(word in name for name in names)]
    near = [names[name] for word in unknown for name in similar_names(word, names, MOST_NAMES, LIKENESS)]
    return f"{line}; nearest: {', '.join(list(dict.fromkeys(near))[:MOST_NAMES])}" if near else line


# What a file of --eval-config enables


def config_faults(
    file: EvalConfig, choices: Sequence[EnabledBenchmark], known_benchmarks: Sequence[KnownBenchmark]
) -> list[str]:
    """Return a line for each unknown name in a file of ``--eval-config``, with similar names.

    ``known_benchmarks`` are the collected ones; shipped benchmarks count as known too.
    """
    others = {choice.name for choice in choices} & shipped_names() - {
        spec.name for spec, _ in known_benchmarks
    }
    benchmarks = [*known_benchmarks, *((spec, declared_groups(spec, None)) for spec in shipped_specs(others))]
    faults = []
    for choice in choices:
        where = f"{shown_path(file.path)}: {choice.where}"
        tasks = TaskSelection.of([choice.term], names=[spec.name for spec, _ in benchmarks])
        if (line := tasks.unknown(benchmarks)) is not None:
            message = line.removeprefix("invalid ").partition(": ")[2]
            near = [] if "did you mean" in message else similar_names(choice.term, shipped_names(), 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            faults.append(f"{where}: {choice.written!r}: {message}{hint}")
            continue
        for spec in (spec for spec, _ in benchmarks if spec.metrics and tasks.chosen(spec)):
            metrics = list(dict.fromkeys((spec.primary, *spec.metrics, *spec.aggregate)))
            for name in choice.asking.metrics:
                if not find_metrics(name, metrics) and not is_of_samples(name):
                    hint = "".join(f"did you mean {metric!r}? " for metric in similar_names(name, metrics))
                    faults.append(
                        f"{where}: {spec.name} has no metric {name!r}; {hint}there are {join_names(metrics)}"
                    )
    return faults


def sort_by_priority(items: list[pytest.Item]) -> None:
    """Put the benchmark items of each checkpoint, in place, in the order of their priority."""
    members: dict[str, list[tuple[int, PlannedItem]]] = {}
    for index, item in enumerate(items):
        if (planned := planned_of(item)) is not None:
            members.setdefault(planned.info.name, []).append((index, planned))
    for of_checkpoint in members.values():
        ordered = sorted(
            of_checkpoint, key=lambda member: PRIORITIES.index(member[1].given.loaded.asking.priority)
        )
        for (index, _), (_, planned) in zip(of_checkpoint, ordered, strict=True):
            items[index] = planned.item


def shipped_specs(names: Container[str]) -> list[Benchmark]:
    """Return the shipped benchmarks of these names, read from their files although those are not collected."""
    specs: list[Benchmark | None] = []
    for path in sorted(shipped_evals().glob("test_*.py")):
        if any(name in names for name in benchmark_names_in(path)):
            module = load_module(path, f"touchstone_shipped_{path.stem}")
            specs += map(declaration_of, vars(module).values())
    return [spec for spec in specs if spec is not None and spec.name in names]


# The benchmarks of files and folders, found as pytest finds them


@dataclass(frozen=True, slots=True)
class ListedBenchmark:
    """A benchmark with its function and its file."""

    spec: Benchmark
    function: Callable[..., Any]
    path: Path


@dataclass(slots=True)
class _Finder:
    """A plugin that keeps benchmarks and collects no item; ``fault`` is the first file that failed."""

    found: list[ListedBenchmark] = field(default_factory=list)
    fault: str | None = None

    def pytest_configure(self, config: pytest.Config) -> None:
        """Come before every other plugin, which must not begin a run."""
        config.pluginmanager.register(_FunctionCollector(self.found))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the line that tells an error."""
        if report.failed and self.fault is None:
            lines = [line for line in report.longreprtext.splitlines() if line.strip()]
            errors = [line.removeprefix("E ").strip() for line in lines if line.startswith("E ")]
            self.fault = f"{report.nodeid}: {next(iter((*errors[-1:], *lines)), 'cannot be read')}"


@dataclass(frozen=True, slots=True)
class _FunctionCollector:
    found: list[ListedBenchmark]

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(
        self, collector: pytest.Module | pytest.Class, name: str, obj: object
    ) -> list[pytest.Item] | None:
        """Make no item of a test function."""
        if not collector.istestfunction(obj, name):
            return None
        functions: list[Callable[..., Any]] = [obj, *forms_of(obj)] if callable(obj) else []
        for function in functions:
            if (spec := declaration_of(function)) is not None:
                self.found.append(ListedBenchmark(spec, function, collector.path))
        return []


def find_benchmarks(paths: Sequence[Path]) -> list[ListedBenchmark]:
    """Return the benchmarks that ``pytest PATHS`` would collect; raises ``HarnessError`` where it would not."""
    finder, output = _Finder(), io.StringIO()
    arguments = ["--collect-only", "--capture=no", "--assert=plain", *map(str, paths)]
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = pytest.main(arguments, plugins=[finder])
    if finder.fault is not None:
        raise HarnessError(finder.fault)
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        lines = [line for line in output.getvalue().splitlines() if line.strip()]
        raise HarnessError(lines[-1].removeprefix("ERROR: ") if lines else f"pytest ends with {code}")
    return finder.found
