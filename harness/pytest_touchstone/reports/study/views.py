"""A study for terminals, in brief or whole, as Markdown, and as the files of ``-o`` and ``--plots``.

In Markdown, texts of others cannot break out of their cells.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from pytest_touchstone.compare.study.points import Study
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import write_atomic
from pytest_touchstone.reports import png
from pytest_touchstone.reports.formatting import (
    command_lines,
    console_of,
    labelled,
    markdown_text,
    open_table,
    written,
)
from pytest_touchstone.reports.plots import Picture, svg
from pytest_touchstone.reports.study.section import COMMAND, Facts, Part, Section, StudyTable, Verbatim
from pytest_touchstone.reports.study.sections import study_facts

NARROWEST: Final = 76
"""The columns that tables need; in narrower terminals lines wrap."""

BEST: Final = "*"
"""The mark behind the best value of a column."""

_STYLES: Final = {"not more than noise": "", "more than noise": "bold", "cannot be tested": "yellow"}

TITLE: Final = "What is more than noise"

MOST_ROWS: Final = 24
"""The rows of a part that a brief report shows."""

SAFE: Final = "/@+=,"
"""Signs that addresses of pictures keep."""


# For a terminal


def render(sections: Sequence[Section], *, width: int, color: bool, brief: bool = False) -> str:
    """Return sections as text of at most ``width`` columns (of at least 76), whole or what decides of them in a screen
    or two."""
    from rich.text import Text

    console = console_of(max(width, NARROWEST), color=color)
    for number, section in enumerate(brief_sections(sections) if brief else sections):
        if number:
            console.print()
        console.print(Text(section.title, style="bold cyan"))
        for place, part in enumerate(section.parts):
            if not brief or (
                place and not isinstance(part, str)
            ):  # a paragraph explains what stands above it
                console.print()
            for line in _drawn(part, console.width):
                console.print(line)
    if brief:
        names = ", ".join(one.key for one in sections)
        more = f"More: -v shows all, -o DIR writes it as files, --section NAME[,NAME] shows one of {names}."
        console.print()
        console.print(Text(more, style="dim"))
    return written(console)


def brief_sections(sections: Sequence[Section]) -> list[Section]:
    """Return the sections with their first parts alone; all lines are a section, at the place of the first."""
    lines = Facts(tuple((one.key, one.line) for one in sections if one.line))
    found: dict[str, Section] = {}
    for one in sections:
        if one.line:
            found.setdefault("told", Section(key="told", title=TITLE, parts=(lines,)))
        if one.brief:
            parts = [part for whole in one.parts[: one.brief] for part in _cut(whole)]
            found[one.key] = replace(one, parts=tuple(parts))
    return list(found.values())


def _cut(part: Part) -> Iterable[Part]:
    """Yield the first rows of a part, and how many more there are."""
    if isinstance(part, str):
        yield part
        return
    name = "lines" if isinstance(part, Verbatim) else "rows"
    rows = getattr(part, name)
    yield replace(part, **{name: rows[:MOST_ROWS]})
    if len(rows) > MOST_ROWS:
        yield f"and {len(rows) - MOST_ROWS} rows more (-v)"


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


def _table(part: StudyTable) -> Any:
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


# Markdown


def study_page(sections: Sequence[Section], pictures: Sequence[str] = ()) -> str:
    """Return the whole text; ``pictures`` are addresses of PNG and SVG files, shown at its end."""
    blocks = ["# Study"]
    for section in sections:
        blocks.append(f"## {markdown_text(section.title)}")
        for part in section.parts:
            blocks += _blocks(part)
    blocks += ["## Pictures", *_pictures(pictures)] if pictures else []
    return "\n\n".join(block for block in blocks if block) + "\n"


def _pictures(addresses: Sequence[str]) -> Iterable[str]:
    """Yield each SVG, or its PNG as a link to it where there is one."""
    for address in (one for one in addresses if one.endswith(".svg")):
        bitmap = f"{address.removesuffix('.svg')}.png"
        name = markdown_text(PurePosixPath(address).stem.replace("_", " "))
        shown = f"![{name}]({quote(bitmap if bitmap in addresses else address, SAFE)})"
        yield f"[{shown}]({quote(address, SAFE)})" if bitmap in addresses else shown


def _blocks(part: Part) -> list[str]:
    if isinstance(part, str):
        return [markdown_text(part)]
    if isinstance(part, Facts):
        return [
            "\n".join(f"- **{markdown_text(label)}**: {markdown_text(text)}" for label, text in part.rows)
        ]
    if isinstance(part, Verbatim):
        return ["\n".join(["```text", *(line.replace("```", "'''") for line in part.lines), "```"])]
    return [f"**{markdown_text(part.title)}**" if part.title else "", "\n".join(_markdown_table(part))]


def _markdown_table(part: StudyTable) -> Iterable[str]:
    yield _row(markdown_text(title.replace("\n", " ")) for title in part.header)
    yield _row("---" if part.is_text(column) else "---:" for column in range(len(part.header)))
    for number, row in enumerate(part.rows):
        cells = ["<br>".join(markdown_text(line) for line in cell.split("\n")) for cell in row]
        yield _row(
            f"**{cell}**" if (number, column) in part.best and cell else cell
            for column, cell in enumerate(cells)
        )


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


# Files


def write_files(folder: Path, files: Mapping[str, str | bytes], option: str) -> list[Path]:
    """Write the files into the folder that an option names, and return their paths.

    Raises ``HarnessError`` where one cannot be written.
    """
    for name, content in files.items():
        try:
            write_atomic(folder / name, content)
        except OSError as error:
            raise HarnessError(
                f"cannot write {folder / name}: {error.strerror}; give another {option}"
            ) from None
    return [folder / name for name in files]


def study_files(
    study: Study, sections: Sequence[Section], pictures: Sequence[Path], folder: Path
) -> dict[str, str]:
    """Return ``study.md``, which shows the pictures from within the folder, and ``study.json``."""
    # In one line: the indented form takes nearly five times as long, since only Python code writes it.
    data = json.dumps(study_facts(study, sections), ensure_ascii=False, allow_nan=False, default=str)
    shown = [Path(os.path.relpath(path, folder)).as_posix() for path in pictures]
    return {"study.md": study_page(sections, shown), "study.json": f"{data}\n"}


def write_pictures(folder: Path, pictures: Sequence[Picture], forms: Sequence[str]) -> list[Path]:
    """Write the pictures as files of these forms, ``png`` and ``svg``, and return their paths.

    Raises ``HarnessError`` where the folder cannot be written.
    """
    files: dict[str, str | bytes] = {}
    for one in pictures:
        for form in forms:
            files[f"{one.name}.{form}"] = png.png(one) if form == "png" else svg(one, alone=True)
    return write_files(folder, files, "--plots DIR")
