"""The small operations of a layer of Llama's form, and of what follows the last, each as one pass over its numbers.

torch computes a norm by four passes, a gate by two, a rotation by four, and the sums of a vocabulary's exponentials by
five. Here each takes what reading and writing takes, in the threads that torch uses. All is computed in float32;
bfloat16 numbers are rounded once, at the end.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.transformers.native.library import kernels, structure

if TYPE_CHECKING:
    import torch


_TYPES: Final = ("torch.float32", "torch.bfloat16")


def computes(states: torch.Tensor) -> bool:
    """Return whether the operations here take such hidden states."""
    return str(states.dtype) in _TYPES and states.device.type == "cpu" and kernels() is not None


def rms_norm(states: torch.Tensor, norm: Any) -> torch.Tensor:
    """Return states [..., width] by their root mean square, times the weights of a norm of Llama's form."""
    import torch

    given = states.contiguous()
    found, width = torch.empty_like(given), given.shape[-1]
    _library().normalize(
        given.data_ptr(),
        norm.weight.data_ptr(),
        norm.variance_epsilon,
        width,
        given.numel() // width,
        found.data_ptr(),
        _is_half(states),
        torch.get_num_threads(),
    )
    return found


def head_norms(attention: Any) -> tuple[Any, ...]:
    """Return the norms of each head of queries and of keys, which Qwen3's attention has; none for Llama's."""
    return (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else ()


def gated(both: torch.Tensor) -> torch.Tensor:
    """Return silu(gates) times ups [..., width] of both [..., gates and ups], which are dense."""
    import torch

    width = both.shape[-1] // 2
    found = both.new_empty(*both.shape[:-1], width)
    _library().gate(
        *(both.data_ptr(), width, both.numel() // (2 * width), found.data_ptr()),
        *(_is_half(both), torch.get_num_threads()),
    )
    return found


def turn(
    heads: torch.Tensor,
    count: int,
    cos: torch.Tensor,
    sin: torch.Tensor,
    norms: Sequence[tuple[Any, int]] = (),
) -> None:
    """Turn the first ``count`` heads of [rows, tokens, heads, width], dense, by rotary embeddings [rows or 1, tokens,
    width], where they lie.

    Before it, heads go through the norms of Llama's form that are named, each with its number of heads, in order. These
    add the same to a mean square.
    """
    import torch

    rows, tokens, _, width = heads.shape
    cos, sin = (one.to(heads.dtype).contiguous() for one in (cos, sin))
    weights = [norm.weight.to(heads.dtype).expand(number, -1) for norm, number in norms]
    all_weights = torch.cat(weights) if weights else None
    eps = norms[0][0].variance_epsilon if norms else 0.0
    _library().turn_heads(
        *(heads.data_ptr(), heads.stride(1), count, width, rows * tokens),
        *(cos.data_ptr(), sin.data_ptr(), cos.shape[0] * tokens),
        *(None if all_weights is None else all_weights.data_ptr(), eps),
        *(_is_half(heads), torch.get_num_threads()),
    )


def log_sums(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what ``logsumexp`` returns for float32 logits [N, vocabulary], and where the largest of each row is: the
    first of the same."""
    import torch

    given = logits.contiguous()
    rows, width = given.shape
    most, sums, places = (torch.empty(rows, dtype=kind) for kind in (given.dtype, torch.float64, torch.int64))
    _library().sum_rows(
        *(given.data_ptr(), width, rows, most.data_ptr(), sums.data_ptr(), places.data_ptr()),
        torch.get_num_threads(),
    )
    return sums.log_().add_(most).to(logits.dtype), places


_MOST_KEYS: Final = 2048
"""The keys of a pass that a thread's memory has room for."""

_SIZE: Final = ctypes.c_ssize_t

_Pass: Final = structure(
    (ctypes.c_void_p, "queries keys values mask out"),
    (_SIZE, "rows tokens heads groups width length"),
    (_SIZE, "query_row query_head query_token key_row key_head key_token value_row value_head value_token"),
    (_SIZE, "mask_row mask_token"),
    (ctypes.c_float, "scale"),
    (ctypes.c_int32, "threads"),
    (_SIZE, "next"),
    (ctypes.c_int32, "half"),
)


def attend(
    asked: torch.Tensor, own: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor | None, scale: float
) -> torch.Tensor | None:
    """Attend for queries [rows, heads, tokens, width] to keys and values, and return [rows, tokens, heads * width].

    The mask [rows or 1, 1, tokens, keys] is additive. Return None where this code does not compute such a pass.
    A token that sees nothing finds 0.
    """
    import torch

    rows, heads, tokens, width = asked.shape
    keys, length = own[0], own[0].shape[2]
    if mask is None or mask.shape not in ((rows, 1, tokens, length), (1, 1, tokens, length)):
        return None
    if length > _MOST_KEYS or own[1].shape != keys.shape or keys.shape[3] != width:
        return None
    parts = (asked, *own, mask)
    if any(one.dtype != asked.dtype or one.stride(3) != 1 for one in parts) or not asked.numel():
        return None
    found = asked.new_empty(rows, tokens, heads * width)
    given = _Pass(
        *(one.data_ptr() for one in (*parts, found)),
        *(rows, tokens, keys.shape[1], heads // keys.shape[1], width, length),
        *(one.stride(at) for one in (asked, *own) for at in range(3)),
        *(mask.stride(0) if mask.shape[0] > 1 else 0, mask.stride(2)),
        *(scale, torch.get_num_threads(), 0, _is_half(asked)),
    )
    _library().attend(ctypes.byref(given))
    return found


def _is_half(numbers: torch.Tensor) -> bool:
    return numbers.element_size() == 2


def _library() -> Any:
    return kernels()
