"""The benchmarks that a file of ``--eval-config`` enables, against those that there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from pytest_touchstone.core.eval_config import PRIORITIES, Choice, EvalConfig
from pytest_touchstone.core.files import shown_path
from pytest_touchstone.core.lm_eval_names import metrics_named
from pytest_touchstone.core.tasks import Known, Tasks, declared_groups, shipped_names
from pytest_touchstone.core.text import alike, listed
from pytest_touchstone.plugin.collection import checkpoint_of, given_items
from pytest_touchstone.plugin.shipped import shipped_specs


def faults_of(file: EvalConfig, known: Sequence[Known]) -> list[str]:
    """Return a line for each name of the file that nothing has, with the nearest that there is; ``known`` are the
    benchmarks that were collected, and the shipped ones are known too."""
    return _lines(file, file.choices, known)


def faults_of_unused(file: EvalConfig, known: Sequence[Known]) -> list[str]:
    """Return the same for the entries that are not enabled."""
    return _lines(file, file.unused, known)


def _lines(file: EvalConfig, choices: Sequence[Choice], known: Sequence[Known]) -> list[str]:
    others = {one.name for one in choices} & shipped_names() - {spec.name for spec, _ in known}
    all_of_them = [*known, *((spec, declared_groups(spec, None)) for spec in shipped_specs(others))]
    return [f"{shown_path(file.path)}: {line}" for one in choices for line in _faults(one, all_of_them)]


def _faults(choice: Choice, known: Sequence[Known]) -> Iterator[str]:
    tasks = Tasks.of([choice.term], names=[spec.name for spec, _ in known])
    if (line := tasks.unknown(known)) is not None:
        said = line.removeprefix("invalid ").partition(": ")[2]
        near = [] if "did you mean" in said else alike(choice.term, shipped_names(), 3)
        also = f"; did you mean {' or '.join(near)}?" if near else ""
        yield f"{choice.where}: {choice.written!r}: {said}{also}"
        return
    for spec, _ in known:
        told = (spec.primary, *spec.metrics, *spec.aggregate) if spec.metrics and tasks.chosen(spec) else ()
        metrics = list(dict.fromkeys(told))
        for name in choice.asking.metrics if metrics else ():
            if not metrics_named(name, metrics):
                hint = "".join(f"did you mean {one!r}? " for one in alike(name, metrics))
                yield f"{choice.where}: {spec.name} has no metric {name!r}; {hint}there are {listed(metrics)}"


def not_collected(file: EvalConfig, known: Sequence[Known]) -> list[str]:
    """Return a line for each shipped benchmark of the file that is not among the collected ones."""
    names = {spec.name for spec, _ in known}
    wanted = dict.fromkeys(one.name for one in file.choices)
    return [
        f"{name}: {shown_path(file.path)} enables it, but it is not in the files that were collected"
        for name in wanted
        if name not in names and name in shipped_names()
    ]


def by_priority(items: list[pytest.Item]) -> None:
    """Put the benchmark items of each checkpoint, in place, in the order of their priority."""
    places: dict[str, list[int]] = {}
    rank: dict[int, int] = {}
    for index, item in enumerate(items):
        for _, given in given_items([item]):
            places.setdefault(checkpoint_of(item).name, []).append(index)
            rank[index] = PRIORITIES.index(given.loaded.asking.priority)
    for indices in places.values():
        ordered = [items[index] for index in sorted(indices, key=rank.__getitem__)]
        for index, item in zip(indices, ordered, strict=True):
            items[index] = item
