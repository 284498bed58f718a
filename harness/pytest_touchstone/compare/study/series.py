"""Series in words: what is known of each training, its steps per epoch, and ``[tool.touchstone.series]``.

    [tool.touchstone.series.mlm_v2]                  # a training, at every length
    data = "KLUE news and Wikipedia"
    method = "masked LM from scratch"

    [tool.touchstone.series."mlm_v2/1536"]           # one series of it; what it says goes first
    note = "position table extended"

Keys are free; tables show ``data`` and ``method``, and whatever else there is. What pyproject.toml does not say is
taken from the checkpoints' own files (the base of an adapter, the number of epochs, the batch size, the data set that a
training script's config names). Nothing is guessed from names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.compare.study.points import About, Point, StepsPerEpoch
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.reading import read_toml

TABLE: Final = "tool.touchstone.series"
SHOWN: Final = ("data", "method")
"""The facts that a table of series has columns for."""


def project_series(pyproject: Path) -> dict[str, dict[str, str]]:
    """The facts of ``[tool.touchstone.series]`` by series; none where there is no such file or table.

    Raises ``DataError`` naming the key that is wrong. A file that is not TOML is left to others to report.
    """
    try:
        tables = read_toml(pyproject)
    except (OSError, ValueError):
        return {}
    table = tables.get("tool", {}).get("touchstone", {}).get("series", {})
    if not isinstance(table, Mapping):
        raise DataError(f"{pyproject}: [{TABLE}] is {table!r}; give a table for each series")
    found = {}
    for name, facts in table.items():
        if not isinstance(facts, Mapping):
            raise DataError(f'{pyproject}: [{TABLE}] {name} is {facts!r}; give a table: data = "..."')
        for key, value in facts.items():
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise DataError(f"{pyproject}: [{TABLE}.{name}] {key} is {value!r}; give a text or a number")
        found[name] = {key: str(value) for key, value in facts.items()}
    return found


def about_series(
    name: str,
    training: str,
    rows: Iterable[Mapping[str, Any]],
    told: Mapping[str, Mapping[str, str]],
) -> About:
    """The known facts of a series: by the project's table, and by the ``rows`` of its checkpoints."""
    noted: dict[str, list[str]] = {}
    for row in rows:
        for key, value in _noted(row).items():
            known = noted.setdefault(key, [])
            known += [value] if value not in known else []
    return About(
        told={**told.get(training, {}), **told.get(name, {})},
        noted={key: ", ".join(values) for key, values in noted.items()},
    )


def _noted(row: Mapping[str, Any]) -> dict[str, str]:
    """The facts that a checkpoint's own files give of its training."""
    training = row.get("training") if isinstance(row.get("training"), Mapping) else {}
    config = training.get("config") if isinstance(training, Mapping) else None
    dataset = config.get("dataset") if isinstance(config, Mapping) else None
    if isinstance(dataset, Mapping):
        dataset = next((dataset[key] for key in ("name", "path", "train") if dataset.get(key)), None)
    base = row.get("base")
    known = {
        "data": dataset,
        "method": f"{'adapter' if row.get('by_peft') else 'LoRA'} on {base['name']}"
        if isinstance(base, Mapping) and base.get("name")
        else None,
        "model": row.get("model_type"),
        "epochs": (training or {}).get("num_train_epochs"),
        "steps": (training or {}).get("max_steps"),
        "batch size": (training or {}).get("train_batch_size"),
    }
    return {key: str(value) for key, value in known.items() if isinstance(value, (str, int, float)) and value}


def steps_per_epoch(
    points: Iterable[Point], training: Mapping[str, Any] | None = None
) -> StepsPerEpoch | None:
    """The steps of an epoch; None where no point has both a step and an epoch above 0.

    ``training`` may have ``max_steps`` and ``num_train_epochs``, which say it. Else it follows from the points. An
    epoch lies within half a unit of the last decimal that any point of the series has, so every point allows a range;
    the whole numbers in all of the ranges are left. Where all points give one number it is that.
    """
    steps, epochs = (training or {}).get("max_steps"), (training or {}).get("num_train_epochs")
    if steps and epochs:
        return StepsPerEpoch(steps / epochs, steps / epochs, f"{steps} steps in {epochs:g} epochs")
    known = [(point.step, point.epoch) for point in points if point.step and point.epoch]
    if not known:
        return None
    ratios = [step / epoch for step, epoch in known if step and epoch]
    if max(ratios) - min(ratios) <= 1e-3 * min(ratios):
        middle = ratios[-1]
        return StepsPerEpoch(middle, middle, "every checkpoint's step and epoch give it")
    half = 0.5 * 10.0 ** -max(_decimals(epoch) for _, epoch in known if epoch)
    lows = [step / (epoch + half) for step, epoch in known if step and epoch]
    highs = [step / (epoch - half) if epoch > half else math.inf for step, epoch in known if step and epoch]
    low, high = math.ceil(max(lows) - 1e-9), math.floor(min([*highs, 2.0**53]) + 1e-9)
    if low <= high < 2**53:
        return StepsPerEpoch(low, high, "epochs are rounded; these whole numbers are what all of them allow")
    return StepsPerEpoch(min(ratios), max(ratios), "the checkpoints' steps and epochs contradict each other")


def _decimals(value: float) -> int:
    text = repr(float(value))
    return 0 if "e" in text else len(text.partition(".")[2].rstrip("0"))
