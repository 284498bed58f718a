"""Weights & Biases: sending, by its package. With ``WANDB_MODE=offline`` it writes files that ``wandb sync`` uploads.

Each of our runs is a group there, and each part of it a run with an id of its own, made of what it is. What was sent
whole is marked in the folder that the package keeps of it, and is not sent again; what was not is resumed by its id.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.compare.mlflow import TrackerError, talking, without_password
from pytest_touchstone.core import disk
from pytest_touchstone.core.files import shown_path
from pytest_touchstone.reports.trackers.payload import MetricPoint, Pictures, Sent, TrackedRun, place_name

MARK: Final = "touchstone-sent"
"""The file in the package's folder of a run that was sent whole."""

TAGS: Final = ("kind", "valid", "benchmark", "checkpoint", "mark", "fingerprint", "commit")
LONGEST_TAG: Final = 64
LONGEST_NAME: Final = 128
PATIENCE: Final = {"WANDB_INIT_TIMEOUT": "20", "WANDB_SILENT": "true"}
"""By itself it waits 90 seconds for a first answer."""

SETTINGS: Final[Mapping[str, Any]] = {
    "console": "off",
    "save_code": False,
    "disable_git": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}
"""Nothing is told of the machine and the command line of the sender."""


class WandB:
    """A server of Weights & Biases, or the files of its offline mode."""

    name = "wandb"
    title = "Weights & Biases"
    where = "with WANDB_MODE=offline, to files"
    place = "project"
    variable = "WANDB_PROJECT"

    def missing(self) -> str | None:
        """Return what must be installed first."""
        if importlib.util.find_spec("wandb") is None:
            return "Weights & Biases is not installed: pip install 'pytest-touchstone[wandb]'"
        return None

    def send(
        self, identity: str, runs: Sequence[TrackedRun], settings: Mapping[str, Any], pictures: Pictures
    ) -> Sent:
        """Send the runs, the parent last, with the pictures. Raises ``TrackerError``."""
        place = "its own settings"
        with talking(PATIENCE, lambda: place):
            import wandb

            place = without_password(str(wandb.setup().settings.base_url))
            try:
                sending = _Sending(wandb, identity, place_name(self, settings))
                for one in runs[1:]:
                    sending.complete(one)
                sending.complete(runs[0], pictures)
                return sending.sent(len(runs))
            finally:
                wandb.teardown()


class _Sending:
    """One call: it knows which folders the package has of the run already."""

    def __init__(self, wandb: Any, identity: str, project: str) -> None:
        self._wandb = wandb
        self._identity = identity
        self._project = project
        self._own = wandb.setup().settings
        if self._own.mode == "disabled":
            raise TrackerError("WANDB_MODE is disabled; set it to online, or to offline")
        self._offline = self._own.run_mode != "run"
        self._folder = Path(self._own.wandb_dir)
        self._numbers = self._files = self._new = 0

    def sent(self, runs: int) -> Sent:
        """Return the outcome."""
        if self._offline:
            where = f"in {shown_path(self._folder)}, offline; `wandb sync` uploads it"
        else:
            where = f"of {without_password(str(self._own.base_url))}"
        return Sent(f"project {self._project} {where}", runs, self._new, self._numbers, self._files)

    def complete(self, one: TrackedRun, pictures: Pictures = dict) -> None:
        """Send a part of the run, unless it was sent whole already."""
        place = (self._own.base_url, self._own.entity, self._project, self._identity, one.key)
        run_id = hashlib.sha256(repr(place).encode("utf-8", "backslashreplace")).hexdigest()[:16]
        if any(self._folder.glob(f"{self._own.run_mode}-*-{run_id}/{MARK}")):
            return
        files = {**one.files, **pictures()}
        run = self._started(one, run_id)
        for step, numbers in steps_of(one.points):
            run.log(numbers, step=step)
        if files:
            artifact = self._wandb.Artifact(artifact_name(one.name, run_id), "results")
            for name, path in files.items():
                artifact.add_file(str(path), name=name)
            run.log_artifact(artifact)
        folder = Path(run.dir).parent
        run.finish(exit_code=0 if one.why_not is None else 1)
        disk.append_text(folder / MARK, "")
        self._new += 1
        self._numbers += len(one.points)
        self._files += len(files)

    def _started(self, one: TrackedRun, run_id: str) -> Any:
        return self._wandb.init(
            project=self._project,
            group=self._identity,
            job_type=one.kind,
            name=one.name,
            id=run_id,
            resume=None if self._offline else "allow",
            config={**one.tags, **one.params},
            tags=[f"{name}:{one.tags[name]}"[:LONGEST_TAG] for name in TAGS if name in one.tags],
            notes=None if one.why_not is None else f"NOT VALID: {one.why_not}",
            settings=self._wandb.Settings(**SETTINGS),
        )


def steps_of(points: Sequence[MetricPoint]) -> list[tuple[int, dict[str, float]]]:
    """Return the numbers of each step in order, as the package takes them: it refuses a step that is before another."""
    found: dict[int, dict[str, float]] = {}
    for point in points:
        found.setdefault(point.step, {})[point.name] = point.value
    return sorted(found.items())


def artifact_name(name: str, run_id: str) -> str:
    """Return a name that the package takes for an artifact, no two alike in a project."""
    end = f"-{run_id[:8]}"
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)[: LONGEST_NAME - len(end)] + end
