"""The sizes of a multi-token-prediction model, from ``params.json`` or a ``config.json`` with transformers' names.

The architecture: Gloeckle et al. 2024, "Better & Faster Large Language Models via Multi-token Prediction", as
the model card of its 7B models has it. Of ``n_layers`` blocks the last ``n_future_tokens`` are heads: head 0 is the
last of ``layers``, the others are ``extra_heads``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.core.errors import CheckpointError

_NAMES: Final = {
    "dim": ("dim", "hidden_size"),
    "n_layers": ("n_layers", "num_hidden_layers"),
    "n_heads": ("n_heads", "num_attention_heads"),
    "n_kv_heads": ("n_kv_heads", "num_key_value_heads"),
    "vocab_size": ("vocab_size",),
    "norm_eps": ("norm_eps", "rms_norm_eps"),
    "rope_theta": ("rope_theta",),
    "max_seq_len": ("max_seq_len", "max_position_embeddings"),
    "n_future_tokens": ("n_future_tokens",),
    "multiple_of": ("multiple_of",),
    "ffn_dim_multiplier": ("ffn_dim_multiplier",),
    "intermediate_size": ("intermediate_size",),
}
"""Each setting under the names that files have it, the reference code's first."""

_UNKNOWN: Final = ("use_scaled_rope", "rope_scaling")
"""Settings that change what the model computes, in ways that this architecture does not have."""

DEFAULT_LENGTH: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpConfig:
    """``hidden``: width of the feed-forward part; ``vocab_size`` None: as many as there are embeddings."""

    dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    hidden: int
    vocab_size: int | None = None
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    max_seq_len: int = DEFAULT_LENGTH
    n_future_tokens: int = 1

    @property
    def head_dim(self) -> int:
        """Width of an attention head."""
        return self.dim // self.n_heads

    @property
    def blocks(self) -> int:
        """Blocks in ``layers``: the trunk and head 0."""
        return self.n_layers - self.n_future_tokens + 1

    @property
    def extra_heads(self) -> int:
        """Heads beyond head 0."""
        return self.n_future_tokens - 1

    def shapes(self, vocabulary: int) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor of the model."""
        found: dict[str, tuple[int, ...]] = {"tok_embeddings.weight": (vocabulary, self.dim)}
        blocks = [f"layers.{number}" for number in range(self.blocks)]
        for block in (*blocks, *(f"extra_heads.{number}" for number in range(self.extra_heads))):
            found |= {f"{block}.{name}": shape for name, shape in self._block().items()}
        return found | {"norm.weight": (self.dim,), "output.weight": (vocabulary, self.dim)}

    def _block(self) -> dict[str, tuple[int, ...]]:
        queries, keys = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        return {
            "attention.wq.weight": (queries, self.dim),
            "attention.wk.weight": (keys, self.dim),
            "attention.wv.weight": (keys, self.dim),
            "attention.wo.weight": (self.dim, queries),
            "feed_forward.w1.weight": (self.hidden, self.dim),
            "feed_forward.w2.weight": (self.dim, self.hidden),
            "feed_forward.w3.weight": (self.hidden, self.dim),
            "attention_norm.weight": (self.dim,),
            "ffn_norm.weight": (self.dim,),
        }


def is_params(found: Any) -> bool:
    """Return whether it holds a model's sizes, under either kind of names."""
    return isinstance(found, Mapping) and any(name in found for name in _NAMES["dim"])


def config_of(params: Mapping[str, Any], where: str) -> MtpConfig:
    """The checked sizes. ``where`` is what messages call their place. Raises ``CheckpointError``."""
    values = _Values(params, where)
    if odd := [name for name in _UNKNOWN if params.get(name)]:
        raise CheckpointError(
            f"{where}: {odd[0]}={params[odd[0]]!r} is not part of the multi-token-prediction architecture"
        )
    dim, heads = values.count("dim"), values.count("n_heads")
    theta = (
        params.get("rope_parameters", {}) if isinstance(params.get("rope_parameters"), Mapping) else {}
    ).get("rope_theta", 10000.0)
    made = MtpConfig(
        dim=dim,
        n_layers=values.count("n_layers"),
        n_heads=heads,
        n_kv_heads=values.count("n_kv_heads", heads),
        hidden=values.count("intermediate_size", _hidden(values, dim)),
        vocab_size=None if values.get("vocab_size") in (None, -1) else values.count("vocab_size"),
        norm_eps=values.number("norm_eps", 1e-5),
        rope_theta=values.number("rope_theta", theta),
        max_seq_len=values.count("max_seq_len", DEFAULT_LENGTH),
        n_future_tokens=values.count("n_future_tokens", 1),
    )
    _check(made, where)
    return made


def _hidden(values: _Values, dim: int) -> int:
    """Width of the feed-forward part by the rule of Llama's reference code: two thirds of four times ``dim``,
    by ``ffn_dim_multiplier``, up to the next multiple of ``multiple_of``."""
    hidden = 2 * 4 * dim // 3
    if values.get("ffn_dim_multiplier") is not None:
        hidden = int(values.number("ffn_dim_multiplier", 1.0) * hidden)
    multiple = values.count("multiple_of", 256)
    return multiple * ((hidden + multiple - 1) // multiple)


def _check(made: MtpConfig, where: str) -> None:
    if made.dim % made.n_heads or made.head_dim % 2:
        raise CheckpointError(
            f"{where}: dim={made.dim} does not divide into {made.n_heads} attention heads of even width; "
            "correct dim or n_heads"
        )
    if made.n_heads % made.n_kv_heads:
        raise CheckpointError(
            f"{where}: n_heads={made.n_heads} is no multiple of n_kv_heads={made.n_kv_heads}; correct one of them"
        )
    if made.n_future_tokens > made.n_layers:
        raise CheckpointError(
            f"{where}: n_future_tokens={made.n_future_tokens} is more than n_layers={made.n_layers}, "
            "which counts the heads too; correct one of them"
        )


class _Values:
    """Settings by the reference code's names."""

    def __init__(self, params: Mapping[str, Any], where: str) -> None:
        self._params, self._where = params, where

    def get(self, name: str) -> Any:
        """The value under the first of its names that is there, else None."""
        found = (self._params[one] for one in _NAMES[name] if self._params.get(one) is not None)
        return next(found, None)

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number from 1 up."""
        value = default if (found := self.get(name)) is None else found
        if value is None:
            raise CheckpointError(
                f"{self._where}: {' or '.join(_NAMES[name])} is missing; "
                "copy params.json from the model that was trained"
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise CheckpointError(f"{self._where}: {name}={value!r} is no whole number from 1 up; correct it")
        return value

    def number(self, name: str, default: Any) -> float:
        """A finite number above 0."""
        value = default if (found := self.get(name)) is None else found
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise CheckpointError(f"{self._where}: {name}={value!r} is no number above 0; correct it")
        return float(value)
