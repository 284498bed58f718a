"""The order in which items are asked when a benchmark may stop early, and the places where one looks.

Each benchmark's items of a checkpoint keep the places that they have among all items; among themselves they come in
the order that ``statistics.sequential.item_order`` draws.

The order of items where several checkpoints are served by one model in memory: a base and its adapters.

pytest runs all items of one checkpoint, then all of the next. Here a unit of the first is followed by the same unit of
the second, and so on, so that the checkpoints are compared early, and by the same items, and the model is loaded
once even where others stand between them on the command line. Nothing else moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pytest

from harness.compare.sequential import LookSchedule, Series
from harness.plugin.collection import checkpoint_of, given_of, result_of
from harness.plugin.execution import alone_of, generating_of
from harness.plugin.units import batch_key, plan_batches
from harness.statistics.sequential import cut, item_order


def draw_schedules(items: list[pytest.Item], seed: int) -> dict[Series, LookSchedule]:
    """Puts the items into their drawn order, in place; returns the course of each checkpoint and benchmark."""
    places: dict[Series, list[int]] = {}
    for place, item in enumerate(items):
        given = given_of(item)
        if given is not None:
            places.setdefault((checkpoint_of(item).name, result_of(item, given)), []).append(place)
    found = {}
    for series, own in places.items():
        before = [items[place] for place in own]
        examples, rows, clusters = _identities(before)
        order = item_order(examples, clusters, seed=seed)
        for place, which in zip(own, order, strict=True):
            items[place] = before[which]
        found[series] = LookSchedule(
            [before[which].nodeid for which in order],
            [examples[which] for which in order],
            [rows[which] for which in order],
            cut([clusters[which] for which in order]),
        )
    return found


def breaks_of(courses: Mapping[Series, LookSchedule]) -> list[str]:
    """The first item after each look but the last, of all courses: no unit may go on beyond it."""
    return [course.items[look] for course in courses.values() for look in course.looks[:-1]]


def schedules_json(courses: Mapping[Series, LookSchedule]) -> list[dict[str, Any]]:
    """The courses as plain data."""
    return [
        {"checkpoint": checkpoint, "benchmark": benchmark, **course._asdict()}
        for (checkpoint, benchmark), course in courses.items()
    ]


def schedules_from_json(rows: Sequence[Mapping[str, Any]]) -> dict[Series, LookSchedule]:
    """The schedules that ``schedules_json`` made plain."""
    return {
        (row["checkpoint"], row["benchmark"]): LookSchedule(
            row["items"], row["examples"], row["rows"], tuple(row["looks"])
        )
        for row in rows
    }


def _identities(items: Sequence[pytest.Item]) -> tuple[list[str], list[str], list[Hashable | None]]:
    examples: list[str] = []
    rows: list[str] = []
    clusters: list[Hashable | None] = []
    for item in items:
        given = given_of(item)
        assert given is not None
        spec, example = given.loaded.spec, given.example
        examples.append(example.id)
        rows.append(example.sha256)
        cluster = example.row.get(spec.cluster) if spec.cluster else None
        clusters.append(None if cluster is None else str(cluster))
    return examples, rows, clusters


def interleave(items: list[pytest.Item], size: int, *, by_kind: bool, breaks: Sequence[str] = ()) -> None:
    """Puts the items in that order, in place; ``size``, ``by_kind`` and ``breaks`` are those by which they
    will run.

    Without two checkpoints of one model the items stay as they are.
    """
    keys = _models(items)
    shared = {key for key, count in Counter(keys.values()).items() if count > 1}
    if not shared:
        return
    moved = [
        index
        for index, item in enumerate(items)
        if given_of(item) is not None and keys[checkpoint_of(item).name] in shared
    ]
    some = [items[index] for index in moved]
    generating = generating_of(some) if by_kind else []
    groups: dict[object, list[list[int]]] = {index: [[index]] for index in {*range(len(items))} - {*moved}}
    seen: Counter[str] = Counter()
    for unit in plan_batches([item.nodeid for item in some], size, alone_of(some), generating, breaks):
        first = some[unit[0]]
        name, own = checkpoint_of(first).name, batch_key(first.nodeid)
        twins = own.replace(f"[{name}-", "[", 1)
        groups.setdefault((keys[name], twins, seen[own]), []).append([moved[number] for number in unit])
        seen[own] += 1
    ordered = sorted(groups.values(), key=lambda group: group[0][0])
    items[:] = [items[index] for group in ordered for unit in group for index in unit]


def _models(items: Sequence[pytest.Item]) -> dict[str, tuple[str, ...]]:
    """Name of a checkpoint -> what identifies its model in memory, of all items."""
    found: dict[str, tuple[str, ...]] = {}
    for item in items:
        if given_of(item) is not None and (info := checkpoint_of(item)).name not in found:
            found[info.name] = info.model_key
    return found
