"""A report before it is text: sections of headlines, paragraphs, tables, facts and commands, which every form takes.

A section's ``parts`` are shown in order: a ``str`` is a paragraph, ``Facts`` are labels with texts, a ``Table`` is a
table, and ``Verbatim`` keeps its lines as they are (sparklines). Texts are plain: each form escapes what it must. The
forms are text for a terminal (``render_text``, ``render_brief``), Markdown (``render_markdown``), and the page's macro
``section``. ``Curves`` are only seen on a page.
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
    markdown_code,
    markdown_text,
    open_table,
    written,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

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

SIGNS_OF_VERDICTS: Final[Mapping[str, str]] = {
    "passed": ":white_check_mark: ",
    "first": ":information_source: ",
    "unsure": ":warning: ",
    "failed": ":x: ",
    "not valid": ":warning: ",
    "mistake": ":warning: ",
    "shown": ":bar_chart: ",
}
"""The signs before headlines in Markdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; its first ``text_columns``, and the last one with ``words``, are texts, the others numbers.

    ``signs`` stand behind cells, by row and column: ``*`` the best value, ``!`` one that is not valid. ``stacked`` are
    the columns that stand below each other on a terminal that is too narrow for all; such a table has no signs.
    ``close``: one space is between columns, so that tables with the same columns are alike.

    On a page alone, small texts stand ``below`` cells (row -1 is the header), and ``bars`` in them: a value and its
    limits, in per cent of the width. The rows ``strong`` are those of primary metrics.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int = 1
    words: bool = False
    signs: Mapping[tuple[int, int], str] = field(default_factory=dict)
    title: str = ""
    stacked: tuple[tuple[int, ...], ...] = ()
    close: bool = False
    below: Mapping[tuple[int, int], str] = field(default_factory=dict)
    bars: Mapping[tuple[int, int], tuple[float, ...]] = field(default_factory=dict)
    strong: frozenset[int] = frozenset()

    def is_text(self, column: int) -> bool:
        """Return whether a column has texts, which may fold."""
        return column < self.text_columns or (self.words and column == len(self.header) - 1)


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels with their texts."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Lines that stay as they are, in letters of one width."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Headline:
    """The sentence that says most, in one line of any length; ``verdict`` is a key of ``SIGNS_OF_VERDICTS``.

    With a ``label``, a terminal shows the sentence beside the label.
    """

    text: str
    verdict: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands to be pasted: rows of label, command and purpose."""

    rows: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """Drawings in SVG."""

    drawings: tuple[str, ...]


Part: TypeAlias = str | Table | Facts | Verbatim | Headline | Commands | Curves

VIEWS: Final = ("terminal", "markdown", "page")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section: its title, its parts, and its findings as plain data under ``key``, which is its name too.

    ``brief_parts`` is the number of parts that a reader sees who asks for no section, and ``line`` says what of the
    section's tests is more than noise. ``folded``: where a form can, it shows the title alone until somebody asks.

    ``views`` are the forms that show the section. ``rank``: the report of a run on a terminal, which is read from its
    end, shows sections of a higher rank further down; from rank 1 they are lines that follow each other closely.
    ``level`` is that of the heading. On a page an ``urgent`` section stands out, and the heading links to the items of
    ``benchmark``.
    """

    key: str = ""
    title: str = ""
    parts: tuple[Part, ...]
    brief_parts: int = 0
    line: str = ""
    folded: bool = False
    data: Any = None
    views: tuple[str, ...] = VIEWS
    rank: int = 0
    level: int = 2
    urgent: bool = False
    benchmark: str = ""


# For a terminal


def render_text(sections: Iterable[Section], *, width: int, color: bool, dense: bool = False) -> str:
    """Return sections as text of at most ``width`` columns.

    ``dense``: no empty line stands below a title, nor before a paragraph, which explains what stands above it.
    """
    from rich.text import Text

    console = console_of(width, color=color)
    for section_index, section in enumerate(sections):
        if section_index:
            console.print()
        if section.title:
            console.print(Text(section.title, style="bold cyan"))
        for index, content in enumerate(section.parts):
            is_first_line = index == 0 and not section.title
            if not is_first_line and (not dense or (index and not isinstance(content, str))):
                console.print()  # in a dense report a paragraph explains what stands above it
            _print_part(console, content)
    return written(console)


LABEL: Final = 10
"""Characters of the labels in the report of a run."""

PURPOSE_INDENT: Final = 3
"""Spaces between a command and its purpose."""


def render_brief(sections: Iterable[Section], *, width: int, color: bool) -> str:
    """Return the report of a run for a terminal: tables, the lines below them, and last the headline.

    Titles are left out. Lines wrap at ``width`` columns, but for headlines and commands.
    """
    console = console_of(width, color=color)
    shown = [section for section in sections if "terminal" in section.views]
    for section in sorted(shown, key=lambda section: section.rank):
        for index, content in enumerate(section.parts):
            if index and not isinstance(content, str) and isinstance(section.parts[index - 1], Table):
                console.print()
            _print_part(console, content, label=LABEL)
        if not section.rank:
            console.print()
    return written(console)


def _print_part(console: Console, content: Part, *, label: int = 0) -> None:
    """Print a part; labels are ``label`` columns wide, or more."""
    from rich.text import Text

    if isinstance(content, Commands):
        for name, command, purpose in content.rows:
            _print_command(console, name.ljust(label), command, purpose)
    elif isinstance(content, Headline) and not content.label:
        console.print(Text(content.text, style=STYLES.get(content.verdict, "bold")), soft_wrap=True)
    else:
        for block in _render_part(content, console.width, label):
            console.print(block, highlight=False)


def _print_command(console: Console, label: str, command: str, purpose: str) -> None:
    """Print a command and its purpose. A long command continues on further lines, as a shell accepts it."""
    from rich.text import Text

    style = "bold" if label.startswith("next") else ""
    left = len(label) + 2
    lines = command_lines(command, console.width - left)
    beside = len(lines) == 1 and left + len(lines[0]) + PURPOSE_INDENT + len(purpose) <= console.width
    for number, line in enumerate(lines):
        text = Text.assemble((f"{'' if number else label:{left}}", "dim"), (line, style))
        if beside and purpose:
            text.append(f"{'':{PURPOSE_INDENT}}{purpose}", "dim")
        console.print(text, soft_wrap=True)
    if purpose and not beside:
        console.print(Text(f"{'':{left + PURPOSE_INDENT}}{purpose}", style="dim"))


def _render_part(content: Part, width: int, label: int) -> Iterator[RenderableType]:
    """Yield what a console prints of a part that may wrap."""
    from rich.text import Text

    if isinstance(content, Headline):
        content = Facts(((content.label, content.text),))
    if isinstance(content, str):
        yield Text(content)
    elif isinstance(content, Verbatim):
        for line in content.lines:
            yield Text(line, no_wrap=True, overflow="ellipsis")
    elif isinstance(content, Facts):
        left = max(label, *(len(name) for name, _ in content.rows), 0)
        rows: list[tuple[Text, str]] = []
        before = ""
        for name, text in content.rows:
            lines = command_lines(text, width - left - 2) if name == COMMAND else [text]
            label_text = Text("" if name == before else name, style=STYLES.get(name, "dim"))
            rows.append((label_text, "\n".join(lines)))
            before = name
        yield labelled(rows, width=left)
    elif isinstance(content, Table):
        if content.title:
            yield Text(content.title, style="bold")
        shown = _shown_columns(content)
        if content.stacked and sum(map(_width, shown)) > width + 1:
            content = _stack_columns(content)
            shown = _shown_columns(content)
        for block_index, columns in enumerate(_blocks(content, shown, width)):
            if block_index:
                yield ""
            yield _make_table(content, {column: shown[column] for column in columns}, width)


def _shown_columns(table: Table) -> list[list[str]]:
    """Return the columns with their headings and signs; numbers without one keep its room."""
    columns = [list(column) for column in zip(table.header, *table.rows, strict=True)]
    for column, cells in enumerate(columns):
        room = max((len(sign) for (_, at), sign in table.signs.items() if at == column), default=0)
        for row, cell in enumerate(cells):
            sign = table.signs.get((row - 1, column), "")
            cells[row] = cell + (sign if table.is_text(column) else sign.ljust(room))
            if not row and room and not table.is_text(column):
                cells[row] = "\n".join(line + " " * room for line in cell.split("\n"))
    return columns


def _width(cells: Sequence[str]) -> int:
    """Return the width of a column, with a space after it."""
    return max(cell_width(line) for cell in cells for line in cell.split("\n")) + 1


def _stack_columns(table: Table) -> Table:
    """Return the table with several columns in one, one line for each."""

    def lines(row: Sequence[str]) -> tuple[str, ...]:
        return tuple("\n".join(filter(None, (row[column] for column in group))) for group in table.stacked)

    return Table(
        header=lines(table.header), rows=tuple(map(lines, table.rows)), words=table.words, title=table.title
    )


def _blocks(table: Table, shown: Sequence[Sequence[str]], width: int) -> Iterator[list[int]]:
    """Yield the columns of each table; all have the first columns, and as many others as fit."""
    needed = list(map(_width, shown))
    first = list(range(table.text_columns))
    block: list[int] = []
    for column in range(table.text_columns, len(table.header)):
        if block and not table.words and sum(needed[other] for other in (*first, *block, column)) > width + 1:
            yield [*first, *block]
            block = []
        block.append(column)
    yield [*first, *block]


def _make_table(table: Table, shown: Mapping[int, Sequence[str]], width: int) -> RenderableType:
    """Return columns as a table of rich; texts that are too wide fold, the last column first."""
    from rich.text import Text

    widths = {column: _width(cells) - 1 for column, cells in shown.items()}
    fits = sum(widths.values()) + 2 * len(widths) <= width + 2
    gap = 1 if table.close or not (fits or all(map(table.is_text, shown))) else 2
    rich_table = open_table(gap)
    rich_table.show_header = any(table.header)
    over = sum(widths.values()) + gap * (len(widths) - 1) - width
    for column in filter(table.is_text, sorted(shown, reverse=True)):
        least = max(longest_piece(line) for cell in shown[column] for line in cell.split("\n"))
        narrower = max(0, min(over, widths[column] - least))
        widths[column] -= narrower
        over -= narrower
    for column, cells in shown.items():
        text = table.is_text(column)
        rich_table.add_column(
            cells[0], justify="left" if text else "right", overflow="fold", no_wrap=not text
        )
    for row in range(len(table.rows)):
        texts = []
        for column, cells in shown.items():
            cell, signs = cells[row + 1], table.signs.get((row, column), "")
            style = next((SIGN_STYLES[sign] for sign in signs if sign in SIGN_STYLES), STYLES.get(cell, ""))
            if table.is_text(column):
                cell = "\n".join(piece for line in cell.split("\n") for piece in folded(line, widths[column]))
            texts.append(Text(cell, style=style))
            texts[-1].highlight_regex(LOUD, STYLES["not valid"])
        rich_table.add_row(*texts)
    return rich_table


# Markdown


def render_markdown(
    sections: Iterable[Section], *, most_rows: int = sys.maxsize, deeper: int = 0
) -> list[str]:
    """Return sections as blocks of GitHub-flavoured Markdown; no text of others can break out of its cell.

    Headings are ``deeper`` levels below their own.
    """
    blocks: list[str] = []
    for section in (section for section in sections if "markdown" in section.views):
        title = markdown_text(section.title)
        is_folded = section.folded and not section.urgent
        heading = f"{'#' * (section.level + deeper)} {title}"
        heading = f"<details><summary>{title}</summary>" if is_folded else heading
        blocks += [heading] if title else []
        for block in (block for content in section.parts for block in _markdown_blocks(content, most_rows)):
            if block.startswith("- ") and blocks and blocks[-1].startswith("- "):  # which are one list
                blocks[-1] += f"\n{block}"
            else:
                blocks.append(block)
        blocks += ["</details>"] * is_folded
    return blocks


def _markdown_blocks(content: Part, most_rows: int) -> list[str]:
    """Return a part as blocks; none of what is only seen on a page."""
    blocks: list[str] = []
    if isinstance(content, str):
        blocks = [markdown_text(content)]
    elif isinstance(content, Headline):
        blocks = [f"{SIGNS_OF_VERDICTS.get(content.verdict, '')}**{markdown_text(content.text)}**"]
    elif isinstance(content, Facts):
        facts = (f"- **{markdown_text(label)}**: {markdown_text(text)}" for label, text in content.rows)
        blocks = ["\n".join(facts)]
    elif isinstance(content, Commands):
        commands = (
            f"- {markdown_text(purpose or label)}: {markdown_code(command)}"
            for label, command, purpose in content.rows
        )
        blocks = ["\n".join(commands)]
    elif isinstance(content, Verbatim):
        blocks = ["\n".join(["```text", *(line.replace("```", "'''") for line in content.lines), "```"])]
    elif isinstance(content, Table):
        title = [f"**{markdown_text(content.title)}**"] if content.title else []
        shown_rows = replace(content, rows=content.rows[:most_rows])
        more = [f"and {len(content.rows) - most_rows} more"] if len(content.rows) > most_rows else []
        blocks = [*title, "\n".join(_markdown_table(shown_rows)), *more]
    return blocks


def _markdown_table(table: Table) -> Iterator[str]:
    yield markdown_row(markdown_text(title.replace("\n", " ")) for title in table.header)
    yield markdown_row("---" if table.is_text(column) else "---:" for column in range(len(table.header)))
    for row_index, row in enumerate(table.rows):
        cells = []
        for column, cell in enumerate(row):
            text = "<br>".join(markdown_text(line) for line in cell.split("\n"))
            text = "&nbsp;" * (len(text) - len(text.lstrip()) - 2) + text.lstrip()  # of a group
            signs = table.signs.get((row_index, column), "")
            text = f"**{text}**" if text and (BEST in signs or cell in STRONG) else text
            cells.append(text + markdown_text(signs.replace(BEST, "")))
        yield markdown_row(cells)


def markdown_row(cells: Iterable[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"
