"""Checkpoints to break."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A fresh copy of the tiny checkpoint, to change or break."""
    return Path(shutil.copytree(whole, tmp_path / "checkpoint-7"))
