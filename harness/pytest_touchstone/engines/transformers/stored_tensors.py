"""Tensors in files that no library reads, as the loaders of transformers and of Llama's models take them."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Final

from pytest_touchstone.checkpoints.config_files import readable
from pytest_touchstone.checkpoints.formats.content import Tensor
from pytest_touchstone.core.errors import CheckpointError

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
"""Bytes: numbers that begin elsewhere are read, since products of matrices want theirs aligned."""


class StoredTensor:
    """A tensor in files, read when all of it is taken (``stored[...]``), as safetensors' slices are.

    What lies aligned in one place is mapped; all else is read into memory.
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
            return self._held(self._tensor)
        whole = torch.empty(self.shape, dtype=self.dtype)
        for offsets, part in self._tensor.parts:
            place = whole[tuple(slice(at, at + side) for at, side in zip(offsets, part.shape, strict=True))]
            if place.is_contiguous():
                self._read(part, place)
            else:
                place.copy_(self._read(part, torch.empty(part.shape, dtype=self.dtype)))
        return whole

    def _held(self, tensor: Tensor) -> torch.Tensor:
        import torch

        if tensor.begin == tensor.end:
            return torch.zeros(tensor.shape, dtype=self.dtype)
        size = (tensor.end - tensor.begin) // self.dtype.itemsize
        if tensor.begin % _ALIGNED:
            flat = self._read(tensor, torch.empty(size, dtype=self.dtype))
        else:
            with tensor.file.open("rb") as file:  # its own copy of a page that someone writes to
                pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            flat = torch.frombuffer(pages, dtype=self.dtype, count=size, offset=tensor.begin)
        if tensor.strides is None:
            return flat.reshape(tensor.shape)
        *strides, offset = tensor.strides
        return flat.as_strided(tensor.shape, strides, offset)

    def _read(self, tensor: Tensor, into: torch.Tensor) -> torch.Tensor:
        """Read a tensor into another, which is contiguous, and return that. Pages that were mapped would count."""
        import torch

        buffer = into.view(-1).view(torch.uint8).numpy().data
        with readable(tensor.file), tensor.file.open("rb", buffering=0) as file:
            file.seek(tensor.begin)
            at = 0
            while at < len(buffer):
                read = file.readinto(buffer[at:])
                if not read:
                    raise CheckpointError(
                        f"{tensor.file}: became shorter while it was read; copy the checkpoint again"
                    )
                at += read
        return into


def stored(tensors: Mapping[str, Tensor]) -> dict[str, StoredTensor]:
    """The tensors by the same names. None of them is read yet."""
    return {name: StoredTensor(tensor) for name, tensor in tensors.items()}
