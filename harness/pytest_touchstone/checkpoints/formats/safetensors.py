"""The tensors of a safetensors file, and whether the file is whole, from its header alone.

The format: eight bytes (little-endian) give the header's length. The header is JSON, ``{NAME: {"dtype", "shape",
"data_offsets": [begin, end]}}``, with offsets counted from its end. The tensors follow one another without gaps, and
nothing follows the last one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from pytest_touchstone.checkpoints.formats.paths import readable
from pytest_touchstone.checkpoints.formats.tensors import Tensor, Tensors, size_of
from pytest_touchstone.core.errors import CheckpointError

_LARGEST_HEADER: Final = 100_000_000
"""The limit that the safetensors library itself sets."""


class _Entry(BaseModel):
    dtype: str
    shape: tuple[int, ...]
    begin_end: tuple[int, int] = Field(alias="data_offsets")


_HEADER = TypeAdapter(dict[str, _Entry])


def read_tensors(path: Path) -> Tensors:
    """Tensor name -> tensor. Raises ``CheckpointError`` when the file is cut off, is no safetensors file, or
    describes an impossible tensor."""
    with readable(path), path.open("rb") as file:
        size = path.stat().st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= _LARGEST_HEADER:
            raise CheckpointError(
                f"{path}: no safetensors file (its first 8 bytes give a header of {length} bytes); "
                "save or copy the checkpoint again"
            )
        header = file.read(length)
    if len(header) < length:
        raise _cut_off(path, size, 8 + length)
    entries = _parse(path, header)
    _check_places(path, entries)
    needed = 8 + length + max((entry.begin_end[1] for entry in entries.values()), default=0)
    if size < needed:
        raise _cut_off(path, size, needed)
    if size > needed:
        raise CheckpointError(
            f"{path}: {size - needed} bytes follow its last tensor; save or copy the checkpoint again"
        )
    start = 8 + length
    return {
        name: Tensor(entry.dtype, entry.shape, path, start + entry.begin_end[0], start + entry.begin_end[1])
        for name, entry in entries.items()
    }


def _parse(path: Path, header: bytes) -> dict[str, _Entry]:
    try:
        content = from_json(header)
        content.pop("__metadata__", None)
        return _HEADER.validate_python(content)
    except (ValueError, AttributeError, TypeError, ValidationError) as error:
        raise CheckpointError(
            f"{path}: no safetensors file (its header is not a table of tensors); "
            "save or copy the checkpoint again"
        ) from error


def _check_places(path: Path, entries: dict[str, _Entry]) -> None:
    """Raise ``CheckpointError`` for a tensor whose place or length does not fit its shape."""
    at = 0
    for name, entry in sorted(entries.items(), key=lambda pair: pair[1].begin_end):
        begin, end = entry.begin_end
        size = size_of(entry.dtype, entry.shape)
        if size is None:
            raise CheckpointError(
                f"{path}: tensor {name!r} has the type {entry.dtype!r} and the shape {list(entry.shape)}, "
                "which is impossible; save the checkpoint again"
            )
        if begin < 0 or end - begin != size:
            raise CheckpointError(
                f"{path}: tensor {name!r} of shape {list(entry.shape)} needs {size} bytes, but its place is "
                f"{begin} to {end}; save the checkpoint again"
            )
        if begin != at:
            raise CheckpointError(
                f"{path}: tensor {name!r} begins at byte {begin}, where the one before it ends at {at}; "
                "save the checkpoint again"
            )
        at = end


def _cut_off(path: Path, size: int, needed: int) -> CheckpointError:
    return CheckpointError(
        f"{path}: cut off, {size} bytes of {needed} are there; "
        "copy the checkpoint again, or use an earlier one"
    )
