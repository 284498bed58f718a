"""The checkpoint formats: ours in the order in which they are tried, then those of installed packages."""

from __future__ import annotations

from pytest_touchstone.checkpoints.formats.base import GROUP, Format
from pytest_touchstone.checkpoints.formats.fake import Fake
from pytest_touchstone.checkpoints.formats.gguf import Gguf
from pytest_touchstone.checkpoints.formats.llama import Llama
from pytest_touchstone.checkpoints.formats.lora import Lora
from pytest_touchstone.checkpoints.formats.transformers import Transformers
from pytest_touchstone.checkpoints.info import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.plugins import plugins


def formats() -> tuple[Format, ...]:
    """Every format; a path belongs to the first one that detects it."""
    return (Lora(), Llama(), Gguf(), Transformers(), Fake(), *plugins(GROUP, CheckpointError))


def format_of(info: CheckpointInfo) -> Format:
    """The format of a checkpoint. Raises ``CheckpointError`` where the package that knows it is gone."""
    for one in formats():
        if one.name == info.format:
            return one
    known = ", ".join(one.name for one in formats())
    raise CheckpointError(f"{info.path}: no format is called {info.format!r}; there are {known}")
