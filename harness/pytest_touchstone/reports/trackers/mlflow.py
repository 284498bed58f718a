"""MLflow: sending, by its client (``mlflow-skinny`` is enough).

Sending again sends only what is not there. Each run has the tags ``touchstone.run`` and ``touchstone.key``, by which it
is found. A metric is sent where the run has no value of it at the step, a file where there is none of its name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.compare.mlflow import IDENTITY, KEY, TrackerError, client, missing, place_of, search
from pytest_touchstone.reports.trackers.payload import (
    MetricPoint,
    Pictures,
    Sent,
    TrackedRun,
    place_name,
    texts,
)

MOST_POINTS: Final = 1000
MOST_PAIRS: Final = 100
LONGEST_PARAM: Final = 500
"""The characters of a parameter that every server takes; newer ones take 6000."""
LONGEST_TAG: Final = 5000


class MLflow:
    """A server of MLflow, or a database of its own."""

    name = "mlflow"
    title = "MLflow"
    where = "MLFLOW_TRACKING_URI says where"
    place = "experiment"
    variable = "MLFLOW_EXPERIMENT_NAME"

    def missing(self) -> str | None:
        """Return what must be installed or set first."""
        return missing()

    def send(
        self, identity: str, runs: Sequence[TrackedRun], settings: Mapping[str, Any], pictures: Pictures
    ) -> Sent:
        """Send the runs, the parent first. Raises ``TrackerError``."""
        with client() as mlflow:
            return _Sending(mlflow, place_name(self, settings), identity).all(runs, pictures)


class _Sending:
    """One call: it knows what the server has of the run already."""

    def __init__(self, client: Any, experiment: str, identity: str) -> None:
        self._client = client
        self._name = experiment
        self._identity = identity
        self._numbers = self._files = self._new = 0

    def all(self, runs: Sequence[TrackedRun], pictures: Pictures) -> Sent:
        experiment = self._experiment()
        there = self._there(experiment)
        parent = ""
        for one in runs:
            found = there.get(one.key)
            if found is None:
                found = self._created(experiment, one, parent)
            parent = parent or found.info.run_id
            self._complete(one, found)
        self._send_files(pictures(), parent)
        where = f"experiment {self._name} of {place_of(self._client)}"
        return Sent(where, len(runs), self._new, self._numbers, self._files)

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(self._name)
        if found is None:
            return str(self._client.create_experiment(self._name))
        if found.lifecycle_stage != "active":
            raise TrackerError(
                f"{place_of(self._client)}: experiment {self._name} is deleted there; restore it, or give another "
                "name by --mlflow-experiment"
            )
        return str(found.experiment_id)

    def _there(self, experiment: str) -> dict[str, Any]:
        wanted = f"tags.`{IDENTITY}` = '{self._identity}'"
        return {one.data.tags.get(KEY, ""): one for one in search(self._client, experiment, wanted)}

    def _created(self, experiment: str, one: TrackedRun, parent: str) -> Any:
        tags = {IDENTITY: self._identity, KEY: one.key}
        if parent and one.kind != "series":  # charts show what is below a parent only where that is opened
            tags["mlflow.parentRunId"] = parent
        self._new += 1
        return self._client.create_run(experiment, tags=tags, run_name=one.name)

    def _complete(self, one: TrackedRun, found: Any) -> None:
        """Send what the tracker's run lacks, and end it."""
        run_id = found.info.run_id
        params = {_key(name): value[:LONGEST_PARAM] for name, value in texts(one.params).items()}
        params = {name: value for name, value in params.items() if name not in found.data.params}
        tags = {**one.all_tags, "mlflow.source.name": "pytest-touchstone"}
        tags |= {} if one.why_not is None else {"mlflow.note.content": f"**NOT VALID**: {one.why_not}"}
        tags |= {"mlflow.source.git.commit": one.tags["commit"].split()[0]} if "commit" in one.tags else {}
        tags = {name: value[:LONGEST_TAG] for name, value in tags.items()}
        tags = {name: value for name, value in tags.items() if found.data.tags.get(name) != value}
        self._log(run_id, params, tags, self._lacking(one, found))
        self._send_files(one.files, run_id)
        status = "FINISHED" if one.why_not is None else "FAILED"
        if found.info.status != status:
            self._client.set_terminated(run_id, status)

    def _lacking(self, one: TrackedRun, found: Any) -> list[MetricPoint]:
        steps: dict[str, set[int]] = {}
        for name in {point.name for point in one.points if point.name in found.data.metrics}:
            history = self._client.get_metric_history(found.info.run_id, name)
            steps[name] = {point.step for point in history}
        return [point for point in one.points if point.step not in steps.get(point.name, ())]

    def _log(
        self, run_id: str, params: Mapping[str, str], tags: Mapping[str, str], points: Sequence[MetricPoint]
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        now = _now()
        rows: Mapping[str, tuple[list[Any], int]] = {
            "params": ([Param(*pair) for pair in params.items()], MOST_PAIRS),
            "tags": ([RunTag(*pair) for pair in tags.items()], MOST_PAIRS),
            "metrics": ([Metric(one.name, one.value, now, one.step) for one in points], MOST_POINTS),
        }
        for kind, (all_of_kind, most) in rows.items():
            for start in range(0, len(all_of_kind), most):
                self._client.log_batch(run_id, **{kind: all_of_kind[start : start + most]})
        self._numbers += len(points)

    def _send_files(self, files: Mapping[str, Path], run_id: str) -> None:
        if not files:
            return
        there = {found.path for found in self._client.list_artifacts(run_id)}
        for name, path in files.items():
            if name not in there:
                self._client.log_artifact(run_id, str(path))
                self._files += 1


def _key(name: str) -> str:
    return re.sub(r"[^\w.\- /]", "_", name)


def _now() -> int:
    return int(time.time() * 1000)
