"""The trackers that ``touchstone track`` knows, and the sending of a run to one of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.reports.trackers.artifacts import Artifacts
from pytest_touchstone.reports.trackers.base import Sent, Tracker
from pytest_touchstone.reports.trackers.mlflow import MLflow
from pytest_touchstone.reports.trackers.payload import TrackedRun, identity, tracked_runs
from pytest_touchstone.reports.trackers.secrets import Secrets
from pytest_touchstone.reports.trackers.wandb import WandB
from pytest_touchstone.results.summary import load_summary


def trackers() -> tuple[Tracker, ...]:
    """Return our trackers."""
    return (MLflow(), WandB())


class Outcome(NamedTuple):
    """The numbers of what was sent, and the files that were not, with the reason."""

    sent: Sent
    left_out: list[str]


def track(folder: Path, tracker: Tracker, settings: Mapping[str, Any]) -> Outcome:
    """Send what a tracker does not have yet of a run that ended. Raises ``HarnessError``."""
    if (lacking := tracker.missing()) is not None:
        raise HarnessError(lacking)
    summary = load_summary(folder)
    secrets = Secrets(os.environ)
    with tempfile.TemporaryDirectory(prefix="touchstone-track-") as target:
        artifacts = Artifacts(summary, Path(target), secrets)
        try:
            runs = tracked_runs(summary, artifacts.of_run(), artifacts.of_results())
        except OSError as error:
            raise HarnessError(f"{folder}: cannot be read: {error.strerror}") from error
        runs = [_without(secrets, one) for one in runs]
        sent = tracker.send(identity(summary), runs, settings, artifacts.pictures)
    return Outcome(sent, artifacts.left_out)


def _without(secrets: Secrets, one: TrackedRun) -> TrackedRun:
    removed = secrets.removed
    return replace(
        one,
        key=removed(one.key),
        name=removed(one.name),
        points=tuple(point._replace(name=removed(point.name)) for point in one.points),
        params={name: _clean(secrets, value) for name, value in one.params.items()},
        tags={name: removed(value) for name, value in one.tags.items()},
        why_not=None if one.why_not is None else removed(one.why_not),
    )


def _clean(secrets: Secrets, value: Any) -> Any:
    """Return a plain value with no key in its texts."""
    if isinstance(value, str):
        return secrets.removed(value)
    if isinstance(value, Mapping):
        return {secrets.removed(str(name)): _clean(secrets, one) for name, one in value.items()}
    return [_clean(secrets, one) for one in value] if isinstance(value, list | tuple) else value
