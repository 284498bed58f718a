"""CSV files of the Korean studies: ``checkpoints.csv``, as this harness writes it or with a column of series."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import DataError
from harness.imports.contender import Contender, source_of
from harness.imports.korean import Contradiction, WrongValueError, is_korean, read_row
from harness.reports.system_a import COLUMNS


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
    delimiter = max(",;\t", key=first.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    contenders: dict[str, tuple[int, Contender]] = {}
    contradictions: list[Contradiction] = []
    bad: list[BadRow] = []
    try:
        header = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = header
        if not is_korean(dict.fromkeys(header)):
            raise DataError(
                f"{path}: its first line has none of the columns {', '.join(c.key for c in COLUMNS)}; "
                "a table of checkpoints has a line of names, then a line a checkpoint"
            )
        for fields in reader:
            line = reader.line_num
            try:
                _check_length(fields, len(header))
                row = read_row(fields, origin=f"{path.name}, line {line}", source=source, sizes=sizes)
                name = row.contender.name
                if name in contenders:
                    raise WrongValueError(
                        "checkpoint", name, f"line {contenders[name][0]} has this name; name it otherwise"
                    )
            except WrongValueError as error:
                value = None if error.value is None else str(error.value)
                bad.append(BadRow(line, error.column, value, error.remedy))
                continue
            contenders[name] = (line, row.contender)
            contradictions += row.contradictions
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not CSV ({error})") from None
    return Table(tuple(one for _, one in contenders.values()), tuple(contradictions), tuple(bad))


def _check_length(fields: Mapping[str | None, object], width: int) -> None:
    """Raises ``WrongValueError`` for a row that has more or fewer fields than the first line has names."""
    if None in fields:
        raise WrongValueError(
            "the end of the row", str(fields[None]), f"the row has more than {width} fields"
        )
    if missing := [name for name, value in fields.items() if value is None]:
        raise WrongValueError(str(missing[0]), None, f"the row has fewer than {width} fields")
