"""The rows that a run was asked about, as far as its data is still in its place, with their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_touchstone.core.data_files import CANONICAL, read_lines
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.results.summary import Summary


def data_rows(summary: Summary, benchmark: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the hash and the fields of each row of a benchmark; it ends where the data cannot be read any more."""
    root = Path(summary.manifest.get("rootdir", "."))
    places = [Path(one.dataset.path) for one in summary.declarations if one.name == benchmark]
    try:
        for path in (place if place.exists() else root / place for place in places if str(place) != "."):
            for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path] if path.is_file() else []:
                for line in read_lines(file):
                    yield _digest(line.data), line.data
    except HarnessError:  # the data has changed since; items are shown without it
        return


def _digest(row: Mapping[str, Any]) -> str:
    """The hash of a row, as in records."""
    canonical = CANONICAL.encode(row).encode("utf-8", "backslashreplace")
    return hashlib.sha256(canonical).hexdigest()[:16]
