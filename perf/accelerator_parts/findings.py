"""The findings of the accelerator's program: rows of figures, as JSON, as Markdown, and joined from several files.

The figures of a row have their unit in their name. Where a side was not there, or a case had to be left out, the row
has no figures but a note that says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

Figure: TypeAlias = float | int | str

SAME = ("device", "dtype", "shapes", "torch")
"""The facts that files must agree in to be joined: figures of different machines do not belong in one table."""

OURS = "ours"


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one side in one case: of a model (or the device alone), in one part of the program."""

    part: str
    model: str
    case: str
    side: str = OURS
    figures: Mapping[str, Figure] = field(default_factory=dict)
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The row's place in the table."""
        return self.part, self.model, self.case, self.side


@dataclass(frozen=True, slots=True)
class Findings:
    """The facts ``about`` the run (device, number type, versions, seconds by part), and its rows."""

    about: Mapping[str, Any]
    rows: tuple[Row, ...]

    def plain(self) -> dict[str, Any]:
        """Return the same as plain data for JSON; a figure that is no finite number is left out."""
        rows = [asdict(row) for row in self.rows]
        for row in rows:
            row["figures"] = {name: value for name, value in row["figures"].items() if _is_known(value)}
        return {"about": dict(self.about), "rows": rows}


def from_plain(data: Mapping[str, Any]) -> Findings:
    """Return the findings that ``Findings.plain`` made plain."""
    return Findings(data["about"], tuple(Row(**row) for row in data["rows"]))


def join(files: Mapping[str, Findings]) -> Findings:
    """Return the rows of several files, by their names, as one table.

    Of rows in the same place the last one with figures counts. Raises ``SystemExit`` where the files are of different
    machines, number types or shapes.
    """
    (first, begun), *others = files.items()
    for name, one in others:
        for fact in SAME:
            mine, its = begun.about.get(fact), one.about.get(fact)
            if mine != its:
                raise SystemExit(
                    f"{name}: its {fact} is {its}, that of {first} is {mine}; join files of one kind"
                )
    rows: dict[tuple[str, str, str, str], Row] = {}
    for row in (row for one in files.values() for row in one.rows):
        if row.key not in rows or row.figures or not rows[row.key].figures:
            rows[row.key] = row
    about: dict[str, Any] = {}
    for one in files.values():
        about |= one.about
    about["seconds"] = {part: took for one in files.values() for part, took in one.about["seconds"].items()}
    return Findings(about, tuple(rows.values()))


def markdown(found: Findings) -> str:
    """Return the findings as Markdown: the facts, then a table for each part."""
    facts = [f"- {name}: {_told(value)}" for name, value in found.about.items()]
    parts = dict.fromkeys(row.part for row in found.rows)
    tables = [_table(part, [row for row in found.rows if row.part == part]) for part in parts]
    return "\n".join(
        ["# On an accelerator", "", *facts, *(line for table in tables for line in ("", *table)), ""]
    )


def _table(part: str, rows: Sequence[Row]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row.figures))
    head = ["model", "case", "side", *names]
    notes = list(dict.fromkeys(row.note for row in rows if row.note and row.figures))
    lines = [f"## {part}", "", _line(head), _line(["---"] * 3 + ["---:"] * len(names))]
    for row in rows:
        mark = f" [{notes.index(row.note) + 1}]" if row.note in notes else ""
        cells = [shown(name, row.figures.get(name, "")) for name in names]
        if not row.figures:  # the reason stands in the place of the figures
            cells = [row.note, *cells[1:]]
        lines.append(_line([row.model, row.case, row.side + mark, *cells]))
    return lines + ([""] if notes else []) + [f"[{number}] {note}\n" for number, note in enumerate(notes, 1)]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"


def shown(name: str, value: Figure) -> str:
    """Return a figure as the table has it: shares in per cent, counts whole, other numbers with three digits."""
    if isinstance(value, str):
        return value
    if not _is_known(value):
        return ""
    if "share" in name:
        return f"{value:.1%}" if value < 0.1 else f"{value:.0%}"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _is_known(value: Figure) -> bool:
    return isinstance(value, str) or math.isfinite(value)


def _told(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_told(one)}" for name, one in value.items())
    return f"{value:.0f}" if isinstance(value, float) else str(value)
