"""A checkpoint as its files tell of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_touchstone.checkpoints import CheckpointInfo, resolve


def only(source: Path | str, seq_len: int | None = None, **options: Any) -> CheckpointInfo:
    """The one checkpoint that the source names."""
    (info,) = resolve(str(source), seq_len=seq_len, **options)
    return info
