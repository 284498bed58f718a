"""Made-up contenders for the tests of comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.imports.contender import Contender, Entry, Source, published, published_entry
from tests.gate.entries import entry

Scores = Sequence[float | None] | Mapping[str, Sequence[float | None]]


def ran(name: str, benchmarks: Mapping[str, Scores], **more: Any) -> Contender:
    """A contender with items."""
    entries = {}
    for benchmark, scores in benchmarks.items():
        made = entry(scores, checkpoint=name, benchmark=benchmark, **more)
        entries[benchmark] = Entry(saved=made.saved, items=made.items)
    return Contender(name=name, origin=f"run of {name}", entries=entries)


def printed(
    name: str, benchmarks: Mapping[str, tuple[float, float | None, int]], metric: str = "acc"
) -> Contender:
    """A contender of whom a table gives value, error and number of items."""
    entries = {
        benchmark: Entry(
            saved=published_entry(
                benchmark,
                {metric: published(metric, value, stderr=stderr, n=n)},
                primary=metric,
                source=Source("t.csv", "0"),
                name=name,
                about={},
            )
        )
        for benchmark, (value, stderr, n) in benchmarks.items()
    }
    return Contender(name=name, origin="t.csv", entries=entries)
