"""Caches: in this process by key and in files for later runs, with the version of the code."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import sys
import threading
import zlib
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from pytest_touchstone.core.files import decompress, keep_newest, parse_json, read_regular, write_atomic

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SingleFlight(Generic[Key, Value]):
    """Futures by key: the first caller computes the value, all others wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[Key, Future[Value]] = {}

    def future(self, key: Key) -> tuple[Future[Value], bool]:
        """Return the future of a key, and whether it is new and needs a result from the caller."""
        with self._lock:
            if (future := self._futures.get(key)) is not None:
                return future, False
            future = self._futures[key] = Future()
        future.set_running_or_notify_cancel()
        return future, True


class TextFiles:
    """A folder of lists of texts, one small file per key; without a folder nothing is stored.

    If a file cannot be written, nothing is stored. Several processes may share the folder: a file is either whole or
    absent. Files are not synced, since a lost one can be computed again.
    """

    def __init__(self, folder: Path | None, most: int) -> None:
        """Store at most ``most`` files, the newest."""
        self._folder, self._most = folder, most
        self._written = False

    def find(self, key: str) -> list[str] | None:
        """Return the texts of a key, or None."""
        if self._folder is None:
            return None
        try:
            entry = parse_json(decompress(read_regular(self._path(self._folder, key))))
        except (OSError, ValueError, EOFError, zlib.error):
            return None
        texts = entry.get("texts") if isinstance(entry, dict) and entry.get("key") == key else None
        sound = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        return texts if sound else None

    def keep(self, key: str, texts: Sequence[str]) -> None:
        """Keep the texts of a key."""
        if self._folder is None:
            return
        data = gzip.compress(json.dumps({"key": key, "texts": list(texts)}).encode(), 1)
        with suppress(OSError):
            write_atomic(self._path(self._folder, key), data, lasting=False)
            self._written = True

    def prune(self) -> None:
        """Remove the oldest files when there are too many."""
        if self._folder is None or not self._written:
            return
        with suppress(OSError):
            keep_newest(self._folder, "*.json.gz", self._most)

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / f"{key[:40]}.json.gz"


def key_of(*parts: object) -> str:
    """Return a key that is equal for parts with equal ``repr``."""
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()


@functools.cache
def judging_code() -> str:
    """Return the hash of the code that judges programs: this package, and Python's version."""
    digest = hashlib.sha256(sys.version.encode())
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()
