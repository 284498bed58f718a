"""CSV files of the Korean studies: ``checkpoints.csv``, as this harness writes it or with a column of series."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import DataError
from harness.imports.contender import Contender, Source, source_of
from harness.imports.korean import Contradiction, WrongValueError, is_korean, read_row
from harness.reports.by_checkpoint import COLUMNS


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read: its line in the file, the column, the value, and what to do."""

    line: int
    column: str
    value: str | None
    remedy: str

    def __str__(self) -> str:
        return f"line {self.line}, {self.column}: {self.value!r}: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Table:
    """What a file of several checkpoints says, and what is wrong in it."""

    contenders: tuple[Contender, ...]
    contradictions: tuple[Contradiction, ...] = ()
    bad: tuple[BadRow, ...] = ()


def read_table(path: Path, sizes: Mapping[str, int]) -> Table:
    """Every row of the file. Raises ``DataError`` where it is no such table at all."""
    source, data = source_of(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    first = text.partition("\n")[0]
    reader = csv.DictReader(
        io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count), strict=True
    )
    found = _Reading(source, sizes)
    try:
        header = reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        if not is_korean(dict.fromkeys(header)):
            raise DataError(
                f"{path}: its first line has none of the columns {', '.join(c.key for c in COLUMNS)}; "
                "a table of checkpoints has a line of names, then a line a checkpoint"
            )
        for fields in reader:
            found.add(fields, reader.line_num, len(header))
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not CSV ({error})") from None
    return Table(tuple(found.rows), tuple(found.contradictions), tuple(found.bad))


class _Reading:
    """The rows of a table so far."""

    def __init__(self, source: Source, sizes: Mapping[str, int]) -> None:
        self.rows: list[Contender] = []
        self.contradictions: list[Contradiction] = []
        self.bad: list[BadRow] = []
        self._source, self._sizes = source, sizes
        self._lines: dict[str, int] = {}

    def add(self, fields: Mapping[str | None, object], line: int, width: int) -> None:
        """Takes a row in, or notes what is wrong with it."""
        try:
            _check_length(fields, width)
            known = {str(name): value for name, value in fields.items()}
            origin = f"{self._source.file}, line {line}"
            row = read_row(known, origin=origin, source=self._source, sizes=self._sizes)
            name = row.contender.name
            if name in self._lines:
                taken = f"line {self._lines[name]} has this name; name it otherwise"
                raise WrongValueError("checkpoint", name, taken)
        except WrongValueError as error:
            value = None if error.value is None else str(error.value)
            self.bad.append(BadRow(line, error.column, value, error.remedy))
            return
        self._lines[name] = line
        self.rows.append(row.contender)
        self.contradictions += row.contradictions


def _check_length(fields: Mapping[str | None, object], width: int) -> None:
    """Raises ``WrongValueError`` for a row that has more or fewer fields than the first line has names."""
    if None in fields:
        raise WrongValueError(
            "the end of the row", str(fields[None]), f"the row has more than {width} fields"
        )
    if missing := [name for name, value in fields.items() if value is None]:
        raise WrongValueError(str(missing[0]), None, f"the row has fewer than {width} fields")
