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
    Pictures,
    TrackedRun,
    UploadResult,
    place_name,
    texts,
)

LONGEST_PARAM: Final = 500
"""The characters of a parameter that every server takes; newer ones take 6000."""
LONGEST_TAG: Final = 5000


class MLflow:
    """An MLflow server, or a local database."""

    name = "mlflow"
    title = "MLflow"
    where = "MLFLOW_TRACKING_URI says where"
    place = "experiment"
    variable = "MLFLOW_EXPERIMENT_NAME"

    def missing(self) -> str | None:
        """Return what must be installed or configured first, None if nothing."""
        return missing()

    def send(
        self, identity: str, runs: Sequence[TrackedRun], settings: Mapping[str, Any], pictures: Pictures
    ) -> UploadResult:
        """Send the runs, the parent first. Raises ``TrackerError``."""
        name = place_name(self, settings)
        with client() as mlflow:
            existing = mlflow.get_experiment_by_name(name)
            if existing is not None and existing.lifecycle_stage != "active":
                raise TrackerError(
                    f"{place_of(mlflow)}: experiment {name} is deleted there; restore it, or give another "
                    "name by --eval-set mlflow_experiment"
                )
            experiment = str(mlflow.create_experiment(name) if existing is None else existing.experiment_id)
            filter_text = f"tags.`{IDENTITY}` = '{identity}'"
            earlier = {run.data.tags.get(KEY, ""): run for run in search(mlflow, experiment, filter_text)}
            new = len(runs) - len(earlier.keys() & {run.key for run in runs})
            numbers, files, parent = 0, 0, ""
            for run in runs:
                tags = {IDENTITY: identity, KEY: run.key}
                if parent and run.kind != "series":  # charts hide the runs below a parent until it is opened
                    tags["mlflow.parentRunId"] = parent
                tracked = earlier.get(run.key) or mlflow.create_run(experiment, tags=tags, run_name=run.name)
                parent = parent or tracked.info.run_id
                numbers += _complete(mlflow, run, tracked)
                files += _send_files(mlflow, run.files, tracked.info.run_id)
                status = "FINISHED" if run.why_not is None else "FAILED"
                if tracked.info.status != status:
                    mlflow.set_terminated(tracked.info.run_id, status)
            files += _send_files(mlflow, pictures(), parent)
            return UploadResult(f"experiment {name} of {place_of(mlflow)}", len(runs), new, numbers, files)


def _complete(client: Any, run: TrackedRun, tracked: Any) -> int:
    """Send what a run in MLflow lacks, and return the number of metric points sent."""
    from mlflow.entities import Metric, Param, RunTag

    run_id = tracked.info.run_id
    params = {re.sub(r"[^\w.\- /]", "_", name): value for name, value in texts(run.params).items()}
    tags = {**run.tags, "mlflow.source.name": "pytest-touchstone"}
    tags |= {} if run.why_not is None else {"mlflow.note.content": f"**NOT VALID**: {run.why_not}"}
    tags |= {"mlflow.source.git.commit": run.tags["commit"].split()[0]} if "commit" in run.tags else {}
    tags = {name: value[:LONGEST_TAG] for name, value in tags.items()}
    steps = {
        name: {point.step for point in client.get_metric_history(run_id, name)}
        for name in {point.name for point in run.points} & tracked.data.metrics.keys()
    }
    points = [point for point in run.points if point.step not in steps.get(point.name, ())]
    now = int(time.time() * 1000)
    client.log_batch(
        run_id,
        metrics=[Metric(point.name, point.value, now, point.step) for point in points],
        params=[
            Param(name, value[:LONGEST_PARAM])
            for name, value in params.items()
            if name not in tracked.data.params
        ],
        tags=[RunTag(*pair) for pair in tags.items() if tracked.data.tags.get(pair[0]) != pair[1]],
    )
    return len(points)


def _send_files(client: Any, files: Mapping[str, Path], run_id: str) -> int:
    """Send the files that a run in MLflow lacks, and return their number."""
    sent = {artifact.path for artifact in client.list_artifacts(run_id)} if files else ()
    lacking = [path for name, path in files.items() if name not in sent]
    for path in lacking:
        client.log_artifact(run_id, str(path))
    return len(lacking)
