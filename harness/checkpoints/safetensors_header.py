"""Shapes of the tensors in a safetensors file, and whether the file is whole, from its header alone.

The format: eight bytes (little-endian) give the header's length; the header is JSON, ``{NAME: {"dtype",
"shape", "data_offsets": [begin, end]}}``, offsets counted from the header's end; nothing follows the last
tensor.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from harness.checkpoints.json_files import ShardIndex, read_json
from harness.errors import CheckpointError

_LARGEST_HEADER: Final = 100_000_000
"""The limit that the safetensors library itself sets."""

Shapes = dict[str, tuple[int, ...]]


class _Entry(BaseModel):
    dtype: str
    shape: tuple[int, ...]
    begin_end: tuple[int, int] = Field(alias="data_offsets")


_HEADER = TypeAdapter(dict[str, _Entry])


def read_shapes(path: Path) -> Shapes:
    """Tensor name -> shape. Raises ``CheckpointError`` when the file is cut off or is no safetensors file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 2 <= length <= _LARGEST_HEADER:
                raise CheckpointError(
                    f"{path}: no safetensors file (its first 8 bytes give a header of {length} bytes); "
                    "save or copy the checkpoint again"
                )
            header = file.read(length)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}); check the file's rights"
        ) from error
    if len(header) < length:
        raise _cut_off(path, size, 8 + length)
    entries = _parse(path, header)
    needed = 8 + length + max((entry.begin_end[1] for entry in entries.values()), default=0)
    if size < needed:
        raise _cut_off(path, size, needed)
    return {name: entry.shape for name, entry in entries.items()}


def read_sharded(index: Path) -> Shapes:
    """The same over all shards that an index file names; a shard that is not there is an error."""
    shapes: Shapes = {}
    weight_map = read_json(index, ShardIndex).weight_map
    for shard in sorted(set(weight_map.values())):
        path = index.parent / shard
        if not path.is_file():
            raise CheckpointError(f"{path}: missing, though {index.name} names it; copy the checkpoint again")
        shapes.update(read_shapes(path))
    if absent := sorted(set(weight_map) - set(shapes)):
        raise CheckpointError(
            f"{index}: names the tensor {absent[0]!r}, which its shard does not hold; save it again"
        )
    return shapes


def _parse(path: Path, header: bytes) -> dict[str, _Entry]:
    try:
        content = json.loads(header)
        content.pop("__metadata__", None)
        return _HEADER.validate_python(content)
    except (ValueError, AttributeError, ValidationError) as error:
        raise CheckpointError(
            f"{path}: no safetensors file (its header is not a table of tensors); "
            "save or copy the checkpoint again"
        ) from error


def _cut_off(path: Path, size: int, needed: int) -> CheckpointError:
    return CheckpointError(
        f"{path}: cut off, {size} bytes of {needed} are there; "
        "copy the checkpoint again, or use an earlier one"
    )
