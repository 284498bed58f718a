"""The progress of a checkpoint, and the account that its own files give of its training."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.checkpoints.formats.config_files import TrainerState, read_json

_DEEPEST: Final = 6
_LONGEST: Final = 400
_MOST_VALUES: Final = 2000


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Step, epoch, the last validation loss, and the settings of the training as plain values."""

    global_step: int | None = None
    epoch: float | None = None
    val_loss: float | None = None
    training: dict[str, Any] = field(default_factory=dict)


def progress_of(folder: Path) -> TrainingState:
    """The state in ``trainer_state.json``; the step else from the folder's name."""
    path = folder / "trainer_state.json"
    if not path.is_file():
        return TrainingState(step_in(folder.resolve().name))
    state = read_json(path, TrainerState)
    losses = [entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry]
    settings = {
        "max_steps": state.max_steps,
        "num_train_epochs": state.num_train_epochs,
        "train_batch_size": state.train_batch_size,
        "best_metric": state.best_metric,
    }
    known = {name: value for name, value in settings.items() if value is not None}
    return TrainingState(state.global_step, state.epoch, number(losses[-1]) if losses else None, known)


def step_of_row(row: Mapping[str, Any]) -> int | None:
    """The step of a checkpoint as a manifest, a result file or a table has it: the trainer's, by either name. A place
    in the series that only its name or its epoch gives is no step: ``gpt2`` is not step 2."""
    return row["global_step"] if "global_step" in row else row.get("step")


def step_in(name: str) -> int | None:
    """The step in the name of a folder or file, None where the name has none."""
    named = re.fullmatch(r"(?:checkpoint|step|global_step)[-_]?(?:step[-_]?)?(\d+)", name)
    return int(named[1]) if named else None


def number(value: object) -> float | None:
    """A finite number as a float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def plain(value: object) -> Any:
    """The value with nothing in it but tables, lists, text and finite numbers, cut where it is deep or long."""
    return _plain(value, _DEEPEST, [_MOST_VALUES])


def _plain(value: object, deeper: int, left: list[int]) -> Any:
    """The same of a part; ``left`` counts the values that may still come, as a few bytes of a pickle can name one
    value many times."""
    left[0] -= 1
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return value if number(value) is not None and abs(value) < 1 << 63 else None
    if isinstance(value, str):
        return value[:_LONGEST]
    if deeper and left[0] > 0 and isinstance(value, dict):
        names = [key for key in value if isinstance(key, (str, int)) and left[0] > 0]
        return {str(key)[:_LONGEST]: _plain(value[key], deeper - 1, left) for key in names[: max(0, left[0])]}
    if deeper and left[0] > 0 and isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return [_plain(one, deeper - 1, left) for one in value[: left[0]]]
    return str(getattr(value, "shown", "…"))
