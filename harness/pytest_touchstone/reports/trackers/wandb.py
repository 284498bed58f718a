"""Weights & Biases: upload by its package. With ``WANDB_MODE=offline`` it writes files for ``wandb sync``.

Each of our runs is a group there, and each part of it a run with an id derived from its content. What was sent whole is
marked in the folder that the package keeps of it, and is not sent again; the rest is resumed by its id.
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
from pytest_touchstone.reports.trackers.payload import (
    MetricPoint,
    Pictures,
    TrackedRun,
    UploadResult,
    place_name,
)

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
    """A Weights & Biases server, or the files of its offline mode."""

    name = "wandb"
    title = "Weights & Biases"
    where = "with WANDB_MODE=offline, to files"
    place = "project"
    variable = "WANDB_PROJECT"

    def missing(self) -> str | None:
        """Return what must be installed first, None if nothing."""
        if importlib.util.find_spec("wandb") is None:
            return "Weights & Biases is not installed: pip install 'pytest-touchstone[wandb]'"
        return None

    def send(
        self, identity: str, runs: Sequence[TrackedRun], settings: Mapping[str, Any], pictures: Pictures
    ) -> UploadResult:
        """Send the runs, the parent last, with the pictures. Raises ``TrackerError``."""
        server = "its own settings"
        with talking(PATIENCE, lambda: server):
            import wandb

            wandb_settings = wandb.setup().settings
            server = without_password(str(wandb_settings.base_url))
            try:
                if wandb_settings.mode == "disabled":
                    raise TrackerError("WANDB_MODE is disabled; set it to online, or to offline")
                project, folder = place_name(self, settings), Path(wandb_settings.wandb_dir)
                new = numbers = sent_files = 0
                for run in (*runs[1:], runs[0]):
                    key = (wandb_settings.base_url, wandb_settings.entity, project, identity, run.key)
                    run_id = hashlib.sha256(repr(key).encode("utf-8", "backslashreplace")).hexdigest()[:16]
                    if any(folder.glob(f"{wandb_settings.run_mode}-*-{run_id}/{MARK}")):
                        continue
                    files = {**run.files, **(pictures() if run is runs[0] else {})}
                    _send_run(wandb, run, run_id, files, project=project, group=identity)
                    new += 1
                    numbers += len(run.points)
                    sent_files += len(files)
                where = f"of {server}"
                if wandb_settings.run_mode != "run":
                    where = f"in {shown_path(folder)}, offline; `wandb sync` uploads it"
                return UploadResult(f"project {project} {where}", len(runs), new, numbers, sent_files)
            finally:
                wandb.teardown()


def _send_run(
    wandb: Any, run: TrackedRun, run_id: str, files: Mapping[str, Path], *, project: str, group: str
) -> None:
    """Send a tracker's run with its files, and mark the run as complete."""
    started = wandb.init(
        project=project,
        group=group,
        job_type=run.kind,
        name=run.name,
        id=run_id,
        resume="allow" if wandb.setup().settings.run_mode == "run" else None,
        config={**run.tags, **run.params},
        tags=[f"{name}:{run.tags[name]}"[:LONGEST_TAG] for name in TAGS if name in run.tags],
        notes=None if run.why_not is None else f"NOT VALID: {run.why_not}",
        settings=wandb.Settings(**SETTINGS),
    )
    for step, numbers in steps_of(run.points):
        started.log(numbers, step=step)
    if files:
        artifact = wandb.Artifact(artifact_name(run.name, run_id), "results")
        for name, path in files.items():
            artifact.add_file(str(path), name=name)
        started.log_artifact(artifact)
    folder = Path(started.dir).parent
    started.finish(exit_code=0 if run.why_not is None else 1)
    disk.append_text(folder / MARK, "")


def steps_of(points: Sequence[MetricPoint]) -> list[tuple[int, dict[str, float]]]:
    """Return the numbers by step, in ascending order. The package refuses a step below the previous one."""
    numbers: dict[int, dict[str, float]] = {}
    for point in points:
        numbers.setdefault(point.step, {})[point.name] = point.value
    return sorted(numbers.items())


def artifact_name(name: str, run_id: str) -> str:
    """Return a valid artifact name that is unique within a project."""
    end = f"-{run_id[:8]}"
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)[: LONGEST_NAME - len(end)] + end
