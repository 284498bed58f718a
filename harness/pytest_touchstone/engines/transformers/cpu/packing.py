"""Linear layers whose weights are laid out once for the CPU's kernels.

``torch.nn.functional.linear`` takes a weight as it is in memory, and rearranges it for its kernel at every call. Few
rows do not pay for that: with 32 rows the products of oneDNN with a weight that is packed once took 0.7 times as long
in float32, those of a vocabulary layer half (docs/performance.md). A packed weight takes the place of the plain one,
so that it takes no more memory, or little more with MKL, whose layout has room for a pass's rows. One that is also the
table of embeddings is kept beside it.

Weights are packed for the library whose products of many rows are the fastest, and again once texts are to be
generated, where steps of few rows have a faster one (``pack_for_steps``). Those of a type that the processor does not
multiply are widened as they are read, or packed as float32 numbers (``processor``). A layer is packed only where its
packed product is the plain one up to rounding; that is tried with one layer of each kind. Code that reads ``weight`` of
a packed layer gets the plain numbers, made for that call.

MKL and oneDNN are torch's own. With few rows, a product of theirs takes 1.2 to 1.7 times as long as one of ours
(``kernels``), which reads the weights at the speed of memory. With hundreds of rows it takes 0.9 times as long where
ours go by AVX-512's vectors, as long by AVX2's, and 1.4 times by a processor's tile unit (docs/performance.md).
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, Protocol

from pytest_touchstone.engines.settings import free_bytes
from pytest_touchstone.engines.transformers.cpu.kernels import kernels, multiplies_by_tiles
from pytest_touchstone.engines.transformers.cpu.memory import MappedFiles
from pytest_touchstone.engines.transformers.cpu.processor import (
    computes_in_float32,
    in_float32,
    is_open,
    mkl_is_faster,
)

if TYPE_CHECKING:
    import torch

PACKED: Final = "packed_weight"
"""The name of a weight that is laid out for a library's kernels. It stands in place of the plain one, or beside one
that has another use."""

LEAST: Final = 1 << 16
"""The numbers of a weight from which packing is worth it: each new number of rows costs a kernel's making."""

_SHARE: Final = 0.1
"""The share of free memory that the copy of a table of embeddings may take."""

_WIDE_SHARE: Final = 0.4
"""The share of free memory that weights may take beyond their plain size, where they are packed as float32 numbers."""

_TRIED: Final = (3, 19)
"""The numbers of rows that are tried: a tile unit, where there is one, gets only the second."""

_ALIGNED: Final = 64
"""The bytes at whose multiples torch's own memory begins."""

_CLOSE: Final = {"torch.float32": 6e-6, "torch.bfloat16": 6e-3, "torch.float16": 1e-3}
"""The difference that counts as rounding, relative to the lengths of both vectors multiplied, by number type; other
types are not packed."""

_KERNELS: Final = 128
"""The kernels that oneDNN keeps, one for each shape of a weight and number of rows. Each takes 0.6 MB in torch 2.13,
and oneDNN would keep 1,024."""

_ROWS: Final = 64
"""The rows that the kernels are told to expect; others are computed too. Measured for 1 to 512 rows: the format for 1
row is slower with more of them, those for 16 to 512 are alike."""

_ROWS_OF_MKL: Final = 256
"""The same for MKL. Measured for 1 to 512 rows: formats for 16, 64 and 1,024 rows are slower with 256."""


_TYPES: Final = {"torch.float32": 0, "torch.bfloat16": 1, "torch.float16": 2}
"""The types of weights that our kernels read, by their numbers there."""

_TILES: Final = 32
"""The outputs, and the inputs, that two tiles hold."""


class PackedMatmul(Protocol):
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


Operation = Callable[..., "torch.Tensor"]


class _OneDNN:
    def __init__(self) -> None:
        import torch

        self._packed: Operation = torch.ops.mkldnn._reorder_linear_weight.default
        self._product: Operation = torch.ops.mkldnn._linear_pointwise.default

    def packed(self, plain: torch.Tensor) -> torch.Tensor:
        return self._packed(plain, _ROWS)

    def product(
        self, rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, _shape: tuple[int, int]
    ) -> torch.Tensor:
        return self._product(rows, packed, bias, "none", [], "")

    def plain(self, packed: torch.Tensor, _shape: tuple[int, int]) -> torch.Tensor:
        return packed.to_dense()


class _MKL:
    def __init__(self) -> None:
        import torch

        self._packed: Operation = torch.ops.mkl._mkl_reorder_linear_weight.default
        self._product: Operation = torch.ops.mkl._mkl_linear.default

    def packed(self, plain: torch.Tensor) -> torch.Tensor:
        return self._packed(plain, _ROWS_OF_MKL)

    def product(
        self, rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, shape: tuple[int, int]
    ) -> torch.Tensor:
        # Told of another number of rows than there are, it would compute with the plain weight.
        return self._product(rows, packed, _shape_placeholder(shape), bias, rows.numel() // shape[1])

    def plain(self, packed: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        import torch

        # The layout is MKL's own. Each number times 1, beside others times 0, is itself.
        return self.product(torch.eye(shape[1]), packed, None, shape).t().contiguous()


class NativeKernels:
    """Products of float32 numbers by our own kernels; weights of other types are widened when read.

    Their layout is panels [outputs / width, inputs, width], with 0 beyond the outputs. ``RuntimeError`` where there is
    no such code.
    """

    def __init__(self, weights: str = "torch.float32") -> None:
        """``weights`` is their type, as torch names it."""
        library = kernels()
        if library is None:
            raise RuntimeError("there are no kernels here")
        self._multiply, self._width = library.multiply, library.panel_width()
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
        return _multiply(self._multiply, rows, packed, bias, shape, self.type)

    def plain(self, packed: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        return packed.transpose(1, 2).reshape(-1, shape[1])[: shape[0]].contiguous()


class BFloat16Kernels:
    """Products of bfloat16 numbers by code of our own, for processors that have them.

    By a tile unit, oneDNN's take 0.8 to 1.3 times as long, but it makes a kernel for each number of rows, which takes
    longer than a short product.

    The layout is that of such a unit: [outputs / 32, inputs / 32, half of the outputs, input, output, input or input +
    16], with 0 beyond inputs and outputs. ``RuntimeError`` where there are none.
    """

    def __init__(self) -> None:
        library = kernels()
        if library is None or not library.by_halves:
            raise RuntimeError("there are no such kernels here")
        self._multiply = library.multiply_halves

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
        return _multiply(self._multiply, rows, packed, None if bias is None else bias.float(), shape)

    def plain(self, packed: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        panels, chunks = packed.shape[:2]
        whole = packed.permute(0, 2, 4, 1, 5, 3).reshape(panels * _TILES, chunks * _TILES)
        return whole[: shape[0], : shape[1]].contiguous()


def _multiply(
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
    products = given.new_empty(*rows.shape[:-1], outputs)
    with torch._C.DisableTorchFunction():  # a mode would ask for the address of a copy (``in_float32``)
        places = [None if tensor is None else tensor.data_ptr() for tensor in (given, packed, bias, products)]
    if not multiply(*places, count, inputs, outputs, torch.get_num_threads(), *more):
        raise MemoryError(f"no memory to multiply {count} rows of {inputs} numbers")
    return products


class UpcastKernels:
    """Products in types that the processor does not multiply, by a library's float32 products.

    Rows in float32 give products in float32. ``narrow``: weights keep their own type, for kernels of ours that widen
    each as it is read: half of the bytes, and of the time to read them.
    """

    def __init__(self, kernels: PackedMatmul, dtype: torch.dtype, *, narrow: bool = False) -> None:
        self.kernels, self.dtype, self._narrow = kernels, dtype, narrow

    def packed(self, plain: torch.Tensor) -> torch.Tensor:
        return self.kernels.packed(plain.to(self.dtype) if self._narrow else plain.float())

    def product(
        self, rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, shape: tuple[int, int]
    ) -> torch.Tensor:
        wide = None if bias is None else bias.float()
        return self.kernels.product(rows.float(), packed, wide, shape).to(rows.dtype)

    def plain(self, packed: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        return self.kernels.plain(packed, shape).to(self.dtype)


@functools.cache
def _shape_placeholder(shape: tuple[int, int]) -> torch.Tensor:
    """Return a placeholder for a plain weight of which MKL reads the shape only: one number, expanded."""
    import torch

    with torch.inference_mode(False):
        return torch.empty(1).expand(shape)


def kernels_for(dtype: torch.dtype, *, wide: bool) -> tuple[Callable[[], PackedMatmul], ...]:
    """Return the factories of packed products to try for a type of weights, the fastest first.

    ``wide``: the products are computed in float32. None for float16 by itself: no processor that multiplies it has been
    seen.
    """
    if not wide and str(dtype) == "torch.float16":
        return ()
    if not wide and str(dtype) == "torch.bfloat16":
        return (BFloat16Kernels, _OneDNN) if multiplies_by_tiles() else (_OneDNN,)
    theirs: tuple[Callable[[], PackedMatmul], ...] = (_MKL, _OneDNN) if mkl_is_faster() else (_OneDNN,)
    if not wide:
        return (NativeKernels, *theirs) if multiplies_by_tiles() else theirs
    return (
        kernels_for_steps(dtype, wide=True),
        *(lambda make=make: UpcastKernels(make(), dtype) for make in theirs),
    )


def kernels_for_steps(dtype: torch.dtype, *, wide: bool) -> Callable[[], PackedMatmul]:
    """Return the factory of the products that are fastest for few rows, where they can be used."""
    if not wide:
        return BFloat16Kernels if str(dtype) == "torch.bfloat16" else NativeKernels
    if keeps_narrow():
        return lambda: UpcastKernels(NativeKernels(str(dtype)), dtype, narrow=True)
    return lambda: UpcastKernels(NativeKernels(), dtype)


def keeps_narrow() -> bool:
    """Return whether weights of a type that the processor does not multiply stay of that type.

    A tile unit takes pieces of float32 numbers.
    """
    return kernels() is not None and not multiplies_by_tiles()


def keep_few_kernels() -> None:
    """Bound the memory of oneDNN's kernels, unless one exists already or the user has set the bound."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(_KERNELS))


class Packer:
    """Packs the linear layers of a model on a CPU, part after part. Packed ones stay as they are."""

    def __init__(self, model: Any, *, least: int = LEAST) -> None:
        """``least`` is the size from which a weight is packed, in numbers."""
        import torch

        kernels: Any = torch.backends.mkldnn
        self._can = (
            is_open() and hasattr(model, "modules") and model.device.type == "cpu" and kernels.is_available()
        )
        self._least, self._tried = least, PackingChecks()
        uses: dict[torch.nn.Parameter, int] = {}
        for module in model.modules() if self._can else ():
            for parameter in module.parameters(recurse=False):
                uses[parameter] = uses.get(parameter, 0) + 1
        self._shared = {parameter for parameter, count in uses.items() if count > 1}

    def pack(self, module: Any) -> int:
        """Pack the layers of a module of the model, and return how many."""
        if not self._can:
            return 0
        layers, files = _layers(module, self._least), MappedFiles()
        return sum(_pack(layer, files, self._tried, shared=layer.weight in self._shared) for layer in layers)


def pack_for_steps(model: Any) -> int:
    """Repack layers whose products of few rows have a faster library; return how many layers use it.

    Products of many rows take a few percent longer then.
    """
    packed = [layer for layer in getattr(model, "modules", tuple)() if type(layer) is _packed_linear()]
    tried = PackingChecks()
    return sum(_pack_again(layer, tried) for layer in packed)


def has_room_to_pack(model: Any, *, least: int = LEAST, processes: int = 1) -> bool:
    """Return whether there is memory to pack a model's layers in each of ``processes`` processes.

    It is wanting only where weights are packed as float32 numbers.
    """
    if keeps_narrow():
        return True
    wide = [
        layer.weight
        for layer in _layers(model, least)
        if computes_in_float32(layer.weight.dtype, layer.weight.device)
    ]
    more = sum(weight.numel() * (4 - weight.element_size()) for weight in wide)
    free = free_bytes() if wide else None
    return free is None or more * processes <= _WIDE_SHARE * free


def _layers(model: Any, least: int) -> list[torch.nn.Linear]:
    """Return the linear layers without forward of their own, whose weights can be packed."""
    import torch

    return [
        module
        for module in getattr(model, "modules", tuple)()
        if type(module) is torch.nn.Linear
        and "forward" not in vars(module)
        and str(module.weight.dtype) in _CLOSE
        and module.weight.numel() >= least
    ]


def _pack(layer: Any, files: MappedFiles, tried: PackingChecks, *, shared: bool) -> bool:
    """Pack a layer if its products stay the same, and if memory allows where the plain weight has to stay."""
    import torch

    plain = layer.weight.detach()
    free = free_bytes() if shared else None
    if free is not None and plain.numel() * plain.element_size() > _SHARE * free:
        return False
    wide = computes_in_float32(plain.dtype, plain.device)
    with torch.inference_mode(False), torch.no_grad():
        for make in kernels_for(plain.dtype, wide=wide):
            try:
                kernels = make()
                packed = kernels.packed(plain)
                right = tried.same(plain, packed, kernels)
            except (RuntimeError, AttributeError):  # not for this processor, or this version of torch
                continue
            if right:
                break
        else:
            return False
        kept = torch.nn.Parameter(packed, requires_grad=False)
    if not shared:
        del layer.weight
        files.let_go(plain)
    layer.__class__ = _packed_linear()
    layer.register_parameter(PACKED, kept)
    layer.types, layer.kernels = {plain.dtype, torch.float32} if wide else {plain.dtype}, kernels
    return True


def _pack_again(layer: Any, tried: PackingChecks) -> bool:
    """Repack a layer for products of few rows if they stay the same; return whether it is packed so."""
    import torch

    before, old = layer.kernels, layer._parameters[PACKED]
    wide = isinstance(before, UpcastKernels)
    if isinstance(before.kernels if wide else before, (NativeKernels, BFloat16Kernels)):
        return True
    with torch.inference_mode(False), torch.no_grad():
        try:
            wanted = kernels_for_steps(before.dtype if wide else old.dtype, wide=wide)()
        except RuntimeError:  # not here
            return False
        plain = before.plain(old, (layer.out_features, layer.in_features))
        packed = wanted.packed(plain)
        if not tried.same(plain, packed, wanted):
            return False
        layer.kernels = wanted
        layer._parameters[PACKED] = torch.nn.Parameter(packed, requires_grad=False)
    return True


class PackingChecks:
    """Checks of packed products, one per library, shape and layout, since such layers are packed alike.

    A weight that holds a number that is not finite is checked by itself: not every library's products keep those.
    """

    def __init__(self) -> None:
        self._right: set[tuple[object, ...]] = set()

    def same(self, plain: torch.Tensor, packed: torch.Tensor, kernels: PackedMatmul) -> bool:
        """Return whether packed and plain weight give the same products."""
        product = type(kernels.kernels if isinstance(kernels, UpcastKernels) else kernels)
        kind = (product, plain.dtype, tuple(plain.shape), plain.stride(), plain.data_ptr() % _ALIGNED)
        if kind in self._right and math.isfinite(float(plain.sum())):
            return True
        right = _gives_same_products(plain, packed, kernels)
        if right:
            self._right.add(kind)
        return right


def _gives_same_products(plain: torch.Tensor, packed: torch.Tensor, kernels: PackedMatmul) -> bool:
    """Return whether packed and plain weight give the same products for a few rows, up to rounding."""
    import torch

    wide = isinstance(kernels, UpcastKernels)
    outputs, count = plain.shape
    rows = torch.linspace(-1, 1, max(_TRIED) * count).sin().view(-1, count)[:, torch.arange(count).flip(0)]
    rows = rows if wide else rows.to(plain.dtype)
    with in_float32() if wide else nullcontext():
        expected = torch.nn.functional.linear(rows, plain).float()
    lengths = [torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.float32) for vectors in (rows, plain)]
    most = _CLOSE[str(rows.dtype)] * torch.outer(*lengths) + 1e-30
    for some in _TRIED:
        products = kernels.product(rows[:some], packed, None, (outputs, count)).float()
        if not bool(((products - expected[:some]).abs() <= most[:some]).all()):
            return False
    return True


@functools.cache
def _packed_linear() -> type[torch.nn.Linear]:
    """Return the class of packed layers; made when torch is there."""
    import torch

    class PackedLinear(torch.nn.Linear):
        """A linear layer: hidden [..., in] -> [..., out]."""

        types: set[torch.dtype]
        """The types of inputs that the kernels take."""

        kernels: PackedMatmul

        @property
        def weight(self) -> torch.Tensor:  # type: ignore[override]
            """The plain weight [out, in]: the one that is shared, else a copy made for this call."""
            kept = self._parameters.get("weight")
            if kept is not None:
                return kept
            packed: Any = self._parameters[PACKED]
            with torch._C.DisableTorchFunction():  # a layout that modes of torch do not know
                return self.kernels.plain(packed, (self.out_features, self.in_features))

        def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - as torch.nn.Linear has it
            """Return the products with the packed weight."""
            packed: Any = self._parameters[PACKED]
            if input.dtype not in self.types:  # within ``in_float32``
                return torch.nn.functional.linear(input, self.weight, self.bias)
            return self.kernels.product(input, packed, self.bias, (self.out_features, self.in_features))

    return PackedLinear
