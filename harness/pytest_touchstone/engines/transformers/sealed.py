"""Folders that are written once: whether they still are as they were, without reading all of them.

``seal.json`` has the folder's name, and of each file its size, its time of change and a SHA-256. That is of the whole
content up to 4 MiB; of a larger file it is of 64 blocks of 16 KiB: the first, the last, and others at equal distances.

So a file that was written to after the seal is found by its time, and a shortened one by its size. Another one put in
its place, with the same time and size, is found by its blocks. What is not found is a change between the blocks that
leaves time and size as they were: a disk that returns other bytes than were written, or a time that is set back.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

_SEAL: Final = "seal.json"

_WHOLE: Final = 4 << 20
"""The bytes up to which a file is read in full."""

_BLOCKS: Final = 64

_BLOCK: Final = 16 << 10


def seal(folder: Path, name: str) -> None:
    """Seal a folder that is to have that name. Nothing may be written to its files afterwards."""
    text = json.dumps({"name": name, "files": _files(folder)}, indent=1)
    (folder / _SEAL).write_text(text, encoding="utf-8")


def broken(folder: Path) -> str | None:
    """Return how a folder differs from what was sealed; None where it does not."""
    try:
        said: Any = json.loads((folder / _SEAL).read_text(encoding="utf-8"))
        files, now = dict(said["files"]), _files(folder)
    except FileNotFoundError:
        return "it has no seal"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"its seal cannot be read ({type(error).__name__})"
    if said["name"] != folder.name:
        return f"it was written as {said['name']}"
    different = sorted(name for name in files.keys() | now.keys() if files.get(name) != now.get(name))
    return f"{different[0]} is not as it was written" if different else None


def _files(folder: Path) -> dict[str, list[Any]]:
    return {path.name: _stamp(path) for path in sorted(folder.iterdir()) if path.name != _SEAL}


def _stamp(path: Path) -> list[Any]:
    """Return size, time of change and digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        size = file.seek(0, 2)
        parts = [(0, size)]
        if size > _WHOLE:
            parts = [((size - _BLOCK) * number // (_BLOCKS - 1), _BLOCK) for number in range(_BLOCKS)]
        for first, count in parts:
            file.seek(first)
            digest.update(file.read(count))
    return [size, path.stat().st_mtime_ns, digest.hexdigest()]
