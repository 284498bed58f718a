"""The texts that a fingerprint hashes: a line per tensor with type, shape and SHA-256, a line per file."""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from io import FileIO
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pytest_touchstone.checkpoints.config_files import readable
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import read_json

_BITS: Final = {
    **{"F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32},
    **{"F16": 16, "BF16": 16, "I16": 16, "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "C128": 128},
    **{"F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8},
    **{"F6_E2M3": 6, "F6_E3M2": 6, "F4": 4},
}
"""Number types by safetensors' names, with the bits of a number."""

_NAMES: Final = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class Tensor(NamedTuple):
    """A tensor in a file.

    Its numbers are the bytes ``begin`` to ``end`` of ``file``, in order unless ``strides`` (in numbers, with the offset
    of the first one) are given. Without bytes it is all zeros.

    A tensor in several ``parts``, possibly in several files, has the place of the first. They are the cells of a grid.
    """

    dtype: str
    shape: tuple[int, ...]
    file: Path
    begin: int
    end: int
    strides: tuple[int, ...] | None = None
    parts: tuple[TensorPart, ...] = ()

    @property
    def numbers(self) -> int:
        """The count of its numbers."""
        return prod(self.shape)

    @property
    def place(self) -> tuple[str, int, int]:
        """Its place, which is that of no other tensor but one tied to it."""
        return str(self.file), self.begin, self.end

    @property
    def ranges(self) -> Iterator[tuple[str, int, int]]:
        """The bytes of files that it consists of, in the order of its numbers."""
        if len(self.parts) < 2:
            yield self.place
            return
        cells = {cell_part.offsets: cell_part.tensor for cell_part in self.parts}
        cuts = [sorted({offsets[side] for offsets in cells}) for side in range(len(self.shape))]
        last = max((side for side, starts in enumerate(cuts) if len(starts) > 1), default=0)
        for row in product(*map(range, self.shape[:last])):
            above = tuple(starts[bisect(starts, at) - 1] for starts, at in zip(cuts, row, strict=False))
            for at in cuts[last]:
                cell = cells[(*above, at, *(0 for _ in self.shape[last + 1 :]))]
                number, rows = 0, 1
                for here, start, side in zip(row, above, cell.shape, strict=False):
                    number, rows = number * side + here - start, rows * side
                run = (cell.end - cell.begin) // rows
                yield str(cell.file), cell.begin + number * run, cell.begin + (number + 1) * run


class TensorPart(NamedTuple):
    """A part of a tensor: the place of its first number in the whole, and its own bytes."""

    offsets: tuple[int, ...]
    tensor: Tensor


Tensors: TypeAlias = dict[str, Tensor]
Shapes: TypeAlias = dict[str, tuple[int, ...]]


def size_of(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return the bytes of a tensor, None for an unknown type or a negative side."""
    if dtype not in _BITS or any(side < 0 for side in shape):
        return None
    return (prod(shape) * _BITS[dtype] + 7) // 8


def shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """Tensor name -> shape."""
    return {name: tensor.shape for name, tensor in tensors.items()}


def count_parameters(tensors: Mapping[str, Tensor]) -> int | None:
    """Count the numbers of all tensors, tied ones once; return None without tensors."""
    parts = {tensor.place: tensor.numbers for tensor in tensors.values()}
    return sum(parts.values()) if parts else None


def main_dtype(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the type of most numbers, None without tensors.

    It has torch's name where torch has the type.
    """
    counts: Counter[str] = Counter()
    for tensor in tensors.values():
        counts[tensor.dtype] += tensor.numbers
    if not counts:
        return None
    most = counts.most_common(1)[0][0]
    return _NAMES.get(most, most)


# The texts that a fingerprint hashes


TOKENIZER: Final = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt"),
    *("spiece.model", "spm.model", "sentencepiece.bpe.model", "tekken.json", "chat_template.*"),
)
"""Files that decide how texts are cut into tokens."""

_PIECE: Final = 1 << 22
"""The number of bytes read at once."""

_MOST_OPEN: Final = 64
"""The number of files that a thread has open; a system allows about a thousand."""


def matching_files(folder: Path | None, patterns: Iterable[str]) -> list[Path]:
    """Return the files in a folder that match one of the patterns, sorted by name."""
    if folder is None:
        return []
    paths = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    return sorted(paths, key=lambda path: path.name)


def has_tokenizer_of(folder: Path, other: Path) -> bool:
    """Return whether the tokenizer files of a folder equal their namesakes in another."""
    return all(_same_content(path, other / path.name) for path in matching_files(folder, TOKENIZER))


def _same_content(path: Path, other: Path) -> bool:
    if not other.is_file():
        return False
    with readable(path), readable(other):
        if filecmp.cmp(path, other, shallow=False):
            return True
        if path.suffix != ".json":
            return False
        try:  # other versions write the same settings in another order or with other indents
            mine, its = map(read_json, (path, other))
            return bool(mine == its)
        except ValueError:
            return False


def table_line(name: str, table: dict[str, Any]) -> str:
    """Return the line of a table of settings."""
    return f"{name}\0{json.dumps(table, sort_keys=True, default=str)}\n"


def file_lines(paths: Iterable[Path], name: str | None = None) -> Iterator[str]:
    """Yield a line per file, under its own name or the given one."""
    for path in paths:
        with readable(path):
            size = path.stat().st_size
        yield f"{name or path.name}\0{hash_bytes(str(path), 0, size)}\n"


def tensor_lines(tensors: Tensors, hashed: Callable[[Tensor], str] | None = None) -> Iterator[str]:
    """Yield a line per tensor, sorted by name.

    Several threads read and hash, each byte of a file once.

    ``hashed`` returns the SHA-256 of a tensor's bytes, for tensors that are in memory.
    """
    hashed = hashed or (lambda tensor: hash_ranges(tensor.ranges))
    places = sorted({tensor.place: tensor for tensor in tensors.values()}.items())
    threads = min(
        8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    with ThreadPoolExecutor(threads) as pool:
        made = pool.map(lambda entry: hashed(entry[1]), places)
        hashes = dict(zip(dict(places), made, strict=True))
    for name, tensor in sorted(tensors.items()):
        yield f"{name}\0{tensor.dtype}\0{list(tensor.shape)}\0{list(tensor.strides or ())}\0{hashes[tensor.place]}\n"


def hash_bytes(file: str, begin: int, end: int) -> str:
    """Return the SHA-256 of a range of a file. Raises ``CheckpointError``."""
    return hash_ranges([(file, begin, end)])


def hash_ranges(ranges: Iterable[tuple[str, int, int]]) -> str:
    """Return the SHA-256 of ranges of files in order. Raises ``CheckpointError``."""
    digest = hashlib.sha256()
    buffer = memoryview(b"")
    opened: dict[str, FileIO] = {}
    with ExitStack() as files:
        for file, begin, end in ranges:
            with readable(file):
                if file not in opened:
                    if len(opened) == _MOST_OPEN:
                        files.close()
                        opened.clear()
                    opened[file] = files.enter_context(Path(file).open("rb", buffering=0))
                opened[file].seek(begin)
                left = end - begin
                if len(buffer) < min(_PIECE, left):
                    buffer = memoryview(bytearray(min(_PIECE, left)))
                while left:
                    read = opened[file].readinto(buffer[: min(left, len(buffer))])
                    if not read:
                        raise CheckpointError(
                            f"{file}: became shorter while it was read; copy the checkpoint again"
                        )
                    digest.update(buffer[:read])
                    left -= read
    return digest.hexdigest()
