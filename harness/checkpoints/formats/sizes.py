"""Whether the sizes in ``config.json`` can be those of the weights, before a model is built to them.

A model is built layer by layer and its tensors are allocated by the config: a number that is far too large would cost
hours or all memory before anybody compared it with the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from harness.checkpoints.formats.config_files import ModelConfig
from harness.checkpoints.formats.tensors import Shapes
from harness.core.errors import CheckpointError

_LAYERS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_SIDES: Final = (
    *("hidden_size", "n_embd", "dim", "d_model", "embedding_size", "intermediate_size", "n_inner"),
    *("hidden_dim", "ffn_dim", "vocab_size"),
)
_COUNTS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads")

_MOST_LAYERS: Final = 1000
"""More than any model has; some share the tensors of one layer between all."""

_LAXITY: Final = 4
"""A size may be so many times the longest side in the file: packed numbers have shorter ones."""


def check_sizes(path: Path, config: ModelConfig, shapes: Shapes) -> None:
    """Raises ``CheckpointError`` for a size below 1, and for one far beyond what the weights hold."""
    longest = max((side for shape in shapes.values() for side in shape), default=0)
    for name in (*_LAYERS, *_SIDES, *_COUNTS):
        value = _number(config, name)
        if value is None:
            continue
        if value < 1:
            raise CheckpointError(f"{path}: {name}={value} is no size; save the checkpoint again")
        if name in _LAYERS and shapes and value > max(_MOST_LAYERS, len(shapes)):
            raise CheckpointError(
                f"{path}: {name}={value}, but the weights have {len(shapes)} tensors; "
                "save the checkpoint again with its own config"
            )
        if name in _SIDES and shapes and value > _LAXITY * longest:
            raise CheckpointError(
                f"{path}: {name}={value}, but the longest side of a tensor in the weights is {longest}; "
                "save the checkpoint again with its own config"
            )


def _number(config: ModelConfig, name: str) -> int | None:
    value: Any = getattr(config, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
