"""The weights of a checkpoint folder: the files that hold them, and the content of their headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pytest_touchstone.checkpoints.formats.config_files import ShardIndex, read_json
from pytest_touchstone.checkpoints.formats.foreign import foreign
from pytest_touchstone.checkpoints.formats.paths import shard_path
from pytest_touchstone.checkpoints.formats.safetensors import read_tensors
from pytest_touchstone.checkpoints.formats.tensors import Tensor, Tensors
from pytest_touchstone.checkpoints.formats.torch_pickle import is_old, read_pickled
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import count, listed

WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
PICKLED: Final = "pytorch_model.bin"
PICKLED_INDEX: Final = "pytorch_model.bin.index.json"

_WHOLE: Final = re.compile(
    r"(^|\.)(position_ids|token_type_ids|tid2eid|num_batches_tracked)$|_integer$|mask$"
    r"|(^|\.)(attn|attention)\.(masked_)?bias$"
)
"""Tensors that hold whole numbers by right: counting buffers, tables of experts, masks."""


_WRAPPER: Final = r"(?<![^.])(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)[.]"
_PARALLEL: Final = r"^(?:module[.])+"
_MOST_WRAPPERS: Final = 4


def weights_of(folder: Path) -> Tensors:
    """All tensors of the folder's model by name, read from headers, in the order in which transformers looks for
    them; empty for a pickle of torch before 1.6, which has no header. What a wrapper of the model (``torch.compile``,
    FSDP, ``DataParallel``) put into their names is left out.

    Raises ``CheckpointError`` naming the file that is missing or broken.
    """
    tensors = _stored(folder)
    patterns = _wrappers(list(tensors))
    return {_plain(name, patterns): tensor for name, tensor in tensors.items()} if patterns else tensors


def wrappers_of(folder: Path) -> list[str]:
    """Patterns of what wrappers put into the names of the folder's tensors, each to be left out once, in this
    order; none for most checkpoints."""
    return _wrappers(list(_stored(folder)))


def _wrappers(names: Sequence[str]) -> list[str]:
    most = max((len(re.findall(_WRAPPER, name)) for name in names), default=0)
    # Patterns that mean the same need to differ: transformers takes them as the keys of a table.
    patterns = [f"{_WRAPPER}(?:){{{place}}}" for place in range(1, min(most, _MOST_WRAPPERS) + 1)]
    if names and all(re.match(_PARALLEL, _plain(name, patterns)) for name in names):
        patterns.append(_PARALLEL)
    return patterns if len({_plain(name, patterns) for name in names}) == len(names) else []


def _plain(name: str, patterns: Sequence[str]) -> str:
    for pattern in patterns:
        name = re.sub(pattern, "", name, count=1)
    return name


def check_types(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raises ``CheckpointError`` for weights that are whole or complex numbers, which would be taken as they stand:
    without a quantization nobody knows their scale."""
    for name, tensor in tensors.items():
        if tensor.dtype[0] in "IUBC" and tensor.dtype != "BF16" and not _WHOLE.search(name):
            raise CheckpointError(
                f"{folder}: the tensor {name!r} has numbers of type {tensor.dtype}, and no quantization that "
                "transformers knows says their scale; save the weights in a floating-point type"
            )


def check_gathered(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raises ``CheckpointError`` for weights that are empty: DeepSpeed leaves them so if it did not gather them."""
    if empty := sorted(name for name, tensor in tensors.items() if tensor.shape == (0,)):
        raise CheckpointError(
            f"{folder}: {count(len(empty), 'tensor')} without any number: {listed(empty, 3)}; if DeepSpeed's "
            "ZeRO-3 left them, merge its own files (zero_to_fp32.py), or save with "
            "stage3_gather_16bit_weights_on_model_save"
        )


def _stored(folder: Path) -> Tensors:
    """The tensors by the names in the files."""
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
        + (foreign(folder) or "copy the checkpoint again")
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
