"""The folder ``OUTPUT/saved``: entries are written, found and removed here.

There is one entry for each run, checkpoint and benchmark, found by the checkpoint's fingerprint.

    OUTPUT/saved/FINGERPRINT/BENCHMARK@RUN_ID.json         what was scored, under which conditions, and the metrics
    OUTPUT/saved/FINGERPRINT/BENCHMARK@RUN_ID.items.json   the scores of the items

Gates find their baselines here, and runs what they need not score again. Every file is written whole or not at all
and belongs to one run, so simultaneous runs do not interfere.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from pytest_touchstone.core import disk
from pytest_touchstone.core.errors import DataError, HarnessError
from pytest_touchstone.core.files import (
    file_name,
    read_checked,
    shown_path,
    write_checked,
)
from pytest_touchstone.results.store_entry import (
    ItemScores,
    StoredResult,
    items_from_json,
    items_json,
    saved_from_json,
    saved_json,
)

FOLDER: Final = "saved"
ITEMS_SUFFIX: Final = ".items.json"
_PREFIX: Final = 16
"""Hexadecimal digits of the fingerprint in the folder's name; entries have all of it."""


def read_items(path: Path) -> ItemScores:
    """Return the scores in a file beside an entry. Raises ``DataError`` where they are gone or broken."""
    try:
        return items_from_json(read_checked(path))
    except (OSError, ValueError, HarnessError) as error:
        raise DataError(
            f"{path}: the items of the result cannot be read ({error}); restore the file, or score again"
        ) from None


class ResultStore:
    """The saved results of a results folder."""

    def __init__(self, output: Path) -> None:
        self.folder = output / FOLDER
        self.left_out: list[str] = []

    def save(self, saved: StoredResult, items: ItemScores) -> Path:
        """Save a result and return its path.

        The scores are written first, so that they exist whenever the result does.
        """
        path = self._path(saved)
        write_checked(path.with_suffix(ITEMS_SUFFIX), items_json(items))
        write_checked(path, saved_json(saved))
        return path

    def note_verdicts(self, saved: StoredResult, verdicts: Mapping[str, str]) -> None:
        """Write a gate's verdicts by metric into a saved result; do nothing if it was not saved."""
        if (path := self._path(saved)).is_file():
            write_checked(path, saved_json(replace(saved, verdicts=dict(verdicts))))

    def find(self, *, benchmark: str | None = None) -> list[StoredResult]:
        """Return the entries, oldest run first; those that cannot be read are in ``left_out``, and told once."""
        start = f"{file_name(benchmark)}@" if benchmark else ""
        paths = [
            path for path in self.folder.glob(f"*/{start}*.json") if not path.name.endswith(ITEMS_SUFFIX)
        ]
        results = [saved for path in paths if (saved := self._read(path)) is not None]
        wanted = [saved for saved in results if benchmark in (None, saved.benchmark)]
        return sorted(
            wanted, key=lambda saved: (saved.began, saved.run_id, saved.checkpoint, saved.benchmark)
        )

    def items(self, saved: StoredResult) -> ItemScores:
        """Return the scores of an entry. Raises ``DataError`` where they are gone or broken."""
        return read_items(self._path(saved).with_suffix(ITEMS_SUFFIX))

    def remove(self, saved: StoredResult) -> None:
        """Remove an entry; do nothing where it is gone already."""
        path = self._path(saved)
        for file in (path, path.with_suffix(ITEMS_SUFFIX)):
            disk.unlink(file)
        if path.parent.is_dir():
            disk.sync_folder(path.parent)

    def _read(self, path: Path) -> StoredResult | None:
        try:
            return saved_from_json(read_checked(path))
        except FileNotFoundError:  # removed by another process since it was listed
            return None
        except (OSError, ValueError, HarnessError) as error:
            line = f"{shown_path(path)}: cannot be read ({error}), and is left out; remove it"
            if line not in self.left_out:
                self.left_out.append(line)
            _warn(line)
            return None

    def _path(self, saved: StoredResult) -> Path:
        name = f"{file_name(saved.benchmark)}@{file_name(saved.run_id)}"
        if saved.fingerprint:
            return self.folder / saved.fingerprint[:_PREFIX] / f"{name}.json"
        return self.folder / "unknown" / f"{name}@{file_name(saved.checkpoint)}.json"


@functools.cache
def _warn(line: str) -> None:
    """Print a line to standard error, unless warnings are handled otherwise."""
    logging.getLogger("touchstone").warning("touchstone: %s", line)
