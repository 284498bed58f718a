"""The small operations of a layer of Llama's form, each as one pass over its numbers, in float32.

torch computes a norm by four passes, a gate by two and a rotation by four. Here each takes what reading and writing
takes, in the threads that torch uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.engines.transformers.native.library import kernels

if TYPE_CHECKING:
    import torch


def computes(states: torch.Tensor) -> bool:
    """Return whether the operations here take such hidden states."""
    return str(states.dtype) == "torch.float32" and states.device.type == "cpu" and kernels() is not None


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
        torch.get_num_threads(),
    )
    return found


def gated(both: torch.Tensor) -> torch.Tensor:
    """Return silu(gates) times ups [..., width] of both [..., gates and ups], which are dense."""
    import torch

    width = both.shape[-1] // 2
    found = both.new_empty(*both.shape[:-1], width)
    _library().gate(
        both.data_ptr(), width, both.numel() // (2 * width), found.data_ptr(), torch.get_num_threads()
    )
    return found


def turn(heads: torch.Tensor, count: int, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Turn the first ``count`` heads of [rows, tokens, heads, width], dense, by rotary embeddings [rows or 1, tokens,
    width], where they lie."""
    import torch

    rows, tokens, _, width = heads.shape
    cos, sin = cos.contiguous(), sin.contiguous()
    _library().turn_heads(
        *(heads.data_ptr(), heads.stride(1), count, width, rows * tokens),
        *(cos.data_ptr(), sin.data_ptr(), cos.shape[0] * tokens, torch.get_num_threads()),
    )


def _library() -> Any:
    return kernels()
