"""Attention over a prefix that all rows share, and each row's own keys and values after it.

transformers' own functions want both as one tensor, so that the prefix would be copied for every row, in every layer,
for every token. Here the queries of all rows meet the prefix in one product.

It is registered with transformers as one more kind of attention, under the name ``NAME``. Models written for its
attention interface support it, and a probe tests whether a model's tokens stay the same.

The prefix's keys and values travel as an attribute of the tensor of the row's keys, which a cache gives to a layer
and the layer to its attention. Where the rows of several caches are in one pass, the keys and values of each travel
likewise, and the caches' masks as an attribute of a mask.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.transformers.agreement import UnsupportedError
from pytest_touchstone.engines.transformers.half_precision import computes_in_float32, widened
from pytest_touchstone.engines.transformers.processor import mkl_is_faster, products_attend_faster

if TYPE_CHECKING:
    import torch

NAME: Final = "touchstone_split"

_PRODUCTS: Final = "touchstone_split_products"
"""The same without torch's own operations for attention."""

_BEHIND: Final = "touchstone_behind"

_BESIDE: Final = "touchstone_beside"

_LONG: Final = 200
_MANY: Final = 60_000
"""Tokens of a prefix, and scores of a head, from which oneDNN's products are faster than torch's operation for
attention: measured for 48 to 9,600 queries after 64 to 1,100 tokens."""

FEW: Final = 16
"""The most tokens of a row in a pass that continues texts."""

_NARROW: Final = 4
"""Queries that share a key up to which their scores are quicker to compute the other way round: keys times queries."""

_TRIED: Final = 96
"""Queries of the trial."""

_AT_ONCE: Final = 384
"""Queries whose scores are there at once."""

_PAIRED: Final = "touchstone_paired"

_FEW_QUERIES: Final = 64
"""The most queries of a row that attend to its own keys by two products on a GPU."""

_LINE: Final = 16
"""The numbers of a mask's line are a multiple of these in memory, for efficient attention."""

_ROOM: Final = 256
"""The most columns of a buffer that are computed though a mask hides them."""

_UNKNOWN: Final = ("s_aux", "position_bias", "head_mask")
"""Arguments by which some models change what attention computes."""


@contextmanager
def splitting(model: Any, *, fused: bool = True) -> Iterator[None]:
    """Make the model's layers attend by ``split_attention`` within the block.

    ``fused``: attention to a prefix is one operation of torch where the device has one, and not two products.
    """
    from transformers import AttentionInterface

    name = NAME if fused else _PRODUCTS
    AttentionInterface.register(name, split_attention if fused else _split_by_products)
    config = model.config.get_text_config()
    before = config._attn_implementation
    model.set_attn_implementation(name)
    try:
        if config._attn_implementation != name:
            raise UnsupportedError("the model's attention cannot be set")
        yield
    finally:
        model.set_attn_implementation(before)


def put_behind(keys: torch.Tensor, prefix: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
    """Mark keys as those after a prefix [1, heads, tokens, width], or after none, for ``split_attention``."""
    setattr(keys, _BEHIND, prefix)
    return keys


def put_beside(tensor: torch.Tensor, parts: Sequence[Any]) -> torch.Tensor:
    """Return the same tensor; ``split_attention`` uses the parts instead: keys and values, or masks.

    There is one part per cache, in the order of the rows.
    """
    setattr(tensor, _BESIDE, parts)
    return tensor


def beside(tensor: torch.Tensor) -> Sequence[Any] | None:
    """Return the parts that stand for a tensor, None where it stands for itself."""
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
    fused: bool = True,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Attend for a layer: queries [rows, heads, length, width] -> [rows, length, heads, width].

    Raises ``UnsupportedError`` if attention has arguments that are not known here, or keys that are not those of the
    cache: what a layer makes of them is without the prefix.
    """
    import torch

    if odd := [name for name in _UNKNOWN if more.get(name) is not None]:
        raise UnsupportedError(f"the model's attention has {odd[0]}")
    assert attention_mask is not None, "rows of different lengths need a mask"
    how = (query.shape[-1] ** -0.5 if scaling is None else scaling), softcap
    if (caches := beside(key)) is None:
        if not hasattr(key, _BEHIND):
            raise UnsupportedError("the model's attention gets other keys than those in its cache")
        return _attended(query, (key, value), attention_mask, *how, fused=fused), None
    masks = beside(attention_mask) or [attention_mask]
    asked = torch.split(query, [len(mask) for mask in masks])
    parts = zip(asked, caches, masks, strict=True)
    return torch.cat([_attended(one, cache, mask, *how, fused=fused) for one, cache, mask in parts]), None


def _split_by_products(*tensors: Any, **how: Any) -> tuple[torch.Tensor, None]:
    return split_attention(*tensors, **how, fused=False)


def _attended(
    query: torch.Tensor,
    own: tuple[torch.Tensor, torch.Tensor],
    attention_mask: torch.Tensor,
    scale: float,
    softcap: float | None,
    *,
    fused: bool,
) -> torch.Tensor:
    """Attend for the rows of one cache.

    The mask is additive. It covers the rows' own keys, in which case all of the prefix is seen, or the prefix's keys
    and those. Groups of query heads that share a key are laid side by side.
    """
    import torch

    if computes_in_float32(query.dtype, query.device):
        wide = _attended(query.float(), _wide(own), widened(attention_mask), scale, softcap, fused=fused)
        return wide.to(query.dtype)
    key, value = own
    rows, all_heads, length, width = query.shape
    if fused and length <= FEW and softcap is None and _goes_by_products(query, own, attention_mask):
        return attend_few(query, own, attention_mask, scale).view(rows, length, all_heads, -1)
    heads = key.shape[1]
    group = all_heads // heads
    asked = (query * scale).reshape(rows, heads, group * length, width)
    prefix = getattr(key, _BEHIND, None)
    if fused and softcap is None and attention_mask.shape[-1] == key.shape[2]:
        found = _by_operation(asked, prefix, own, attention_mask)
        if found is not None:
            return found.reshape(rows, all_heads, length, -1).transpose(1, 2)
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
    found = weights[..., past:] @ value
    if past and prefix is not None:
        folded = weights[..., :past].transpose(0, 1).reshape(heads, rows * group * length, past)
        found = found + (folded @ prefix[1][0]).view(heads, rows, group * length, -1).transpose(0, 1)
    return found.reshape(rows, all_heads, length, -1).transpose(1, 2)


def attend_few(
    asked: torch.Tensor, own: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor, scale: float
) -> torch.Tensor:
    """Attend for one token of each row or ``FEW``, on a CPU: queries [rows, heads, tokens, width] -> [rows, tokens,
    heads * width].

    The arguments else are those of ``split_attention``. In float32 and bfloat16 own keys and values meet the queries in
    products, which takes fewer and quicker operations than attention as a whole, but for Intel's processors. What is
    seen of the prefix counts as one more key there, whose score is the logarithm of the sum of its exponentials.
    """
    import torch

    if computes_in_float32(asked.dtype, asked.device):
        return attend_few(asked.float(), _wide(own), widened(mask), scale).to(asked.dtype)
    if not _goes_by_products(asked, own, mask):
        return _attended(asked, own, mask, scale, None, fused=True).flatten(2)
    prefix = getattr(own[0], _BEHIND, None)
    key, value = _with_room(own) if asked.dtype == torch.bfloat16 else own
    rows, all_heads, length, width = asked.shape
    heads = key.shape[1]
    # Query heads that share a key, and a row's tokens, are laid side by side.
    group, pairs = all_heads // heads * length, rows * heads
    keys, values = key.flatten(0, 1), value.flatten(0, 1)
    queries = asked.reshape(rows, heads, group, width)
    hidden = _hidden(mask, heads, group // length, key.shape[2])
    scores = _own_scores(queries.reshape(pairs, group, width), keys.transpose(1, 2), hidden, scale)
    if prefix is None:
        return _by_token(torch.bmm(scores.softmax(-1).to(values.dtype), values), asked)
    # Within ``in_float32`` the queries are wider than what is stored.
    stored_keys, stored_values = (one[0].to(asked.dtype) for one in prefix)
    by_head = queries.transpose(0, 1).reshape(heads, rows * group, width)
    over = _over_all_by_products if _pays_products(by_head, stored_keys) else _over_all_at_once
    before, sums = over(by_head, stored_keys, stored_values, scale)
    before = before.view(heads, rows, group, -1).transpose(0, 1).reshape(pairs, group, -1)
    sums = sums.view(heads, rows, group).transpose(0, 1).reshape(pairs, group, 1)
    weights = torch.cat((sums, scores), dim=-1).softmax(-1)
    if weights.dtype == asked.dtype:
        return _by_token(torch.baddbmm(before.mul_(weights[..., :1]), weights[..., 1:], values), asked)
    found = torch.bmm(weights[..., 1:].to(values.dtype), values)
    return _by_token(torch.addcmul(found.float(), before, weights[..., :1]).to(asked.dtype), asked)


def _wide(own: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return own keys and values, and the prefix before them, as float32 numbers."""
    key, value = own[0].float(), own[1].float()
    prefix = getattr(own[0], _BEHIND, None)
    return (key if prefix is None else put_behind(key, (prefix[0].float(), prefix[1].float()))), value


def _by_token(found: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
    """Return what queries [rows, heads, tokens, width] found as [rows, tokens, heads * width]."""
    rows, heads, length, _ = asked.shape
    if length == 1:
        return found.view(rows, 1, -1)
    return found.view(rows, heads, length, -1).transpose(1, 2).flatten(2)


def _with_room(own: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return own keys and values with all columns of their buffers, if these are not many more.

    In bfloat16 a product copies what does not lie densely, which takes longer than to compute what a mask hides.
    """
    columns = own[0].stride(1) // own[0].shape[3]
    if columns == own[0].shape[2] or columns > own[0].shape[2] + _ROOM:
        return own
    key, value = (part.as_strided((*part.shape[:2], columns, part.shape[3]), part.stride()) for part in own)
    return key, value


def _hidden(mask: torch.Tensor, heads: int, group: int, columns: int) -> torch.Tensor:
    """Return a mask [rows, 1, tokens, keys] for the pairs of rows and heads [pairs, group * tokens, columns], which
    hides all columns after the keys; the same in all layers of a pass. That of one token is for its whole group."""
    import torch

    made: dict[tuple[int, int, int], torch.Tensor] | None = getattr(mask, _PAIRED, None)
    if made is None:
        made = {}
        setattr(mask, _PAIRED, made)
    if (found := made.get((heads, group, columns))) is None:
        more = columns - mask.shape[-1]
        all_ = torch.nn.functional.pad(mask, (0, more), value=torch.finfo(mask.dtype).min) if more else mask
        rows, _, length, _ = all_.shape
        copies = group if length > 1 else 1
        found = all_[:, :, None].expand(rows, heads, copies, length, columns)
        found = found.reshape(rows * heads, copies * length, columns)
        made[heads, group, columns] = found
    return found


def _own_scores(
    queries: torch.Tensor, keys: torch.Tensor, hidden: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return float32 scores [pairs, group, keys] of queries [pairs, group, width] and keys [pairs, width, keys].

    A product of bfloat16 numbers is rounded to bfloat16, which is too coarse for scores. So what is rounded away is
    computed as well: a second product, from which the first is taken off before it is rounded.
    """
    import torch

    if queries.dtype == torch.float32:
        if queries.shape[1] > _NARROW:
            return torch.baddbmm(hidden, queries, keys, alpha=scale)
        turned = (one.transpose(1, 2) for one in (hidden, keys, queries))
        return torch.baddbmm(*turned, alpha=scale).transpose(1, 2)
    queries = queries * scale
    coarse = torch.bmm(queries, keys)
    rest = torch.baddbmm(coarse, queries, keys, beta=-1.0)
    return coarse.float().add_(rest).add_(hidden)


def _goes_by_products(
    asked: torch.Tensor, own: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor
) -> bool:
    """Return whether few tokens of each row attend in float32 or bfloat16 on a CPU, to all of the prefix and to own
    keys that lie in a buffer by row and head.

    False where torch's operation for attention is faster.
    """
    import torch

    return (
        not mkl_is_faster()
        and asked.dtype in (torch.float32, torch.bfloat16)
        and asked.device.type == "cpu"
        and mask.shape[-1] == own[0].shape[2]
        and all(
            part.dtype == asked.dtype
            and part.stride(0) == part.shape[1] * part.stride(1)
            and part.stride(2) == part.shape[3]
            and part.stride(3) == 1
            for part in own
        )
    )


def _over_all_at_once(
    asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend to all keys [heads, keys, width] by torch's operation for a CPU.

    Return values [heads, queries, width] and the logarithms of the sums of the exponentials [heads, queries].
    """
    name = operation_for("cpu", str(asked.dtype), asked.shape[-1])
    assert name is not None
    over_all = over_all_by(name, asked[None], keys[None], values[None], scale=scale)
    assert over_all is not None, "a CPU has the operation"
    return over_all[0][0], over_all[1][0]


def _over_all_by_products(
    asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same by products of oneDNN, of so few queries at once that their scores stay in a core's cache.

    Scores are computed in float32. In bfloat16 their exponentials are rounded before they meet the values, as in
    torch's operation, where the processor has products for that.
    """
    import torch

    compute: Any = torch.ops.mkldnn._linear_pointwise.default
    found, sums = torch.empty_like(asked, dtype=values.dtype), torch.empty(asked.shape[:2])
    asked = asked.float() * scale
    rounded = values.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    weights_type = values.dtype if rounded else torch.float32
    for head in range(len(keys)):
        # Products with weights whose rows lie apart take 30 times as long.
        key, value = keys[head].float().contiguous(), values[head].to(weights_type).contiguous().t()
        for first in range(0, asked.shape[1], _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            scores = compute(asked[head, part], key, None, "none", [], "")
            weights = scores.softmax(-1)
            # The largest weight is exp(the largest score - the logarithm of the sum).
            sums[head, part] = scores.amax(-1) - weights.amax(-1).log_()
            found[head, part] = compute(weights.to(weights_type), value, None, "none", [], "")
    return found, sums


def _pays_products(asked: torch.Tensor, keys: torch.Tensor) -> bool:
    """Return whether queries [heads, queries, width] meet a prefix's keys [heads, keys, width] faster in products,
    which are right."""
    many, long = asked.shape[1], keys.shape[1]
    worth = asked.device.type == "cpu" and products_attend_faster() and long >= _LONG and many * long >= _MANY
    return worth and _products_are_right(keys.dtype)


@functools.cache
def _products_are_right(dtype: torch.dtype) -> bool:
    """Return whether oneDNN is there and gives what torch's operation does with such numbers, by a trial."""
    import torch

    kernels: Any = torch.backends.mkldnn  # torch has no types for it
    if not kernels.is_available():
        return False
    numbers = torch.Generator().manual_seed(1)
    shapes = ((2, _TRIED, 64), (2, 75, 64), (2, 75, 64))
    some = [torch.randn(shape, generator=numbers).to(dtype) for shape in shapes]
    try:
        found = _over_all_by_products(some[0], some[1], some[2], 0.125)
    except (RuntimeError, AttributeError):  # not for this processor, or this version of torch
        return False
    expected = _over_all_at_once(some[0], some[1], some[2], 0.125)
    bound = 1e-5 if dtype == torch.float32 else 2.0**-6
    return all(torch.allclose(*both, rtol=bound, atol=bound) for both in zip(found, expected, strict=True))


def _by_operation(
    asked: torch.Tensor,
    prefix: tuple[torch.Tensor, torch.Tensor] | None,
    own: tuple[torch.Tensor, torch.Tensor],
    mask: torch.Tensor,
) -> torch.Tensor | None:
    """Attend to all of the prefix and to the own keys that a mask [rows, 1, length, keys] lets through, by torch's
    operations.

    ``asked`` has the queries [rows, heads, group * length, width], which are scaled already. Each part is attended to
    alone, and the two are weighed by the sums of their exponentials: the result is that of one softmax over both.
    Return None where torch has no operation for the device that gives these sums. Return None also without a prefix
    where products are faster.
    """
    import torch

    name = operation_for(asked.device.type, str(asked.dtype), own[0].shape[-1])
    if name is None or own[0].shape[-1] != own[1].shape[-1]:
        return None
    if prefix is None and (asked.device.type != "cpu" or not mkl_is_faster()):
        return None
    rows, heads, count, width = asked.shape
    length = mask.shape[2]
    if length > 1:
        mask = mask[:, :, None].expand(rows, 1, count // length, length, -1).reshape(rows, 1, count, -1)
    # Within ``in_float32`` the queries are wider than what is stored.
    own_keys, own_values = (one.to(asked.dtype) for one in own)
    if prefix is None:
        return over_own(name, asked, own_keys, own_values, mask)[0]
    keys, values = (one.to(asked.dtype) for one in prefix)
    folded = asked.transpose(0, 1).reshape(1, heads, rows * count, width)
    over_prefix: tuple[torch.Tensor, torch.Tensor] | None
    if _pays_products(folded[0], keys[0]):
        over_prefix = _over_all_by_products(folded[0], keys[0], values[0], 1.0)
    else:
        over_prefix = over_all_by(name, folded, keys, values)
    if over_prefix is None:
        return None
    after, own_sums = over_own(name, asked, own_keys, own_values, mask)
    before = over_prefix[0].view(heads, rows, count, -1).transpose(0, 1)
    share = torch.sigmoid(own_sums - over_prefix[1].view(heads, rows, count).transpose(0, 1))
    found: torch.Tensor = before.lerp(after, share.unsqueeze(-1).to(asked.dtype))
    return found


def over_all_by(
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
    found, sums, *_ = operation(asked, keys, values, *more, scale=scale)
    return found, sums[..., : asked.shape[2]]  # efficient attention rounds their number up


def over_own(
    name: str, asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend to each row's own keys, and return the same.

    On a GPU flash attention takes no mask. There it is efficient attention for many queries, two products for few.
    """
    import torch

    if name == "flash_attention_for_cpu":
        operation = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        found, sums = operation(asked, keys, values, 0.0, False, attn_mask=mask.to(asked.dtype), scale=1.0)
        return found, sums
    if asked.shape[2] > _FEW_QUERIES:
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        found, sums, *_ = efficient(
            *(asked, keys, values, _aligned(mask.to(asked.dtype), asked.shape[1])), True, scale=1.0
        )
        return found, sums[..., : asked.shape[2]]
    scores = (asked @ keys.transpose(2, 3)).float() + mask
    sums = scores.logsumexp(dim=-1)
    return scores.sub_(sums.unsqueeze(-1)).exp_().to(asked.dtype) @ values, sums


def _aligned(mask: torch.Tensor, heads: int) -> torch.Tensor:
    """Return a mask [rows, 1, queries, keys] for all heads, whose lines begin where efficient attention reads them."""
    import torch

    keys = mask.shape[-1]
    padded = torch.nn.functional.pad(mask, (0, -keys % _LINE))
    return padded[..., :keys].expand(-1, heads, -1, -1)


def operation_for(device: str, dtype: str, width: int) -> str | None:
    """Return which of torch's operations for attention gives the sums of the exponentials too; None where there is
    none.

    On a GPU, flash attention computes in half precision only, and keys of up to 256 numbers.
    """
    if device == "cpu":
        return "flash_attention_for_cpu"
    if device != "cuda" or width % 8:
        return None
    half = dtype in ("torch.bfloat16", "torch.float16")
    return "flash_attention" if half and width <= 256 else "efficient_attention"
