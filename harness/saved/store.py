"""The folder ``OUTPUT/saved``: entries are written, found and removed here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from harness.errors import DataError, HarnessError
from harness.files import file_name, write_atomic
from harness.saved.entry import Items, Saved, items_from_json, items_json, saved_from_json, saved_json

FOLDER: Final = "saved"
_ITEMS: Final = ".items.json"
_PREFIX: Final = 16
"""Hexadecimal digits of the fingerprint in the folder's name; entries have all of it."""


class Store:
    """The saved results of a results folder."""

    def __init__(self, output: Path) -> None:
        self.folder = output / FOLDER

    def save(self, saved: Saved, items: Items) -> Path:
        """Writes an entry, the scores first, so that whoever sees the entry finds them; returns its path."""
        path = self._path(saved)
        _write(path.with_suffix(_ITEMS), items_json(items))
        _write(path, saved_json(saved))
        return path

    def find(self, *, benchmark: str | None = None, fingerprint: str | None = None) -> list[Saved]:
        """The entries, oldest run first. Raises ``DataError`` naming a file that cannot be read."""
        below = fingerprint[:_PREFIX] if fingerprint else "*"
        start = f"{file_name(benchmark)}@" if benchmark else ""
        found = [
            _read(path)
            for path in self.folder.glob(f"{below}/{start}*.json")
            if not path.name.endswith(_ITEMS)
        ]
        wanted = [
            saved
            for saved in found
            if saved is not None
            and (benchmark is None or saved.benchmark == benchmark)
            and (fingerprint is None or saved.fingerprint == fingerprint)
        ]
        return sorted(
            wanted, key=lambda saved: (saved.began, saved.run_id, saved.checkpoint, saved.benchmark)
        )

    def items(self, saved: Saved) -> Items:
        """The scores of an entry; raises ``DataError`` where they are gone or broken."""
        path = self._path(saved).with_suffix(_ITEMS)
        try:
            return items_from_json(json.loads(path.read_bytes()))
        except (OSError, ValueError, HarnessError) as error:
            raise DataError(
                f"{path}: cannot be read ({error}); remove it, and score the checkpoint again"
            ) from None

    def remove(self, saved: Saved) -> None:
        """Takes an entry out; nothing happens where it is gone already."""
        path = self._path(saved)
        path.unlink(missing_ok=True)
        path.with_suffix(_ITEMS).unlink(missing_ok=True)

    def _path(self, saved: Saved) -> Path:
        name = f"{file_name(saved.benchmark)}@{file_name(saved.run_id)}"
        return self.folder / (saved.fingerprint[:_PREFIX] or "unknown") / f"{name}.json"


def _write(path: Path, value: object) -> None:
    write_atomic(path, json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")


def _read(path: Path) -> Saved | None:
    try:
        return saved_from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:  # removed by another process since it was listed
        return None
    except (OSError, ValueError, HarnessError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); remove it, and score the checkpoint again"
        ) from None
