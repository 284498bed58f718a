"""Linear layers whose weights are laid out once for the CPU's kernels.

``torch.nn.functional.linear`` takes a weight as it is in memory, and rearranges it for its kernel at every call. Few
rows do not pay for that: with 32 rows the products of oneDNN with a weight that is packed once took 0.7 times as long
in float32, those of a vocabulary layer half (docs/performance.md). A packed weight takes the place of the plain one,
so that it takes no more memory, or little more with MKL, whose layout has room for a pass's rows. One that is also the
table of embeddings is kept beside it.

Weights are packed for oneDNN's products, or for MKL's where these are faster: in float32 on Intel's processors. Those
of a type that the processor does not multiply are packed as float32 numbers (``half_precision``). A layer is packed
only where its packed product is the plain one up to rounding; that is tried with each layer. Code that reads ``weight``
of a packed layer gets the plain numbers, made for that call.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Final, Protocol

from harness.engines.transformers.compat import MappedFiles
from harness.engines.transformers.half_precision import computes_in_float32
from harness.engines.transformers.memory import PACKED, free_memory
from harness.engines.transformers.processor import mkl_is_faster

if TYPE_CHECKING:
    import torch

LEAST: Final = 1 << 16
"""The numbers of a weight from which packing is worth it: each new number of rows costs a kernel's making."""

_ROWS: Final = 64
"""The rows that the kernels are told to expect; others are computed too. Measured for 1 to 512 rows: the format for 1
row is slower with more of them, those for 16 to 512 are alike."""

_ROWS_OF_MKL: Final = 256
"""The same for MKL. Measured for 1 to 512 rows: formats for 16, 64 and 1,024 rows are slower with 256."""

_SHARE: Final = 0.1
"""The share of free memory that the copy of a table of embeddings may take."""

_WIDE_SHARE: Final = 0.4
"""The share of free memory that weights may take beyond their plain size, where they are packed as float32 numbers."""

_TRIED: Final = 3
"""Rows that are tried with each layer."""

_CLOSE: Final = {"torch.float32": 6e-6, "torch.bfloat16": 6e-3, "torch.float16": 1e-3}
"""The difference that counts as rounding, relative to the lengths of both vectors multiplied, by number type; other
types are not packed."""

_KERNELS: Final = 128
"""The kernels that oneDNN keeps, one for each shape of a weight and number of rows. Each takes 0.6 MB in torch 2.13,
and oneDNN would keep 1,024."""


def keep_few_kernels() -> None:
    """Bound the memory of oneDNN's kernels; no effect once one has been made, or where the user has said how many."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(_KERNELS))


class _Kernels(Protocol):
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


class _Widened:
    """Products of numbers that the processor does not multiply, by a library's products of float32 numbers.

    Rows in float32 give products in float32.
    """

    def __init__(self, library: _Kernels, dtype: torch.dtype) -> None:
        self._library, self._dtype = library, dtype

    def packed(self, plain: torch.Tensor) -> torch.Tensor:
        return self._library.packed(plain.float())

    def product(
        self, rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, shape: tuple[int, int]
    ) -> torch.Tensor:
        wide = None if bias is None else bias.float()
        return self._library.product(rows.float(), packed, wide, shape).to(rows.dtype)

    def plain(self, packed: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        return self._library.plain(packed, shape).to(self._dtype)


@functools.cache
def _shaped(shape: tuple[int, int]) -> torch.Tensor:
    """Return what stands for a plain weight of which only the shape is read: one number, however large the shape."""
    import torch

    with torch.inference_mode(False):
        return torch.empty(1).expand(shape)


def _libraries_for(dtype: torch.dtype, *, wide: bool) -> tuple[type[_MKL | _OneDNN], ...]:
    """Return the libraries to try with weights of a type, the fastest first; ``wide``: as float32 numbers.

    None for float16 by itself: no processor that multiplies it has been seen.
    """
    if str(dtype) == "torch.float16" and not wide:
        return ()
    return (_MKL, _OneDNN) if (wide or str(dtype) == "torch.float32") and mkl_is_faster() else (_OneDNN,)


def pack(model: Any, *, least: int = LEAST) -> int:
    """Pack the linear layers of a model on a CPU, and return how many. Packed ones stay as they are.

    ``least`` is the size from which a weight is packed, in numbers.
    """
    import torch

    kernels: Any = torch.backends.mkldnn
    if not hasattr(model, "modules") or model.device.type != "cpu" or not kernels.is_available():
        return 0
    uses: dict[int, int] = {}
    for module in model.modules():
        for one in module.parameters(recurse=False):
            uses[id(one)] = uses.get(id(one), 0) + 1
    files = MappedFiles()
    return sum(_pack(one, files, shared=uses[id(one.weight)] > 1) for one in _layers(model, least))


def has_room_to_pack(model: Any, *, least: int = LEAST, processes: int = 1) -> bool:
    """Return whether there is memory to pack a model's layers, in each of so many processes.

    It is wanting only where weights are packed as float32 numbers.
    """
    wide = [
        one.weight
        for one in _layers(model, least)
        if computes_in_float32(one.weight.dtype, one.weight.device)
    ]
    more = sum(one.numel() * (4 - one.element_size()) for one in wide)
    free = free_memory(wide[0].device) if wide else None
    return free is None or more * processes <= _WIDE_SHARE * free


def _layers(model: Any, least: int) -> list[torch.nn.Linear]:
    """Return the layers that compute as their class does, with weights that can be packed."""
    import torch

    return [
        one
        for one in getattr(model, "modules", tuple)()
        if type(one) is torch.nn.Linear
        and "forward" not in vars(one)
        and str(one.weight.dtype) in _CLOSE
        and one.weight.numel() >= least
    ]


def _pack(layer: Any, files: MappedFiles, *, shared: bool) -> bool:
    """Pack a layer, if that gives the same products, and if there is room where the plain weight has to stay."""
    import torch

    plain = layer.weight.detach()
    free = free_memory(plain.device) if shared else None
    if free is not None and plain.numel() * plain.element_size() > _SHARE * free:
        return False
    wide = computes_in_float32(plain.dtype, plain.device)
    with torch.inference_mode(False), torch.no_grad():
        for library in _libraries_for(plain.dtype, wide=wide):
            try:
                kernels: _Kernels = _Widened(library(), plain.dtype) if wide else library()
                packed = kernels.packed(plain)
                right = _same(plain, packed, kernels)
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
    layer.types, layer.kernels = {plain.dtype, packed.dtype}, kernels
    return True


def _same(plain: torch.Tensor, packed: torch.Tensor, kernels: _Kernels) -> bool:
    """Return whether both weights give the same products with a few rows."""
    import torch

    outputs, count = plain.shape
    rows = torch.linspace(-1, 1, _TRIED * count).sin().view(_TRIED, count)[:, torch.arange(count).flip(0)]
    rows = rows.to(plain.dtype)
    found = kernels.product(rows, packed, None, (outputs, count))
    expected = torch.nn.functional.linear(rows, plain)
    lengths = [torch.linalg.vector_norm(one, dim=-1, dtype=torch.float32) for one in (rows, plain)]
    off = (found.float() - expected.float()).abs()
    return bool((off <= _CLOSE[str(plain.dtype)] * torch.outer(*lengths) + 1e-30).all())


@functools.cache
def _packed_linear() -> type[torch.nn.Linear]:
    """Return the class of packed layers; made when torch is there."""
    import torch

    class PackedLinear(torch.nn.Linear):
        """A linear layer: hidden [..., in] -> [..., out]."""

        types: set[torch.dtype]
        """The types of inputs that the kernels take."""

        kernels: _Kernels

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
