"""The identity of a checkpoint, whatever it is called: a hash over its content.

SHA-256 over what the format says decides the answers (``CheckpointFormat.content``): every tensor, config, tokenizer,
chat template. The same tensors in one file or in several, as safetensors or pickled, are the same. What a trainer
leaves beside them (optimizer, log) does not count. An adapter's is over its own tensors and settings and the
fingerprint of its base.

Where that is known already, and no file has changed, nothing is read: fingerprints are kept in the user's cache by
what the file system says of the files. A file counts as unchanged while its path, device, inode, size, and times of
its last change of content (``mtime_ns``) and of itself (``ctime_ns``) are the same. File systems count time in ticks.
A file that was written to within a tick of being read may change again without a trace, so nothing is kept of files
that young. Git treats "racy" entries of its index the same way. The clock is the file system's own.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.checkpoints.config_files import readable
from pytest_touchstone.checkpoints.formats import format_of
from pytest_touchstone.checkpoints.info import CheckpointInfo
from pytest_touchstone.core import disk
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import keep_newest, read_checked, write_checked

_HEADER: Final = b"touchstone-fingerprint-2\n"

WEAK: Final = "weak-"
"""The beginning of the fingerprint of a model that nobody here has seen: it is made of names, not of weights."""

_TICK: Final = 2_000_000_000
"""The longest tick of any file system in use, in nanoseconds (FAT's: 2 s)."""

_MOST: Final = 1000
"""The number of entries kept, the newest ones."""

Stamp: TypeAlias = list[Any]


def fingerprint(info: CheckpointInfo, cache: FingerprintCache | None = None) -> str:
    """Return the SHA-256 hex digest that identifies a checkpoint by its content.

    Copies of a checkpoint share a fingerprint wherever they are stored; changing one byte changes it. An adapter's
    fingerprint combines its own digest with the fingerprint of its base model. ``cache`` has the digests of unchanged
    files, by default those in the user's cache.

    Raises ``CheckpointError`` where a file cannot be read, or is modified meanwhile.
    """
    checkpoint_format = format_of(info)
    cache = cache or FingerprintCache(cache_folder("fingerprints"))
    files = checkpoint_format.files(info)
    stats = stat_files(files)
    digest = cache.find(str(info.path), stats) if stats else None
    if digest is None:
        started = cache.clock() if stats else 0
        digest = digest_of(checkpoint_format.content(info))
        if stat_files(files) != stats:
            raise CheckpointError(f"{info.path}: was written to while it was read; wait until it is complete")
        if stats:
            cache.keep(str(info.path), stats, digest, started)
    if info.base is None:
        return digest
    return hashlib.sha256(f"{digest}\0{fingerprint(info.base, cache)}".encode()).hexdigest()


def digest_of(content: Iterable[str]) -> str:
    """Return the SHA-256 hex digest of texts in order."""
    digest = hashlib.sha256(_HEADER)
    for text in content:
        digest.update(text.encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


class FingerprintCache:
    """A folder of fingerprints, one small file per checkpoint.

    Where the folder cannot be written, nothing is cached.
    """

    def __init__(self, folder: Path, most: int = _MOST) -> None:
        self._folder, self._most = folder, most

    def clock(self) -> int:
        """Return the time of the file system's clock in nanoseconds.

        It is that of the computer where the folder cannot be written.
        """
        try:
            disk.make_folder(self._folder)
            with tempfile.TemporaryFile(dir=self._folder) as file:
                return os.fstat(file.fileno()).st_mtime_ns
        except OSError:
            return time.time_ns()

    def find(self, name: str, stats: Sequence[Stamp]) -> str | None:
        """Return the cached fingerprint of unchanged files, else None."""
        try:
            entry = read_checked(self._path(name))
        except (OSError, ValueError):
            return None
        if not isinstance(entry, dict) or entry.get("files") != stats:
            return None
        digest = entry.get("fingerprint")
        return digest if isinstance(digest, str) and len(digest) == 64 else None

    def keep(self, name: str, stats: Sequence[Stamp], fingerprint: str, started: int) -> None:
        """Cache a fingerprint whose computation began at ``started``.

        Nothing is cached if a file was modified within a tick before that, or has a time in the future.
        """
        if any(max(stamp[4:]) > started - _TICK for stamp in stats):
            return
        try:
            write_checked(self._path(name), {"path": name, "files": stats, "fingerprint": fingerprint})
            keep_newest(self._folder, "*.json", self._most)
        except OSError:
            return

    def _path(self, name: str) -> Path:
        return self._folder / f"{hashlib.sha256(str(Path(name).absolute()).encode()).hexdigest()[:32]}.json"


def stat_files(files: Sequence[Path]) -> list[Stamp]:
    """Return path, device, inode, size, ``mtime_ns`` and ``ctime_ns`` of each file."""
    stats = []
    for path in files:
        with readable(path):
            stat = path.stat()
        times = (stat.st_mtime_ns, stat.st_ctime_ns)
        stats.append([str(path.absolute()), stat.st_dev, stat.st_ino, stat.st_size, *times])
    return stats
