"""Half precision on a processor that has no products of such numbers.

Many processors do not multiply bfloat16 or float16 numbers: on a CPU without ``avx512_bf16`` or ``amx_bf16``, torch's
products of bfloat16 numbers took ten times as long as those of float32 (docs/number-types.md). There, products and
attention are computed in float32, and their results are rounded to the model's own type: one rounding each, as by
instructions that add up in float32. Weights and hidden states have the values that they have in the model's own type.

What the processor can do decides, and no clock: the same call gives the same numbers in each run.
"""

from __future__ import annotations

import functools
import platform
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.transformers.processor import instructions

if TYPE_CHECKING:
    import torch

_WITH_INSTRUCTIONS: Final = {
    "torch.bfloat16": ("avx512_bf16", "amx_bf16"),
    "torch.float16": ("avx512_fp16", "amx_fp16"),
}
"""The abilities of an x86 processor of which one is enough, by number type, as torch names them."""

_WIDE: Final = "touchstone_wide"


def computes_in_float32(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether products of such numbers are computed in float32 on a device."""
    return device.type == "cpu" and str(dtype) in _WITH_INSTRUCTIONS and not multiplies(str(dtype))


def has_kernels_for_steps(model: Any) -> bool:
    """Return whether kernels of ours compute the products of a model's steps, where a compiler makes them.

    On a CPU these are products of float32 numbers, whatever the model's own type is. They are of bfloat16 numbers where
    the processor's vectors multiply such.
    """
    if model.device.type != "cpu":
        return False
    by_itself = str(model.dtype) == "torch.bfloat16" and "avx512_bf16" in instructions()
    return by_itself or str(model.dtype) == "torch.float32" or computes_in_float32(model.dtype, model.device)


@functools.cache
def multiplies(dtype: str) -> bool:
    """Return whether this machine's processor has products of numbers of a type, by the type's name in torch.

    True as well where it is not known: for other processors than x86.
    """
    import torch

    if dtype not in _WITH_INSTRUCTIONS or platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    abilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    if not abilities:  # an older torch
        check = {"torch.bfloat16": "_is_avx512_bf16_supported", "torch.float16": "_is_avx512_fp16_supported"}
        return bool(getattr(torch.cpu, check[dtype], bool)())
    return any(abilities.get(name) for name in _WITH_INSTRUCTIONS[dtype])


def stored_type(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the type in which numbers are held that are multiplied again and again: keys and values."""
    import torch

    return torch.float32 if computes_in_float32(dtype, device) else dtype


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float32 where its own type is computed in that; its copy is made once, and kept with it."""
    if not computes_in_float32(tensor.dtype, tensor.device):
        return tensor
    found: torch.Tensor | None = getattr(tensor, _WIDE, None)
    if found is None:
        found = tensor.float()
        setattr(tensor, _WIDE, found)
    return found


def widen_attention() -> None:
    """Let transformers' own attention compute in float32 what this processor does not multiply.

    It holds for models that call ``sdpa`` through transformers' interface, in this process.
    """
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    @functools.wraps(sdpa_attention_forward)
    def attend(
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **more: Any,
    ) -> tuple[torch.Tensor, None]:
        if not computes_in_float32(query.dtype, query.device):
            plain: tuple[torch.Tensor, None] = sdpa_attention_forward(
                module, query, key, value, attention_mask, **more
            )
            return plain
        mask = attention_mask
        if mask is not None and mask.is_floating_point():
            mask = widened(mask)
        wide = query.float(), key.float(), value.float(), mask
        found: torch.Tensor = sdpa_attention_forward(module, *wide, **more)[0].to(query.dtype)
        return found, None

    AttentionInterface.register("sdpa", attend)
