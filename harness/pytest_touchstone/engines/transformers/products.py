"""Products with weights that are laid out once for a library's kernels.

MKL and oneDNN are torch's own. With few rows, a product of theirs takes 1.2 to 1.7 times as long as one of ours
(``native``), which reads the weights at the speed of memory. With hundreds of rows it takes 0.9 times as long where
ours go by AVX-512's vectors, as long by AVX2's, and 1.4 times by a processor's tile unit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from pytest_touchstone.engines.transformers.native.library import kernels, multiplies_by_tiles
from pytest_touchstone.engines.transformers.processor import mkl_is_faster

if TYPE_CHECKING:
    import torch

_ROWS: Final = 64
"""The rows that the kernels are told to expect; others are computed too. Measured for 1 to 512 rows: the format for 1
row is slower with more of them, those for 16 to 512 are alike."""

_ROWS_OF_MKL: Final = 256
"""The same for MKL. Measured for 1 to 512 rows: formats for 16, 64 and 1,024 rows are slower with 256."""


_TYPES: Final = {"torch.float32": 0, "torch.bfloat16": 1, "torch.float16": 2}
"""The types of weights that our kernels read, by their numbers there."""

_TILES: Final = 32
"""The outputs, and the inputs, that two tiles hold."""


class Kernels(Protocol):
    """Products with packed weights of one library."""

    def packed(self, plain: torch.Tensor) -> torch.Tensor:
        """Return a weight [out, in] as its products take it; raise ``RuntimeError`` or ``AttributeError`` where the
        processor or this version of torch has none."""

    def product(
        self, rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, shape: tuple[int, int]
    ) -> torch.Tensor:
        """Return products [..., out] of rows [..., in] and a weight of that shape [out, in]."""

    def plain(self, packed: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        """Return the plain weight [out, in], number for number."""


class _OneDNN:
    def __init__(self) -> None:
        import torch

        self._packed = torch.ops.mkldnn._reorder_linear_weight.default
        self._product = torch.ops.mkldnn._linear_pointwise.default

    def packed(self, plain: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self._packed(plain, _ROWS)
        return found

    def product(
        self, rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, _shape: tuple[int, int]
    ) -> torch.Tensor:
        found: torch.Tensor = self._product(rows, packed, bias, "none", [], "")
        return found

    def plain(self, packed: torch.Tensor, _shape: tuple[int, int]) -> torch.Tensor:
        return packed.to_dense()


class _MKL:
    def __init__(self) -> None:
        import torch

        self._packed = torch.ops.mkl._mkl_reorder_linear_weight.default
        self._product = torch.ops.mkl._mkl_linear.default

    def packed(self, plain: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self._packed(plain, _ROWS_OF_MKL)
        return found

    def product(
        self, rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, shape: tuple[int, int]
    ) -> torch.Tensor:
        # Told of another number of rows than there are, it would compute with the plain weight.
        found: torch.Tensor = self._product(rows, packed, _shaped(shape), bias, rows.numel() // shape[1])
        return found

    def plain(self, packed: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        import torch

        # The layout is MKL's own. Each number times 1, beside others times 0, is itself.
        return self.product(torch.eye(shape[1]), packed, None, shape).t().contiguous()


class Native:
    """Products of float32 numbers by code of our own. Weights may be of another type: each is widened as it is read.

    Their layout is panels [outputs / width, inputs, width], with 0 beyond the outputs. ``RuntimeError`` where there is
    no such code.
    """

    def __init__(self, weights: str = "torch.float32") -> None:
        """``weights`` is their type, as torch names it."""
        found = kernels()
        if found is None:
            raise RuntimeError("there are no kernels here")
        self._multiply, self._width = found.multiply, found.panel_width()
        self.type = _TYPES[weights]

    def packed(self, plain: torch.Tensor) -> torch.Tensor:
        outputs, inputs = plain.shape
        width = self._width
        panels = plain.new_zeros(-(-outputs // width), inputs, width)
        whole = outputs // width
        panels[:whole] = plain[: whole * width].view(whole, width, inputs).transpose(1, 2)
        if whole < len(panels):
            panels[whole, :, : outputs - whole * width] = plain[whole * width :].t()
        return panels

    def product(
        self, rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, shape: tuple[int, int]
    ) -> torch.Tensor:
        return _multiplied(self._multiply, rows, packed, bias, shape, self.type)

    def plain(self, packed: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        return packed.transpose(1, 2).reshape(-1, shape[1])[: shape[0]].contiguous()


class Halves:
    """Products of bfloat16 numbers by code of our own, for processors that have them.

    By a tile unit, oneDNN's take 0.8 to 1.3 times as long, but it makes a kernel for each number of rows, which takes
    longer than a short product.

    The layout is that of such a unit: [outputs / 32, inputs / 32, half of the outputs, input, output, input or input +
    16], with 0 beyond inputs and outputs. ``RuntimeError`` where there are none.
    """

    def __init__(self) -> None:
        found = kernels()
        if found is None or not found.by_halves:
            raise RuntimeError("there are no such kernels here")
        self._multiply = found.multiply_halves

    def packed(self, plain: torch.Tensor) -> torch.Tensor:
        outputs, inputs = plain.shape
        whole = plain.new_zeros(-(-outputs // _TILES) * _TILES, -(-inputs // _TILES) * _TILES)
        whole[:outputs, :inputs] = plain
        half = _TILES // 2
        parts = whole.view(-1, 2, half, whole.shape[1] // _TILES, 2, half)
        return parts.permute(0, 3, 1, 5, 2, 4).contiguous()

    def product(
        self, rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, shape: tuple[int, int]
    ) -> torch.Tensor:
        return _multiplied(self._multiply, rows, packed, None if bias is None else bias.float(), shape)

    def plain(self, packed: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        panels, chunks = packed.shape[:2]
        whole = packed.permute(0, 2, 4, 1, 5, 3).reshape(panels * _TILES, chunks * _TILES)
        return whole[: shape[0], : shape[1]].contiguous()


def _multiplied(
    multiply: Any,
    rows: torch.Tensor,
    packed: torch.Tensor,
    bias: torch.Tensor | None,
    shape: tuple[int, int],
    *more: int,
) -> torch.Tensor:
    """Return products [..., out] by a function of the kernels, which takes ``more``; ``bias`` is in float32."""
    import torch

    outputs, inputs = shape
    given = rows.contiguous()
    count = given.numel() // inputs
    found = given.new_empty(*rows.shape[:-1], outputs)
    with torch._C.DisableTorchFunction():  # a mode would ask for the address of a copy (``in_float32``)
        places = [None if one is None else one.data_ptr() for one in (given, packed, bias, found)]
    if not multiply(*places, count, inputs, outputs, torch.get_num_threads(), *more):
        raise MemoryError(f"no memory to multiply {count} rows of {inputs} numbers")
    return found


class Widened:
    """Products of numbers that the processor does not multiply, by a library's products of float32 numbers.

    Rows in float32 give products in float32.
    """

    def __init__(self, library: Kernels, dtype: torch.dtype) -> None:
        self.library, self.dtype = library, dtype

    def packed(self, plain: torch.Tensor) -> torch.Tensor:
        return self.library.packed(plain.float())

    def product(
        self, rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, shape: tuple[int, int]
    ) -> torch.Tensor:
        wide = None if bias is None else bias.float()
        return self.library.product(rows.float(), packed, wide, shape).to(rows.dtype)

    def plain(self, packed: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        return self.library.plain(packed, shape).to(self.dtype)


class Narrow(Widened):
    """The same by our kernels, with weights of their own type: half of the bytes, and of the time to read them."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(Native(str(dtype)), dtype)

    def packed(self, plain: torch.Tensor) -> torch.Tensor:
        return self.library.packed(plain.to(self.dtype))


@functools.cache
def _shaped(shape: tuple[int, int]) -> torch.Tensor:
    """Return what stands for a plain weight of which only the shape is read: one number, however large the shape."""
    import torch

    with torch.inference_mode(False):
        return torch.empty(1).expand(shape)


def libraries_for(dtype: torch.dtype, *, wide: bool) -> tuple[Callable[[], Kernels], ...]:
    """Return what makes the products to try with weights of a type, the fastest first; ``wide``: in float32.

    None for float16 by itself: no processor that multiplies it has been seen.
    """
    if not wide and str(dtype) == "torch.float16":
        return ()
    if not wide and str(dtype) == "torch.bfloat16":
        return (Halves, _OneDNN) if multiplies_by_tiles() else (_OneDNN,)
    theirs: tuple[Callable[[], Kernels], ...] = (_MKL, _OneDNN) if mkl_is_faster() else (_OneDNN,)
    if not wide:
        return (Native, *theirs) if multiplies_by_tiles() else theirs
    return (for_steps(dtype, wide=True), *(lambda one=one: Widened(one(), dtype) for one in theirs))


def for_steps(dtype: torch.dtype, *, wide: bool) -> Callable[[], Kernels]:
    """Return what makes the products of few rows of a type that are the fastest, where they can be used."""
    if not wide:
        return Halves if str(dtype) == "torch.bfloat16" else Native
    return (lambda: Narrow(dtype)) if keeps_narrow() else lambda: Widened(Native(), dtype)


def keeps_narrow() -> bool:
    """Return whether weights of a type that the processor does not multiply stay of that type.

    A tile unit takes pieces of float32 numbers.
    """
    return kernels() is not None and not multiplies_by_tiles()
