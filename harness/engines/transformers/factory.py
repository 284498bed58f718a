"""Checkpoint -> engine. The only place with torch and transformers, imported inside functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.checkpoints import CheckpointInfo
from harness.engines.base import Engine
from harness.engines.settings import ModelSettings

if TYPE_CHECKING:
    from harness.engines.transformers.loading import Loaded

__all__ = ["ModelSettings", "engine_of", "load", "load_weights"]


def load(info: CheckpointInfo, settings: ModelSettings) -> Engine:
    """The checkpoint, ready to answer. Raises ``CheckpointError`` when its files do not make that model."""
    if info.format == "fake":
        from harness.engines.fake import FakeEngine

        return FakeEngine(info)
    if info.format == "adapter":
        from harness.engines.transformers.pool import EnginePool

        return EnginePool(settings).engine(info)
    return engine_of(info, load_weights(info, settings), settings)


def load_weights(info: CheckpointInfo, settings: ModelSettings) -> Loaded:
    """Model and tokenizer of a checkpoint that is a model by itself. Raises ``CheckpointError`` when its files do not
    make that model."""
    if info.format == "mtp":
        from harness.engines.transformers.mtp import load_mtp

        return load_mtp(info, settings)
    from harness.engines.transformers.loading import load_model

    return load_model(info, settings)


def engine_of(info: CheckpointInfo, loaded: Loaded, settings: ModelSettings) -> Engine:
    """The engine of a model that is loaded."""
    if info.kind == "masked":
        from harness.engines.transformers.masked import MaskedEngine

        return MaskedEngine(info, loaded, batch=settings.batch)
    from harness.engines.transformers.causal import CausalEngine

    return CausalEngine(info, loaded, settings)
