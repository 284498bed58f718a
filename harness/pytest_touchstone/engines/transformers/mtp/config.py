"""The sizes of a multi-token-prediction model, from ``params.json`` or a ``config.json`` with transformers' names.

The architecture: Gloeckle et al. 2024, "Better & Faster Large Language Models via Multi-token Prediction", as in the
model card of its 7B models. Of ``n_layers`` blocks the last ``n_future_tokens`` are heads: head 0 is the last of
``layers``, the others are ``extra_heads``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import AliasChoices, ConfigDict, Field

from pytest_touchstone.checkpoints.config_files import LlamaParams, check_table
from pytest_touchstone.core.errors import CheckpointError

_UNKNOWN: Final = ("use_scaled_rope", "rope_scaling")
"""Settings that change what the model computes, in ways that this architecture does not have."""

DEFAULT_LENGTH: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpConfig:
    """``hidden``: width of the feed-forward part; ``vocab_size`` None: the number of embeddings."""

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
        """The width of an attention head."""
        return self.dim // self.n_heads

    @property
    def blocks(self) -> int:
        """The number of blocks in ``layers``: the trunk and head 0."""
        return self.n_layers - self.n_future_tokens + 1

    @property
    def extra_heads(self) -> int:
        """The number of heads beyond head 0."""
        return self.n_future_tokens - 1

    def shapes(self, vocabulary: int) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor of the model."""
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


class _Params(LlamaParams):
    """Sizes and settings as in the files, under either set of names; their types are checked strictly."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, protected_namespaces=())

    n_layers: int = Field(validation_alias=AliasChoices("n_layers", "num_hidden_layers"), gt=0)
    n_kv_heads: int | None = Field(
        None, validation_alias=AliasChoices("n_kv_heads", "num_key_value_heads"), gt=0
    )
    norm_eps: float = Field(1e-5, validation_alias=AliasChoices("norm_eps", "rms_norm_eps"), gt=0)
    max_seq_len: int = Field(
        DEFAULT_LENGTH, validation_alias=AliasChoices("max_seq_len", "max_position_embeddings"), gt=0
    )
    n_future_tokens: int = Field(1, gt=0)
    rope_theta: float | None = Field(None, gt=0)
    rope_parameters: dict[str, Any] = Field(default_factory=dict)
    multiple_of: int = Field(256, gt=0)
    ffn_dim_multiplier: float = Field(1.0, gt=0)
    intermediate_size: int | None = Field(None, gt=0)

    @property
    def hidden(self) -> int:
        """Return the width of the feed-forward part.

        By default it follows the rule of Llama's reference code: two thirds of four times ``dim``, times
        ``ffn_dim_multiplier``, rounded up to the next multiple of ``multiple_of``.
        """
        wide = int(self.ffn_dim_multiplier * (2 * 4 * self.dim // 3))
        return self.intermediate_size or -(-wide // self.multiple_of) * self.multiple_of


def config_of(params: Mapping[str, Any], where: str) -> MtpConfig:
    """Return the checked sizes. Raises ``CheckpointError``.

    ``where`` names their place in messages.
    """
    if odd := [name for name in _UNKNOWN if params.get(name)]:
        raise CheckpointError(
            f"{where}: {odd[0]}={params[odd[0]]!r} is not part of the multi-token-prediction architecture"
        )
    known = check_table(Path(where), {key: one for key, one in params.items() if one is not None}, _Params)
    made = MtpConfig(
        dim=known.dim,
        n_layers=known.n_layers,
        n_heads=known.n_heads,
        n_kv_heads=known.n_kv_heads or known.n_heads,
        hidden=known.hidden,
        vocab_size=None if known.vocab_size == -1 else known.vocab_size,
        norm_eps=known.norm_eps,
        rope_theta=float(known.rope_theta or known.rope_parameters.get("rope_theta", 10000.0)),
        max_seq_len=known.max_seq_len,
        n_future_tokens=known.n_future_tokens,
    )
    _check(made, where)
    return made


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
