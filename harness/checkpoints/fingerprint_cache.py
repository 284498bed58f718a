"""Fingerprints that are known already, kept in the user's cache by what the file system says of the files.

A file is taken for the one it was while its path, device, inode, size, and times of its last change of content
(``mtime_ns``) and of itself (``ctime_ns``) are the same. File systems count time in ticks, so a file that was
written to within a tick of when it was read may have changed again without a trace: nothing is kept of files that
young, as git does with "racy" entries of its index. The clock asked is the file system's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from harness.checkpoints.builtin import cache_folder
from harness.checkpoints.formats.paths import unreadable
from harness.core.files import write_atomic

_TICK: Final = 2_000_000_000
"""Nanoseconds: no file system in use counts in longer ones (FAT's are 2 s)."""

_MOST: Final = 1000
"""Entries kept, the newest."""

Stamp: TypeAlias = list[Any]


class FingerprintCache:
    """A folder of known fingerprints, one small file a checkpoint; where it cannot be written, nothing is known."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of_user(cls) -> FingerprintCache:
        """The user's own."""
        return cls(cache_folder("fingerprints"))

    def clock(self) -> int:
        """The time by the file system's clock, as far as the folder's file system has the same one, in
        nanoseconds; by the computer's where nothing can be written."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder) as file:
                return os.fstat(file.fileno()).st_mtime_ns
        except OSError:
            return time.time_ns()

    def find(self, name: str, found: Sequence[Stamp]) -> str | None:
        """The fingerprint of these very files; None where it is not known."""
        try:
            entry = json.loads(self._path(name).read_bytes())
        except (OSError, ValueError):
            return None
        if not isinstance(entry, dict) or entry.get("files") != found:
            return None
        known = entry.get("fingerprint")
        return known if isinstance(known, str) and len(known) == 64 else None

    def keep(self, name: str, found: Sequence[Stamp], fingerprint: str, began: int) -> None:
        """Keeps a fingerprint that was made from ``began`` on, unless a file was as good as new then, or comes from the
        future."""
        if any(max(stamp[4:]) > began - _TICK for stamp in found):
            return
        content = json.dumps({"path": name, "files": found, "fingerprint": fingerprint})
        try:
            write_atomic(self._path(name), content)
            self._prune()
        except OSError:
            return

    def _path(self, name: str) -> Path:
        return self._folder / f"{hashlib.sha256(str(Path(name).absolute()).encode()).hexdigest()[:32]}.json"

    def _prune(self) -> None:
        entries = list(self._folder.glob("*.json"))
        if len(entries) > _MOST:
            entries.sort(key=lambda path: path.stat().st_mtime_ns)
            for path in entries[: len(entries) - _MOST]:
                path.unlink(missing_ok=True)


def stamps(files: Sequence[Path]) -> list[Stamp]:
    """The facts that the file system has of each file: path, device, inode, size, ``mtime_ns``, ``ctime_ns``."""
    found = []
    for path in files:
        try:
            said = path.stat()
        except OSError as error:
            raise unreadable(path, error) from error
        times = (said.st_mtime_ns, said.st_ctime_ns)
        found.append([str(path.absolute()), said.st_dev, said.st_ino, said.st_size, *times])
    return found
