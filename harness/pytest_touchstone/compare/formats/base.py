"""The seam of result formats: a Protocol, and the table that a reader returns.

A package adds one by an entry point in the group ``touchstone.result_formats``: a class, or an instance of one. Its
candidates are made of ``compare.candidate``: ``published_entry`` takes totals, ``Entry.items`` scores of items.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from pytest_touchstone.compare.candidate import CheckpointResults, ResultSource, source_of
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.files import parse_json
from pytest_touchstone.results.summary import Summary

GROUP: Final = "touchstone.result_formats"


class CompositeContradiction(NamedTuple):
    """A composite that does not follow from the parts beside it by more than rounding."""

    name: str
    composite: str
    reported: float
    computed: float


@dataclass(frozen=True, slots=True)
class BadRow:
    """An unreadable row: its line in the file, the column, the value, and what to do."""

    line: int
    column: str
    value: str | None
    remedy: str

    def __str__(self) -> str:
        return f"line {self.line}, {self.column}: {self.value!r}: {self.remedy}"


@dataclass(frozen=True, slots=True)
class ResultTable:
    """The content of a file of results, and its faults."""

    candidates: tuple[CheckpointResults, ...]
    contradictions: tuple[CompositeContradiction, ...] = ()
    bad: tuple[BadRow, ...] = ()


class ResultFormat(Protocol):
    """A form in which results are written down: in a file, or in a folder."""

    @property
    def name(self) -> str:
        """The name in messages."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """The files of this form in a folder that is named, as for ``Path.glob``."""

    def sniff(self, path: Path, /) -> bool:
        """Return whether the file or folder has this form; False for one that cannot be read."""

    def read(self, path: Path, sizes: Mapping[str, int], /) -> ResultTable:
        """Read every checkpoint; ``sizes`` are numbers of items by benchmark, where the file does not say.

        Raises ``DataError`` naming the place and the value of what cannot be read."""


@runtime_checkable
class WritableFormat(Protocol):
    """A result format that a run's end writes, into the run's folder."""

    def write(self, summary: Summary, taken: Container[str], /) -> dict[str, Any]:
        """Return the files by name: a text, or plain data for JSON. ``taken`` are names of other files."""


def read_json(path: Path) -> tuple[ResultSource, Any]:
    """Return the file and its JSON content; raises ``DataError`` if it is not JSON."""
    source, data = source_of(path)
    try:
        return source, parse_json(data)
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error})") from None


def json_content(path: Path) -> Any:
    """Return the content of a readable file that ends in ``.json``; None for any other."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return None
    try:
        return read_json(path)[1]
    except DataError:
        return None
