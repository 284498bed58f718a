"""``--eval-gate-sequential`` in a run: the items that are no longer needed.

Each benchmark's items of a checkpoint keep their places among all items, but among themselves come in the order that
``statistics.sequential.item_order`` draws. Once an interim analysis of those so far has settled the verdict
(``compare.sequential``), the others are skipped.

Batches are planned without regard to it. Of a batch, the items up to the next analysis run together; the others are
asked about when their turn comes.

The order is in the run's folder (``courses.json``), where the gate finds it at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from pytest_touchstone.compare.sequential import InterimSchedule, SequentialMonitor, Series, draw_schedule
from pytest_touchstone.core.files import read_json, write_atomic
from pytest_touchstone.plugin.collection import Given, checkpoint_of, given_of, result_of
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import Declaration

FILE: Final = "courses.json"

Watch: TypeAlias = Callable[
    [RunDirectory, Mapping[Series, InterimSchedule], Mapping[str, Declaration]], SequentialMonitor
]
"""Begins the interim analyses of a run."""


class Sequential:
    """The interim analyses as a process sees them."""

    def __init__(self, seed: int, watch: Watch) -> None:
        self._seed = seed
        self._watch = watch
        self._schedules: dict[Series, InterimSchedule] = {}
        self._part: dict[str, tuple[Series, int]] = {}
        self._monitor: SequentialMonitor | None = None

    def arrange(self, items: list[pytest.Item]) -> None:
        """Put the items into their drawn order, in place."""
        self._schedules = draw_schedules(items, self._seed)
        for series, schedule in self._schedules.items():
            for place, item in enumerate(schedule.items):
                self._part[item] = series, sum(analysis <= place for analysis in schedule.analyses)

    def begin(self, directory: RunDirectory, declarations: Mapping[str, Declaration]) -> None:
        """Note the order in the run's folder; every process notes the same one. From now on records are followed."""
        write_schedules(directory.path, self._schedules)
        self._monitor = self._watch(directory, self._schedules, declarations)

    def not_needed(self, item: str) -> str | None:
        """Return why an item is no longer needed; None where it is."""
        return self._monitor.settled(item) if self._monitor is not None else None

    def together(self, item: str, other: str) -> bool:
        """Return whether no analysis comes between two items of a benchmark."""
        return self._part.get(item) == self._part.get(other)


def draw_schedules(items: list[pytest.Item], seed: int) -> dict[Series, InterimSchedule]:
    """Put the items into their drawn order, in place; return the schedule of each checkpoint and benchmark."""
    members: dict[Series, list[tuple[int, Given]]] = {}
    for place, item in enumerate(items):
        if (given := given_of(item)) is not None:
            series = checkpoint_of(item).name, result_of(item, given)
            members.setdefault(series, []).append((place, given))
    found = {}
    for series, own in members.items():
        before = [items[place] for place, _ in own]
        order, found[series] = draw_schedule(
            [item.nodeid for item in before],
            [given.example.id for _, given in own],
            [given.example.sha256 for _, given in own],
            [_cluster(given) for _, given in own],
            seed=seed,
        )
        for (place, _), which in zip(own, order, strict=True):
            items[place] = before[which]
    return found


def write_schedules(folder: Path, schedules: Mapping[Series, InterimSchedule]) -> None:
    """Write the schedules into a run's folder."""
    rows = [
        {
            "checkpoint": checkpoint,
            "benchmark": benchmark,
            "items": schedule.items,
            "examples": schedule.examples,
            "rows": schedule.rows,
            "looks": schedule.analyses,
        }
        for (checkpoint, benchmark), schedule in schedules.items()
    ]
    write_atomic(folder / FILE, json.dumps(rows, ensure_ascii=False))


def read_schedules(folder: Path) -> dict[Series, InterimSchedule]:
    """Return what ``write_schedules`` wrote; nothing for a run that does not stop early."""
    if not (folder / FILE).is_file():
        return {}
    rows: list[dict[str, Any]] = read_json(folder / FILE)
    return {
        (row["checkpoint"], row["benchmark"]): InterimSchedule(
            row["items"], row["examples"], row["rows"], tuple(row["looks"])
        )
        for row in rows
    }


def _cluster(given: Given) -> Hashable | None:
    field = given.loaded.spec.cluster
    cluster = given.example.row.get(field) if field else None
    return None if cluster is None else str(cluster)
