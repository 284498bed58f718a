"""The datasets' rows behind a page's items: the fields that one can filter by, and the rest of each row."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from pytest_touchstone.reports.page.packing import ENCODER

LONGEST: Final = 60
"""The characters of a text that may be chosen from a list of values; longer ones are texts to read."""

MOST_FIELDS: Final = 12


_DIGEST: Final = re.compile(r"[0-9a-f]{16}")


@dataclass(slots=True)
class _Values:
    """The values of a field: numbers, and hashes of texts, which may be a million."""

    numbers: set[float] = field(default_factory=set)
    texts: array[int] = field(default_factory=lambda: array("q"))

    @property
    def different(self) -> int:
        return len(self.numbers) + _different(self.texts)


def _different(numbers: array[int]) -> int:
    return sum(1 for _ in groupby(sorted(numbers)))


class DataRows:
    """Rows by their hash; kept as JSON in one piece, which takes a tenth of the memory."""

    def __init__(self, rows: Iterable[tuple[str, dict[str, Any]]]) -> None:
        self._digests, self._ends, self._text = array("Q"), array("Q", [0]), bytearray()
        self._others: dict[str, str] = {}
        found: dict[str, _Values | None] = {}
        for digest, row in rows:
            self._keep(digest, ENCODER.encode(row))
            for name, value in row.items():
                known = found.setdefault(name, _Values())
                if known is None or value is None:
                    continue
                if isinstance(value, str) and len(value) <= LONGEST:
                    known.texts.append(hash(value))
                elif isinstance(value, (bool, int, float)):
                    known.numbers.add(value)
                else:
                    found[name] = None
        self._order: array[int] | None = None
        count = _different(self._digests) + len(self._others)
        self.fields = tuple(
            name for name, values in found.items() if values and self._told_apart(values, count)
        )[:MOST_FIELDS]

    def forget(self) -> None:
        """Let go of the rows, when all items have been made; ``fields`` stay."""
        self._digests, self._ends, self._text = array("Q"), array("Q", [0]), bytearray()
        self._others.clear()
        self._order = None

    def _keep(self, digest: str, text: str) -> None:
        if _DIGEST.fullmatch(digest) is None:
            self._others[digest] = text
            return
        self._digests.append(int(digest, 16))
        self._text += text.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._text))

    def _told_apart(self, values: _Values, rows: int) -> bool:
        """Return whether a field divides the rows: it has several values, and is no name that nearly each row has."""
        different = values.different
        named = not values.numbers and 2 * different > rows
        return different > 1 and not named

    def get(self, digest: str) -> dict[str, Any] | None:
        """Return the row with a hash; None where the data does not have it."""
        if _DIGEST.fullmatch(digest) is None:
            found = self._others.get(digest)
            return None if found is None else json.loads(found)
        digests, number = self._digests, int(digest, 16)
        if self._order is None:
            self._order = array("Q", sorted(range(len(digests)), key=digests.__getitem__))
        at = bisect_right(self._order, number, key=digests.__getitem__) - 1  # of equal ones the last
        if at < 0 or digests[self._order[at]] != number:
            return None
        place = self._order[at]
        text = self._text[self._ends[place] : self._ends[place + 1]]
        row: dict[str, Any] = json.loads(text.decode("utf-8", "surrogatepass"))
        return row
