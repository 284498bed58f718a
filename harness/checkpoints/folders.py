"""Recognises a checkpoint folder: config, weights and tokenizer, all there and in agreement."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Final

from harness.checkpoints.architectures import check_no_code, kind_of
from harness.checkpoints.info import CheckpointInfo
from harness.checkpoints.inside import check_inside
from harness.checkpoints.json_files import GenerationConfig, ModelConfig, TokenizerConfig, read_json
from harness.checkpoints.lengths import check_vocabulary, length_of
from harness.checkpoints.progress import progress_of
from harness.checkpoints.sizes import check_sizes
from harness.checkpoints.tensors import count_parameters, main_dtype, shapes_of
from harness.checkpoints.weights import INDEX, PICKLED, WEIGHTS, weights_of
from harness.errors import CheckpointError

TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
)


def recognise_folder(
    folder: Path, source: str, seq_len: int | None, *, trust_remote_code: bool = False
) -> CheckpointInfo:
    """What the checkpoint in the folder is. Raises ``CheckpointError`` naming the missing or broken file."""
    check_inside(folder)
    config = _config(folder)
    if not trust_remote_code:
        check_no_code(folder / "config.json", config)
    kind, architecture = kind_of(folder / "config.json", config)
    tensors = weights_of(folder)
    shapes = shapes_of(tensors)
    check_tokenizer(folder)
    check_vocabulary(folder, config, shapes)
    check_sizes(folder / "config.json", config, shapes)
    length = length_of(folder, kind, config, shapes, _tokenizer_length(folder, config, trust_remote_code))
    if (folder / "generation_config.json").is_file():
        read_json(folder / "generation_config.json", GenerationConfig)
    progress = progress_of(folder)
    return CheckpointInfo(
        name=folder.resolve().name,
        source=source,
        path=folder,
        kind=kind,
        format="folder",
        model_type=config.model_type,
        architecture=architecture,
        seq_len=limited(folder, length.seq_len, seq_len),
        overrides=length.overrides,
        parameters=count_parameters(tensors),
        dtype=main_dtype(tensors),
        trust_remote_code=trust_remote_code,
        **asdict(progress),
    )


def limited(path: Path, takes: int, wanted: int | None) -> int:
    """The length wanted by ``--eval-seq-len`` or what the checkpoint takes; more than that is a
    ``CheckpointError``."""
    if wanted is not None and wanted > takes:
        raise CheckpointError(
            f"{path}: takes {takes} tokens at most; --eval-seq-len {wanted} is more, give {takes} or less"
        )
    return takes if wanted is None else wanted


def has_tokenizer(folder: Path) -> bool:
    """Whether a tokenizer's files are in the folder."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def check_tokenizer(folder: Path) -> None:
    """Raises ``CheckpointError`` where there is none, or ``tokenizer.json`` is cut off. The rest is found out when it
    is loaded, which is done before the weights are: to read a large vocabulary takes long."""
    if not has_tokenizer(folder):
        raise CheckpointError(
            f"{folder}: no tokenizer files (tokenizer.json, vocab.txt, tokenizer.model ...); "
            "save the tokenizer into the folder with tokenizer.save_pretrained"
        )
    path = folder / "tokenizer.json"
    if path.is_file():
        with path.open("rb") as file:
            first = file.read(64).lstrip()[:1]
            file.seek(max(0, path.stat().st_size - 64))
            last = file.read().rstrip()[-1:]
        if (first, last) != (b"{", b"}"):
            raise CheckpointError(f"{path}: cut off or no JSON; copy it from the model that was trained")


def _config(folder: Path) -> ModelConfig:
    path = folder / "config.json"
    whole = any((folder / name).is_file() for name in (WEIGHTS, INDEX, PICKLED))
    if path.is_file():
        if (folder / "adapter_config.json").is_file():
            raise CheckpointError(
                f"{folder}: holds a whole model and an adapter; move one of the two into a folder of its own"
            )
        return read_json(path, ModelConfig)
    if not any(folder.iterdir()):
        raise CheckpointError(
            f"{folder}: an empty folder; give a folder that save_pretrained or a Trainer wrote"
        )
    if whole:
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


def _tokenizer_length(folder: Path, config: ModelConfig, trusted: bool) -> float | None:
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return None
    found = read_json(path, TokenizerConfig)
    if found.auto_map and not trusted and not config.auto_map and not (folder / "tokenizer.json").is_file():
        raise CheckpointError(
            f"{path}: wants to run code of its own for its tokenizer, which is not run; "
            "--eval-trust-remote-code allows it, if you trust the checkpoint as much as a program"
        )
    return found.model_max_length
