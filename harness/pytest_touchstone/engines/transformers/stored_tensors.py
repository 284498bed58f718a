"""Tensors in files that no library reads, as the loaders of transformers and of Llama's models take them."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Final

from pytest_touchstone.checkpoints.formats.content import Tensor

if TYPE_CHECKING:
    import torch

_TYPES: Final = {
    **{
        "F64": "float64",
        "F32": "float32",
        "F16": "float16",
        "BF16": "bfloat16",
        "I64": "int64",
        "I32": "int32",
    },
    **{"I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"},
    **{"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"},
}


_ALIGNED: Final = 64
"""Bytes: numbers that begin elsewhere are copied, since products of matrices want theirs aligned."""


class StoredTensor:
    """A tensor in files, read when all of it is taken (``stored[...]``), as safetensors' slices are.

    What lies aligned in one place is mapped; all else is copied or put together in memory.
    """

    def __init__(self, tensor: Tensor) -> None:
        import torch

        self._tensor = tensor
        self.shape = torch.Size(tensor.shape)
        self.dtype: torch.dtype = getattr(torch, _TYPES[tensor.dtype])

    def dim(self) -> int:
        """The number of its sides."""
        return len(self.shape)

    def __getitem__(self, _: EllipsisType) -> torch.Tensor:
        """The whole tensor, on the CPU."""
        import torch

        if not self._tensor.parts:
            return self._mapped(self._tensor)
        whole = torch.empty(self.shape, dtype=self.dtype)
        for offsets, part in self._tensor.parts:
            where = tuple(slice(at, at + side) for at, side in zip(offsets, part.shape, strict=True))
            whole[where].copy_(self._mapped(part))
        return whole

    def _mapped(self, tensor: Tensor) -> torch.Tensor:
        import torch

        if tensor.begin == tensor.end:
            return torch.zeros(tensor.shape, dtype=self.dtype)
        size = (tensor.end - tensor.begin) // self.dtype.itemsize
        with tensor.file.open("rb") as file:  # its own copy of a page that someone writes to
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        flat = torch.frombuffer(pages, dtype=self.dtype, count=size, offset=tensor.begin)
        if flat.data_ptr() % _ALIGNED:
            flat = flat.clone()
        if tensor.strides is None:
            return flat.reshape(tensor.shape)
        *strides, offset = tensor.strides
        return flat.as_strided(tensor.shape, strides, offset)


def stored(tensors: Mapping[str, Tensor]) -> dict[str, StoredTensor]:
    """The tensors by the same names. None of them is read yet."""
    return {name: StoredTensor(tensor) for name, tensor in tensors.items()}
