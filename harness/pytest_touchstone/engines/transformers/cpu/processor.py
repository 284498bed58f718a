"""The CPU: its instructions, what computes faster on it, and half precision that it does not multiply.

Many processors do not multiply bfloat16 or float16 numbers: on a CPU without ``avx512_bf16`` or ``amx_bf16``, torch's
products of bfloat16 numbers took ten times as long as those of float32 (docs/number-types.md). There, products and
attention are computed in float32, and their results are rounded to the model's own type: one rounding each, as by
instructions that add up in float32. Weights and hidden states have the values that they have in the model's own type.

The processor's maker and its instructions decide, and no clock: a trial might choose otherwise in the next run, whose
numbers would then be rounded otherwise.

Within ``in_float32`` all of a model in half precision is computed so, for probes: each function of torch that this
thread calls gets float32 copies of its half-precision arguments, and returns float32. So the model's own code computes
what it would with float32 weights of the same values, without a copy of the model. At most one weight is in memory
twice: of linear layers a block of ``_BLOCK`` numbers, of tables the rows looked up. Code behind Python's functions
(such as a compiled kernel or packed weights) computes as usual, or raises its usual error when types do not match.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterator
from contextlib import contextmanager
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
    """Return whether MKL's float32 products, and attention by them, are faster than oneDNN's.

    They are on Intel's processors (docs/performance.md). On AMD's, oneDNN is.
    """
    import torch

    kernels: Any = torch.backends.mkl  # torch has no types for it
    maker = _describe("vendor_id") or platform.processor()  # Windows names it in the second place
    return bool(kernels.is_available()) and _INTEL in maker


def instructions() -> set[str]:
    """Return the names of the processor's instruction sets, as Linux lists them; none on other systems."""
    return set(_describe("flags").split())


def _describe(name: str) -> str:
    """Return the first value of a name in Linux's description of the processor; empty if there is none."""
    try:
        lines = DESCRIPTION.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def computes_in_float32(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether products of such numbers are computed in float32 on a device."""
    return OPEN and device.type == "cpu" and str(dtype) in _WITH_INSTRUCTIONS and not multiplies(str(dtype))


@functools.cache
def multiplies(dtype: str) -> bool:
    """Return whether the processor multiplies numbers of a type, given by its name in torch.

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


def upcast_once(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float32 if its type is computed so; the copy is attached to the tensor."""
    if not computes_in_float32(tensor.dtype, tensor.device):
        return tensor
    wide: torch.Tensor | None = getattr(tensor, _WIDE, None)
    if wide is None:
        wide = tensor.float()
        setattr(tensor, _WIDE, wide)
    return wide


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
            mask = upcast_once(mask)
        wide = query.float(), key.float(), value.float(), mask
        attention: torch.Tensor = sdpa_attention_forward(module, *wide, **more)[0].to(query.dtype)
        return attention, None

    AttentionInterface.register("sdpa", attend)


HALF: Final = ("torch.bfloat16", "torch.float16")
"""Types that are computed in float32, as torch names them."""

_BLOCK: Final = 1 << 18
"""The numbers of a weight that are converted at once: a mebibyte, which stays in a core's cache."""


@contextmanager
def in_float32() -> Iterator[None]:
    """Compute in float32, within the block and this thread, what would be computed in half precision."""
    import torch
    from torch.overrides import TorchFunctionMode

    linear, embedding = torch.nn.functional.linear, torch.nn.functional.embedding
    lookups = (embedding, torch.Tensor.__getitem__, torch.Tensor.index_select, torch.index_select)

    class InFloat32(TorchFunctionMode):
        """Widens arguments and results."""

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            del types
            given = kwargs or {}
            if getattr(func, "__name__", "") == "__get__" or func in lookups:
                return _upcast(func(*args, **given))  # reads a weight as it is: its attributes, some rows
            if func is linear and _is_large_linear(*args, **given):
                return _linear_by_blocks(*_upcast(args[:1]), *args[1:], **given)
            return _upcast(func(*_upcast(args), **_upcast(given)))

    with InFloat32():
        yield


def _upcast(value: Any) -> Any:
    """Return half-precision tensors and types as float32, also within lists and dicts; others unchanged."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.float() if str(value.dtype) in HALF else value
    if isinstance(value, torch.dtype):
        return torch.float32 if str(value) in HALF else value
    if type(value) in (list, tuple):
        return type(value)(_upcast(member) for member in value)
    if type(value) is dict:
        return {name: _upcast(member) for name, member in value.items()}
    return value


def _is_large_linear(hidden: Any = None, weight: Any = None, _bias: Any = None, **more: Any) -> bool:
    """Return whether the arguments are those of a linear layer with a large half-precision weight."""
    import torch

    plain = type(weight) in (torch.Tensor, torch.nn.Parameter) and isinstance(hidden, torch.Tensor)
    return plain and not more and str(weight.dtype) in HALF and weight.dim() == 2 and weight.numel() > _BLOCK


def _linear_by_blocks(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the layer's outputs [..., rows of the weight], converting a block of the weight at a time."""
    import torch

    rows = max(1, _BLOCK // weight.shape[1])
    wide = hidden.new_empty((rows, weight.shape[1]))
    outputs = hidden.new_empty((*hidden.shape[:-1], weight.shape[0]))
    for first in range(0, weight.shape[0], rows):
        block = weight[first : first + rows]
        some = wide[: len(block)].copy_(block)
        outputs[..., first : first + rows] = torch.nn.functional.linear(hidden, some)
    return outputs if bias is None else outputs.add_(bias)


_LONG: Final = 200
_MANY: Final = 60_000
"""Tokens of a prefix, and scores of a head, from which oneDNN's products are faster than torch's operation for
attention: measured for 48 to 9,600 queries after 64 to 1,100 tokens (docs/performance.md)."""

_TRIED: Final = 96
"""Queries of the trial."""

_AT_ONCE: Final = 384
"""Queries whose scores are there at once."""


def attends_by_operation(asked: torch.Tensor) -> bool:
    """Return whether torch's CPU attention is better than two matrix products without a prefix.

    It is faster on Intel's processors. The scores of a product in bfloat16 would be rounded to bfloat16.
    """
    return (
        is_open() and asked.device.type == "cpu" and (mkl_is_faster() or str(asked.dtype) == "torch.bfloat16")
    )


def attend_all(
    asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Attend to all keys [heads, keys, width] by products of oneDNN.

    Return values [heads, queries, width] and the logarithms of the sums of the exponentials [heads, queries]; None
    where torch's operation for attention is faster, or products are not right.
    """
    import torch

    many, long = asked.shape[1], keys.shape[1]
    worth = asked.device.type == "cpu" and long >= _LONG and many * long >= _MANY
    # On AMD's processors with AVX-512; with AVX2 the operation took 0.6 times as long.
    faster = not mkl_is_faster() and torch.backends.cpu.get_cpu_capability() != "AVX2"
    if not worth or not is_open() or not faster or not _products_are_right(keys.dtype):
        return None
    return _attend_by_onednn(asked, keys, values, scale)


def _attend_by_onednn(
    asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend by oneDNN's products, for as many queries at once as keep the scores in a core's cache.

    Scores are computed in float32. In bfloat16 their exponentials are rounded before they meet the values, as in
    torch's operation, where the processor has products for that. Returns values and log-sum-exps like ``attend_all``.
    """
    import torch

    compute: Any = torch.ops.mkldnn._linear_pointwise.default
    attention, sums = torch.empty_like(asked, dtype=values.dtype), torch.empty(asked.shape[:2])
    asked = asked.float() * scale
    rounded = values.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    weights_type = values.dtype if rounded else torch.float32
    for head in range(len(keys)):
        # Products with weights whose rows lie apart take 30 times as long.
        key, value = keys[head].float().contiguous(), values[head].to(weights_type).contiguous().t()
        for first in range(0, asked.shape[1], _AT_ONCE):
            queries = slice(first, first + _AT_ONCE)
            scores = compute(asked[head, queries], key, None, "none", [], "")
            weights = scores.softmax(-1)
            # The largest weight is exp(the largest score - the logarithm of the sum).
            sums[head, queries] = scores.amax(-1) - weights.amax(-1).log_()
            attention[head, queries] = compute(weights.to(weights_type), value, None, "none", [], "")
    return attention, sums


@functools.cache
def _products_are_right(dtype: torch.dtype) -> bool:
    """Return whether oneDNN's products give what torch's attention gives for such numbers."""
    import torch

    kernels: Any = torch.backends.mkldnn  # torch has no types for it
    if not kernels.is_available():
        return False
    numbers = torch.Generator().manual_seed(1)
    shapes = ((2, _TRIED, 64), (2, 75, 64), (2, 75, 64))
    query, keys, values = (torch.randn(shape, generator=numbers).to(dtype) for shape in shapes)
    try:
        actual = _attend_by_onednn(query, keys, values, 0.125)
    except (RuntimeError, AttributeError):  # not for this processor, or this version of torch
        return False
    operation = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    outputs, sums, *_ = operation(query[None], keys[None], values[None], 0.0, False, scale=0.125)
    bound = 1e-5 if dtype == torch.float32 else 2.0**-6
    return all(
        torch.allclose(*both, rtol=bound, atol=bound)
        for both in zip(actual, (outputs[0], sums[0]), strict=True)
    )
