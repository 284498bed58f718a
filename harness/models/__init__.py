"""Checkpoint -> engine. The only place with torch and transformers, imported inside functions."""

from __future__ import annotations

from harness.checkpoints import CheckpointInfo
from harness.engines import Engine
from harness.models.settings import ModelSettings

__all__ = ["ModelSettings", "load"]


def load(info: CheckpointInfo, settings: ModelSettings) -> Engine:
    """The checkpoint, ready to answer. Raises ``CheckpointError`` when its files do not make that model."""
    if info.format == "fake":
        from harness.engines.fake import FakeEngine

        return FakeEngine(info)
    from harness.models.loading import load_model
    from harness.models.mtp_loading import load_mtp

    loaded = load_mtp(info, settings) if info.format == "mtp" else load_model(info, settings)
    if info.kind == "masked":
        from harness.models.masked import MaskedEngine

        return MaskedEngine(info, loaded, batch=settings.batch)
    from harness.models.causal import CausalEngine

    return CausalEngine(info, loaded, settings)
