"""Architecture and context length of a GGUF file, read from its header.

The format: ``GGUF``, version (u32), number of tensors and of key-value pairs (u64 each), then the pairs: key
(u64 length and UTF-8), type of the value (u32), value; all little-endian from version 2 on. Reading stops as
soon as both values are known, mostly before the vocabulary.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from harness.errors import CheckpointError

_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9


class GgufHeader(NamedTuple):
    """``context_length`` is in tokens, None when the file does not say."""

    architecture: str
    context_length: int | None


def read_gguf(path: Path) -> GgufHeader:
    """What the header says. Raises ``CheckpointError`` when it is no GGUF file or its header is cut off."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise CheckpointError(
                    f"{path}: no GGUF file (it does not begin with 'GGUF'); fetch or convert it again"
                )
            version, tensors, pairs = struct.unpack("<IQQ", file.read(20))
            if version not in (2, 3):
                raise CheckpointError(
                    f"{path}: GGUF version {version} is not supported; convert it to version 3"
                )
            if tensors == 0:
                raise CheckpointError(
                    f"{path}: holds no tensors (a vocabulary alone); give the model's own file"
                )
            return _find(path, file, pairs)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}); check the file's rights"
        ) from error
    except (struct.error, UnicodeDecodeError, KeyError) as error:
        raise CheckpointError(
            f"{path}: cut off or broken within its header; fetch or convert it again"
        ) from error


def _find(path: Path, file: BinaryIO, pairs: int) -> GgufHeader:
    architecture: str | None = None
    lengths: dict[str, int] = {}
    for _ in range(pairs):
        key = _string(file)
        value = _value(file)
        if key == "general.architecture":
            architecture = str(value)
        elif key.endswith(".context_length") and isinstance(value, int):
            lengths[key] = value
        if architecture is not None and f"{architecture}.context_length" in lengths:
            break
    if architecture is None:
        raise CheckpointError(f"{path}: its header names no general.architecture; convert it again")
    return GgufHeader(architecture, lengths.get(f"{architecture}.context_length"))


def _value(file: BinaryIO) -> int | float | str | None:
    """Reads one value; arrays are passed over and give None."""
    (kind,) = struct.unpack("<I", file.read(4))
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _scalar(file, kind)
    element, count = struct.unpack("<IQ", file.read(12))
    if element == _STRING:
        for _ in range(count):
            file.seek(struct.unpack("<Q", file.read(8))[0], 1)
    else:
        file.seek(count * struct.calcsize("<" + _SCALARS[element]), 1)
    return None


def _scalar(file: BinaryIO, kind: int) -> int | float:
    form = "<" + _SCALARS[kind]
    value: int | float = struct.unpack(form, file.read(struct.calcsize(form)))[0]
    return value


def _string(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > 1 << 24:
        raise struct.error("a string of more than 16 MiB")
    text = file.read(length)
    if len(text) < length:
        raise struct.error("cut off")
    return text.decode("utf-8")
