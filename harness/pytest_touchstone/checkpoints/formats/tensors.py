"""The content of headers about tensors: number type, shape, and the place of their bytes in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

_BITS: Final = {
    **{"F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32},
    **{"F16": 16, "BF16": 16, "I16": 16, "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "C128": 128},
    **{"F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8},
    **{"F6_E2M3": 6, "F6_E3M2": 6, "F4": 4},
}
"""Number types by safetensors' names, with the bits of a number."""

_NAMES: Final = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class Tensor(NamedTuple):
    """A tensor in a file: bytes ``begin`` to ``end`` of ``file``, in the order of its numbers unless ``strides``
    (in numbers) say otherwise."""

    dtype: str
    shape: tuple[int, ...]
    file: Path
    begin: int
    end: int
    strides: tuple[int, ...] | None = None

    @property
    def numbers(self) -> int:
        """The count of its numbers."""
        return prod(self.shape)


Tensors: TypeAlias = dict[str, Tensor]
Shapes: TypeAlias = dict[str, tuple[int, ...]]


def size_of(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Bytes of a tensor of that type and shape; None for an unknown type or a negative side."""
    if dtype not in _BITS or any(side < 0 for side in shape):
        return None
    return (prod(shape) * _BITS[dtype] + 7) // 8


def shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """Tensor name -> shape."""
    return {name: tensor.shape for name, tensor in tensors.items()}


def count_parameters(tensors: Mapping[str, Tensor]) -> int | None:
    """Numbers of all tensors, each part of a file counted once; None where no tensor is known."""
    parts = {(tensor.file, tensor.begin, tensor.end): tensor.numbers for tensor in tensors.values()}
    return sum(parts.values()) if parts else None


def main_dtype(tensors: Mapping[str, Tensor]) -> str | None:
    """The type of most numbers, by torch's name where it has a plain one; None where no tensor is known."""
    counts: Counter[str] = Counter()
    for tensor in tensors.values():
        counts[tensor.dtype] += tensor.numbers
    if not counts:
        return None
    most = counts.most_common(1)[0][0]
    return _NAMES.get(most, most)
