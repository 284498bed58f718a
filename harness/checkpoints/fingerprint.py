"""Which checkpoint it is, whatever it is called: a hash over the content of its files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from harness.checkpoints.info import CheckpointInfo
from harness.errors import CheckpointError

_PATTERNS: Final = (
    "*.safetensors",
    "*.safetensors.index.json",
    "pytorch_model.bin",
    "config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "chat_template.*",
)
"""Files that decide what the model answers. What a trainer leaves beside them (optimizer, log) does not."""


def fingerprint(info: CheckpointInfo) -> str:
    """SHA-256 (hex) over weights, tokenizer and config, file by file in the order of their names.

    Two copies of a checkpoint have the same fingerprint; one changed byte gives another. Reads every file
    once, in pieces. Raises ``CheckpointError`` when a file cannot be read.
    """
    digest = hashlib.sha256(b"touchstone-fingerprint-1\n")
    if info.format == "fake":
        digest.update(info.source.encode())
        return digest.hexdigest()
    for path in _files(info):
        name = "model.gguf" if info.format == "gguf" else path.name
        digest.update(f"{name}\0{_file_hash(path)}\n".encode())
    return digest.hexdigest()


def _files(info: CheckpointInfo) -> list[Path]:
    if info.format == "gguf":
        return [info.path]
    found = {path for pattern in _PATTERNS for path in info.path.glob(pattern) if path.is_file()}
    return sorted(found, key=lambda path: path.name)


def _file_hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}); check the file's rights"
        ) from error
