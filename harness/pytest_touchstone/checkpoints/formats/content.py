"""The texts that a fingerprint hashes: a line per tensor (name, type, shape, SHA-256 of its bytes), a line per file."""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.checkpoints.formats.paths import readable
from pytest_touchstone.checkpoints.formats.tensors import Tensors
from pytest_touchstone.core.errors import CheckpointError

TOKENIZER: Final = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt"),
    *("spiece.model", "spm.model", "sentencepiece.bpe.model", "chat_template.*"),
)
"""Files that decide how texts are cut into tokens."""

_PIECE: Final = 1 << 22
"""The number of bytes read at once."""


def matching(folder: Path | None, patterns: Iterable[str]) -> list[Path]:
    """The files in a folder whose names match, sorted by name."""
    if folder is None:
        return []
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    return sorted(found, key=lambda path: path.name)


def has_tokenizer_of(folder: Path, other: Path) -> bool:
    """Return whether all files of a folder that decide about tokens say the same as their namesakes in another."""
    return all(_same(path, other / path.name) for path in matching(folder, TOKENIZER))


def _same(path: Path, other: Path) -> bool:
    if not other.is_file():
        return False
    with readable(path), readable(other):
        if filecmp.cmp(path, other, shallow=False):
            return True
        if path.suffix != ".json":
            return False
        try:  # other versions write the same settings in another order or with other indents
            mine, its = (json.loads(one.read_bytes()) for one in (path, other))
            return bool(mine == its)
        except (ValueError, RecursionError):
            return False


def table_line(name: str, table: dict[str, Any]) -> str:
    """A line for settings that are part of the checkpoint."""
    return f"{name}\0{json.dumps(table, sort_keys=True, default=str)}\n"


def file_lines(paths: Iterable[Path], name: str | None = None) -> Iterator[str]:
    """A line per file, under its own name or the one given."""
    for path in paths:
        with readable(path):
            size = path.stat().st_size
        yield f"{name or path.name}\0{hash_bytes(str(path), 0, size)}\n"


def tensor_lines(tensors: Tensors) -> Iterator[str]:
    """A line per tensor, sorted by name; several threads read and hash, each byte of a file once."""
    places = sorted({(str(one.file), one.begin, one.end) for one in tensors.values()})
    threads = min(
        8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    with ThreadPoolExecutor(threads) as pool:
        hashes = dict(zip(places, pool.map(lambda place: hash_bytes(*place), places), strict=True))
    for name, one in sorted(tensors.items()):
        place = (str(one.file), one.begin, one.end)
        yield f"{name}\0{one.dtype}\0{list(one.shape)}\0{list(one.strides or ())}\0{hashes[place]}\n"


def hash_bytes(file: str, begin: int, end: int) -> str:
    """SHA-256 of a part of a file. Raises ``CheckpointError`` where it cannot be read."""
    digest = hashlib.sha256()
    with readable(file), Path(file).open("rb", buffering=0) as opened:
        opened.seek(begin)
        buffer = memoryview(bytearray(min(_PIECE, max(1, end - begin))))
        left = end - begin
        while left:
            count = opened.readinto(buffer[: min(left, len(buffer))])
            if not count:
                raise CheckpointError(f"{file}: became shorter while it was read; copy the checkpoint again")
            digest.update(buffer[:count])
            left -= count
    return digest.hexdigest()
