"""Checkpoint -> engine. The only place with torch and transformers, imported inside functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.checkpoints import CheckpointInfo
from harness.engines import Engine
from harness.models.settings import ModelSettings

if TYPE_CHECKING:
    from harness.models.loading import Loaded

__all__ = ["ModelSettings", "engine_of", "load"]


def load(info: CheckpointInfo, settings: ModelSettings) -> Engine:
    """The checkpoint, ready to answer. Raises ``CheckpointError`` when its files do not make that model."""
    if info.format == "fake":
        from harness.engines.fake import FakeEngine

        return FakeEngine(info)
    if info.format == "adapter":
        from harness.models.pool import Pool

        return Pool(settings).engine(info)
    from harness.models.loading import load_model
    from harness.models.mtp_loading import load_mtp

    loaded = load_mtp(info, settings) if info.format == "mtp" else load_model(info, settings)
    return engine_of(info, loaded, settings)


def engine_of(info: CheckpointInfo, loaded: Loaded, settings: ModelSettings) -> Engine:
    """The engine of a model that is loaded."""
    if info.kind == "masked":
        from harness.models.masked import MaskedEngine

        return MaskedEngine(info, loaded, batch=settings.batch)
    from harness.models.causal import CausalEngine

    return CausalEngine(info, loaded, settings)
