"""The runs of an MLflow experiment as candidates: ours, and those of any script that logs the same names.

A run is a result if it has the parameters ``dataset`` and ``checkpoint_path``. Ours have their intervals, numbers of
items, conditions and validity in metrics and tags; of others the values, epoch and step are known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_touchstone.compare.candidate import Candidate, Entry, Source, published, published_entry
from pytest_touchstone.compare.formats.base import Table
from pytest_touchstone.compare.formats.task_metrics import primary_of
from pytest_touchstone.compare.tracked.client import client, place_of, search
from pytest_touchstone.compare.tracked.names import IDENTITY, METRICS, tracker_name
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.text import count, did_you_mean, listed
from pytest_touchstone.results.store_entry import StoredResult
from pytest_touchstone.results.summary import Metric


def read_experiment(name: str, sizes: Mapping[str, int] = MappingProxyType({})) -> Table:
    """Return the results of an experiment; ``sizes`` are numbers of items by benchmark, where runs do not say.

    Raises ``HarnessError`` where there is none, or it cannot be read."""
    with client() as mlflow:
        found = mlflow.get_experiment_by_name(name)
        if found is None:
            known = [one.name for one in mlflow.search_experiments()]
            near = did_you_mean(name, known) or f"there are {listed(known)}"
            raise DataError(
                f"--from-mlflow {name}: no such experiment at {place_of(mlflow)}; {near.rstrip()}"
            )
        runs = list(search(mlflow, found.experiment_id))
    table = candidates_of(runs, name, sizes)
    if not table:
        raise DataError(
            f"--from-mlflow {name}: no run there with the parameters dataset and checkpoint_path, and metrics"
        )
    return Table(tuple(table))


def candidates_of(
    runs: Iterable[Any], experiment: str, sizes: Mapping[str, int] = MappingProxyType({})
) -> list[Candidate]:
    """Return the checkpoints of the runs, each as often as there are runs of ours that scored it."""
    found: dict[tuple[str, str], Candidate] = {}
    composites: dict[tuple[str, str], dict[str, Metric]] = {}
    left_out = 0
    for run in sorted(runs, key=lambda one: (one.info.start_time, one.info.run_name or "")):
        tags, params = run.data.tags, run.data.params
        path = params.get("checkpoint_path", "")
        checkpoint = tags.get("checkpoint") or Path(path).name
        key = (tags.get(IDENTITY, ""), path or checkpoint)
        if tags.get("kind") == "composite":
            composites.setdefault(key, {})[tags["composite"]] = _metric(
                run.data.metrics, tracker_name(tags["composite"]), tags["composite"], "MLflow"
            )
        if not params.get("dataset") or not checkpoint or not run.data.metrics:
            continue
        if run.info.status == "RUNNING":
            left_out += 1
            continue
        saved = _ours(run, checkpoint) if METRICS in tags else _others(run, checkpoint, experiment, sizes)
        if key in found and saved.benchmark in found[key].entries:
            key = (
                run.info.run_id,
                path,
            )  # somebody scored it twice, which two runs of ours tell by themselves
        one = found.setdefault(
            key, Candidate(checkpoint, f"MLflow experiment {experiment}", _about(params, tags))
        )
        one.entries[saved.benchmark] = Entry(saved)
    for key, known in composites.items():
        if key in found:
            found[key].composites.update(known)
    return _noted(list(found.values()), left_out)


def _noted(candidates: list[Candidate], left_out: int) -> list[Candidate]:
    if left_out and candidates:
        note = f"{count(left_out, 'run')} of the experiment left out: not ended yet"
        candidates[0] = replace(candidates[0], notes=(note,))
    return candidates


def _about(params: Mapping[str, str], tags: Mapping[str, str]) -> dict[str, Any]:
    path = params.get("checkpoint_path", "")
    series = tags.get("series") or (str(Path(path).parent) if "/" in path else None)
    known = {
        "series": series,
        "step": _whole(params.get("checkpoint_step")),
        "epoch": _number(params.get("checkpoint_epoch")),
        "seq_len": _whole(params.get("seq_len")),
        "val_loss": _number(params.get("checkpoint_val_loss")),
    }
    return {name: value for name, value in known.items() if value is not None}


def _ours(run: Any, checkpoint: str) -> StoredResult:
    tags, params, metrics = run.data.tags, run.data.params, run.data.metrics
    names: dict[str, list[str]] = json.loads(tags[METRICS])
    known = {ours: _metric(metrics, name, ours, method) for name, (ours, method) in names.items()}
    run_id, _, began = tags[IDENTITY].rpartition("@")

    def items(*kinds: str) -> int:
        return sum(int(metrics.get(f"items/{kind}", 0)) for kind in kinds)

    faults = items("errors", "timeouts", "lost")
    about = _about(params, tags)
    return StoredResult(
        run_id=run_id,
        directory="",
        began=float(began),
        checkpoint=checkpoint,
        fingerprint=tags.get("fingerprint", ""),
        path=params.get("checkpoint_path", ""),
        step=about.get("step"),
        benchmark=params["dataset"],
        primary=tags["primary"],
        conditions=json.loads(tags["touchstone.conditions"]),
        aggregate=json.loads(tags["touchstone.aggregate"]),
        metrics=known,
        collected=items("collected"),
        scored=items("scored"),
        skipped=items("skipped"),
        faults=faults,
        invalid=None if faults else tags.get("why_not_valid"),
        items_sha256="",
        checkpoint_info=about,
        of=items("of"),
        mark=tags.get("mark", ""),
        composites=json.loads(tags.get("touchstone.composites", "null")),
    )


def _metric(metrics: Mapping[str, float], name: str, ours: str, method: str) -> Metric:
    front = f"interval/{name}"
    return Metric(
        name=ours,
        value=metrics.get(name),
        low=metrics.get(f"{front}/low"),
        high=metrics.get(f"{front}/high"),
        stderr=metrics.get(f"{front}/stderr"),
        n=int(metrics.get(f"n/{name}", 0)),
        method=method,
    )


def _others(run: Any, checkpoint: str, experiment: str, sizes: Mapping[str, int]) -> StoredResult:
    """Return the result of somebody else's run: its metrics without an interval."""
    params = run.data.params
    values = {re.sub(r"_at_(\d+)", r"@\1", name): value for name, value in run.data.metrics.items()}
    benchmark = params["dataset"]
    n = sizes.get(benchmark, 0)
    metrics = {name: published(name, value, n=n) for name, value in values.items() if "/" not in name}
    return published_entry(
        benchmark,
        metrics,
        primary=primary_of(benchmark, metrics),
        source=Source(f"MLflow experiment {experiment}", run.info.run_id),
        name=checkpoint,
        about=_about(params, run.data.tags),
        conditions={
            name: json.loads(params[key])
            for name, key in (("samples", "num_samples"), ("temperature", "temperature"))
            if _number(params.get(key)) is not None
        },
    )


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    found = _number(text)
    return None if found is None or found != int(found) else int(found)
