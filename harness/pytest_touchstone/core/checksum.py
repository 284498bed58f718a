"""JSON objects whose last member, ``"crc32"``, is the CRC-32 of all bytes before it.

A bit that has flipped on the disk is no score. Files that have no such end (of former versions, or written anew by
somebody else) are read without it.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.reading import parsed, read_regular

_MARK: Final = b',"crc32":"'
_TAIL: Final = len(_MARK) + len('01234567"}\n')
_LIKE: Final = 5
"""The bytes of the mark that are left of it where it is damaged itself."""


class DamagedError(ValueError):
    """The bytes are not those that were written."""


def with_checksum(body: bytes) -> bytes:
    """Return the object whose JSON without the last bracket is given, with its checksum and a line break."""
    return b'%b%b%08x"}\n' % (body, _MARK, zlib.crc32(body))


def pieces_with_checksum(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the JSON of an object that comes in pieces, with its checksum; the last piece is or ends in its bracket."""
    checksum, last = 0, ""
    for piece in pieces:
        checksum = zlib.crc32(last.encode("utf-8", "backslashreplace"), checksum)
        yield last
        last = piece
    body = last.removesuffix("}").rstrip()
    checksum = zlib.crc32(body.encode("utf-8", "backslashreplace"), checksum)
    yield f'{body}{_MARK.decode()}{checksum:08x}"}}\n'


def has_checksum(data: bytes) -> bool:
    """Return whether the object has a checksum, which is then right; raises ``DamagedError`` where it is wrong."""
    end = len(data) - _TAIL
    if data.startswith(_MARK, max(end, 0)):
        if data.endswith(b'%08x"}\n' % zlib.crc32(memoryview(data)[:end])):
            return True
    elif sum(map(operator.eq, _MARK, data[max(end, 0) :])) < _LIKE:
        return False
    raise DamagedError("damaged, its checksum is of other content")


def read_checked(path: Path) -> Any:
    """Return the content of a file of JSON without its checksum; raises ``OSError`` and ``ValueError``, for one that
    is damaged a ``DamagedError``.

    The checksum of a file that somebody has written anew says nothing of it.
    """
    data = read_regular(path)
    if data[-_TAIL:].startswith(_MARK):
        has_checksum(data)
    content = parsed(data)
    if isinstance(content, dict):
        content.pop("crc32", None)
    return content
