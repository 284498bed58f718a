"""JSON with long lists, written and read in pieces: a run has columns of a million entries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

_PIECE: Final = 1000
"""The entries of a list that are made into JSON at once."""

_READ: Final = 1 << 20
"""The characters of a long file that are read at once."""


def json_pieces(value: Mapping[str, Any], **how: Any) -> Iterator[str]:
    """Yield the JSON of an object in pieces; ``how`` is as for ``json.dumps``, without ``indent``.

    Of lists in it, and lists in an object in it, a piece has a thousand entries: a run has columns of a million.
    """
    encoder = json.JSONEncoder(**how)
    yield from _pieces(value, encoder, depth=2)


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
