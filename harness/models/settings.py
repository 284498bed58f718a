"""How checkpoints are loaded and run; plain values, so that it can be made without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Dtype: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Settings of a model engine.

    ``dtype`` auto: float32 on a CPU, the checkpoint's own on an accelerator. ``device``: auto, cpu, cuda,
    cuda:INDEX or mps. ``batch``: sequences computed at once, None for as many as a budget of tokens allows.
    ``threads``: CPU threads, None for torch's default.
    """

    dtype: Dtype = "auto"
    device: str = "auto"
    batch: int | None = None
    threads: int | None = None
