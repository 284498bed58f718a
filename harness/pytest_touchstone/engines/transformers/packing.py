"""Linear layers whose weights are laid out once for the CPU's kernels.

``torch.nn.functional.linear`` takes a weight as it is in memory, and rearranges it for its kernel at every call. Few
rows do not pay for that: with 32 rows the products of oneDNN with a weight that is packed once took 0.7 times as long
in float32, those of a vocabulary layer half. A packed weight takes the place of the plain one,
so that it takes no more memory, or little more with MKL, whose layout has room for a pass's rows. One that is also the
table of embeddings is kept beside it.

Weights are packed for the library whose products of many rows are the fastest (``products``), and again once texts are
to be generated, where steps of few rows have a faster one (``pack_for_steps``). Those of a type that the processor does
not multiply are widened as they are read, or packed as float32 numbers (``half_precision``). A layer is packed only
where its packed product is the plain one up to rounding; that is tried with one layer of each kind. Code that reads
``weight`` of a packed layer gets the plain numbers, made for that call.
"""

from __future__ import annotations

import functools
import math
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.transformers.compat import MappedFiles
from pytest_touchstone.engines.transformers.half_precision import computes_in_float32
from pytest_touchstone.engines.transformers.in_float32 import in_float32
from pytest_touchstone.engines.transformers.memory import PACKED, free_memory
from pytest_touchstone.engines.transformers.products import (
    Halves,
    Kernels,
    Native,
    Widened,
    for_steps,
    keeps_narrow,
    libraries_for,
)

if TYPE_CHECKING:
    import torch

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


def keep_few_kernels() -> None:
    """Bound the memory of oneDNN's kernels; no effect once one has been made, or where the user has said how many."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(_KERNELS))


class Packer:
    """Packs the linear layers of a model on a CPU, part after part. Packed ones stay as they are."""

    def __init__(self, model: Any, *, least: int = LEAST) -> None:
        """``least`` is the size from which a weight is packed, in numbers."""
        import torch

        kernels: Any = torch.backends.mkldnn
        self._can = hasattr(model, "modules") and model.device.type == "cpu" and kernels.is_available()
        self._least, self._tried = least, Tried()
        uses: dict[torch.nn.Parameter, int] = {}
        for module in model.modules() if self._can else ():
            for one in module.parameters(recurse=False):
                uses[one] = uses.get(one, 0) + 1
        self._shared = {one for one, count in uses.items() if count > 1}

    def pack(self, part: Any) -> int:
        """Pack the layers of a module of the model, and return how many."""
        if not self._can:
            return 0
        layers, files = _layers(part, self._least), MappedFiles()
        return sum(_pack(one, files, self._tried, shared=one.weight in self._shared) for one in layers)


def pack(model: Any, *, least: int = LEAST) -> int:
    """Pack all linear layers of a model, as a ``Packer`` does, and return how many."""
    return Packer(model, least=least).pack(model)


def pack_for_steps(model: Any) -> int:
    """Pack a model's packed layers again where products of few rows have a faster library; return how many have it.

    Products of many rows take a few percent longer then.
    """
    packed = [one for one in getattr(model, "modules", tuple)() if type(one) is _packed_linear()]
    tried = Tried()
    return sum(_pack_again(one, tried) for one in packed)


def has_room_to_pack(model: Any, *, least: int = LEAST, processes: int = 1) -> bool:
    """Return whether there is memory to pack a model's layers, in each of so many processes.

    It is wanting only where weights are packed as float32 numbers.
    """
    if keeps_narrow():
        return True
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


def _pack(layer: Any, files: MappedFiles, tried: Tried, *, shared: bool) -> bool:
    """Pack a layer, if that gives the same products, and if there is room where the plain weight has to stay."""
    import torch

    plain = layer.weight.detach()
    free = free_memory(plain.device) if shared else None
    if free is not None and plain.numel() * plain.element_size() > _SHARE * free:
        return False
    wide = computes_in_float32(plain.dtype, plain.device)
    with torch.inference_mode(False), torch.no_grad():
        for make in libraries_for(plain.dtype, wide=wide):
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


def _pack_again(layer: Any, tried: Tried) -> bool:
    """Pack a packed layer for products of few rows, if these are the same; return whether it is packed so."""
    import torch

    before, old = layer.kernels, layer._parameters[PACKED]
    wide = isinstance(before, Widened)
    if isinstance(before.library if wide else before, (Native, Halves)):
        return True
    with torch.inference_mode(False), torch.no_grad():
        try:
            wanted = for_steps(before.dtype if wide else old.dtype, wide=wide)()
        except RuntimeError:  # not here
            return False
        plain = before.plain(old, (layer.out_features, layer.in_features))
        packed = wanted.packed(plain)
        if not tried.same(plain, packed, wanted):
            return False
        layer.kernels = wanted
        layer._parameters[PACKED] = torch.nn.Parameter(packed, requires_grad=False)
    return True


class Tried:
    """Trials of a model's layers: one per library, shape and layout, since layers of a kind are packed alike.

    A weight that holds a number that is not finite is tried by itself: not every library's products keep those.
    """

    def __init__(self) -> None:
        self._right: set[tuple[object, ...]] = set()

    def same(self, plain: torch.Tensor, packed: torch.Tensor, kernels: Kernels) -> bool:
        """Return whether both weights give the same products."""
        library = type(kernels.library if isinstance(kernels, Widened) else kernels)
        kind = (library, plain.dtype, tuple(plain.shape), plain.stride(), plain.data_ptr() % _ALIGNED)
        if kind in self._right and math.isfinite(float(plain.sum())):
            return True
        right = _same(plain, packed, kernels)
        if right:
            self._right.add(kind)
        return right


def _same(plain: torch.Tensor, packed: torch.Tensor, kernels: Kernels) -> bool:
    """Return whether both weights give the same products with a few rows: float32 ones, where that is computed in."""
    import torch

    wide = isinstance(kernels, Widened)
    outputs, count = plain.shape
    rows = torch.linspace(-1, 1, max(_TRIED) * count).sin().view(-1, count)[:, torch.arange(count).flip(0)]
    rows = rows if wide else rows.to(plain.dtype)
    with in_float32() if wide else nullcontext():
        expected = torch.nn.functional.linear(rows, plain).float()
    lengths = [torch.linalg.vector_norm(one, dim=-1, dtype=torch.float32) for one in (rows, plain)]
    most = _CLOSE[str(rows.dtype)] * torch.outer(*lengths) + 1e-30
    for some in _TRIED:
        found = kernels.product(rows[:some], packed, None, (outputs, count)).float()
        if not bool(((found - expected[:some]).abs() <= most[:some]).all()):
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

        kernels: Kernels

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
