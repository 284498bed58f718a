"""Files written whole or not at all, names that are safe in any file system, Python files loaded by their path."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TextIO

from harness.core.errors import HarnessError

LONGEST_NAME: Final = 120
"""The number of characters of a name that are kept; file systems take 255 bytes, and a Korean syllable is three."""

_PIECE: Final = 1000
"""The entries of a list that are made into JSON at once."""

_READ: Final = 1 << 20
"""The characters of a long file that are read at once."""

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


def json_pieces(value: Mapping[str, Any], **how: Any) -> Iterator[str]:
    """Yield the JSON of an object in pieces; ``how`` is as for ``json.dumps``, without ``indent``.

    Of lists in it, and lists in an object in it, a piece has a thousand entries: a run has columns of a million.
    """
    encoder = json.JSONEncoder(**how)
    yield from _pieces(value, encoder, depth=2)


class ReadingList:
    """Reads the long list that an object in a file of JSON has under a name, entry by entry, without all of it at once.

    It is to be read to its end once; then ``rest`` is the object with an empty list in its place. Raises ``ValueError``
    where the file is no JSON.
    """

    def __init__(self, file: TextIO, name: str) -> None:
        self._file, self._before, self._text, self._at = file, "", file.read(_READ), 0
        self._mark = f"{json.dumps(name)}: ["

    def __iter__(self) -> Iterator[Any]:
        decoder = json.JSONDecoder()
        head, mark, self._text = self._text.partition(self._mark)
        self._before = head + mark
        while mark:
            found = self._text[self._at : self._at + 1]
            if found in (",", " "):
                self._at += 1
                continue
            if found == "]":
                return
            try:
                entry, self._at = decoder.raw_decode(self._text, self._at)
            except ValueError:  # it is not whole yet
                if not (more := self._file.read(_READ)):
                    raise
                self._text, self._at = self._text[self._at :] + more, 0
                continue
            yield entry

    def rest(self) -> Any:
        """Return the object without the entries that were read."""
        return json.loads(self._before + self._text[self._at :] + self._file.read())


def _pieces(value: Any, encoder: json.JSONEncoder, depth: int) -> Iterator[str]:
    between, colon = encoder.item_separator, encoder.key_separator
    if isinstance(value, Mapping) and depth:
        start = "{"
        for name, one in value.items():
            yield f"{start}{encoder.encode(name)}{colon}"
            yield from _pieces(one, encoder, depth - 1)
            start = between
        yield "{}" if start == "{" else "}"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield "["
        for at in range(0, len(value), _PIECE):
            yield (between if at else "") + encoder.encode(list(value[at : at + _PIECE]))[1:-1]
        yield "]"
    else:
        yield encoder.encode(value)


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
