"""Which checkpoint it is, whatever it is called: a hash over its content.

SHA-256 over a line for every tensor (name, type, shape, SHA-256 of its bytes), in the order of names, and one for every
other file that decides what the model answers: config, tokenizer, chat template. The same tensors in one file or in
several, as safetensors or pickled, are the same. What a trainer leaves beside them (optimizer, log) does not count. An
adapter's is over its own tensors and settings and the fingerprint of its base.

Where that is known already, and no file has changed, nothing is read (``harness.checkpoints.fingerprint_cache``).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from harness.checkpoints.fingerprint_cache import Remembered, stamps
from harness.checkpoints.formats import llama, lora
from harness.checkpoints.formats.config_files import AdapterConfig, read_json
from harness.checkpoints.formats.tensors import Tensors
from harness.checkpoints.formats.torch_pickle import read_pickled
from harness.checkpoints.formats.weights import weight_files, weights_of
from harness.checkpoints.info import CheckpointInfo
from harness.core.errors import CheckpointError

_HEADER: Final = b"touchstone-fingerprint-2\n"

_TOKENIZER: Final = (
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
_PATTERNS: Final = ("config.json", "generation_config.json", *_TOKENIZER)

_ELSEWHERE: Final = ("base_model_name_or_path", "revision", "inference_mode", "auto_mapping", "peft_version")
"""Settings of an adapter that say where things lie, not what they compute."""

_PIECE: Final = 1 << 22
"""Bytes read at once."""


def fingerprint(info: CheckpointInfo, remembered: Remembered | None = None) -> str:
    """The fingerprint (hex). Two copies of a checkpoint have the same one; one changed byte gives another.

    ``remembered`` is the store of known ones, by default the user's. Raises ``CheckpointError`` when a file cannot be
    read, or changes while it is.
    """
    if info.format == "fake":
        return hashlib.sha256(_HEADER + info.source.encode()).hexdigest()
    store = remembered or Remembered.of_user()
    files = files_of(info)
    before = stamps(files)
    own = store.find(str(info.path), before)
    if own is None:
        began = store.clock()
        own = _own(info)
        if stamps(files) != before:
            raise CheckpointError(f"{info.path}: was written to while it was read; wait until it is complete")
        store.keep(str(info.path), before, own, began)
    if info.base is None:
        return own
    return hashlib.sha256(f"{own}\0{fingerprint(info.base, store)}".encode()).hexdigest()


def files_of(info: CheckpointInfo) -> list[Path]:
    """Every file that the fingerprint is over."""
    if info.format == "gguf":
        return [info.path]
    if info.format == "mtp":
        return [info.path, *_matching(info.tokenizer, _TOKENIZER)]
    if info.format == "adapter":
        weights = [info.path / name for name in (lora.WEIGHTS, lora.PICKLED)]
        own = [path for path in (info.path / lora.CONFIG, *weights) if path.is_file()]
        return [*own, *_matching(info.path, _TOKENIZER)]
    code = ("*.py",) if info.trust_remote_code else ()
    index = [path for path in info.path.glob("*.index.json") if path.is_file()]
    return [*weight_files(info.path), *index, *_matching(info.path, (*_PATTERNS, *code))]


def _own(info: CheckpointInfo) -> str:
    """The hash over what is the checkpoint's own, without its base."""
    if info.format == "gguf":
        return _digest([f"model.gguf\0{_file_hash(info.path)}"])
    if info.format == "mtp":
        held = read_pickled(info.path)
        tensors = llama.tensors_of(info.path, held)
        lines = _plain_files(info.tokenizer, _TOKENIZER)
        return _digest([f"params\0{_text(info.params)}", *lines, *_tensor_lines(tensors)])
    if info.format == "adapter":
        config = read_json(info.path / lora.CONFIG, AdapterConfig).model_dump()
        settings = {name: value for name, value in config.items() if name not in _ELSEWHERE}
        tensors = lora.adapter_tensors(info.path)
        lines = _plain_files(info.path, _TOKENIZER)
        return _digest([f"adapter\0{_text(settings)}", *lines, *_tensor_lines(tensors)])
    code = ("*.py",) if info.trust_remote_code else ()
    lines = _plain_files(info.path, (*_PATTERNS, *code))
    tensors = weights_of(info.path)
    if not tensors:  # a pickle without a header
        lines += [f"weights\0{_file_hash(path)}" for path in weight_files(info.path)]
    return _digest([*lines, *_tensor_lines(tensors)])


def _digest(lines: Iterable[str]) -> str:
    digest = hashlib.sha256(_HEADER)
    for line in lines:
        digest.update(f"{line}\n".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _matching(folder: Path | None, patterns: Iterable[str]) -> list[Path]:
    if folder is None:
        return []
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    return sorted(found, key=lambda path: path.name)


def _plain_files(folder: Path | None, patterns: Iterable[str]) -> list[str]:
    return [f"{path.name}\0{_file_hash(path)}" for path in _matching(folder, patterns)]


def _tensor_lines(tensors: Tensors) -> list[str]:
    """A line a tensor; several threads read and hash, each byte of a file once."""
    places = sorted({(str(one.file), one.begin, one.end) for one in tensors.values()})
    threads = min(
        8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    with ThreadPoolExecutor(threads) as pool:
        hashes = dict(zip(places, pool.map(lambda place: _bytes_hash(*place), places), strict=True))
    return [
        f"{name}\0{one.dtype}\0{list(one.shape)}\0{list(one.strides or ())}\0"
        f"{hashes[str(one.file), one.begin, one.end]}"
        for name, one in sorted(tensors.items())
    ]


def _bytes_hash(file: str, begin: int, end: int) -> str:
    """SHA-256 of a part of a file."""
    digest = hashlib.sha256()
    try:
        with Path(file).open("rb", buffering=0) as opened:
            opened.seek(begin)
            buffer = memoryview(bytearray(min(_PIECE, max(1, end - begin))))
            left = end - begin
            while left:
                count = opened.readinto(buffer[: min(left, len(buffer))])
                if not count:
                    raise CheckpointError(
                        f"{file}: became shorter while it was read; copy the checkpoint again"
                    )
                digest.update(buffer[:count])
                left -= count
    except OSError as error:
        raise _unreadable(file, error) from error
    return digest.hexdigest()


def _file_hash(path: Path) -> str:
    try:
        return _bytes_hash(str(path), 0, path.stat().st_size)
    except OSError as error:
        raise _unreadable(str(path), error) from error


def _unreadable(file: str, error: OSError) -> CheckpointError:
    return CheckpointError(f"{file}: cannot be read ({error.strerror}); check the file's rights")
