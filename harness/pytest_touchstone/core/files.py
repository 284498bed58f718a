"""Files written whole or not at all, names that are safe in any file system, Python files loaded by their path."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pytest_touchstone.core.errors import HarnessError

LONGEST_NAME: Final = 120
"""The number of characters of a name that are kept; file systems take 255 bytes, and a Korean syllable is three."""

SCHEMA: Final = 1
"""The version of all forms of files that are written; a change that former versions cannot read raises it."""


def shown_path(path: Path) -> str:
    """Return a path as messages show it: relative to the current folder where that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def check_kind(data: object, kind: str, error: type[HarnessError] = HarnessError) -> None:
    """Raise ``error`` where an object read from JSON is not of this kind, or has another schema."""
    found = (data.get("schema"), data.get("kind")) if isinstance(data, (dict, Mapping)) else ()
    if found != (SCHEMA, kind):
        said = ": schema={!r}, kind={!r}".format(*found) if found else ""
        raise error(f"no {kind} of schema {SCHEMA}{said}")


def write_atomic(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Write under a temporary name, then rename: a reader sees the old file or the new, never a part.

    A text may come in pieces.
    A link is kept, and its target is written. A device or pipe (``/dev/stdout``) cannot be renamed over and is
    written to. Missing folders are created. Raises ``OSError`` as the system does, and then leaves no temporary file.
    """
    if _is_stream(path):
        with path.open("ab") as stream:
            stream.writelines(_encoded(content))
        return
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines(_encoded(content))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:  # a piece may raise anything
        temporary.unlink(missing_ok=True)
        raise


def _encoded(content: str | bytes | Iterable[str]) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    for text in (content,) if isinstance(content, str) else content:
        yield text.encode("utf-8", "backslashreplace")


def _is_stream(path: Path) -> bool:
    """Return whether the path is a device, a pipe, or an open file by its descriptor, which a shell may have opened
    (``/dev/stdout``). Files below ``/dev/shm`` are files."""
    if path.exists() and not path.is_file() and not path.is_dir():
        return True
    return str(path) in ("/dev/stdout", "/dev/stderr") or path.parent.name == "fd"


def unwritable(folder: Path) -> str | None:
    """The reason why nothing could be written into a folder, which need not exist yet; None where none is known.

    Nothing is created.
    """
    for place in (folder, *folder.parents):
        try:
            if not place.exists():
                if place.is_symlink():
                    return f"{shown_path(place)} is a link to {place.readlink()}, which is not there"
                continue
            if not place.is_dir():
                return f"{shown_path(place)} is no folder"
        except OSError as error:  # a name that is too long, for one
            return f"{shown_path(place)}: {error.strerror}"
        return None if os.access(place, os.W_OK | os.X_OK) else f"{shown_path(place)} cannot be written to"
    return None


def write_json(path: Path, value: Any) -> None:
    """Write plain data as indented JSON, atomically. Raises ``ValueError`` for NaN, which is not JSON."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n")


def file_name(name: str) -> str:
    """The name with every character that is unsafe in a file name replaced.

    Names that had to be changed get six hexadecimal digits of their hash, so that two different names never
    share a file.
    """
    safe = re.sub(r"[^\w.+=@,-]", "_", name)[:LONGEST_NAME]
    if safe == name and not safe.startswith("."):
        return name
    return f"{safe.lstrip('.')}-{hashlib.sha256(name.encode('utf-8', 'backslashreplace')).hexdigest()[:6]}"


def load_module(path: Path, name: str) -> ModuleType:
    """The Python file as a module, run anew, which others find under ``name``.

    Raises ``ImportError`` where it is no Python file, and any exception of the system and of the file itself.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path}: not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # a module's types are looked up there, by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
