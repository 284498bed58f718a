"""Recognises a checkpoint folder: config, weights and tokenizer, all there and in agreement."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from harness.checkpoints.architectures import kind_of
from harness.checkpoints.info import CheckpointInfo
from harness.checkpoints.json_files import ModelConfig, TokenizerConfig, TrainerState, read_json
from harness.checkpoints.lengths import check_vocabulary, length_of
from harness.checkpoints.safetensors_header import Shapes, read_shapes, read_sharded
from harness.errors import CheckpointError

WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
PICKLED: Final = "pytorch_model.bin"

TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
)


def recognise_folder(folder: Path, source: str, seq_len: int | None) -> CheckpointInfo:
    """What the checkpoint in the folder is. Raises ``CheckpointError`` naming the missing or broken file."""
    config = _config(folder)
    kind, architecture = kind_of(folder / "config.json", config)
    shapes = _shapes(folder)
    _check_tokenizer(folder)
    check_vocabulary(folder, config, shapes)
    length = length_of(folder, kind, config, shapes, _tokenizer_length(folder))
    step, epoch = _progress(folder)
    return CheckpointInfo(
        name=folder.resolve().name,
        source=source,
        path=folder,
        kind=kind,
        format="folder",
        model_type=config.model_type,
        architecture=architecture,
        seq_len=limited(folder, length.seq_len, seq_len),
        global_step=step,
        epoch=epoch,
        overrides=length.overrides,
    )


def limited(path: Path, takes: int, wanted: int | None) -> int:
    """The length wanted by ``--eval-seq-len`` or what the checkpoint takes; more than that is a
    ``CheckpointError``."""
    if wanted is not None and wanted > takes:
        raise CheckpointError(
            f"{path}: takes {takes} tokens at most; --eval-seq-len {wanted} is more, give {takes} or less"
        )
    return takes if wanted is None else wanted


def _config(folder: Path) -> ModelConfig:
    path = folder / "config.json"
    if path.is_file():
        return read_json(path, ModelConfig)
    if not any(folder.iterdir()):
        raise CheckpointError(
            f"{folder}: an empty folder; give a folder that save_pretrained or a Trainer wrote"
        )
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(
            f"{folder}: an adapter without its model; merge it into the model and save that"
        )
    if any((folder / name).is_file() for name in (WEIGHTS, INDEX, PICKLED)):
        raise CheckpointError(
            f"{path}: missing, though weights are there; copy it from the model that was trained"
        )
    inner = sorted(child.name for child in folder.iterdir() if (child / "config.json").is_file())
    hint = (
        f"give one of the folders in it ({inner[0]}), or '{folder}/*'"
        if inner
        else "give a folder with config.json"
    )
    raise CheckpointError(f"{folder}: no checkpoint folder (no config.json); {hint}")


def _shapes(folder: Path) -> Shapes:
    """Shapes of all tensors, empty for pickled weights (they are not opened without torch)."""
    if (folder / WEIGHTS).is_file():
        return read_shapes(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return read_sharded(folder / INDEX)
    pickled = folder / PICKLED
    if pickled.is_file():
        if pickled.stat().st_size == 0:
            raise CheckpointError(f"{pickled}: an empty file; copy the checkpoint again")
        return {}
    if (folder / f"{PICKLED}.index.json").is_file():
        raise CheckpointError(
            f"{folder}: sharded pickled weights are not read; save the model as safetensors"
        )
    raise CheckpointError(
        f"{folder}: config.json is there but no weights ({WEIGHTS}, {INDEX} or {PICKLED}); "
        "copy the checkpoint again"
    )


def _check_tokenizer(folder: Path) -> None:
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise CheckpointError(
            f"{folder}: no tokenizer files (tokenizer.json, vocab.txt, tokenizer.model ...); "
            "save the tokenizer into the folder with tokenizer.save_pretrained"
        )


def _tokenizer_length(folder: Path) -> float | None:
    path = folder / "tokenizer_config.json"
    return read_json(path, TokenizerConfig).model_max_length if path.is_file() else None


def _progress(folder: Path) -> tuple[int | None, float | None]:
    """Step and epoch from ``trainer_state.json``, the step else from the folder's name."""
    path = folder / "trainer_state.json"
    if path.is_file():
        state = read_json(path, TrainerState)
        return state.global_step, state.epoch
    named = re.fullmatch(r"(?:checkpoint|step|global_step)[-_]?(\d+)", folder.resolve().name)
    return (int(named[1]) if named else None), None
