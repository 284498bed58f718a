"""The engine of models that Transformers loads, or of our own models with the same interface.

torch and transformers are used in this folder only, and imported inside functions.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_touchstone.checkpoints import CheckpointInfo, fingerprint
from pytest_touchstone.engines.base import Engine, EngineFactory
from pytest_touchstone.engines.settings import ModelSettings


class TransformersFactory(EngineFactory):
    """Opens checkpoints in this process."""

    name = "transformers"

    def fingerprint(self, info: CheckpointInfo) -> str | None:
        """Return the fingerprint of the checkpoint's files."""
        return fingerprint(info)

    def open(self, info: CheckpointInfo, settings: ModelSettings) -> Engine:
        """Return the checkpoint, ready to answer. Raises ``CheckpointError`` when its files do not make that
        model."""
        from pytest_touchstone.engines.transformers.pool import SharedModel, engine_of, load_fused

        if info.base is not None:
            return SharedModel(settings)(info)
        return engine_of(info, load_fused(info, settings), settings)

    def fits(self, info: CheckpointInfo, settings: ModelSettings) -> bool:
        """Return whether twice the bytes of the weights are free for each of the run's processes that computes there.

        False where their number is not known.
        """
        from pytest_touchstone.engines.transformers.devices import (
            choose_device,
            free_memory,
            processes_per_device,
        )

        device = choose_device(settings.device)
        free = free_memory(device)
        if free is None or info.weights.parameters is None:
            return False
        wide = settings.dtype == "float32" or (settings.dtype == "auto" and device.type == "cpu")
        needed = 2 * info.weights.parameters * (4 if wide else 2)
        return needed * processes_per_device(settings.device, device, settings.processes) <= free

    def sharing(self, settings: ModelSettings) -> Callable[[CheckpointInfo], Engine]:
        """Return a function that opens a base and its adapters, with the base's weights loaded once."""
        from pytest_touchstone.engines.transformers.compat import import_libraries
        from pytest_touchstone.engines.transformers.pool import SharedModel

        import_libraries()  # before the object is there: what exists by then is never collected
        return SharedModel(settings)
