"""Benchmarks that the results of a study asked in several ways: with 0 and with 5 examples, by a chat template or not.

Each way is a measure of its own, and results of one way make a series of their own, so that none is tested against
another. A result that does not say how it was asked is no other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.candidate import Candidate, Entry

_WAYS: Final = ("shots", "template")


class Asked(NamedTuple):
    """A candidate whose benchmarks are named by their ways, where there are several: ``arc_easy 5-shot``. ``way``
    has these ways; it is empty where there is one of each."""

    candidate: Candidate
    way: str


def by_way(candidates: Sequence[Candidate]) -> list[Asked]:
    """The candidates, with every benchmark that was asked in several ways named by its way."""
    known: dict[tuple[str, str], set[Any]] = {}
    for one in candidates:
        for benchmark, entry in one.entries.items():
            for name in _WAYS:
                known.setdefault((benchmark, name), set()).add(entry.saved.conditions.get(name))
    several = {key for key, values in known.items() if len(values - {None}) > 1}
    found = []
    for one in candidates:
        ways = {benchmark: _way(benchmark, entry, several) for benchmark, entry in one.entries.items()}
        entries = {f"{name} {ways[name]}".rstrip(): entry for name, entry in one.entries.items()}
        way = ", ".join(sorted({way for way in ways.values() if way}))
        found.append(Asked(replace(one, entries=entries) if way else one, way))
    return found


def _way(benchmark: str, entry: Entry, several: set[tuple[str, str]]) -> str:
    given = {name: entry.saved.conditions.get(name) for name in _WAYS if (benchmark, name) in several}
    texts = {name: f"{value}-shot" if name == "shots" else str(value) for name, value in given.items()}
    return " ".join(text for name, text in texts.items() if given[name] is not None)
