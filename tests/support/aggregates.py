"""Made-up results by a metric that no score's mean tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.core.aggregation import Aggregation
from pytest_touchstone.metrics.macro_f1 import MACRO_F1, macro_f1
from pytest_touchstone.results.aggregate import as_metric
from pytest_touchstone.statistics.intervals import Estimate
from tests.support.entries import entry

N = 300
RIGHT = [int(place % 10 == 0) for place in range(N)]
FINDS = [one if place % 7 else 1 - one for place, one in enumerate(RIGHT)]
"""Answers that find the rare class: macro F1 0.73, accuracy 0.86."""
FREQUENT = [0] * N
"""The frequent class for all: macro F1 0.47, accuracy 0.90."""


def chosen(answers: Sequence[int], *, facts: bool = True, **more: Any) -> BenchmarkScores:
    """A result by the classes that were chosen, with macro F1 as its primary metric; without ``facts`` the items have
    nothing that it is made of."""
    more.setdefault("benchmark", "rare")
    made = entry({"acc": [float(a == b) for a, b in zip(RIGHT, answers, strict=True)]}, **more)
    found = macro_f1([(0.0, a, b) for a, b in zip(RIGHT, answers, strict=True)])
    metric = as_metric("f1", found, N)
    told: dict[str, list[int | str | None]] = {"right": list(RIGHT), "chosen": list(answers)} if facts else {}
    saved = replace(
        made.saved,
        primary="f1",
        aggregate={"f1": MACRO_F1.plain()},
        metrics={"f1": metric, **made.saved.metrics},
    )
    return replace(made, saved=saved, items=replace(made.items, facts=told))


def largest(values: Sequence[float], clusters: Sequence[str | None] | None = None) -> float:
    """An aggregation of a project's own."""
    return sorted(values)[len(values) * 9 // 10]


LARGEST = Aggregation(
    "90th per cent", "seconds", function=largest, higher_is_better=False, unit="s", margin=0.1
)


def waited(seconds: Sequence[float], **more: Any) -> BenchmarkScores:
    """A result whose primary metric is made by a project's own aggregation, of which less is better."""
    made = entry({"seconds": seconds}, benchmark="wait", **more)
    metric = as_metric("slow", Estimate(largest(seconds), None, None, None, "none"), len(seconds))
    saved = replace(
        made.saved,
        primary="slow",
        aggregate={"slow": LARGEST.plain()},
        metrics={"slow": metric, **made.saved.metrics},
    )
    return replace(made, saved=saved)
