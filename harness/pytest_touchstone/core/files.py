"""Files: written atomically with a checksum, read in bounded time and memory, with safe names.

The last member of a checked JSON object, ``"crc32"``, is the CRC-32 of all bytes before it. A bit that has flipped on
the disk is no score. Files that have no such end, since somebody has written them anew, are read without it.

Only regular files are opened: a pipe would be waited for, and a device may never end. JSON nests to a bounded depth, so
that whatever walks through it afterwards comes to an end.
"""

from __future__ import annotations

import errno
import functools
import gzip
import hashlib
import importlib.util
import io
import json
import os
import re
import stat
import sys
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Final, TypeVar

from pytest_touchstone.core import disk
from pytest_touchstone.core.errors import HarnessError

LONGEST_NAME: Final = 120
"""The number of characters of a name that are kept; file systems take 255 bytes, and a Korean syllable is three."""

FINITE: Final[Any] = {"allow_inf_nan": False}
"""The ``__pydantic_config__`` of dataclasses without infinities, as "inf" and what is too large become."""

SCHEMA: Final = 1
"""The version of all forms of files that are written; a change that other versions cannot read raises it."""


def shown_path(path: Path) -> str:
    """Return a path as messages show it: relative to the current folder where that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def check_kind(data: object, kind: str, error: type[HarnessError] = HarnessError) -> None:
    """Raise ``error`` unless an object read from JSON has this kind and schema."""
    header = (data.get("schema"), data.get("kind")) if isinstance(data, (dict, Mapping)) else ()
    if header != (SCHEMA, kind):
        actual = ": schema={!r}, kind={!r}".format(*header) if header else ""
        raise error(f"no {kind} of schema {SCHEMA}{actual}")


def write_atomic(path: Path, content: str | bytes | Iterable[str | bytes], *, lasting: bool = True) -> None:
    """Write a temporary file and rename it, so that a reader never sees part of a file.

    It is on the disk afterwards, unless it need not be ``lasting``. The content may come in pieces.
    A link is kept, and its target is written. A device or pipe (``/dev/stdout``) cannot be renamed over and is
    written to. Missing folders are created. Raises ``OSError`` as the system does, and then leaves no temporary file.
    """
    if _is_stream(path):
        with open(path, "ab", opener=_open_without_waiting) as stream:
            stream.writelines(_encoded(content))
        return
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    disk.make_folder(path.parent)
    # Random: processes in two containers may have the same number.
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        descriptor = disk.open_file(temporary)
        try:
            for piece in _encoded(content):
                disk.write_all(descriptor, piece)
            if lasting:
                disk.sync(descriptor)
        finally:
            disk.close(descriptor)
        disk.rename(temporary, path)
        if lasting:
            disk.sync_folder(path.parent)
    except BaseException:  # a piece may raise anything
        disk.unlink(temporary)
        raise


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file, a device, or a pipe with a reader, without blocking."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


def _encoded(content: str | bytes | Iterable[str | bytes]) -> Iterator[bytes]:
    for piece in (content,) if isinstance(content, (str, bytes)) else content:
        yield piece if isinstance(piece, bytes) else piece.encode("utf-8", "backslashreplace")


def _is_stream(path: Path) -> bool:
    """Return whether a path is a device, a pipe or an open descriptor.

    A shell may have opened it (``/dev/stdout``). Files below ``/dev/shm`` are files.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        return True
    return str(path) in ("/dev/stdout", "/dev/stderr") or path.parent.name == "fd"


def unwritable_reason(folder: Path) -> str | None:
    """Return the reason why a folder cannot be written to, else None.

    The folder need not exist yet.

    Nothing is created.
    """
    for ancestor in (folder, *folder.parents):
        try:
            if not ancestor.exists():
                if ancestor.is_symlink():
                    return f"{shown_path(ancestor)} is a link to {ancestor.readlink()}, which is not there"
                continue
            if not ancestor.is_dir():
                return f"{shown_path(ancestor)} is no folder"
        except OSError as error:  # a name that is too long, for one
            return f"{shown_path(ancestor)}: {error.strerror}"
        return (
            None if os.access(ancestor, os.W_OK | os.X_OK) else f"{shown_path(ancestor)} cannot be written to"
        )
    return None


def restrict_umask() -> int:
    """Restrict the umask so that other users cannot write; return the former umask."""
    before = os.umask(0o077)
    os.umask(before | 0o002)
    return before


def write_json(path: Path, value: Any) -> None:
    """Write plain data as indented JSON, atomically. Raises ``ValueError`` for NaN, which is not JSON."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n")


def file_name(name: str) -> str:
    """Replace every character that is unsafe in a file name.

    Names that had to be changed get six hexadecimal digits of their hash, so that two different names never
    share a file.
    """
    safe = re.sub(r"[^\w.+=@,-]", "_", name)[:LONGEST_NAME]
    if safe == name and not safe.startswith("."):
        return name
    return f"{safe.lstrip('.')}-{hashlib.sha256(name.encode('utf-8', 'backslashreplace')).hexdigest()[:6]}"


def load_module(path: Path, name: str) -> ModuleType:
    """Execute a Python file as the module ``name``.

    Raises ``ImportError`` if it is not a Python file, and any exception of the system and of the file itself.
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


# Bounded reading


ObjectType = TypeVar("ObjectType")

MOST_BYTES: Final = 1 << 31
"""The largest file that is read at once."""

MOST_SETTINGS: Final = 1 << 26
"""The largest file of settings that is read: one that somebody has written, or a program for one model."""

BEST_PACKED: Final = 100
"""How much smaller than its content a packed file may be; rows of real text are packed to a tenth."""

MOST_DEPTH: Final = 100
"""The most lists and objects of JSON that are within each other."""


def open_regular(path: Path, *, buffering: int = -1, most: int | None = None) -> IO[bytes]:
    """Open a regular file for reading, without blocking.

    Raises ``OSError`` for a pipe or a device, and for a file of more than ``most`` bytes.
    """
    file = open(path, "rb", buffering, opener=_open_without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    if most is not None and os.fstat(file.fileno()).st_size > most:
        file.close()
        size = f"{most >> 30} GiB" if most >> 30 else f"{most >> 20} MiB"
        raise OSError(errno.EFBIG, f"it is larger than {size}", str(path))
    return file


def read_regular(path: Path, most: int | None = None) -> bytes:
    """Read a regular file of at most ``most`` bytes (default: ``MOST_BYTES``).

    Raises ``OSError`` for anything else.
    """
    with open_regular(path, most=MOST_BYTES if most is None else most) as file:
        return file.read()


def decompress(data: bytes) -> bytes:
    """Decompress gzip data of a bounded size.

    Raises ``OSError`` for too much content, and ``EOFError`` or ``zlib.error`` for broken data.
    """
    most = min(MOST_BYTES, max(MOST_SETTINGS, BEST_PACKED * len(data)))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it unpacks to more than {most >> 20:,} MiB")
    return content


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise ``tomllib.TOMLDecodeError`` also for too deep nesting."""
    try:
        table = tomllib.loads(text)
        _check_depth(table)
    except RecursionError:
        raise tomllib.TOMLDecodeError(str(_too_deep())) from None
    except ValueError as error:
        raise tomllib.TOMLDecodeError(str(error)) from None
    return table


def read_toml(path: Path) -> dict[str, Any]:
    """Read and parse a TOML file; raise ``OSError`` or ``ValueError``."""
    return parse_toml(read_regular(path, MOST_SETTINGS).decode("utf-8"))


def project_table(pyproject: Path, name: str, error: type[HarnessError]) -> Mapping[str, Any]:
    """Return ``[tool.touchstone.NAME]`` of pyproject.toml, empty where there is none.

    A file that is not TOML is left to pytest to report. Raises ``error`` where the value is not a table.
    """
    try:
        table = read_toml(pyproject)["tool"]["touchstone"][name]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    if not isinstance(table, Mapping):
        raise error(f"{pyproject}: [tool.touchstone.{name}] is {table!r}; give a table")
    return table


def parse_json(text: str | bytes, **how: Any) -> Any:
    """Parse JSON as ``json.loads`` does; raise ``ValueError`` also for too deep nesting."""
    try:
        value = json.loads(text, **how)
    except RecursionError:
        raise _too_deep() from None
    begins = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    if sum(map(text.count, begins)) > MOST_DEPTH:  # type: ignore[arg-type]
        _check_depth(value)
    return value


def read_json(path: Path, most: int | None = None) -> Any:
    """Read and parse a JSON file; raise ``OSError`` or ``ValueError``."""
    return parse_json(read_regular(path, most))


FORMER_FIELDS: Final = {"pack": "dataset", "broken": "failed_to_load", "contenders": "candidates"}
"""The names that fields have had before, with those that they have."""


def from_plain(kind: type[ObjectType], fields: object) -> ObjectType:
    """Build a dataclass or tuple from plain data; raise ``ValueError`` naming a wrong field.

    Fields may have their former names.
    """
    from pydantic import ValidationError

    try:
        valid: ObjectType = adapter_of(kind).validate_python(fields)  # type: ignore[arg-type]
    except ValidationError as error:
        if (renamed := _renamed(fields)) != fields:
            return from_plain(kind, renamed)
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ValueError(f"{field} is {str(first['input'])[:60]!r}: {first['msg']}") from None
    return valid


def _renamed(value: object) -> object:
    """Return plain data with the present names of fields."""
    if isinstance(value, dict):
        return {FORMER_FIELDS.get(name, name): _renamed(inner) for name, inner in value.items()}
    return [_renamed(inner) for inner in value] if isinstance(value, list) else value


@functools.cache
def adapter_of(kind: Any) -> Any:
    """Return pydantic's check of a type, made once."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"it nests deeper than {MOST_DEPTH}")


# Checksums


_MARK: Final = b',"crc32":"'
_TAIL: Final = len(_MARK) + len('01234567"}\n')


class DamagedError(ValueError):
    """The bytes are not those that were written."""


def with_checksum(body: bytes) -> bytes:
    """Add checksum and line break to a JSON object without its last bracket."""
    return b'%b%b%08x"}\n' % (body, _MARK, zlib.crc32(body))


def text_with_checksum(text: str) -> str:
    """Add checksum and line break to the JSON of an object."""
    body = text.removesuffix("}").rstrip().encode("utf-8", "backslashreplace")
    return with_checksum(body).decode()


def has_checksum(data: bytes) -> bool:
    """Return whether the object ends in the checksum of all before it."""
    end = len(data) - _TAIL
    return end > 0 and data[end:] == b'%b%08x"}\n' % (_MARK, zlib.crc32(memoryview(data)[:end]))


def keep_newest(folder: Path, pattern: str, most: int) -> None:
    """Remove the oldest files of a pattern beyond ``most``."""
    paths = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    for path in paths[:-most]:
        disk.unlink(path)


def write_checked(path: Path, value: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Write an object as JSON with its checksum, atomically. Raises ``ValueError`` for NaN, which is not JSON."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
    write_atomic(path, text_with_checksum(text))


def read_checked(path: Path) -> Any:
    """Read a JSON file without its checksum.

    Raises ``OSError``, ``ValueError``, and ``DamagedError`` for a wrong checksum. A file that was edited has no valid
    checksum, and is read without one.
    """
    data = read_regular(path)
    if data[-_TAIL:].startswith(_MARK) and not has_checksum(data):
        raise DamagedError("damaged, its checksum is of other content")
    content = parse_json(data)
    if isinstance(content, dict):
        content.pop("crc32", None)
    return content


def add_checksum(row: Mapping[str, Any]) -> dict[str, Any]:
    """Add a checksum of its values to an entry, whatever its layout.

    For files that people read and join.
    """
    text = json.dumps(row, sort_keys=True, separators=(",", ":"))
    return {**row, "crc32": f"{zlib.crc32(text.encode()):08x}"}


def without_checksum(row: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the checksum of an entry; raise ``DamagedError`` where it is wrong.

    An entry without one was written by hand, and is accepted.
    """
    values = {name: value for name, value in row.items() if name != "crc32"}
    if "crc32" in row and add_checksum(values) != row:
        raise DamagedError(
            "damaged, its crc32 is of other values; where they were changed on purpose take that out"
        )
    return values


# Files that ship with the program


_HERE = Path(__file__).resolve().parents[1]
_CHECKOUT = _HERE.parents[1]


def shipped(*parts: str) -> Path:
    """Return the path of a shipped file or folder, whether or not it exists.

    An installed wheel carries the files in the package (``pytest_touchstone/_shipped``), a checkout in ``fixtures``.
    """
    inside = _HERE / "_shipped"
    root = inside if inside.is_dir() else _CHECKOUT / "fixtures"
    return root.joinpath(*parts)


def shipped_evals() -> Path:
    """Return the folder of the shipped benchmarks.

    It is ``pytest_touchstone/evals`` in a wheel, ``evals`` in a checkout.
    """
    inside = _HERE / "evals"
    return inside if inside.is_dir() else _CHECKOUT / "evals"
