"""Attention over a prefix that all rows share, and each row's own keys and values after it.

transformers' own functions want both as one tensor, so that the prefix would be copied for every row, in every layer,
for every token. Here the queries of all rows meet the prefix in one product.

It is registered with transformers as one more kind of attention, under the name ``NAME``. Models written for its
attention interface support it, and a probe tests whether a model's tokens stay the same.

The prefix's keys and values travel as an attribute of the tensor of the row's keys, which a cache gives to a layer
and the layer to its attention. Where the rows of several caches are in one pass, the keys and values of each travel
likewise, and the caches' masks as an attribute of a mask.

Here are also the masks of rows that hold branches and of rows that are generated, and which models can take them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.agreement import UnsupportedError, length_boundary
from pytest_touchstone.engines.transformers.compat import layer_values

if TYPE_CHECKING:
    import torch


NAME: Final = "touchstone_split"

_BEHIND: Final = "touchstone_behind"

_BESIDE: Final = "touchstone_beside"

FEW: Final = 16
"""The most tokens of a row in a pass that continues texts."""

_FEW_QUERIES: Final = 64
"""The most queries of a row that attend to its own keys by two products on a GPU."""

_LINE: Final = 16
"""The numbers of a mask's line are a multiple of these in memory, for efficient attention."""

_UNKNOWN: Final = ("s_aux", "position_bias", "head_mask")
"""Arguments by which some models change what attention computes."""


@contextmanager
def use_split_attention(model: Any) -> Iterator[None]:
    """Make the model's layers attend by ``split_attention`` within the block."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, split_attention)
    config = model.config.get_text_config()
    before = config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        if config._attn_implementation != NAME:
            raise UnsupportedError("the model's attention cannot be set")
        yield
    finally:
        model.set_attn_implementation(before)


def attach_prefix(keys: torch.Tensor, prefix: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
    """Attach the prefix [1, heads, tokens, width] of keys, or None, for ``split_attention``."""
    setattr(keys, _BEHIND, prefix)
    return keys


def attach_cache_parts(tensor: torch.Tensor, parts: Sequence[Any]) -> torch.Tensor:
    """Attach what ``split_attention`` uses instead of a tensor: the keys and values, or masks, of each cache."""
    setattr(tensor, _BESIDE, parts)
    return tensor


def attached_parts(tensor: torch.Tensor) -> Sequence[Any] | None:
    """Return the attached parts of a tensor, one per cache; None where the tensor stands for itself."""
    parts: Sequence[Any] | None = getattr(tensor, _BESIDE, None)
    return parts


def split_attention(
    _module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Attend for a layer: queries [rows, heads, length, width] -> [rows, length, heads, width].

    Raises:
        UnsupportedError: If attention has unknown arguments, or other keys than those of the cache, which would lack
            the prefix.


    """
    import torch

    if odd := [name for name in _UNKNOWN if more.get(name) is not None]:
        raise UnsupportedError(f"the model's attention has {odd[0]}")
    assert attention_mask is not None, "rows of different lengths need a mask"
    how = (query.shape[-1] ** -0.5 if scaling is None else scaling), softcap
    if (caches := attached_parts(key)) is None:
        if not hasattr(key, _BEHIND):
            raise UnsupportedError("the model's attention gets other keys than those in its cache")
        return attend_cache(query, (key, value), attention_mask, *how), None
    masks = attached_parts(attention_mask) or [attention_mask]
    asked = torch.split(query, [len(mask) for mask in masks])
    parts = zip(asked, caches, masks, strict=True)
    return torch.cat(
        [attend_cache(cache_query, cache, mask, *how) for cache_query, cache, mask in parts]
    ), None


def attend_cache(
    query: torch.Tensor,
    key_value: tuple[torch.Tensor, torch.Tensor],
    attention_mask: torch.Tensor,
    scale: float,
    softcap: float | None = None,
) -> torch.Tensor:
    """Attend for the rows of one cache: queries [rows, heads, length, width] -> [rows, length, heads, width].

    The mask is additive. It covers the rows' own keys, in which case all of the prefix is seen, or the prefix's keys
    and those. Groups of query heads that share a key are laid side by side.
    """
    import torch

    if cpu.computes_in_float32(query.dtype, query.device):
        wide = attend_cache(
            query.float(), _upcast(key_value), cpu.upcast_once(attention_mask), scale, softcap
        )
        return wide.to(query.dtype)
    key, value = key_value
    prefix = getattr(key, _BEHIND, None)
    rows, all_heads, length, width = query.shape
    heads = key.shape[1]
    group = all_heads // heads
    asked = (query * scale).reshape(rows, heads, group * length, width)
    if softcap is None and attention_mask.shape[-1] == key.shape[2]:
        attention = _attend_fused(asked, prefix, key_value, attention_mask)
        if attention is not None:
            return attention.reshape(rows, all_heads, length, -1).transpose(1, 2)
    scores = asked @ key.transpose(2, 3)
    if prefix is not None:
        folded = asked.transpose(0, 1).reshape(heads, rows * group * length, width)
        before = (folded @ prefix[0][0].transpose(1, 2)).view(heads, rows, group * length, -1)
        scores = torch.cat((before.transpose(0, 1), scores), dim=-1)
    past = scores.shape[-1] - key.shape[2]
    if softcap is not None:
        scores = (scores / softcap).tanh_().mul_(softcap)
    seen = scores if attention_mask.shape[-1] == scores.shape[-1] else scores[..., past:]
    seen.view(rows, heads, group, length, -1).add_(attention_mask[:, :, None])
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    attention = weights[..., past:] @ value
    if past and prefix is not None:
        folded = weights[..., :past].transpose(0, 1).reshape(heads, rows * group * length, past)
        attention = attention + (folded @ prefix[1][0]).view(heads, rows, group * length, -1).transpose(0, 1)
    return attention.reshape(rows, all_heads, length, -1).transpose(1, 2)


def _upcast(key_value: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return own keys and values, and the prefix before them, as float32."""
    key, value = key_value[0].float(), key_value[1].float()
    prefix = getattr(key_value[0], _BEHIND, None)
    return (key if prefix is None else attach_prefix(key, (prefix[0].float(), prefix[1].float()))), value


def _attend_fused(
    asked: torch.Tensor,
    prefix: tuple[torch.Tensor, torch.Tensor] | None,
    key_value: tuple[torch.Tensor, torch.Tensor],
    mask: torch.Tensor,
) -> torch.Tensor | None:
    """Attend to the whole prefix and to the row's own keys by torch's fused operations.

    Prefix and own keys are attended to one after the other, and the two results are weighed by the sums of their
    exponentials, as in one softmax over both.

    Args:
        asked: Scaled queries [rows, heads, group * length, width].
        prefix: Keys and values [1, heads, tokens, width], or None.
        key_value: Keys and values [rows, heads, keys, width] of the rows.
        mask: An additive mask [rows, 1, length, keys] of the own keys.

    Returns:
        Attention [rows, heads, group * length, width]; None where torch has no operation that gives these sums, or
        where products are faster for rows without a prefix.


    """
    import torch

    name = fused_attention_name(asked.device.type, str(asked.dtype), key_value[0].shape[-1])
    if name is None or key_value[0].shape[-1] != key_value[1].shape[-1]:
        return None
    if prefix is None and not cpu.attends_by_operation(asked):
        return None
    rows, heads, count, width = asked.shape
    length = mask.shape[2]
    if length > 1:
        mask = mask[:, :, None].expand(rows, 1, count // length, length, -1).reshape(rows, 1, count, -1)
    # Within ``in_float32`` the queries are wider than what is stored.
    own_keys, own_values = (tensor.to(asked.dtype) for tensor in key_value)
    if prefix is None:
        return attend_own_keys(name, asked, own_keys, own_values, mask)[0]
    keys, values = (tensor.to(asked.dtype) for tensor in prefix)
    folded = asked.transpose(0, 1).reshape(1, heads, rows * count, width)
    over_prefix = cpu.attend_all(folded[0], keys[0], values[0], 1.0) or attend_all_keys(
        name, folded, keys, values
    )
    if over_prefix is None:
        return None
    after, own_sums = attend_own_keys(name, asked, own_keys, own_values, mask)
    before = over_prefix[0].view(heads, rows, count, -1).transpose(0, 1)
    share = torch.sigmoid(own_sums - over_prefix[1].view(heads, rows, count).transpose(0, 1))
    attention: torch.Tensor = before.lerp(after, share.unsqueeze(-1).to(asked.dtype))
    return attention


def attend_all_keys(
    name: str, asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *, scale: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Attend to all keys by one of torch's operations; None where this torch does not have it.

    Return the values and the logarithms of the sums of the exponentials, in float32.
    """
    import torch

    operation = getattr(torch.ops.aten, f"_scaled_dot_product_{name}", None)
    if operation is None:
        return None
    more: tuple[Any, ...] = (0.0, False)
    if name == "efficient_attention":
        more = (None, True, 0.0, False)
    elif name == "flash_attention":
        more = (0.0, False, False)
    attention, sums, *_ = operation(asked, keys, values, *more, scale=scale)
    return attention, sums[..., : asked.shape[2]]  # efficient attention rounds their number up


def attend_own_keys(
    name: str, asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend to each row's own keys; return values and the logarithms of the sums of the exponentials.

    On a GPU flash attention takes no mask. There it is efficient attention for many queries, two products for few.
    """
    import torch

    if name == "flash_attention_for_cpu":
        operation = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        attention, sums = operation(
            asked, keys, values, 0.0, False, attn_mask=mask.to(asked.dtype), scale=1.0
        )
        return attention, sums
    if asked.shape[2] > _FEW_QUERIES:
        # Efficient attention reads a mask for all heads, whose lines begin at multiples of some numbers.
        lines = torch.nn.functional.pad(mask.to(asked.dtype), (0, -mask.shape[-1] % _LINE))
        lines = lines[..., : mask.shape[-1]].expand(-1, asked.shape[1], -1, -1)
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        attention, sums, *_ = efficient(asked, keys, values, lines, True, scale=1.0)
        return attention, sums[..., : asked.shape[2]]
    scores = (asked @ keys.transpose(2, 3)).float() + mask
    sums = scores.logsumexp(dim=-1)
    return scores.sub_(sums.unsqueeze(-1)).exp_().to(asked.dtype) @ values, sums


def fused_attention_name(device: str, dtype: str, width: int) -> str | None:
    """Return the name of torch's attention operation that also returns log-sum-exps; None if there is none.

    On a GPU, flash attention computes in half precision only, and keys of up to 256 numbers.
    """
    if device == "cpu":
        return "flash_attention_for_cpu"
    if device != "cuda" or width % 8:
        return None
    half = dtype in ("torch.bfloat16", "torch.float16")
    return "flash_attention" if half and width <= 256 else "efficient_attention"


_KNOWN: Final = {"full_attention", "sliding_attention"}

_OTHER_WINDOWS: Final = ("attention_types", "attention_chunk_size", "attn_types", "block_types")
"""Settings of models that limit attention in special ways, by place in the row and not by position."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The kinds of layers of a model, and the window of its sliding layers in tokens, itself included."""

    kinds: tuple[str, ...]
    window: int | None

    def masks(self, make: Callable[[int | None], torch.Tensor]) -> Any:
        """Return the mask of each kind of layer, made for its window; one tensor if all are of one kind."""
        by_kind = {kind: make(self.window if kind == "sliding_attention" else None) for kind in self.kinds}
        return by_kind if len(by_kind) > 1 else by_kind[self.kinds[0]]


def attention_of(model: Any) -> Attention | str:
    """Return the kinds of attention of a model, or the reason why its rows cannot hold branches."""
    config = model.config.get_text_config()
    implementation = getattr(config, "_attn_implementation", None)
    if implementation not in ("sdpa", "eager"):
        return f"its attention is {implementation}"
    if odd := [name for name in _OTHER_WINDOWS if any(layer_values(config, name))]:
        return f"it has {odd[0]}"
    if length_boundary(model)[0] is not None:
        return "its positions change with the length of the text"
    window, *others = layer_values(config, "sliding_window")
    if others:
        return "its layers have windows of several sizes"
    if getattr(config, "use_sliding_window", True) is False:
        window = None
    kinds = tuple(sorted(set(getattr(config, "layer_types", None) or ())))
    if not set(kinds) <= _KNOWN:
        return f"it has layers of kind {next(kind for kind in kinds if kind not in _KNOWN)}"
    return Attention(kinds or ("sliding_attention" if window else "full_attention",), window)


def additive_mask(
    seen_until: torch.Tensor,
    *,
    positions: torch.Tensor,
    past: int,
    window: int | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return the additive mask of rows that hold branches of a prefix tree.

    A token sees all of the past. In its row it sees itself and its ancestors to the left.

    Args:
        seen_until: For each token [rows, length], the column after the last token that sees it.
        positions: The position of each token [rows, length] in its text.
        past: The number of tokens before the rows.
        window: The number of positions that a token of a sliding layer sees, or None.
        dtype: The type of the mask.

    Returns:
        A mask [rows, 1, length, past + length]: 0 where a token is seen, else the lowest number of the type.


    """
    import torch

    device = positions.device
    rows, length = seen_until.shape
    column = torch.arange(length, device=device)
    seen = (column[:, None] >= column) & (column[:, None] < seen_until[:, None, :])
    if past:
        seen = torch.cat((torch.ones((rows, length, past), dtype=torch.bool, device=device), seen), dim=2)
    if window is not None:
        before = torch.arange(past, device=device).expand(rows, past)
        keys = torch.cat((before, positions), dim=1)
        seen &= positions[:, :, None] - keys[:, None, :] < window
    mask = torch.zeros(seen.shape, dtype=dtype, device=device)
    return mask.masked_fill_(~seen, torch.finfo(dtype).min)[:, None]


def slot_mask(
    attention_window: int | None, *, columns: torch.Tensor, past: int, until: int, dtype: torch.dtype
) -> torch.Tensor:
    """Return the additive mask of rows in slots.

    Args:
        attention_window: The number of positions that a token of a sliding layer sees, or None.
        columns: The column of each token [rows, length]; a token sees the columns up to its own.
        past: The number of tokens of the prefix.
        until: The end of the columns that are attended to.
        dtype: The type of the mask.

    Returns:
        A mask [rows, 1, length, keys]: 0 where a key is seen, else the lowest number of the type. The keys are the
        columns, after those of the prefix where the window does not reach back to its first token.


    """
    import torch

    column = torch.arange(until, device=columns.device)
    seen = column <= columns[:, :, None]
    if attention_window is not None:
        seen &= columns[:, :, None] - column < attention_window
        if past and past + until > attention_window:
            before = torch.arange(past, device=columns.device)
            seen = torch.cat((columns[:, :, None] + past - before < attention_window, seen), dim=2)
    mask = torch.zeros(seen.shape, dtype=dtype, device=columns.device)
    return mask.masked_fill_(~seen, torch.finfo(dtype).min)[:, None]
