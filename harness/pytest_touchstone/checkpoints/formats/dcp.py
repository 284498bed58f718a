"""Checkpoints of ``torch.distributed.checkpoint``, read by one process, without torch: the model's tensors alone.

A folder with ``.metadata`` and ``__RANK_NUMBER.distcp``, each file a row of items. The metadata are a pickle of
``Metadata``: for each key of the state dict its type, shape and chunks (``state_dict_metadata``), the file and bytes
of each chunk (``storage_data``), and the path that was made a key (``planner_data``). An item is what ``torch.save``
writes for the chunk. FSDP and DTensors shard a tensor into the cells of a grid.

The model's are the keys below ``model`` (accelerate, OLMo-core), or those at the top (torchtitan). The optimizer's and
all others are not read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeGuard

from pytest_touchstone.checkpoints.config_files import check_inside, readable, shard_path
from pytest_touchstone.checkpoints.formats.content import Tensor, TensorPart, Tensors, size_of
from pytest_touchstone.checkpoints.formats.torch_pickle import (
    PickledObject,
    RefusedError,
    read_objects,
    read_pickled,
)
from pytest_touchstone.core.errors import CheckpointError

INDEX: Final = ".metadata"

INNER: Final = ("pytorch_model_fsdp_0", "model_and_optim", "model")
"""Folders in a checkpoint's that hold the model: of accelerate and the Trainer, of OLMo-core, of NeMo's AutoModel."""

MODELS: Final = ("model", "model_state_dict", "state_dict", "module")
"""The keys of a state dict under which training programs have the model's."""

_TORCH: Final = "torch.distributed.checkpoint"
_OLD: Final = "torch.distributed._shard.sharded_tensor.metadata"
_CLASSES: Final = frozenset(
    {
        *(f"{_TORCH}.metadata.{name}" for name in ("Metadata", "MetadataIndex", "StorageMeta")),
        *(f"{_TORCH}.metadata.{name}StorageMetadata" for name in ("Tensor", "Bytes", "Chunk")),
        *(f"{module}.TensorProperties" for module in (f"{_TORCH}.metadata", _OLD)),
        *(f"{module}.filesystem._StorageInfo" for module in (_TORCH, "olmo_core.distributed.checkpoint")),
    }
)


def _memory_format(_number: object) -> None:
    """Stand in for torch's enum of memory formats, which decide nothing here."""


def _member(enum: object, name: object) -> None:
    """Stand in for ``getattr`` of that enum, by which Python 3.11.0 to 3.11.3 pickled its members."""
    if enum is not _memory_format or not isinstance(name, str) or name.startswith("_"):
        raise RefusedError("builtins.getattr")


_CALLS: Final[dict[str, Callable[..., Any]]] = {
    f"{_TORCH}.metadata._MEM_FORMAT_ENCODING": _memory_format,
    f"{_OLD}.MEM_FORMAT_ENCODING": _memory_format,
    "builtins.getattr": _member,
    "torch.serialization._get_layout": lambda name: name,
    **{
        f"{module}.{kind}Path": lambda *_parts: None
        for module in ("pathlib", "pathlib._local")
        for kind in ("Posix", "Windows")
    },
}

_AGAIN: Final = "copy the checkpoint again, or use an earlier one"


class _Chunk(NamedTuple):
    """A chunk of a tensor, and the bytes of a file that are its item."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: Path
    begin: int
    end: int


def is_distributed(folder: Path) -> bool:
    """Return whether a folder is such a checkpoint, or holds the model's."""
    return metadata_folder(folder) is not None


def metadata_folder(folder: Path) -> Path | None:
    """Return the folder with the metadata, or None.

    It is the given folder, or that of the model within it.

    Megatron's, which has ``common.pt`` beside them, has other names for tensors, and some of them in one.
    """
    candidates = (folder, *(folder / name for name in INNER))
    return next(
        (
            candidate
            for candidate in candidates
            if (candidate / INDEX).is_file() and not (candidate / "common.pt").is_file()
        ),
        None,
    )


def distributed_files(folder: Path) -> list[Path]:
    """Return the metadata and all files of items."""
    model_folder = metadata_folder(folder) or folder
    return [model_folder / INDEX, *sorted(model_folder.glob("*.distcp"))]


def read_distributed(folder: Path) -> Tensors:
    """Return the model's tensors under the model's own names.

    Raises ``CheckpointError`` for a file that is missing, cut off or elsewhere, and for chunks that do not make their
    tensor. What is claimed is compared with the files before anything is allocated.
    """
    model_folder = metadata_folder(folder) or folder
    check_inside(model_folder)
    path = model_folder / INDEX
    content = read_objects(path, _CLASSES, _CALLS)
    entries, storage, paths = (
        _table(path, content, name) for name in ("state_dict_metadata", "storage_data", "planner_data")
    )
    names = _names(path, entries, paths)
    items: dict[str, dict[tuple[int, ...], Any]] = defaultdict(dict)
    for key, item in storage.items():
        if isinstance(key, PickledObject) and isinstance(key["fqn"], str) and key["fqn"] in names:
            items[key["fqn"]][_numbers(path, key["offset"] or ())] = item
    chunks = {key: list(_chunks(path, key, entries[key], items[key])) for key in names}
    _check_apart(path, chunks)
    return {name: _tensor(path, key, entries[key], chunks[key]) for key, name in names.items()}


def _table(path: Path, content: Any, name: str) -> dict[Any, Any]:
    table = content[name] if isinstance(content, PickledObject) else None
    if table is None and name == "planner_data":
        return {}
    if not isinstance(table, dict):
        raise CheckpointError(f"{path}: no metadata of a distributed checkpoint (no {name}); {_AGAIN}")
    return table


def _names(path: Path, entries: Mapping[Any, Any], paths: Mapping[Any, Any]) -> dict[str, str]:
    """Map the keys of the model's tensors to the model's own names."""
    groups: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for key, entry in entries.items():
        if (
            isinstance(key, str)
            and isinstance(entry, PickledObject)
            and entry.kind.endswith(".TensorStorageMetadata")
        ):
            tensor_path = paths.get(key)
            steps = tuple(map(str, tensor_path)) if _is_path(tensor_path) else (key,)
            depth = next((at for at, step in enumerate(steps[:-1], 1) if step in MODELS), 0)
            if depth or len(steps) == 1:
                groups[steps[:depth]][key] = ".".join(steps[depth:])
    if not groups:
        raise CheckpointError(
            f"{path}: no tensors of a model in it, under 'model' or at the top; give the model's folder, or save "
            "{'model': model.state_dict()}"
        )
    nested = [group for group in groups if group and not any("optim" in step for step in group)]
    names = groups[min(nested, key=lambda group: (len(group), MODELS.index(group[-1]))) if nested else ()]
    if len(set(names.values())) != len(names):
        raise CheckpointError(f"{path}: two tensors of one name; save the checkpoint again")
    return names


def _is_path(path: Any) -> TypeGuard[tuple[str | int, ...]]:
    return (
        isinstance(path, tuple) and 0 < len(path) <= 64 and all(isinstance(step, (str, int)) for step in path)
    )


def _numbers(path: Path, numbers: Any) -> tuple[int, ...]:
    """Check a shape or an offset: a tuple of whole numbers from 0 up."""
    if (
        not isinstance(numbers, tuple)
        or len(numbers) > 64
        or not all(type(number) is int and number >= 0 for number in numbers)
    ):
        raise CheckpointError(f"{path}: a tensor of an impossible shape or place; save the checkpoint again")
    return numbers


def _chunks(
    path: Path, key: str, entry: PickledObject, items: Mapping[tuple[int, ...], Any]
) -> Iterator[_Chunk]:
    """Yield the chunks of a tensor with the location of their items; empty chunks are skipped."""
    listed = entry["chunks"]
    if not isinstance(listed, list) or len(listed) != len(items):
        raise CheckpointError(
            f"{path}: names other chunks of the tensor {key[:80]!r} than it has places for; {_AGAIN}"
        )
    for chunk in listed:
        offsets, sizes = (
            _numbers(path, chunk[name] if isinstance(chunk, PickledObject) else None)
            for name in ("offsets", "sizes")
        )
        item = items.get(offsets)
        if not isinstance(item, PickledObject) or len(offsets) != len(sizes):
            raise CheckpointError(f"{path}: has no place for a chunk of the tensor {key[:80]!r}; {_AGAIN}")
        if 0 in sizes:
            continue
        if item["transform_descriptors"]:
            raise CheckpointError(
                f"{path}: compressed or encrypted items; save the checkpoint without extensions"
            )
        file = shard_path(path, str(item["relative_path"]))
        begin, length = _numbers(path, (item["offset"], item["length"]))
        with readable(file):
            size = file.stat().st_size
        if begin + length > size:
            raise CheckpointError(f"{file}: cut off, {size} bytes of {begin + length} are there; {_AGAIN}")
        yield _Chunk(offsets, sizes, file, begin, begin + length)


def _check_apart(path: Path, chunks: Mapping[str, list[_Chunk]]) -> None:
    """Raise ``CheckpointError`` where two items share bytes.

    A small file could otherwise pose as a large model.
    """
    spans = sorted(
        (str(chunk.file), chunk.begin, chunk.end, key)
        for key, tensor_chunks in chunks.items()
        for chunk in tensor_chunks
    )
    for (file, _, end, _), (next_file, begin, _, key) in pairwise(spans):
        if file == next_file and begin < end:
            raise CheckpointError(
                f"{path}: the tensor {key[:80]!r} begins within another one's bytes; save the checkpoint again"
            )


def _tensor(path: Path, key: str, entry: PickledObject, chunks: list[_Chunk]) -> Tensor:
    """Build a tensor from its chunks; each is read from its own header."""
    shape = _numbers(path, entry["size"])
    properties = entry["properties"].state if isinstance(entry["properties"], PickledObject) else None
    dtype, layout = properties[:2] if isinstance(properties, tuple) and len(properties) > 1 else (None, None)
    dtype = getattr(dtype, "dtype", None)
    if layout != "torch.strided" or not isinstance(dtype, str) or size_of(dtype, shape) is None:
        raise CheckpointError(
            f"{path}: the tensor {key[:80]!r} is no plain table of numbers; save the model unquantized"
        )
    _check_grid(path, key, shape, chunks)
    parts = []
    for chunk in chunks:
        tensor = read_pickled(chunk.file, chunk.begin, chunk.end)
        if not isinstance(tensor, Tensor) or (tensor.dtype, tensor.shape) != (dtype, chunk.sizes):
            raise CheckpointError(
                f"{chunk.file}: the item at byte {chunk.begin} is not the chunk {list(chunk.sizes)} of {key[:80]!r} "
                f"that the metadata name; {_AGAIN}"
            )
        parts.append(TensorPart(chunk.offsets, tensor))
    if not parts:
        return Tensor(dtype, shape, path, 0, 0)
    if len(parts) == 1:
        return parts[0].tensor
    if any(chunk_part.tensor.strides is not None for chunk_part in parts):
        raise CheckpointError(
            f"{path}: chunks of {key[:80]!r} are transposed; save the checkpoint from contiguous tensors"
        )
    return Tensor(dtype, shape, *parts[0].tensor[2:5], parts=tuple(parts))


def _check_grid(path: Path, key: str, shape: tuple[int, ...], chunks: list[_Chunk]) -> None:
    """Raise ``CheckpointError`` unless the chunks tile the whole tensor as a grid."""
    fits = all(len(chunk.offsets) == len(shape) for chunk in chunks)
    cuts = [
        sorted({chunk.offsets[side] for chunk in chunks if fits} | {length})
        for side, length in enumerate(shape)
    ]
    ends = [dict(pairwise(places)) for places in cuts]
    cells = {
        chunk.offsets
        for chunk in chunks
        if fits
        and all(
            after.get(at) == at + size
            for after, at, size in zip(ends, chunk.offsets, chunk.sizes, strict=True)
        )
    }
    whole = all(places[0] == 0 for places in cuts) and len(cells) == len(chunks) == prod(
        len(after) for after in ends
    )
    if not (not chunks if 0 in shape else whole):
        raise CheckpointError(
            f"{path}: the chunks of the tensor {key[:80]!r} do not make its shape {list(shape)}; {_AGAIN}"
        )
