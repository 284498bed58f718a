"""What a checkpoint is, found out without loading it and without torch.

``resolve`` turns what the user typed into ``CheckpointInfo``s, ``unique_names`` names them for one run, and
``fingerprint`` says which weights they are whatever they are called. Every mistake of the user is a one-line
``CheckpointError``.
"""

from __future__ import annotations

from harness.checkpoints.fingerprint import fingerprint
from harness.checkpoints.formats.base import Asked, Format
from harness.checkpoints.info import CheckpointInfo, Kind
from harness.checkpoints.names import unique_names
from harness.checkpoints.resolve import default_checkpoints, resolve

__all__ = [
    "Asked",
    "CheckpointInfo",
    "Format",
    "Kind",
    "default_checkpoints",
    "fingerprint",
    "resolve",
    "unique_names",
]
