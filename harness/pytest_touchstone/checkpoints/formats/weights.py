"""The weights of a checkpoint folder: the files that hold them, and the content of their headers.

A safetensors file: eight bytes (little-endian) give the header's length. The header is JSON, ``{NAME: {"dtype",
"shape", "data_offsets": [begin, end]}}``, with offsets counted from its end. The tensors follow one another without
gaps, and nothing follows the last one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from pytest_touchstone.checkpoints.config_files import ShardIndex, read_json, readable, shard_path
from pytest_touchstone.checkpoints.formats.content import Tensor, Tensors, size_of
from pytest_touchstone.checkpoints.formats.torch_pickle import is_old, read_pickled
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import open_regular
from pytest_touchstone.core.text import count, join_names

_LARGEST_HEADER: Final = 100_000_000
"""The limit that the safetensors library itself sets."""


class _Entry(BaseModel):
    dtype: str
    shape: tuple[int, ...]
    begin_end: tuple[int, int] = Field(alias="data_offsets")


_HEADER = TypeAdapter(dict[str, _Entry])
_METADATA = TypeAdapter(dict[str, str] | None)


def read_tensors(path: Path) -> Tensors:
    """Read the tensors of a safetensors file by name, from its header.

    Raises ``CheckpointError`` where the file is cut off, not a safetensors file, or describes an impossible tensor.
    """
    with readable(path), open_regular(path) as file:
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
    try:
        content = from_json(header)
        _METADATA.validate_python(content.pop("__metadata__", None))
        entries = _HEADER.validate_python(content)
    except (ValueError, AttributeError, TypeError, ValidationError) as error:
        raise CheckpointError(
            f"{path}: no safetensors file (its header is not a table of tensors); "
            "save or copy the checkpoint again"
        ) from error
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


# Folders of other programs


_MEGATRON: Final = (
    "its weights are NeMo's or Megatron's; convert them with Megatron Bridge: python "
    "examples/conversion/convert_checkpoints.py export --hf-model BASE --megatron-path FOLDER --hf-path OUTPUT"
)

_FORMS: Final = (
    (
        (
            *("*.nemo", "model_weights", "mp_rank_*/model_optim_rng.pt", "*/mp_rank_*/model_optim_rng.pt"),
            "iter_0*",
        ),
        _MEGATRON,
    ),
    (("common.pt", "latest_checkpointed_iteration.txt", "*/common.pt"), _MEGATRON),
    (
        ("zero_to_fp32.py", "global_step*", "*zero_pp_rank_*", "mp_rank_*"),
        "its weights are in DeepSpeed's own files; merge them: python zero_to_fp32.py . . --safe_serialization "
        "in the folder that DeepSpeed wrote",
    ),
    (
        ("pytorch_model_fsdp*.bin",),
        "its weights are in FSDP's own files; save them with the state dict type SHARDED_STATE_DICT, or the model with "
        "save_pretrained",
    ),
    (
        ("__*_*.distcp", "pytorch_model_fsdp_*"),
        "its weights are in shards (.distcp), without the .metadata that name them, which is written last; copy the "
        "checkpoint again, or use an earlier one",
    ),
    (
        ("_CHECKPOINT_METADATA", "manifest.ocdbt", "*/manifest.ocdbt", "*/_METADATA"),
        "its weights are Orbax's (JAX); convert them to a folder for transformers, as MaxText's "
        "checkpoint_conversion/to_huggingface.py does with its own",
    ),
    (
        ("consolidated*.safetensors", "consolidated*.pth"),
        "its weights are in the form of the model's makers (consolidated); give the form for transformers, with "
        "config.json and model.safetensors",
    ),
    (("*.gguf",), "give the .gguf file itself"),
    (
        ("tf_model*.h5", "flax_model*.msgpack", "*ckpt*.index", "model.ckpt*", "saved_model.pb"),
        "its weights are TensorFlow's or Flax's; convert them with a version 4 of transformers: "
        "from_pretrained(..., from_tf=True or from_flax=True), then save_pretrained",
    ),
    (
        ("*.onnx", "onnx/*.onnx", "*.mlmodel", "openvino_model.bin"),
        "an exported model; give the one it was made of",
    ),
    (("rng_state*.pth", "optimizer.pt"), "its trainer left only its own state; give a folder with the model"),
    (
        ("model-*-of-*.safetensors", "pytorch_model-*-of-*.bin"),
        "a shard is there, but not the index (model.safetensors.index.json) that names all of them; "
        "copy the checkpoint again",
    ),
    (
        ("adapter_model.safetensors", "adapter_model.bin"),
        "an adapter is there, but no adapter_config.json; copy it too",
    ),
)
"""Names of files or folders, and what to do where one of them is there."""


def foreign_format_advice(folder: Path) -> str | None:
    """Return advice on a folder of another program's model, None where it is none."""
    for patterns, advice in _FORMS:
        if (
            name := next((path.name for pattern in patterns for path in folder.glob(pattern)), None)
        ) is not None:
            return f"{name[:80]!r}: {advice}"
    return None


# The files that hold the weights


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
    """Return all tensors of a folder's model by name, read from headers.

    Files are tried in Transformers' order. A pickle of torch before 1.6 has no header and gives no tensors. The
    prefixes of wrappers (``torch.compile``, FSDP, ``DataParallel``) are removed.

    Raises ``CheckpointError`` naming the file that is missing or broken.
    """
    return without_wrappers(_read_stored(folder))


def without_wrappers(tensors: Tensors) -> Tensors:
    """Remove the prefixes of wrappers from the tensors' names."""
    patterns = _wrappers(list(tensors))
    return (
        {_strip_patterns(name, patterns): tensor for name, tensor in tensors.items()} if patterns else tensors
    )


def wrappers_of(folder: Path) -> list[str]:
    """Return the patterns of wrappers' prefixes in a folder's tensor names.

    Each is removed once, in this order. Most checkpoints have none.
    """
    return _wrappers(list(_read_stored(folder)))


def _wrappers(names: Sequence[str]) -> list[str]:
    most = max((len(re.findall(_WRAPPER, name)) for name in names), default=0)
    # Patterns that mean the same need to differ: transformers takes them as the keys of a table.
    patterns = [f"{_WRAPPER}(?:){{{depth}}}" for depth in range(1, min(most, _MOST_WRAPPERS) + 1)]
    if names and all(re.match(_PARALLEL, _strip_patterns(name, patterns)) for name in names):
        patterns.append(_PARALLEL)
    return patterns if len({_strip_patterns(name, patterns) for name in names}) == len(names) else []


def _strip_patterns(name: str, patterns: Sequence[str]) -> str:
    for pattern in patterns:
        name = re.sub(pattern, "", name, count=1)
    return name


def check_types(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise ``CheckpointError`` for weights that are whole or complex numbers.

    Without a quantization their scale is unknown.
    """
    for name, tensor in tensors.items():
        if tensor.dtype[0] in "IUBC" and tensor.dtype != "BF16" and not _WHOLE.search(name):
            raise CheckpointError(
                f"{folder}: the tensor {name!r} has numbers of type {tensor.dtype}, and no quantization that "
                "transformers knows says their scale; save the weights in a floating-point type"
            )


def check_gathered(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise ``CheckpointError`` for empty weights, as DeepSpeed leaves those that it did not gather."""
    if empty := sorted(name for name, tensor in tensors.items() if tensor.shape == (0,)):
        raise CheckpointError(
            f"{folder}: {count(len(empty), 'tensor')} without any number: {join_names(empty, 3)}; if DeepSpeed's "
            "ZeRO-3 left them, merge its own files (zero_to_fp32.py), or save with "
            "stage3_gather_16bit_weights_on_model_save"
        )


def _read_stored(folder: Path) -> Tensors:
    """Read the tensors under the names in the files."""
    for name, read in _READERS.items():
        if (folder / name).is_file():
            return read(folder / name)
    raise CheckpointError(
        f"{folder}: config.json is there but no weights ({WEIGHTS}, {INDEX} or {PICKLED}); "
        + (foreign_format_advice(folder) or "copy the checkpoint again")
    )


def differing_weights(folder: Path) -> tuple[str, list[str]]:
    """Return the file of weights that is read, and differing ones that are not.

    Of each tensor that both have, type, shape and first ``_SAMPLE`` bytes are compared.
    """
    read, *others = (name for name in _READERS if (folder / name).is_file())
    return read, [name for name in others if not _samples_agree(folder, read, name)]


def _samples_agree(folder: Path, read: str, other: str) -> bool:
    try:
        mine, its = (_READERS[name](folder / name) for name in (read, other))
    except CheckpointError:  # such as a shard that is missing
        return False
    return all(_sample(mine[name]) == _sample(its[name]) for name in mine.keys() & its.keys())


def _sample(tensor: Tensor) -> tuple[str, tuple[int, ...], bytes]:
    with readable(tensor.file), open_regular(tensor.file) as file:
        file.seek(tensor.begin)
        return tensor.dtype, tensor.shape, file.read(min(_SAMPLE, tensor.end - tensor.begin))


def _read_sharded(index: Path, read: Callable[[Path], Tensors]) -> Tensors:
    """Read the tensors of all shards of an index.

    Raises ``CheckpointError`` for a missing shard, and for a tensor that is not in its shard.
    """
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


def has_weights(folder: Path) -> bool:
    """Return whether a file of weights, or an index of them, is there."""
    return any((folder / name).is_file() for name in (WEIGHTS, INDEX, PICKLED, PICKLED_INDEX))


def weight_files(folder: Path) -> list[Path]:
    """Return the files that hold the weights."""
    for name in (WEIGHTS, PICKLED):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            return [folder / shard for shard in sorted(set(read_json(index, ShardIndex).weight_map.values()))]
    return []


def pickled_tensors(path: Path) -> Tensors:
    """Return the tensors of a pickled state dict, none for torch before 1.6."""
    if is_old(path):
        return {}
    return state_dict(path, read_pickled(path))


def state_dict(path: Path, content: object) -> Tensors:
    """Return a state dict; raise ``CheckpointError`` for anything else."""
    if not isinstance(content, dict) or not content:
        raise CheckpointError(f"{path}: holds no table of tensors; save the model's state_dict()")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            shown = name[:80] if isinstance(name, str) else type(name).__name__
            raise CheckpointError(
                f"{path}: holds {shown!r}, which is no tensor; save the model's state_dict() alone"
            )
    return dict(content)


_SAMPLE: Final = 4096
"""Training changes all numbers of a tensor, and so its first ones."""

_READERS: Final[dict[str, Callable[[Path], Tensors]]] = {
    WEIGHTS: read_tensors,
    INDEX: partial(_read_sharded, read=read_tensors),
    PICKLED: pickled_tensors,
    PICKLED_INDEX: partial(_read_sharded, read=pickled_tensors),
}
"""What may hold a folder's weights, in the order in which Transformers looks for it."""
