"""Reads the files of the checkpoint that comes next into memory that is free, while the last items of the one before
are answered, so that loading it does not wait for the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from harness.checkpoints import CheckpointInfo
from harness.checkpoints.fingerprint import files_of
from harness.core.errors import CheckpointError

_PIECE: Final = 1 << 22
"""Bytes read at once."""

_SHARE: Final = 0.5
"""Of the available memory: the most that is read ahead."""


def available_bytes() -> int | None:
    """Memory that can be had without swapping (Linux's own estimate); None where it is not told."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


class ReadAhead:
    """Reads one checkpoint at a time, each once, in a thread of its own."""

    def __init__(self, available: Callable[[], int | None] = available_bytes) -> None:
        self._available = available
        self._begun: set[str] = set()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, info: CheckpointInfo) -> bool:
        """Returns at once; whether the files are being read: not where memory is short, or that was done already."""
        if info.name in self._begun or info.format == "fake" or (self._thread and self._thread.is_alive()):
            return False
        self._begun.add(info.name)
        try:
            files = files_of(info)
            size = sum(path.stat().st_size for path in files)
        except (OSError, CheckpointError):  # said when it is loaded
            return False
        free = self._available()
        if free is None or size > _SHARE * free:
            return False
        self._thread = threading.Thread(target=self._read, args=(files,), name="touchstone-read", daemon=True)
        self._thread.start()
        return True

    def close(self) -> None:
        """Ends the reading, done or not."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _read(self, files: list[Path]) -> None:
        buffer = memoryview(bytearray(_PIECE))
        for path in files:
            for _ in self._pieces(path, buffer):
                if self._ending.is_set():
                    return

    def _pieces(self, path: Path, buffer: memoryview) -> Iterator[int]:
        try:
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    yield count
        except OSError:
            return
