"""A report before it is text: sections of paragraphs, tables and facts, which every form takes.

A section's ``parts`` are shown in order: a ``str`` is a paragraph, ``Facts`` are labels with texts, a ``Table`` is a
table, and ``Verbatim`` keeps its lines as they are (sparklines). Texts are plain: each form escapes what it must. The
forms are text for a terminal (``render_text``), Markdown (``render_markdown``), and the page's macro ``sections``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pytest_touchstone.document.formatting import (
    cell_width,
    command_lines,
    console_of,
    folded,
    labelled,
    longest_piece,
    markdown_text,
    open_table,
    written,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

COMMAND: Final = "type"
"""The label of a command, which is shown so that it can be pasted."""

BEST: Final = "*"
"""The sign of the best value of a column."""

SIGN_STYLES: Final[Mapping[str, str]] = {BEST: "bold", "!": "red"}

STYLES: Final[Mapping[str, str]] = {
    "worse": "bold red",
    "failed": "bold red",
    "accepted": "bold yellow",
    "not valid": "bold red",
    "not judged": "bold red",
    "inconclusive": "magenta",
    "not compared": "bold magenta",
    "better": "bold green",
    "not worse": "green",
    "passed": "bold green",
    "mistake": "bold red",
    "more than noise": "bold",
    "cannot be tested": "yellow",
}
"""The styles of verdicts and decisions on a terminal, also of cells with that text."""

LOUD: Final = re.compile(r"\b(NOT VALID|UNSANDBOXED|\d+ (error|timeout|lost item)s?)\b")
"""Words of a cell that say that a value must not be believed."""

STRONG: Final = ("better", "worse", "failed", "not valid", "not judged")
"""The cells that are bold in Markdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; its first ``left`` columns, and the last one with ``words``, are texts, the others numbers.

    ``signs`` stand behind cells, by row and column: ``*`` the best value, ``!`` one that is not valid. ``stacked`` are
    the columns that stand below each other on a terminal that is too narrow for all; such a table has no signs.
    ``close``: one space is between columns, so that tables with the same columns are alike.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    words: bool = False
    signs: Mapping[tuple[int, int], str] = field(default_factory=dict)
    title: str = ""
    stacked: tuple[tuple[int, ...], ...] = ()
    close: bool = False

    def is_text(self, column: int) -> bool:
        """Return whether a column has texts, which may fold."""
        return column < self.left or (self.words and column == len(self.header) - 1)


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels with their texts."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Lines that stay as they are, in letters of one width."""

    lines: tuple[str, ...]


Part: TypeAlias = str | Table | Facts | Verbatim


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section: its title, its parts, and its findings as plain data under ``key``, which is its name too.

    ``brief`` is the number of parts that a reader sees who asks for no section, and ``line`` says what of the section's
    tests is more than noise. ``folded``: where a form can, it shows the title alone until somebody asks.
    """

    key: str = ""
    title: str = ""
    parts: tuple[Part, ...]
    brief: int = 0
    line: str = ""
    folded: bool = False
    data: Any = None


# For a terminal


def render_text(sections: Iterable[Section], *, width: int, color: bool, dense: bool = False) -> str:
    """Return sections as text of at most ``width`` columns.

    ``dense``: no empty line stands below a title, nor before a paragraph, which explains what stands above it.
    """
    from rich.text import Text

    console = console_of(width, color=color)
    for number, section in enumerate(sections):
        if number:
            console.print()
        if section.title:
            console.print(Text(section.title, style="bold cyan"))
        for place, part in enumerate(section.parts):
            beside = place == 0 and not section.title
            if not beside and (not dense or (place and not isinstance(part, str))):
                console.print()  # in a dense report a paragraph explains what stands above it
            for block in drawn(part, width):
                console.print(block, highlight=False)
    return written(console)


def drawn(part: Part, width: int, *, label: int = 0) -> Iterator[RenderableType]:
    """Yield what a console prints of a part; labels of facts are ``label`` columns wide, or more."""
    from rich.text import Text

    if isinstance(part, str):
        yield Text(part)
    elif isinstance(part, Verbatim):
        for line in part.lines:
            yield Text(line, no_wrap=True, overflow="ellipsis")
    elif isinstance(part, Facts):
        left = max(label, *(len(name) for name, _ in part.rows), 0)
        rows: list[tuple[Text, str]] = []
        before = ""
        for name, text in part.rows:
            lines = command_lines(text, width - left - 2) if name == COMMAND else [text]
            label_text = Text("" if name == before else name, style=STYLES.get(name, "dim"))
            rows.append((label_text, "\n".join(lines)))
            before = name
        yield labelled(rows, width=left)
    else:
        if part.title:
            yield Text(part.title, style="bold")
        shown = _shown_columns(part)
        if part.stacked and sum(map(_width, shown)) > width + 1:
            part = _stacked(part)
            shown = _shown_columns(part)
        for number, columns in enumerate(_blocks(part, shown, width)):
            if number:
                yield ""
            yield _drawn_table(part, {column: shown[column] for column in columns}, width)


def _shown_columns(part: Table) -> list[list[str]]:
    """Return the columns with their headings and signs; numbers without one keep its room."""
    columns = [list(column) for column in zip(part.header, *part.rows, strict=True)]
    for column, cells in enumerate(columns):
        room = max((len(sign) for (_, at), sign in part.signs.items() if at == column), default=0)
        for row, cell in enumerate(cells):
            sign = part.signs.get((row - 1, column), "")
            cells[row] = cell + (sign if part.is_text(column) else sign.ljust(room))
            if not row and room and not part.is_text(column):
                cells[row] = "\n".join(line + " " * room for line in cell.split("\n"))
    return columns


def _width(cells: Sequence[str]) -> int:
    """Return the width of a column, with a space after it."""
    return max(cell_width(line) for cell in cells for line in cell.split("\n")) + 1


def _stacked(part: Table) -> Table:
    """Return the table with several columns in one, one line for each."""

    def lines(row: Sequence[str]) -> tuple[str, ...]:
        return tuple("\n".join(filter(None, (row[column] for column in group))) for group in part.stacked)

    return Table(
        header=lines(part.header), rows=tuple(map(lines, part.rows)), words=part.words, title=part.title
    )


def _blocks(part: Table, shown: Sequence[Sequence[str]], width: int) -> Iterator[list[int]]:
    """Yield the columns of as many tables as it takes, each with the first ones and as many others as fit."""
    needed = list(map(_width, shown))
    first = list(range(part.left))
    block: list[int] = []
    for column in range(part.left, len(part.header)):
        if block and not part.words and sum(needed[other] for other in (*first, *block, column)) > width + 1:
            yield [*first, *block]
            block = []
        block.append(column)
    yield [*first, *block]


def _drawn_table(part: Table, shown: Mapping[int, Sequence[str]], width: int) -> RenderableType:
    """Return columns as a table of rich; where they are too wide texts fold, those of the last column first."""
    from rich.text import Text

    widths = {column: _width(cells) - 1 for column, cells in shown.items()}
    fits = sum(widths.values()) + 2 * len(widths) <= width + 2
    gap = 1 if part.close or not (fits or all(map(part.is_text, shown))) else 2
    table = open_table(gap)
    table.show_header = any(part.header)
    over = sum(widths.values()) + gap * (len(widths) - 1) - width
    for column in filter(part.is_text, sorted(shown, reverse=True)):
        least = max(longest_piece(line) for cell in shown[column] for line in cell.split("\n"))
        narrower = max(0, min(over, widths[column] - least))
        widths[column] -= narrower
        over -= narrower
    for column, cells in shown.items():
        text = part.is_text(column)
        table.add_column(cells[0], justify="left" if text else "right", overflow="fold", no_wrap=not text)
    for row in range(len(part.rows)):
        texts = []
        for column, cells in shown.items():
            cell, signs = cells[row + 1], part.signs.get((row, column), "")
            style = next((SIGN_STYLES[sign] for sign in signs if sign in SIGN_STYLES), STYLES.get(cell, ""))
            if part.is_text(column):
                cell = "\n".join(piece for line in cell.split("\n") for piece in folded(line, widths[column]))
            texts.append(Text(cell, style=style))
            texts[-1].highlight_regex(LOUD, STYLES["not valid"])
        table.add_row(*texts)
    return table


# Markdown


def render_markdown(sections: Iterable[Section], *, most_rows: int = sys.maxsize) -> list[str]:
    """Return sections as blocks of GitHub-flavoured Markdown; no text of others can break out of its cell."""
    blocks = []
    for section in sections:
        title = markdown_text(section.title)
        heading = f"<details><summary>{title}</summary>" if section.folded else f"## {title}"
        blocks += [heading] if title else []
        for part in section.parts:
            blocks += _markdown_blocks(part, most_rows)
        blocks += ["</details>"] * section.folded
    return blocks


def _markdown_blocks(part: Part, most_rows: int) -> list[str]:
    if isinstance(part, str):
        return [markdown_text(part)]
    if isinstance(part, Facts):
        rows = (f"- **{markdown_text(label)}**: {markdown_text(text)}" for label, text in part.rows)
        return ["\n".join(rows)]
    if isinstance(part, Verbatim):
        return ["\n".join(["```text", *(line.replace("```", "'''") for line in part.lines), "```"])]
    title = [f"**{markdown_text(part.title)}**"] if part.title else []
    shown = replace(part, rows=part.rows[:most_rows])
    more = [f"and {len(part.rows) - most_rows} more"] if len(part.rows) > most_rows else []
    return [*title, "\n".join(_markdown_table(shown)), *more]


def _markdown_table(part: Table) -> Iterator[str]:
    yield markdown_row(markdown_text(title.replace("\n", " ")) for title in part.header)
    yield markdown_row("---" if part.is_text(column) else "---:" for column in range(len(part.header)))
    for number, row in enumerate(part.rows):
        cells = []
        for column, cell in enumerate(row):
            text = "<br>".join(markdown_text(line) for line in cell.split("\n"))
            text = "&nbsp;" * (len(text) - len(text.lstrip()) - 2) + text.lstrip()  # of a group
            signs = part.signs.get((number, column), "")
            text = f"**{text}**" if text and (BEST in signs or cell in STRONG) else text
            cells.append(text + markdown_text(signs.replace(BEST, "")))
        yield markdown_row(cells)


def markdown_row(cells: Iterable[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"
