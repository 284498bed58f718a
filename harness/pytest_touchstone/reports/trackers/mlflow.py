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
    Sent,
    TrackedRun,
    place_name,
    texts,
)

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
        name = place_name(self, settings)
        with client() as mlflow:
            known = mlflow.get_experiment_by_name(name)
            if known is not None and known.lifecycle_stage != "active":
                raise TrackerError(
                    f"{place_of(mlflow)}: experiment {name} is deleted there; restore it, or give another "
                    "name by --eval-set mlflow_experiment"
                )
            experiment = str(mlflow.create_experiment(name) if known is None else known.experiment_id)
            wanted = f"tags.`{IDENTITY}` = '{identity}'"
            there = {one.data.tags.get(KEY, ""): one for one in search(mlflow, experiment, wanted)}
            new, numbers, files, parent = len(runs) - len(there.keys() & {one.key for one in runs}), 0, 0, ""
            for one in runs:
                tags = {IDENTITY: identity, KEY: one.key}
                if (
                    parent and one.kind != "series"
                ):  # charts show what is below a parent only where that is opened
                    tags["mlflow.parentRunId"] = parent
                found = there.get(one.key) or mlflow.create_run(experiment, tags=tags, run_name=one.name)
                parent = parent or found.info.run_id
                numbers += _complete(mlflow, one, found)
                files += _send_files(mlflow, one.files, found.info.run_id)
                status = "FINISHED" if one.why_not is None else "FAILED"
                if found.info.status != status:
                    mlflow.set_terminated(found.info.run_id, status)
            files += _send_files(mlflow, pictures(), parent)
            return Sent(f"experiment {name} of {place_of(mlflow)}", len(runs), new, numbers, files)


def _complete(client: Any, one: TrackedRun, found: Any) -> int:
    """Send what the tracker's run lacks, and return how many numbers that were."""
    from mlflow.entities import Metric, Param, RunTag

    run_id = found.info.run_id
    params = {re.sub(r"[^\w.\- /]", "_", name): value for name, value in texts(one.params).items()}
    tags = {**one.tags, "mlflow.source.name": "pytest-touchstone"}
    tags |= {} if one.why_not is None else {"mlflow.note.content": f"**NOT VALID**: {one.why_not}"}
    tags |= {"mlflow.source.git.commit": one.tags["commit"].split()[0]} if "commit" in one.tags else {}
    tags = {name: value[:LONGEST_TAG] for name, value in tags.items()}
    steps = {
        name: {point.step for point in client.get_metric_history(run_id, name)}
        for name in {point.name for point in one.points} & found.data.metrics.keys()
    }
    points = [point for point in one.points if point.step not in steps.get(point.name, ())]
    now = int(time.time() * 1000)
    client.log_batch(
        run_id,
        metrics=[Metric(point.name, point.value, now, point.step) for point in points],
        params=[
            Param(name, value[:LONGEST_PARAM])
            for name, value in params.items()
            if name not in found.data.params
        ],
        tags=[RunTag(*pair) for pair in tags.items() if found.data.tags.get(pair[0]) != pair[1]],
    )
    return len(points)


def _send_files(client: Any, files: Mapping[str, Path], run_id: str) -> int:
    """Send the files that are not there, and return how many these were."""
    there = {found.path for found in client.list_artifacts(run_id)} if files else ()
    lacking = [path for name, path in files.items() if name not in there]
    for path in lacking:
        client.log_artifact(run_id, str(path))
    return len(lacking)
