"""Causal engines for tests: each way of computing can be had, and forward passes can be watched or made to fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.engines.settings import Dtype, ModelSettings, Speculative, Texts
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.compat import quiet
from pytest_touchstone.engines.transformers.generation.batch import BatchGenerator
from pytest_touchstone.engines.transformers.pool import load_weights

if TYPE_CHECKING:
    import torch

DEVICE = os.environ.get("TESTS_DEVICE", "cpu")
"""The device of the engines: ``TESTS_DEVICE=cuda pytest tests/engines/transformers`` tests them on a GPU."""

ON_CPU = pytest.mark.skipif(DEVICE != "cpu", reason="this is about the ways and the counts of a CPU")


def engine_for(
    folder: Path,
    *,
    device: str = DEVICE,
    dtype: Dtype = "auto",
    batch: int | None = None,
    speculative: Speculative = "auto",
    texts: Texts = "auto",
    together: bool = True,
) -> CausalEngine:
    """An engine of its own; not ``together``, each request is computed by itself."""
    (info,) = resolve(str(folder), seq_len=None)
    how: dict[str, Any] = {"speculative": speculative, "texts": texts}
    settings = ModelSettings(device=device, batch=batch, threads=1, dtype=dtype, **how)
    return CausalEngine(info, load_weights(info, settings), settings, together=together)


def generates_together(engine: CausalEngine) -> bool:
    """Return whether many texts are generated at once; found out with a probe before the first."""
    with quiet():
        return isinstance(engine._generator(), BatchGenerator)


def before_each_pass(engine: Any, look: Callable[[torch.Size], None]) -> None:
    """Tell ``look``, before each forward pass, its rows and columns; what it raises the model raises."""

    def hook(_model: Any, _args: Any, inputs: dict[str, Any]) -> None:
        look(inputs["input_ids"].shape)

    engine.loaded.model.register_forward_pre_hook(hook, with_kwargs=True)


def short_of_memory(engine: Any, most: int, error: Exception) -> list[int]:
    """Make forward passes over more than ``most`` tokens fail; the sizes of those that do not."""
    sizes: list[int] = []

    def look(cells: torch.Size) -> None:
        if cells.numel() > most:
            raise error
        sizes.append(cells.numel())

    before_each_pass(engine, look)
    return sizes


def out_of_memory(kind: str) -> Exception:
    """What torch raises where the memory of an accelerator, or of the CPU, runs out."""
    import torch

    if kind == "accelerator":
        return torch.OutOfMemoryError("out of memory")
    return RuntimeError(
        "[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: 9 bytes"
    )
