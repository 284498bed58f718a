"""The properties of a checkpoint, found out without loading it and without torch.

``resolve`` turns what the user typed into ``CheckpointInfo``s, ``unique_names`` names them for one run, and
``fingerprint`` identifies their weights whatever they are called. Every mistake of the user is a one-line
``CheckpointError``. Kinds of checkpoints are a seam: ``CheckpointFormat``, ``SchemeHandler``.
"""

from __future__ import annotations

from pytest_touchstone.checkpoints.config_files import TrainingState
from pytest_touchstone.checkpoints.fingerprint import fingerprint
from pytest_touchstone.checkpoints.formats import format_of
from pytest_touchstone.checkpoints.formats.base import (
    ENGINES,
    CheckpointFormat,
    CheckpointRequest,
    LoadableFormat,
    SchemeHandler,
    WeightsOnlyFormat,
)
from pytest_touchstone.checkpoints.info import SERVES, CheckpointInfo, ModelKind, WeightsInfo, unique_names
from pytest_touchstone.checkpoints.resolve import default_checkpoints, resolve

__all__ = [
    "ENGINES",
    "SERVES",
    "CheckpointFormat",
    "CheckpointInfo",
    "CheckpointRequest",
    "LoadableFormat",
    "ModelKind",
    "SchemeHandler",
    "TrainingState",
    "WeightsInfo",
    "WeightsOnlyFormat",
    "default_checkpoints",
    "fingerprint",
    "format_of",
    "resolve",
    "unique_names",
]
