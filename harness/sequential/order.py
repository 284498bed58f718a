"""The order in which items are asked when a benchmark may stop early, and the places where one looks.

Each benchmark's items of a checkpoint keep the places that they have among all items; among themselves they come in
the order that ``statistics.sequential.item_order`` draws.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import pytest

from harness.collection import checkpoint_of, given_of, result_of
from harness.statistics.sequential import cut, item_order

Series: TypeAlias = tuple[str, str]
"""A checkpoint's name and a benchmark's: what one verdict is about."""


class Course(NamedTuple):
    """One checkpoint's items of one benchmark in the order in which they are asked: node ids, ids of the examples,
    hashes of their rows; and after how many one looks, the last being all."""

    items: list[str]
    examples: list[str]
    rows: list[str]
    looks: tuple[int, ...]


def draw_courses(items: list[pytest.Item], seed: int) -> dict[Series, Course]:
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
        found[series] = Course(
            [before[which].nodeid for which in order],
            [examples[which] for which in order],
            [rows[which] for which in order],
            cut([clusters[which] for which in order]),
        )
    return found


def breaks_of(courses: Mapping[Series, Course]) -> list[str]:
    """The first item after each look but the last, of all courses: no unit may go on beyond it."""
    return [course.items[look] for course in courses.values() for look in course.looks[:-1]]


def courses_json(courses: Mapping[Series, Course]) -> list[dict[str, Any]]:
    """The courses as plain data."""
    return [
        {"checkpoint": checkpoint, "benchmark": benchmark, **course._asdict()}
        for (checkpoint, benchmark), course in courses.items()
    ]


def courses_from_json(rows: Sequence[Mapping[str, Any]]) -> dict[Series, Course]:
    """What ``courses_json`` made plain."""
    return {
        (row["checkpoint"], row["benchmark"]): Course(
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
