"""MLflow: its client, the names of metrics there, and the runs of an experiment as candidates.

Runs are ours, and those of any script that logs the same names. A run is a result if it has the parameters ``dataset``
and ``checkpoint_path`` or ``checkpoint``. Ours have their intervals, numbers of items, conditions and validity in
metrics and tags; of others the values, epoch and step are known, and of several of a checkpoint the newest counts.

``MLFLOW_TRACKING_URI`` says where the server is. By itself the client waits two minutes for an answer and repeats a
request seven times. Here that is 10 seconds and once more, unless its own variables say otherwise.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pytest_touchstone.compare.candidate import (
    BenchmarkScores,
    CheckpointResults,
    ResultSource,
    published,
    result_from_totals,
)
from pytest_touchstone.compare.formats.base import ResultTable
from pytest_touchstone.compare.formats.task_metrics import primary_of
from pytest_touchstone.core.errors import DataError, HarnessError
from pytest_touchstone.core.text import count, did_you_mean, join_names
from pytest_touchstone.results.store_entry import StoredResult
from pytest_touchstone.results.summary import Metric

ADDRESS: Final = "MLFLOW_TRACKING_URI"
PATIENCE: Final[Mapping[str, str]] = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    "MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT": "30",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


class TrackerError(HarnessError):
    """A tracker does not answer, or not as it should; the message says where and why."""


def missing() -> str | None:
    """Return what must be installed or set before there is a client, None where nothing is missing; quick."""
    if importlib.util.find_spec("mlflow") is None:
        return "MLflow is not installed: pip install 'pytest-touchstone[mlflow]'"
    if not os.environ.get(ADDRESS) and importlib.util.find_spec("sqlalchemy") is None:
        return f"{ADDRESS} is not set; give the address of your server, such as http://localhost:5000"
    return None


@contextmanager
def talking(patience: Mapping[str, str], address: Callable[[], str]) -> Iterator[None]:
    """Set a client's variables unless they are set, and turn all errors into ``TrackerError``."""
    added = {name: value for name, value in patience.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:  # whatever the server answered
        raise TrackerError(f"{address()}: {reason(error)}") from error
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def client() -> Iterator[Any]:
    """Open an ``MlflowClient``; raises ``TrackerError`` if MLflow is missing or any call fails."""
    if (lacking := missing()) is not None:
        raise TrackerError(lacking)
    address = without_password(os.environ.get(ADDRESS, "MLflow"))
    with talking(PATIENCE, lambda: address):
        from mlflow import MlflowClient

        mlflow_client = MlflowClient()
        address = place_of(mlflow_client)
        yield mlflow_client


def search(client: Any, experiment: str, wanted: str = "") -> Iterator[Any]:
    """Yield all runs of an experiment that fit, page by page."""
    token = None
    while True:
        page = client.search_runs([experiment], filter_string=wanted, max_results=1000, page_token=token)
        yield from page
        if not (token := page.token):
            return


def place_of(client: Any) -> str:
    """Return the address without a password."""
    return without_password(str(client.tracking_uri))


def without_password(address: str) -> str:
    """Return an address without user and password."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", address)


_REASONS: Final = (
    (r"timed? ?out", "no answer in time"),
    (r"Connection refused|NewConnectionError", "no server listens there"),
    (r"Name or service not known|NameResolutionError|getaddrinfo", "no such host"),
    (r"(?:error code|too many) (\d{3})", "answers with error {}"),
    (r"Connection aborted|RemoteDisconnected|Connection reset", "the connection broke"),
)


def reason(error: Exception) -> str:
    """Return in a few words why a request failed: MLflow's own sentence is several lines long."""
    text = " ".join(str(error).split())
    for pattern, template in _REASONS:
        if match := re.search(pattern, text, re.IGNORECASE):
            return template.format(*match.groups())
    return without_password(f"{type(error).__name__}: {text[:200]}")


# Names in a tracker


IDENTITY: Final = "touchstone.run"
KEY: Final = "touchstone.key"
METRICS: Final = "touchstone.metrics"
"""Tags by which our runs are known: the run, the part of it, and the names and methods of its metrics."""


def tracker_name(name: str) -> str:
    """Return a metric's or group's name as trackers take it: ``pass_at_1`` for ``pass@1``.

    Names with other characters that no tracker takes get six digits of their hash, so that no two become one.
    """
    escaped = name.replace("@", "_at_")
    safe = re.sub(r"[^\w.\- ]", "_", escaped)
    if safe.strip(".") and safe == escaped:
        return safe
    return f"{safe.strip('.')}-{hashlib.sha256(name.encode('utf-8', 'backslashreplace')).hexdigest()[:6]}"


# Reading an experiment


def read_experiment(name: str, sizes: Mapping[str, int] = MappingProxyType({})) -> ResultTable:
    """Return the results of an experiment; ``sizes`` are numbers of items by benchmark, where runs do not say.

    Raises ``HarnessError`` where there is none, or it cannot be read."""
    with client() as mlflow:
        experiment = mlflow.get_experiment_by_name(name)
        if experiment is None:
            names = [other.name for other in mlflow.search_experiments()]
            near = did_you_mean(name, names) or f"there are {join_names(names)}"
            raise DataError(
                f"--from-mlflow {name}: no such experiment at {place_of(mlflow)}; {near.rstrip()}"
            )
        runs = list(search(mlflow, experiment.experiment_id))
    table = candidates_of(runs, name, sizes)
    if not table:
        raise DataError(
            f"--from-mlflow {name}: no run there with the parameters dataset and checkpoint_path or checkpoint, and "
            "metrics"
        )
    return ResultTable(tuple(table))


def candidates_of(
    runs: Iterable[Any], experiment: str, sizes: Mapping[str, int] = MappingProxyType({})
) -> list[CheckpointResults]:
    """Return the checkpoints of the runs, each as often as there are runs of ours that scored it.

    Of several runs of others the newest counts.
    """
    candidates: dict[tuple[str, str], CheckpointResults] = {}
    composites: dict[tuple[str, str], dict[str, Metric]] = {}
    left_out = older = 0
    for run in sorted(runs, key=lambda run: (run.info.start_time, run.info.run_name or "")):
        tags, params = run.data.tags, run.data.params
        path = _path(params)
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
        candidate = candidates.setdefault(
            key, CheckpointResults(checkpoint, f"MLflow experiment {experiment}", _about(params, tags))
        )
        older += saved.benchmark in candidate.entries
        candidate.entries[saved.benchmark] = BenchmarkScores(saved)
    for key, composite_metrics in composites.items():
        if key in candidates:
            candidates[key].composites.update(composite_metrics)
    return _noted(list(candidates.values()), {"not ended yet": left_out, "scored again by newer runs": older})


def _noted(candidates: list[CheckpointResults], left_out: Mapping[str, int]) -> list[CheckpointResults]:
    notes = tuple(
        f"{count(runs, 'run')} of the experiment left out: {why}" for why, runs in left_out.items() if runs
    )
    return [replace(candidate, notes=notes) for candidate in candidates[:1]] + candidates[1:]


def _path(params: Mapping[str, str]) -> str:
    """Return the checkpoint's path. Scripts name it either way; a composite of ours has its name as ``checkpoint``."""
    return params.get("checkpoint_path") or params.get("checkpoint", "")


def _about(params: Mapping[str, str], tags: Mapping[str, str]) -> dict[str, Any]:
    path = _path(params)
    series = tags.get("series") or (str(Path(path).parent) if "/" in path else None)
    facts = {
        "series": series,
        "step": _whole(params.get("checkpoint_step")),
        "epoch": _number(params.get("checkpoint_epoch")),
        "seq_len": _whole(params.get("seq_len")),
        "val_loss": _number(params.get("checkpoint_val_loss")),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _ours(run: Any, checkpoint: str) -> StoredResult:
    tags, params, metrics = run.data.tags, run.data.params, run.data.metrics
    names: dict[str, list[str]] = json.loads(tags[METRICS])
    converted = {ours: _metric(metrics, name, ours, method) for name, (ours, method) in names.items()}
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
        metrics=converted,
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
    """Return the result of another program's run: its metrics without an interval."""
    params = run.data.params
    values = {re.sub(r"_at_(\d+)", r"@\1", name): value for name, value in run.data.metrics.items()}
    benchmark = params["dataset"]
    n = sizes.get(benchmark, 0)
    metrics = {name: published(name, value, n=n) for name, value in values.items() if "/" not in name}
    return result_from_totals(
        benchmark,
        metrics,
        primary=primary_of(benchmark, metrics),
        source=ResultSource(f"MLflow experiment {experiment}", run.info.run_id),
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
    number = _number(text)
    return None if number is None or number != int(number) else int(number)
