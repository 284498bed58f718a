"""The properties of a checkpoint, found out without loading it and without torch.

``resolve`` turns what the user typed into ``CheckpointInfo``s, ``unique_names`` names them for one run, and
``fingerprint`` identifies their weights whatever they are called. Every mistake of the user is a one-line
``CheckpointError``. Kinds of checkpoints are a seam: ``Format``, ``Target``.
"""

from __future__ import annotations

from harness.checkpoints.fingerprint import fingerprint
from harness.checkpoints.formats.base import ENGINES, Asked, Format, LoadableFormat, Target
from harness.checkpoints.info import SERVES, CheckpointInfo, Kind
from harness.checkpoints.names import unique_names
from harness.checkpoints.registry import format_of
from harness.checkpoints.resolve import default_checkpoints, resolve

__all__ = [
    "ENGINES",
    "SERVES",
    "Asked",
    "CheckpointInfo",
    "Format",
    "Kind",
    "LoadableFormat",
    "Target",
    "default_checkpoints",
    "fingerprint",
    "format_of",
    "resolve",
    "unique_names",
]
