"""This machine's processor: its instructions, what computes faster on it, and half precision that it does not multiply.

Many processors do not multiply bfloat16 or float16 numbers: on a CPU without ``avx512_bf16`` or ``amx_bf16``, torch's
products of bfloat16 numbers took ten times as long as those of float32 (docs/number-types.md). There, products and
attention are computed in float32, and their results are rounded to the model's own type: one rounding each, as by
instructions that add up in float32. Weights and hidden states have the values that they have in the model's own type.

The processor's maker and its instructions decide, and no clock: a trial might choose otherwise in the next run, whose
numbers would then be rounded otherwise.
"""

from __future__ import annotations

import functools
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

OPEN = True
"""Whether anything of this package is used. Without it the engine computes everything by torch's own operations."""

_INTEL: Final = "GenuineIntel"

DESCRIPTION: Final = Path("/proc/cpuinfo")
"""The file in which Linux describes the processor."""

_WITH_INSTRUCTIONS: Final = {
    "torch.bfloat16": ("avx512_bf16", "amx_bf16"),
    "torch.float16": ("avx512_fp16", "amx_fp16"),
}
"""The abilities of an x86 processor of which one is enough, by number type, as torch names them."""

_WIDE: Final = "touchstone_wide"


def is_open() -> bool:
    """Return whether this package is used."""
    return OPEN


@functools.cache
def mkl_is_faster() -> bool:
    """Return whether products of float32 numbers by MKL, and attention that uses them, are faster than by oneDNN.

    They are on Intel's processors (docs/performance.md). On AMD's, oneDNN is.
    """
    import torch

    kernels: Any = torch.backends.mkl  # torch has no types for it
    return bool(kernels.is_available()) and _maker(DESCRIPTION) == _INTEL


def products_attend_faster() -> bool:
    """Return whether many queries meet many keys faster in oneDNN's products than in torch's operation for attention.

    They do on AMD's processors with AVX-512. With AVX2 the operation took 0.6 times as long (docs/performance.md).
    """
    import torch

    return not mkl_is_faster() and torch.backends.cpu.get_cpu_capability() != "AVX2"


def instructions() -> set[str]:
    """Return the names of the instructions that a processor has beyond the common ones; none where Linux does not say
    so."""
    return set(_said("flags", DESCRIPTION).split())


def _maker(description: Path) -> str:
    """Return what a processor calls its maker; Windows names it in another place than Linux."""
    return _said("vendor_id", description) or (_INTEL if _INTEL in platform.processor() else "")


def _said(name: str, description: Path) -> str:
    """Return what a processor's description has under a name, nothing where it has none."""
    try:
        lines = description.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def computes_in_float32(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether products of such numbers are computed in float32 on a device."""
    return OPEN and device.type == "cpu" and str(dtype) in _WITH_INSTRUCTIONS and not multiplies(str(dtype))


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
