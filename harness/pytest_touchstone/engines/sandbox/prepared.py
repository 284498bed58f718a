"""Values that the tests of a task need, such as a right program's outputs: computed once in the sandbox, and kept.

They are computed in a process of tests, where no program that is judged has ever been. They are kept in the user's
cache by the hash of all that makes them: the task's code, the expression, and the code of the sandbox. A sandboxed
program cannot reach the cache. Where programs run without isolation, nothing is read from it or kept in it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.files import write_atomic
from pytest_touchstone.core.requests import CallTests
from pytest_touchstone.engines.sandbox.client import WorkerClient
from pytest_touchstone.engines.sandbox.soundness import judging_code

SECONDS: Final = 600.0
"""The most that computing the values of a task may take."""

_MOST: Final = 4000
"""The number of files that are kept, the newest."""


class Values:
    """The messages of a task's values, or the reason why there are none; ``folder`` keeps them, None for no files."""

    def __init__(self, client: WorkerClient, folder: Path | None) -> None:
        self._client, self._folder = client, folder
        self._lock = threading.Lock()
        self._known: dict[str, Future[dict[str, Any]]] = {}

    def of(self, tests: CallTests, done: Callable[[dict[str, Any]], None]) -> None:
        """Call ``done`` with ``texts``, the messages, or with ``detail``, the reason why they cannot be had."""
        key = _key(tests)
        with self._lock:
            known = self._known.get(key)
            future = known or self._known.setdefault(key, Future())
        future.add_done_callback(lambda one: done(one.result()))
        if known is not None:
            return
        future.set_running_or_notify_cancel()
        if (texts := self._read(key)) is not None:
            future.set_result({"texts": texts})
            return

        def computed(found: dict[str, Any]) -> None:
            if "texts" in found:
                self._keep(key, found["texts"])
            future.set_result(found)

        limits = {"cpu": SECONDS, "wall": SECONDS, "memory": 0}
        self._client.submit({"compute": tests.prepared, "trusted": tests.trusted, "limits": limits}, computed)

    def _read(self, key: str) -> list[str] | None:
        if self._folder is None:
            return None
        try:
            found = json.loads(gzip.decompress(self._path(key).read_bytes()))
        except (OSError, ValueError, EOFError):
            return None
        whole = isinstance(found, dict) and found.get("key") == key and isinstance(found.get("texts"), list)
        return found["texts"] if whole else None

    def _keep(self, key: str, texts: list[str]) -> None:
        if self._folder is None:
            return
        with suppress(OSError):  # a full disk costs time, no verdict
            self._folder.mkdir(parents=True, exist_ok=True)
            if len(entries := list(self._folder.glob("*.json.gz"))) >= _MOST:
                entries.sort(key=lambda path: path.stat().st_mtime_ns)
                for path in entries[: len(entries) - _MOST + 1]:
                    path.unlink(missing_ok=True)
            data = json.dumps({"key": key, "texts": texts}).encode()
            write_atomic(self._path(key), gzip.compress(data, 1))

    def _path(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{key[:40]}.json.gz"


def _key(tests: CallTests) -> str:
    whole = (judging_code(), tests.trusted, tests.prepared)
    return hashlib.sha256(repr(whole).encode("utf-8", "backslashreplace")).hexdigest()
