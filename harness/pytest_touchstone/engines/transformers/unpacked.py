"""Models out of GGUF files, unpacked, in the user's cache: later starts map them from there, and processes share them.

A GGUF file is unpacked by Python code, which takes most of the start of a small model. What comes of it is written
once, as a folder such as trainers save: weights in the type that they run in, config, tokenizer. The folder's name
holds the file's fingerprint, the type, and the versions of the packages that unpacked it.

A folder is renamed into place once it is whole, after its config and tokenizer were read back and found the same.
Where that fails, nothing is kept, and the file is unpacked each time. One that is no longer as it was written is
deleted, and the file unpacked again (``sealed``). All folders together stay below a limit; the one
unused for longest goes first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo, fingerprint
from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.engines.transformers.sealed import broken, seal

if TYPE_CHECKING:
    import torch

_LOG: Final = logging.getLogger(__name__)

_FORM: Final = 3
"""Raised when folders are written in another way, or files unpacked otherwise."""

_MADE_BY: Final = ("transformers", "tokenizers", "gguf", "torch")

_LEAST: Final = 1 << 20
"""The bytes of weights from which a model is worth keeping."""

_MOST: Final = 16 << 30
"""The bytes of all folders together; never more than half of what the disk has free."""

_ABANDONED: Final = 24 * 3600.0
"""The seconds after which an unfinished folder is taken for one whose process has died."""

_TYPES: Final = {
    **{"torch.float32": "F32", "torch.bfloat16": "BF16", "torch.float16": "F16", "torch.float64": "F64"},
    **{
        "torch.int64": "I64",
        "torch.int32": "I32",
        "torch.int8": "I8",
        "torch.uint8": "U8",
        "torch.bool": "BOOL",
    },
}

_ALIGNED: Final = 64
"""Weights begin at a multiple of it, as torch's own memory does."""


class UnpackedModels:
    """A folder of unpacked models of one number type."""

    def __init__(
        self, dtype: torch.dtype | str, folder: Path | None = None, *, least: int = _LEAST, most: int = _MOST
    ) -> None:
        """``folder`` is the user's cache by default; ``least`` and ``most`` are bytes."""
        self._dtype = str(dtype).removeprefix("torch.")
        self._folder = cache_folder("unpacked") if folder is None else folder
        self._least, self._most = least, most

    def find(self, info: CheckpointInfo) -> CheckpointInfo | None:
        """Return the checkpoint as a folder; None where it is not known, or not as it was kept."""
        path = self._path(info)
        if not path.is_dir():
            return None
        if (fault := broken(path)) is not None:
            _LOG.info("%s: %s; it is unpacked again", path, fault)
            shutil.rmtree(path, ignore_errors=True)
            return None
        with contextlib.suppress(OSError):  # it is used all the same, and may go earlier
            os.utime(path)
        return replace(info, path=path)

    def drop(self, found: CheckpointInfo) -> None:
        """Delete a folder that ``find`` returned."""
        shutil.rmtree(found.path, ignore_errors=True)

    def keep(self, info: CheckpointInfo, model: Any, tokenizer: Any) -> bool:
        """Keep what the file was unpacked to; return whether it is kept."""
        weights = _weights(model)
        size = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
        path = self._path(info)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not self._least <= size <= min(self._most, shutil.disk_usage(self._folder).free // 2):
                return False
            unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=self._folder))
            try:
                if not _written(unfinished, model, tokenizer):
                    return False
                write_safetensors(unfinished / "model.safetensors", weights)
                seal(unfinished, path.name)
                unfinished.rename(path)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
            self._prune(path)
        except Exception as error:
            # No room, no right to write, another process was first, or whatever transformers raises.
            _LOG.debug("%s: not kept unpacked (%s: %s)", info.path, type(error).__name__, error)
            return False
        return True

    def _path(self, info: CheckpointInfo) -> Path:
        versions = [f"{name} {version(name)}" for name in _MADE_BY]
        named = json.dumps([_FORM, fingerprint(info), self._dtype, versions])
        return (
            self._folder
            / f"{info.path.stem[:60]}-{self._dtype}-{hashlib.sha256(named.encode()).hexdigest()[:24]}"
        )

    def _prune(self, newest: Path) -> None:
        """Delete unfinished folders whose process has died, and those used least lately beyond the limit."""
        for path in self._folder.glob(".unfinished-*"):
            if time.time() - path.stat().st_mtime > _ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
        others = [path for path in self._folder.iterdir() if path.name[0] != "." and path != newest]
        left = self._most - _bytes_of(newest)
        for path in sorted(others, key=lambda path: -path.stat().st_mtime_ns):
            left -= _bytes_of(path)
            if left < 0:
                shutil.rmtree(path, ignore_errors=True)


def _bytes_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _weights(model: Any) -> dict[str, torch.Tensor]:
    """Return the model's tensors by name, those that are tied to another one once."""
    found: dict[str, torch.Tensor] = {}
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for name, tensor in model.state_dict().items():
        place = (tensor.data_ptr(), tuple(tensor.shape))
        if place not in seen:
            seen.add(place)
            found[name] = tensor
    return found


def _written(folder: Path, model: Any, tokenizer: Any) -> bool:
    """Write config and tokenizer; return whether they are the same when read back."""
    from transformers import AutoConfig, AutoTokenizer

    said = model.config.to_dict()
    said.pop("quantization_config", None)
    type(model.config).from_dict(said).save_pretrained(folder)
    if model.can_generate():
        model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    again = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return _told(config.to_dict()) == _told(said) and same_tokenizer(tokenizer, again)


def _told(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a config decides the model's answers."""
    names = ("_name_or_path", "_model_name_or_path", "architectures", "dtype", "transformers_version")
    return {name: value for name, value in config.items() if name not in names}


def same_tokenizer(one: Any, other: Any) -> bool:
    """Return whether two fast tokenizers are the same in all that decides about tokens and texts."""
    mine, its = (getattr(each, "backend_tokenizer", None) for each in (one, other))
    if mine is None or its is None or mine.to_str() != its.to_str():
        return False
    named = (
        *("special_tokens_map", "all_special_ids", "chat_template", "padding_side", "truncation_side"),
        *("clean_up_tokenization_spaces", "split_special_tokens"),
    )
    return all(getattr(one, name, None) == getattr(other, name, None) for name in named)


def write_safetensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a safetensors file, one tensor at a time; the package's own function copies all of them first."""
    import torch

    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        kind = _TYPES[str(tensor.dtype)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNED)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            plain = tensor.detach().cpu().contiguous().view(-1)
            file.write(plain.view(torch.uint8).numpy().data)
