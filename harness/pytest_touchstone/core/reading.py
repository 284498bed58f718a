"""Files that somebody else wrote, or that something has damaged, read in bounded time and memory.

Only regular files are opened: a pipe would be waited for, and a device may never end. JSON nests to a bounded depth, so
that whatever walks through it afterwards comes to an end.
"""

from __future__ import annotations

import errno
import functools
import gzip
import io
import json
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final, TypeVar

Kind = TypeVar("Kind")

MOST_BYTES: Final = 1 << 31
"""The largest file that is read at once."""

MOST_DEPTH: Final = 100
"""The most lists and objects of JSON that are within each other."""


def open_regular(path: Path, *, buffering: int = -1, most: int | None = None) -> IO[bytes]:
    """Return the regular file, opened; raises ``OSError`` for anything else, a pipe or a device, without waiting, and
    for one of more than ``most`` bytes."""
    file = open(path, "rb", buffering, opener=_without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    if most is not None and os.fstat(file.fileno()).st_size > most:
        file.close()
        raise OSError(errno.EFBIG, f"it is larger than {most >> 30} GiB", str(path))
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file; raises ``OSError`` for anything else, and for one that is too large."""
    with open_regular(path, most=MOST_BYTES) as file:
        return file.read()


def unpacked(data: bytes) -> bytes:
    """Return what gzip has packed; raises ``OSError``, ``EOFError`` or ``zlib.error``, and for too much of it too."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        found = file.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it unpacks to more than {MOST_BYTES >> 30} GiB")
    return found


def parsed_toml(text: str) -> dict[str, Any]:
    """Return the TOML; raises ``tomllib.TOMLDecodeError`` also where it nests too deep."""
    try:
        found = tomllib.loads(text)
        _check_depth(found)
    except RecursionError:
        raise tomllib.TOMLDecodeError(str(_too_deep())) from None
    except ValueError as error:
        raise tomllib.TOMLDecodeError(str(error)) from None
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a regular file of TOML; raises ``OSError`` and ``ValueError``."""
    return parsed_toml(read_regular(path).decode("utf-8"))


def parsed(text: str | bytes, **how: Any) -> Any:
    """Return the JSON as ``json.loads`` does; raises ``ValueError`` too where it nests too deep or is no UTF-8."""
    try:
        found = json.loads(text, **how)
    except RecursionError:
        raise _too_deep() from None
    begins = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    if sum(map(text.count, begins)) > MOST_DEPTH:  # type: ignore[arg-type]
        _check_depth(found)
    return found


def read_json(path: Path) -> Any:
    """Return the content of a regular file of JSON; raises ``OSError`` and ``ValueError``."""
    return parsed(read_regular(path))


def typed(kind: type[Kind], fields: Mapping[str, Any]) -> Kind:
    """Return the dataclass that plain data describes, with those in it; raises ``ValueError`` naming a wrong field."""
    from pydantic import ValidationError

    try:
        found: Kind = _adapter(kind).validate_python(fields)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place} is {str(first['input'])[:60]!r}: {first['msg']}") from None
    return found


@functools.cache
def _adapter(kind: Any) -> Any:
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
