"""Made-up candidates for the tests of comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_touchstone.compare.candidate import (
    BenchmarkScores,
    CheckpointResults,
    ResultSource,
    published,
    result_from_totals,
)
from tests.support.entries import entry

Scores = Sequence[float | None] | Mapping[str, Sequence[float | None]]


def ran(name: str, benchmarks: Mapping[str, Scores], **more: Any) -> CheckpointResults:
    """A candidate with items."""
    entries = {}
    for benchmark, scores in benchmarks.items():
        made = entry(scores, checkpoint=name, benchmark=benchmark, **more)
        entries[benchmark] = BenchmarkScores(saved=made.saved, items=made.items)
    return CheckpointResults(name=name, origin=f"run of {name}", entries=entries)


def printed(
    name: str, benchmarks: Mapping[str, tuple[float, float | None, int]], metric: str = "acc"
) -> CheckpointResults:
    """A candidate whose values, errors and numbers of items are in a table."""
    entries = {
        benchmark: BenchmarkScores(
            saved=result_from_totals(
                benchmark,
                {metric: published(metric, value, stderr=stderr, n=n)},
                primary=metric,
                source=ResultSource("t.csv", "0"),
                name=name,
                about={},
            )
        )
        for benchmark, (value, stderr, n) in benchmarks.items()
    }
    return CheckpointResults(name=name, origin="t.csv", entries=entries)
