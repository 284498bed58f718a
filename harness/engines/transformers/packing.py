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
from collections.abc import Callable, Sequence
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

_WIDE_ONLY: Final = "torch.float16"
"""A type that is packed only where it is computed in float32: no processor whose instructions multiply it has been
seen."""

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


class _InFloat32:
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


def _libraries_for(weight: torch.Tensor) -> tuple[Callable[[], _Kernels], ...]:
    """Return the libraries to try with a weight, the fastest first."""
    dtype, wide = weight.dtype, computes_in_float32(weight.dtype, weight.device)
    by_mkl = (wide or str(dtype) == "torch.float32") and mkl_is_faster()
    kinds: tuple[type[_MKL | _OneDNN], ...] = (_MKL, _OneDNN) if by_mkl else (_OneDNN,)
    return tuple((lambda kind=kind: _InFloat32(kind(), dtype)) if wide else kind for kind in kinds)


def pack(model: Any, *, least: int = LEAST, processes: int = 1) -> int:
    """Pack the linear layers of a model on a CPU, and return how many. Packed ones stay as they are.

    ``least`` is the size from which a weight is packed, in numbers. So many ``processes`` load the model.
    """
    import torch

    kernels: Any = torch.backends.mkldnn
    if not hasattr(model, "modules") or model.device.type != "cpu" or not kernels.is_available():
        return 0
    uses: dict[int, int] = {}
    for module in model.modules():
        for one in module.parameters(recurse=False):
            uses[id(one)] = uses.get(id(one), 0) + 1
    layers = [one for one in model.modules() if type(one) is torch.nn.Linear and _can(one, least)]
    if not _has_room(layers, processes):
        return 0
    files = MappedFiles()
    return sum(_pack(one, files, shared=uses[id(one.weight)] > 1) for one in layers)


def computes_slowly(model: Any, *, least: int = LEAST) -> bool:
    """Return whether products are slow here for the model's number type, for want of memory to pack its weights."""
    import torch

    if not isinstance(model, torch.nn.Module):
        return False
    layers = [one for one in model.modules() if type(one) is torch.nn.Linear and _can(one, least)]
    return any(computes_in_float32(one.weight.dtype, one.weight.device) for one in layers)


def _can(layer: torch.nn.Linear, least: int) -> bool:
    """Return whether a layer computes as its class does, with a weight that can be packed."""
    weight = layer.weight
    known = str(weight.dtype) in _CLOSE
    if str(weight.dtype) == _WIDE_ONLY:
        known = computes_in_float32(weight.dtype, weight.device)
    return "forward" not in vars(layer) and known and weight.numel() >= least


def _has_room(layers: Sequence[torch.nn.Linear], processes: int) -> bool:
    """Return whether there is room for the weights as float32 numbers, where they are packed as such."""
    wide = [one.weight for one in layers if computes_in_float32(one.weight.dtype, one.weight.device)]
    more = sum(one.numel() * (4 - one.element_size()) for one in wide)
    free = free_memory(wide[0].device) if wide else None
    return free is None or more * processes <= _WIDE_SHARE * free


def _pack(layer: Any, files: MappedFiles, *, shared: bool) -> bool:
    """Pack a layer, if that gives the same products, and if there is room where the plain weight has to stay."""
    import torch

    plain = layer.weight.detach()
    free = free_memory(plain.device) if shared else None
    if free is not None and plain.numel() * plain.element_size() > _SHARE * free:
        return False
    with torch.inference_mode(False), torch.no_grad():
        for library in _libraries_for(plain):
            try:
                kernels = library()
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
    layer.own_type, layer.kernels = plain.dtype, kernels
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

        own_type: torch.dtype
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
            if input.dtype != self.own_type:  # within ``in_float32``
                if not isinstance(self.kernels, _InFloat32):
                    return torch.nn.functional.linear(input, self.weight, self.bias)
                with torch._C.DisableTorchFunction():
                    return self.kernels.product(
                        input, packed, self.bias, (self.out_features, self.in_features)
                    )
            return self.kernels.product(input, packed, self.bias, (self.out_features, self.in_features))

    return PackedLinear
