"""Multi-token prediction (Gloeckle et al. 2024) in PyTorch: a Llama trunk with one block per head.

The trunk is all of ``layers`` but the last. Head 0 is the last of ``layers``, head i is ``extra_heads[i - 1]``, each
applied to the same trunk; then come ``norm`` and ``output``. Head i at position t predicts token t + 1 + i. Rotary
positions rotate adjacent numbers as complex pairs, as Llama's reference code does.

To the engines ``MtpModel`` looks like a causal model of transformers; its answers are head 0's. With extra heads
(``drafts``) it also leaves in caches that keep state what those heads need later. First come the keys and values of
all extra heads side by side, as one layer after head 0's; then the trunk itself, which ``draft`` reads.

The sizes come from ``params.json`` or a ``config.json`` with transformers' names (``config_of``). Of ``n_layers``
blocks the last ``n_future_tokens`` are heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import AliasChoices, ConfigDict, Field

from pytest_touchstone.checkpoints.config_files import LlamaParams, check_table
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.transformers.split_attention import NAME, split_attention

if TYPE_CHECKING:
    import torch

_UNKNOWN: Final = ("use_scaled_rope", "rope_scaling")
"""Settings that change what the model computes, in ways that this architecture does not have."""

DEFAULT_LENGTH: Final = 2048


class MtpConfig(LlamaParams):
    """Sizes and settings of a model, under Llama's or transformers' names.

    ``vocab_size`` None: the number of embeddings.
    """

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, protected_namespaces=())

    n_layers: int = Field(validation_alias=AliasChoices("n_layers", "num_hidden_layers"), gt=0)
    n_kv_heads: int = Field(0, validation_alias=AliasChoices("n_kv_heads", "num_key_value_heads"), gt=0)
    norm_eps: float = Field(1e-5, validation_alias=AliasChoices("norm_eps", "rms_norm_eps"), gt=0)
    max_seq_len: int = Field(
        DEFAULT_LENGTH, validation_alias=AliasChoices("max_seq_len", "max_position_embeddings"), gt=0
    )
    n_future_tokens: int = Field(1, gt=0)
    rope_theta: float = Field(0.0, gt=0)
    rope_parameters: dict[str, Any] = Field(default_factory=dict)
    multiple_of: int = Field(256, gt=0)
    ffn_dim_multiplier: float = Field(1.0, gt=0)
    intermediate_size: int = Field(0, gt=0)

    def model_post_init(self, _context: Any) -> None:
        """Fill in what the files leave out.

        The width of the feed-forward part then follows the rule of Llama's reference code: two thirds of four times
        ``dim``, times ``ffn_dim_multiplier``, rounded up to the next multiple of ``multiple_of``.
        """
        wide = int(self.ffn_dim_multiplier * (2 * 4 * self.dim // 3))
        self.intermediate_size = self.intermediate_size or -(-wide // self.multiple_of) * self.multiple_of
        self.n_kv_heads = self.n_kv_heads or self.n_heads
        self.vocab_size = None if self.vocab_size == -1 else self.vocab_size
        self.rope_theta = float(self.rope_theta or self.rope_parameters.get("rope_theta", 10000.0))
        self.rope_parameters = {}

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
        queries, keys = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        block_shapes = {
            "attention.wq.weight": (queries, self.dim),
            "attention.wk.weight": (keys, self.dim),
            "attention.wv.weight": (keys, self.dim),
            "attention.wo.weight": (self.dim, queries),
            "feed_forward.w1.weight": (self.intermediate_size, self.dim),
            "feed_forward.w2.weight": (self.dim, self.intermediate_size),
            "feed_forward.w3.weight": (self.intermediate_size, self.dim),
            "attention_norm.weight": (self.dim,),
            "ffn_norm.weight": (self.dim,),
        }
        blocks = [f"layers.{number}" for number in range(self.blocks)]
        blocks += [f"extra_heads.{number}" for number in range(self.extra_heads)]
        return {
            "tok_embeddings.weight": (vocabulary, self.dim),
            **{f"{block}.{name}": shape for block in blocks for name, shape in block_shapes.items()},
            "norm.weight": (self.dim,),
            "output.weight": (vocabulary, self.dim),
        }


def config_of(params: Mapping[str, Any], where: str) -> MtpConfig:
    """Return the checked sizes. Raises ``CheckpointError``.

    ``where`` names their place in messages.
    """
    if odd := [name for name in _UNKNOWN if params.get(name)]:
        raise CheckpointError(
            f"{where}: {odd[0]}={params[odd[0]]!r} is not part of the multi-token-prediction architecture"
        )
    given = {name: value for name, value in params.items() if value is not None}
    config = check_table(Path(where), given, MtpConfig)
    if config.dim % config.n_heads or config.head_dim % 2:
        raise CheckpointError(
            f"{where}: dim={config.dim} does not divide into {config.n_heads} attention heads of even width; "
            "correct dim or n_heads"
        )
    if config.n_heads % config.n_kv_heads:
        raise CheckpointError(
            f"{where}: n_heads={config.n_heads} is no multiple of n_kv_heads={config.n_kv_heads}; correct one of them"
        )
    if config.n_future_tokens > config.n_layers:
        raise CheckpointError(
            f"{where}: n_future_tokens={config.n_future_tokens} is more than n_layers={config.n_layers}, "
            "which counts the heads too; correct one of them"
        )
    return config


Put = Callable[[str, "torch.Tensor"], None]
"""Copies the numbers of the named tensor into another tensor."""

Shapes = Mapping[str, tuple[int, ...]]
"""The shape of every tensor by its name."""


class MtpOutput(NamedTuple):
    """Logits [rows, length, vocabulary] of head 0."""

    logits: torch.Tensor


class _Block(NamedTuple):
    """The weights of a block [out, in].

    Queries, keys and values are one table, gate and input of the feed-forward part another. Several blocks side by
    side have [blocks, out, in].
    """

    attention_norm: torch.Tensor
    wqkv: torch.Tensor
    wo: torch.Tensor
    ffn_norm: torch.Tensor
    w13: torch.Tensor
    w2: torch.Tensor


_PARTS = {
    "attention_norm": ("attention_norm",),
    "wqkv": ("attention.wq", "attention.wk", "attention.wv"),
    "wo": ("attention.wo",),
    "ffn_norm": ("ffn_norm",),
    "w13": ("feed_forward.w1", "feed_forward.w3"),
    "w2": ("feed_forward.w2",),
}


class _Pass(NamedTuple):
    """The data that all layers of a forward pass share.

    These are the rotations [rows, length, 1, width / 2] of the positions, an additive mask or None, and a cache or
    None.
    """

    rotations: torch.Tensor
    mask: torch.Tensor | None
    cache: Any


class MtpModel:
    """The model. ``drafts``: how many extra heads it was given."""

    def __init__(
        self, config: MtpConfig, vocabulary: int, put: Put, *, drafts: bool, dtype: Any, device: Any
    ) -> None:
        """``put`` is called once for every tensor, but not for those of the extra heads without ``drafts``."""
        import torch
        from transformers import PreTrainedConfig

        self.dtype, self.device = dtype, device
        self.drafts = config.extra_heads if drafts else 0
        self._config = config
        shapes, to = config.shapes(vocabulary), {"dtype": dtype, "device": device}

        def made(name: str) -> torch.Tensor:
            tensor = torch.empty(shapes[name], **to)
            put(name, tensor)
            return tensor

        # On the device "meta" a layer is made without numbers, which are put in here.
        self._embeddings = torch.nn.Embedding(vocabulary, config.dim, device="meta")
        self._embeddings.weight = torch.nn.Parameter(made("tok_embeddings.weight"), requires_grad=False)
        self._layers = [
            _Block(*(weight[0] for weight in _load_blocks(put, shapes, [f"layers.{number}"], **to)))
            for number in range(config.blocks)
        ]
        names = [f"extra_heads.{number}" for number in range(self.drafts)]
        heads = _load_blocks(put, shapes, names, **to)
        # The norms [heads, rows, dim] have a dimension for rows.
        self._heads = heads._replace(
            attention_norm=heads.attention_norm.unsqueeze(-2), ffn_norm=heads.ffn_norm.unsqueeze(-2)
        )
        self._norm = made("norm.weight")
        self._output = torch.nn.Linear(config.dim, vocabulary, bias=False, device="meta")
        self._output.weight = torch.nn.Parameter(made("output.weight"), requires_grad=False)
        steps = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=device) / config.head_dim
        self._frequencies = 1.0 / config.rope_theta**steps
        # The trunk itself, kept for the extra heads, counts as one layer.
        layers = config.blocks + (self.drafts + 1 if self.drafts else 0)
        self.config = PreTrainedConfig(
            hidden_size=config.dim,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=layers,
            num_attention_heads=config.n_heads,
            num_key_value_heads=config.n_kv_heads,
            head_dim=config.head_dim,
            attn_implementation="sdpa",
        )

    def __call__(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        cache: Any = None,
        use_cache: bool = False,
    ) -> MtpOutput:
        """Return the logits of head 0.

        Without an additive mask [rows, 1, length, keys] every token sees those to its left; padding, which a mask of
        two dimensions may name, must be on the right.
        """
        import torch

        del use_cache  # with a cache it is used
        past = 0 if cache is None else cache.get_seq_length()
        if position_ids is None:
            position_ids = past + torch.arange(input_ids.shape[1], device=self.device)[None]
        mask = attention_mask if attention_mask is not None and attention_mask.dim() == 4 else None
        if mask is None and past and input_ids.shape[1] > 1:
            raise RuntimeError("several tokens behind others need an additive mask")
        state = _Pass(self._rotations_of(position_ids), mask, cache)
        hidden = self._embeddings(input_ids)
        for number, layer in enumerate(self._layers[:-1]):
            hidden = self._forward_block(layer, hidden, state, number)
        if self.drafts and getattr(cache, "keeps", False):
            self._keep_for_drafts(hidden, state)
        hidden = self._forward_block(self._layers[-1], hidden, state, len(self._layers) - 1)
        return MtpOutput(self._output(self._rms_norm(hidden, self._norm)))

    def draft(
        self, cache: Any, mask: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits of the extra heads after one token of each row.

        Args:
            cache: A cache that this model has filled.
            mask: The additive mask of the columns that each row sees.
            rows: The index of each row in the cache.
            columns: The column of the token of each row.

        Returns:
            Logits of shape [rows, extra heads, vocabulary].

        """
        import torch

        heads, config = self._heads, self._config
        trunk = cache.seen(len(self._layers) + 1)[0][rows, 0, columns].to(heads.wqkv.dtype)
        rotations = self._rotations_of((columns + cache.past)[:, None])[:, 0]
        normed = self._rms_norm(trunk, heads.attention_norm)  # [heads, rows, dim]
        queries = torch.bmm(normed, heads.wqkv[:, : config.dim].transpose(1, 2))
        queries = queries.view(self.drafts, len(trunk), config.n_heads, config.head_dim)
        query = _apply_rotary(queries, rotations).transpose(0, 1).reshape(len(trunk), -1, 1, config.head_dim)
        key, value = cache.seen(len(self._layers))
        attention, _ = split_attention(None, query, key, value, mask)
        attention = attention.reshape(len(trunk), self.drafts, -1).transpose(0, 1)
        hidden = trunk + torch.bmm(attention, heads.wo.transpose(1, 2))
        gate_up = torch.bmm(self._rms_norm(hidden, heads.ffn_norm), heads.w13.transpose(1, 2))
        hidden = hidden + torch.bmm(_swiglu(gate_up), heads.w2.transpose(1, 2))
        logits: torch.Tensor = self._output(self._rms_norm(hidden, self._norm))
        return logits.transpose(0, 1)

    def get_input_embeddings(self) -> Any:
        """Return the layer that the first layer reads from."""
        return self._embeddings

    def get_output_embeddings(self) -> Any:
        """Return the layer whose results are logits."""
        return self._output

    def set_attn_implementation(self, name: str) -> None:
        """Set the attention: ``sdpa``, or the name of ``split_attention``."""
        if name not in ("sdpa", NAME):
            raise ValueError(f"{name!r} is no attention of this model")
        self.config._attn_implementation = name

    def _forward_block(
        self, block: _Block, hidden: torch.Tensor, state: _Pass, layer_idx: int
    ) -> torch.Tensor:
        """Run one pre-norm transformer block: attention, then SwiGLU, each with a residual connection."""
        from torch.nn import functional

        config = self._config
        batch, length, _ = hidden.shape
        qkv = functional.linear(self._rms_norm(hidden, block.attention_norm), block.wqkv)
        qkv = qkv.view(batch, length, -1, config.head_dim)
        n_rotary = config.n_heads + config.n_kv_heads  # values are not rotated
        query_key = _apply_rotary(qkv[:, :, :n_rotary], state.rotations).transpose(1, 2)
        query, key = query_key[:, : config.n_heads], query_key[:, config.n_heads :]
        value = qkv[:, :, n_rotary:].transpose(1, 2)
        if state.cache is not None:
            key, value = state.cache.update(key, value, layer_idx)
        attention = self._attend(query, key, value, state.mask).reshape(batch, length, config.dim)
        hidden = hidden + functional.linear(attention, block.wo)
        gate_up = functional.linear(self._rms_norm(hidden, block.ffn_norm), block.w13)
        return hidden + functional.linear(_swiglu(gate_up), block.w2)

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Return attention [rows, length, heads, width] of queries, keys and values [rows, heads, length, width]."""
        from torch.nn import functional

        if self.config._attn_implementation == NAME:
            return split_attention(None, query, key, value, mask)[0]
        if (group := self._config.n_heads // self._config.n_kv_heads) > 1:
            key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
        causal = mask is None and query.shape[2] > 1
        attention = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=causal
        )
        return attention.transpose(1, 2)

    def _keep_for_drafts(self, trunk: torch.Tensor, state: _Pass) -> None:
        """Store in the cache what ``draft`` reads: the keys and values of the extra heads, and the trunk."""
        import torch

        config = self._config
        rows, length, _ = trunk.shape
        normed = self._rms_norm(trunk.reshape(-1, config.dim), self._heads.attention_norm)
        key_value = torch.bmm(normed, self._heads.wqkv[:, config.dim :].transpose(1, 2))
        key_value = key_value.view(self.drafts, rows, length, 2 * config.n_kv_heads, config.head_dim)
        keys, values = key_value[..., : config.n_kv_heads, :], key_value[..., config.n_kv_heads :, :]
        # [heads, rows, length, keys, width] -> [rows, heads x keys, length, width]
        keys_values = [
            tensor.permute(1, 0, 3, 2, 4).reshape(rows, -1, length, config.head_dim)
            for tensor in (_apply_rotary(keys, state.rotations), values)
        ]
        state.cache.update(keys_values[0], keys_values[1], len(self._layers))
        itself = trunk[:, None]
        state.cache.update(itself, itself[..., :0], len(self._layers) + 1)

    def _rms_norm(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Apply RMSNorm, in float32 up to the weight as in the reference code."""
        import torch

        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self._config.norm_eps)
        return wide.to(hidden.dtype) * weight

    def _rotations_of(self, positions: torch.Tensor) -> torch.Tensor:
        """Return positions [rows, length] as complex numbers [rows, length, 1, width / 2] on the unit circle."""
        import torch

        angles = (positions[..., None].float() * self._frequencies)[:, :, None]
        return torch.polar(torch.ones_like(angles), angles)


def _load_blocks(put: Put, shapes: Shapes, names: Sequence[str], **to: Any) -> _Block:
    """Return the stacked weights of several blocks; each tensor has the number of blocks as first dimension."""
    import torch

    parts = {}
    for field, tensors in _PARTS.items():
        heights = [shapes[f"{names[0]}.{tensor}.weight"][0] for tensor in tensors] if names else [0]
        width = shapes[f"{names[0]}.{tensors[0]}.weight"][1:] if names else ()
        parts[field] = torch.empty((len(names), sum(heights), *width), **to)
        for name, block in zip(names, parts[field], strict=True):
            for tensor, rows in zip(tensors, block.split(heights), strict=True):
                put(f"{name}.{tensor}.weight", rows)
    return _Block(**parts)


def _apply_rotary(heads: torch.Tensor, rotations: torch.Tensor) -> torch.Tensor:
    """Return queries or keys [..., length, heads, width] rotated by position, adjacent numbers as a pair."""
    import torch

    pairs = torch.view_as_complex(heads.float().view(*heads.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotations).flatten(-2).to(heads.dtype)


def _swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up of gate and up [..., gate and up]."""
    from torch.nn import functional

    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up
