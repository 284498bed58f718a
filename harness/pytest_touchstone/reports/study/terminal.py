"""A study for terminals: the brief parts of its sections, or whole sections, with their details by ``-v``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pytest_touchstone.reports.formatting import command_lines, console_of, labelled, open_table, written
from pytest_touchstone.reports.study.brief import brief_sections, where_more
from pytest_touchstone.reports.study.section import COMMAND, Facts, Part, Section, Table, Verbatim

NARROWEST: Final = 76
"""The columns that tables need; in narrower terminals lines wrap."""

BEST: Final = "*"
"""The mark behind the best value of a column."""

_STYLES: Final = {"not more than noise": "", "more than noise": "bold", "cannot be tested": "yellow"}


def render_brief(sections: Sequence[Section], *, width: int, color: bool) -> str:
    """Return what decides, in a screen or two of at most ``width`` columns (of at least 76)."""
    from rich.text import Text

    console = console_of(max(width, NARROWEST), color=color)
    for section in brief_sections(sections):
        console.print(Text(section.title, style="bold cyan"))
        for place, part in enumerate(section.parts):
            if place and not isinstance(part, str):  # a paragraph explains what stands above it
                console.print()
            for line in _drawn(part, console.width):
                console.print(line)
        console.print()
    console.print(Text(where_more(sections), style="dim"))
    return written(console)


def render(sections: Sequence[Section], *, width: int, color: bool, details: bool = False) -> str:
    """Return whole sections as text of at most ``width`` columns (of at least 76)."""
    from rich.text import Text

    console = console_of(max(width, NARROWEST), color=color)
    hidden = False
    for place, section in enumerate(sections):
        if place:
            console.print()
        console.print(Text(section.title, style="bold cyan"))
        shown = (*section.parts, *(section.details if details else ()))
        hidden |= bool(section.details) and not details
        for part in shown:
            console.print()
            for line in _drawn(part, console.width):
                console.print(line)
    if hidden:
        console.print()
        console.print(Text("-v shows all tables; -o DIR writes them as files", style="dim"))
    return written(console)


def _drawn(part: Part, width: int) -> list[Any]:
    from rich.text import Text

    if isinstance(part, str):
        return [Text(part)]
    if isinstance(part, Verbatim):
        return [Text(line, no_wrap=True, overflow="ellipsis") for line in part.lines]
    if isinstance(part, Facts):
        left = max(len(label) for label, _ in part.rows) + 2
        rows = [
            (label, "\n".join(command_lines(text, width - left)) if label == COMMAND else text)
            for label, text in part.rows
        ]
        return [labelled(rows)]
    return [*([Text(part.title, style="bold")] if part.title else []), _table(part)]


def _table(part: Table) -> Any:
    from rich.text import Text

    table = open_table(2)
    marked = {column for _, column in part.best}
    for column, title in enumerate(part.header):
        text = part.is_text(column)
        shown = f"{title} " if column in marked and not text else title
        table.add_column(
            shown, justify="left" if text else "right", overflow="fold", no_wrap=not text, header_style="dim"
        )
    for number, row in enumerate(part.rows):
        cells = []
        for column, cell in enumerate(row):
            best = (number, column) in part.best
            mark = BEST if best else " " if column in marked and not part.is_text(column) else ""
            cells.append(Text(f"{cell}{mark}", style="bold" if best else _STYLES.get(cell, "")))
        table.add_row(*cells)
    return table
