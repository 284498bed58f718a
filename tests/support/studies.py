"""Made-up studies: series of checkpoints with the scores of their items, or with totals alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.formats.base import ResultTable
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.reading import LoadedTables, build_study
from tests.support.compared import Scores, printed, ran


def placed(
    one: CheckpointResults, series: str, epoch: float | None, step: int | None = None, **about: Any
) -> CheckpointResults:
    """The candidate at its place in a training."""
    known = {"series": series, "epoch": epoch, "step": step, **about}
    return replace(one, about={name: value for name, value in known.items() if value is not None})


def of_items(
    curves: Mapping[str, Sequence[Mapping[str, Scores]]],
    epochs: Mapping[str, Sequence[float | None]] | None = None,
    **more: Any,
) -> Study:
    """The study of series with items: for each checkpoint its benchmarks' scores. Epochs are 1, 2, ... unless told;
    ``more`` goes to the candidates."""
    found = []
    for series, curve in curves.items():
        at = (epochs or {}).get(series, range(1, len(curve) + 1))
        found += [
            placed(ran(f"{series}/{place}", scores, **more), series, epoch, place)
            for place, (scores, epoch) in enumerate(zip(curve, at, strict=True), start=1)
        ]
    return study_of_candidates(found)


def of_totals(curves: Mapping[str, Sequence[float]], n: int = 1000) -> Study:
    """The study of series of which only shares of so many items are known."""
    return study_of_candidates(
        [
            placed(printed(f"{series}/{place}", {"b": (value, None, n)}), series, float(place), place)
            for series, curve in curves.items()
            for place, value in enumerate(curve, start=1)
        ]
    )


def study_of_candidates(found: Sequence[CheckpointResults], **more: Any) -> Study:
    """The study of these candidates."""
    return build_study(LoadedTables((("table", ResultTable(tuple(found))),)), **more)


def answers(
    accuracies: Sequence[float], n: int, seed: int, *, shared: float = 0.8
) -> list[dict[str, list[float]]]:
    """Right and wrong answers of checkpoints on the same items of benchmark ``b``, which all find easy or hard."""
    generator = np.random.default_rng(seed)
    ease = generator.random(n)
    chances = [np.clip(accuracy + shared * (ease - 0.5), 0, 1) for accuracy in accuracies]
    return [{"b": (generator.random(n) < chance).astype(float).tolist()} for chance in chances]
