"""The checkpoint formats in the order in which they are tried: those of installed packages, then ours.

``fake:causal`` and ``fake:masked`` are no model at all, for trying out a benchmark (``engines.fake``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pytest_touchstone.checkpoints.formats.base import GROUP, CheckpointFormat, CheckpointRequest
from pytest_touchstone.checkpoints.formats.distributed import DistributedFormat
from pytest_touchstone.checkpoints.formats.gguf import GgufFormat
from pytest_touchstone.checkpoints.formats.llama import LlamaFormat
from pytest_touchstone.checkpoints.formats.lora import LoraFormat
from pytest_touchstone.checkpoints.formats.transformers import TransformersFormat
from pytest_touchstone.checkpoints.info import SERVES, CheckpointInfo, ModelKind
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.hooks import load_plugins

_LENGTH: Final = 2048
_KINDS: Final[dict[str, ModelKind]] = {"fake:causal": "causal", "fake:masked": "masked"}


class FakeFormat:
    """The checkpoints whose names begin with ``fake:``; nothing on disk."""

    name = "fake"
    targets = ("fake:",)
    options: Mapping[str, str] = MappingProxyType({})

    def detect(self, _: Path, /) -> bool:
        """Return False: nothing on disk is one."""
        return False

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        """Describe the causal or the masked one; there are no others."""
        if asked.source not in _KINDS:
            raise CheckpointError(f"{asked.source}: unknown; use {' or '.join(_KINDS)}")
        kind = _KINDS[asked.source]
        return CheckpointInfo(
            name=asked.source.replace(":", "-"),
            source=asked.source,
            path=path,
            kind=kind,
            format=self.name,
            model_type="fake",
            architecture="answers from hashes, no model",
            seq_len=asked.limited(path, _LENGTH),
            serves=SERVES[kind],
            engine="fake",
            cacheable=False,
        )

    def files(self, _: CheckpointInfo, /) -> list[Path]:
        """Return no files."""
        return []

    def content(self, info: CheckpointInfo) -> list[str]:
        """Return its name."""
        return [info.source]


# The formats in order


def formats() -> tuple[CheckpointFormat, ...]:
    """Return every format in the order of detection."""
    ours = (
        LoraFormat(),
        DistributedFormat(),
        LlamaFormat(),
        GgufFormat(),
        TransformersFormat(),
        FakeFormat(),
    )
    return (*load_plugins(GROUP, CheckpointError), *ours)


def format_of(info: CheckpointInfo) -> CheckpointFormat:
    """Return the format of a checkpoint.

    Raises ``CheckpointError`` if the package that provides it is not installed.
    """
    for checkpoint_format in formats():
        if checkpoint_format.name == info.format:
            return checkpoint_format
    names = ", ".join(checkpoint_format.name for checkpoint_format in formats())
    raise CheckpointError(f"{info.path}: no format is called {info.format!r}; there are {names}")
