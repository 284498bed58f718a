"""``fake:causal`` and ``fake:masked``: no model at all, for trying out a benchmark (``engines.fake``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pytest_touchstone.checkpoints.formats.base import Asked
from pytest_touchstone.checkpoints.info import SERVES, CheckpointInfo, Kind
from pytest_touchstone.core.errors import CheckpointError

_LENGTH: Final = 2048
_KINDS: Final[dict[str, Kind]] = {"fake:causal": "causal", "fake:masked": "masked"}


class Fake:
    """The checkpoints whose names begin with ``fake:``; nothing on disk."""

    name = "fake"
    targets = ("fake:",)
    options: Mapping[str, str] = MappingProxyType({})

    def detect(self, _: Path, /) -> bool:
        """Return False: nothing on disk is one."""
        return False

    def inspect(self, path: Path, asked: Asked) -> CheckpointInfo:
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
        """None."""
        return []

    def content(self, info: CheckpointInfo) -> list[str]:
        """Its name."""
        return [info.source]
