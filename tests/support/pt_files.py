"""Files as ``torch.save`` writes them, for tests: small models of Llama's reference code, and one that runs code."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = {"dim": 16, "n_layers": 5, "n_heads": 2, "n_kv_heads": 2, "max_seq_len": 64, "multiple_of": 8}
HIDDEN = 48


def state_dict(*, heads: int = 4, layers: int = 2, vocabulary: int = 400, prefix: str = "") -> dict[str, Any]:
    """Random tensors of a model with so many prediction heads."""
    import torch

    generator = torch.Generator().manual_seed(0)
    dim = SIZES["dim"]
    shapes: dict[str, tuple[int, ...]] = {"tok_embeddings.weight": (vocabulary, dim)}
    for block in [f"layers.{n}" for n in range(layers)] + [f"extra_heads.{n}" for n in range(heads - 1)]:
        shapes |= {f"{block}.attention.{name}.weight": (dim, dim) for name in ("wq", "wk", "wv", "wo")}
        shapes |= {f"{block}.feed_forward.{name}.weight": (HIDDEN, dim) for name in ("w1", "w3")}
        shapes |= {f"{block}.feed_forward.w2.weight": (dim, HIDDEN)}
        shapes |= {f"{block}.{name}.weight": (dim,) for name in ("attention_norm", "ffn_norm")}
    shapes |= {"norm.weight": (dim,), "output.weight": (vocabulary, dim)}
    return {prefix + name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def llama_pt(
    path: Path,
    *,
    params: dict[str, Any] | None = None,
    change: Callable[[dict[str, Any]], object] | None = None,
    prefix: str = "",
    **values: Any,
) -> Path:
    """Writes a training script's checkpoint; ``values`` replace its parts, None leaves one out."""
    import torch

    state = state_dict(prefix=prefix)
    if change is not None:
        change(state)
    content = {
        "model_state_dict": state,
        "epoch": 3,
        "train_metrics": {"train_loss": 1.75},
        "val_metrics": {"val_loss": 1.5, "perplexity": 4.48},
        "config": {
            "model": {**SIZES, **(params or {}), "dtype": "float32"},
            "training": {"lr": 1e-4, "batch_size": 8},
            "dataset": {"name": "mbpp"},
        },
        **values,
    }
    torch.save({name: value for name, value in content.items() if value is not None}, path)
    return path


class _Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def payload(marker: Path) -> Any:
    """Something that makes the file ``marker`` when it is unpickled carelessly."""
    return _Payload(marker)
