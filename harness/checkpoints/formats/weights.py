"""The weights of a checkpoint folder: the files that hold them, and the content of their headers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness.checkpoints.formats.config_files import ShardIndex, read_json
from harness.checkpoints.formats.paths import shard_path
from harness.checkpoints.formats.safetensors import read_tensors
from harness.checkpoints.formats.tensors import Tensor, Tensors
from harness.checkpoints.formats.torch_pickle import is_old, read_pickled
from harness.core.errors import CheckpointError

WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
PICKLED: Final = "pytorch_model.bin"
PICKLED_INDEX: Final = "pytorch_model.bin.index.json"


def weights_of(folder: Path) -> Tensors:
    """All tensors of the folder's model by name, read from headers, in the order in which transformers looks for
    them; empty for a pickle of torch before 1.6, which has no header.

    Raises ``CheckpointError`` naming the file that is missing or broken.
    """
    if (folder / WEIGHTS).is_file():
        return read_tensors(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _read_sharded(folder / INDEX, read_tensors)
    if (folder / PICKLED).is_file():
        return pickled_tensors(folder / PICKLED)
    if (folder / PICKLED_INDEX).is_file():
        return _read_sharded(folder / PICKLED_INDEX, pickled_tensors)
    raise CheckpointError(
        f"{folder}: config.json is there but no weights ({WEIGHTS}, {INDEX} or {PICKLED}); "
        "copy the checkpoint again"
    )


def _read_sharded(index: Path, read: Callable[[Path], Tensors]) -> Tensors:
    """The tensors of all shards that an index file names. Raises ``CheckpointError`` for a shard that is not there, and
    for a tensor that is not in the shard that the index names."""
    tensors: Tensors = {}
    weight_map = read_json(index, ShardIndex).weight_map
    for shard in sorted(set(weight_map.values())):
        tensors.update(read(shard_path(index, shard)))
    for name, shard in sorted(weight_map.items()):
        if name not in tensors or tensors[name].file.name != shard:
            raise CheckpointError(
                f"{index}: names the tensor {name!r}, which its shard does not hold; save it again"
            )
    return tensors


def weight_files(folder: Path) -> list[Path]:
    """The files that hold those weights."""
    for name in (WEIGHTS, PICKLED):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            return [folder / shard for shard in sorted(set(read_json(index, ShardIndex).weight_map.values()))]
    return []


def pickled_tensors(path: Path) -> Tensors:
    """The tensors of a pickled state dict by name; empty for one written by torch before 1.6."""
    if is_old(path):
        return {}
    return state_dict(path, read_pickled(path))


def state_dict(path: Path, content: object) -> Tensors:
    """The content, if it is a table of tensors; else a ``CheckpointError``."""
    if not isinstance(content, dict) or not content:
        raise CheckpointError(f"{path}: holds no table of tensors; save the model's state_dict()")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            shown = name[:80] if isinstance(name, str) else type(name).__name__
            raise CheckpointError(
                f"{path}: holds {shown!r}, which is no tensor; save the model's state_dict() alone"
            )
    return dict(content)
