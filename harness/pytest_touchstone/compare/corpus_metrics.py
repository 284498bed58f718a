"""The comparison of two results by a corpus-level metric: its function, and each item's values.

A result's file names the function by its place. Its code is run only where it is this package's, loaded already (a run
has loaded its benchmarks), or a file of the project in the current folder that lies in no run's folder: a file of
results must not make anything run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.aggregation import Aggregation, Function
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.files import shown_path
from pytest_touchstone.metrics.lm_eval.aggregates import source_of
from pytest_touchstone.metrics.macro_f1 import macro_f1, macro_f1_of_draws
from pytest_touchstone.results.store_entry import ItemScores
from pytest_touchstone.results.summary import SUMMARY
from pytest_touchstone.statistics.intervals import Estimate
from pytest_touchstone.statistics.resampling import Draws, of_each_draw

_QUICK: Final[dict[Function, Draws]] = {macro_f1: Draws(macro_f1_of_draws)}
_METRICS: Final = f"{__name__.partition('.')[0]}.metrics."


def draws_of(how: Aggregation, items: int) -> Draws:
    """Return the metric's function for draws of ``items`` items; raises ``BenchmarkError`` if it is missing."""
    if how.at is not None:
        module, file, _ = how.at
        sources = [] if module.startswith(_METRICS) else [Path(file)]
        sources += filter(None, map(source_of, how.arguments))
        loaded = {getattr(module, "__file__", None) for module in [*sys.modules.values()]}
        for source in sources:
            if str(source) not in loaded and not _is_of_project(source):
                raise BenchmarkError(
                    f"{shown_path(source)}, which makes it, is not in this folder; compare there"
                )
    function = how.resolve()
    if function is None:
        raise BenchmarkError(f"how {how.by!r} is made of items is not known")
    return _QUICK.get(function) or of_each_draw(function, items)


def value_estimate(values: Sequence[Any], clusters: Sequence[str | None], how: Aggregation) -> Estimate:
    """Return the metric's value alone, with the reason where it has none."""
    import numpy as np

    try:
        statistic = draws_of(how, len(values)).statistic
    except BenchmarkError as error:
        return Estimate(None, None, None, None, "none", str(error))
    value = float(statistic(values, clusters, np.ones((1, len(values))))[0]) if values else math.nan
    return Estimate(
        value if math.isfinite(value) else None, None, None, None, how.by, "of a part of the items"
    )


def _is_of_project(file: Path) -> bool:
    here, file = Path.cwd().resolve(), file.resolve() if ".." in file.parts else file
    below = [folder for folder in file.parents if folder.is_relative_to(here)]
    return bool(below) and not any((folder / SUMMARY).exists() for folder in below)


def values_of(items: ItemScores, how: Aggregation) -> list[Any]:
    """Return what the function takes of each item: the score, or a tuple of it and further facts.

    None if an item lacks any.
    """
    none = [None] * len(items.examples)
    columns = [items.scores.get(how.score, none), *(items.facts.get(name, none) for name in how.beside)]
    rows = [None if None in row else row for row in zip(*columns, strict=True)]
    return rows if how.beside else columns[0]
