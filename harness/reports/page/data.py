"""The datasets' rows behind a page's items: the fields that one can filter by, and the rest of each row."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from harness.reports.page.packing import ENCODER

LONGEST: Final = 60
"""The characters of a text that may be chosen from a list of values; longer ones are texts to read."""

MOST_FIELDS: Final = 12


class DataRows:
    """Rows by their hash; kept as JSON, which takes a fifth of the memory."""

    def __init__(self, rows: Iterable[tuple[str, dict[str, Any]]]) -> None:
        self._rows: dict[str, str] = {}
        found: dict[str, set[Any] | None] = {}
        for digest, row in rows:
            self._rows[digest] = ENCODER.encode(row)
            for name, value in row.items():
                known = found.setdefault(name, set())
                if known is None or value is None:
                    continue
                if isinstance(value, (bool, int, float)) or (
                    isinstance(value, str) and len(value) <= LONGEST
                ):
                    known.add(value)
                else:
                    found[name] = None
        self.fields = tuple(name for name, values in found.items() if values and self._told_apart(values))[
            :MOST_FIELDS
        ]

    def forget(self) -> None:
        """Let go of the rows, when all items have been made; ``fields`` stay."""
        self._rows.clear()

    def _told_apart(self, values: set[Any]) -> bool:
        """Return whether a field divides the rows: it has several values, and is no name that nearly each row has."""
        named = all(isinstance(one, str) for one in values) and 2 * len(values) > len(self._rows)
        return len(values) > 1 and not named

    def get(self, digest: str) -> dict[str, Any] | None:
        """Return the row with a hash; None where the data does not have it."""
        found = self._rows.get(digest)
        return None if found is None else json.loads(found)
