"""Attention by products, where these are faster on a CPU than torch's operation for attention as a whole.

``attend_few`` is for passes that continue texts, ``attend_all`` for many queries that meet a long prefix.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.transformers.cpu.processor import (
    is_open,
    mkl_is_faster,
    products_attend_faster,
)

if TYPE_CHECKING:
    import torch

KeysAndValues = tuple["torch.Tensor", "torch.Tensor"]

_LONG: Final = 200
_MANY: Final = 60_000
"""Tokens of a prefix, and scores of a head, from which oneDNN's products are faster than torch's operation for
attention: measured for 48 to 9,600 queries after 64 to 1,100 tokens (docs/performance.md)."""

_NARROW: Final = 4
"""Queries that share a key up to which their scores are quicker to compute the other way round: keys times queries."""

_TRIED: Final = 96
"""Queries of the trial."""

_AT_ONCE: Final = 384
"""Queries whose scores are there at once."""

_PAIRED: Final = "touchstone_paired"

_ROOM: Final = 256
"""The most columns of a buffer that are computed though a mask hides them."""


def operation_attends_faster(device: torch.device) -> bool:
    """Return whether torch's operation for a CPU attends faster than two products, also without a prefix."""
    return is_open() and device.type == "cpu" and mkl_is_faster()


def attend_few(
    asked: torch.Tensor, own: KeysAndValues, prefix: KeysAndValues | None, mask: torch.Tensor, scale: float
) -> torch.Tensor | None:
    """Attend for few tokens of each row: queries [rows, heads, tokens, width] -> [rows, tokens, heads * width].

    The additive mask [rows, 1, tokens, keys] covers the own keys [rows, heads, keys, width]; all of the prefix [1,
    heads, keys, width] is seen. Own keys and values meet the queries in products, which takes fewer and quicker
    operations than attention as a whole, but for Intel's processors. What is seen of the prefix counts as one more key
    there, whose score is the logarithm of the sum of its exponentials. Return None where torch's operation is faster,
    and for other numbers than float32 and bfloat16.
    """
    import torch

    if not _by_products(asked, own, mask):
        return None
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
    stored_keys, stored_values = (part[0].to(asked.dtype) for part in prefix)
    by_head = queries.transpose(0, 1).reshape(heads, rows * group, width)
    over = attend_all(by_head, stored_keys, stored_values, scale)
    before, sums = over or _at_once(by_head, stored_keys, stored_values, scale)
    before = before.view(heads, rows, group, -1).transpose(0, 1).reshape(pairs, group, -1)
    sums = sums.view(heads, rows, group).transpose(0, 1).reshape(pairs, group, 1)
    weights = torch.cat((sums, scores), dim=-1).softmax(-1)
    if weights.dtype == asked.dtype:
        return _by_token(torch.baddbmm(before.mul_(weights[..., :1]), weights[..., 1:], values), asked)
    found = torch.bmm(weights[..., 1:].to(values.dtype), values)
    return _by_token(torch.addcmul(found.float(), before, weights[..., :1]).to(asked.dtype), asked)


def attend_all(
    asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Attend to all keys [heads, keys, width] by products of oneDNN.

    Return values [heads, queries, width] and the logarithms of the sums of the exponentials [heads, queries]; None
    where torch's operation for attention is faster, or products are not right.
    """
    many, long = asked.shape[1], keys.shape[1]
    worth = asked.device.type == "cpu" and long >= _LONG and many * long >= _MANY
    if not worth or not is_open() or not products_attend_faster() or not _products_are_right(keys.dtype):
        return None
    return _by_onednn(asked, keys, values, scale)


def _by_products(asked: torch.Tensor, own: KeysAndValues, mask: torch.Tensor) -> bool:
    """Return whether few tokens of each row attend in float32 or bfloat16 on a CPU, to all of the prefix and to own
    keys that lie in a buffer by row and head, and products do it faster."""
    import torch

    return (
        is_open()
        and not mkl_is_faster()
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


def _at_once(
    asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what ``attend_all`` does, by torch's operation for a CPU."""
    import torch

    operation = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    found, sums = operation(asked[None], keys[None], values[None], 0.0, False, scale=scale)
    return found[0], sums[0]


def _by_onednn(
    asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same by products, of so few queries at once that their scores stay in a core's cache.

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
        found = _by_onednn(some[0], some[1], some[2], 0.125)
    except (RuntimeError, AttributeError):  # not for this processor, or this version of torch
        return False
    expected = _at_once(some[0], some[1], some[2], 0.125)
    bound = 1e-5 if dtype == torch.float32 else 2.0**-6
    return all(torch.allclose(*both, rtol=bound, atol=bound) for both in zip(found, expected, strict=True))
