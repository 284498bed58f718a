"""A study as GitHub-flavoured Markdown, with all details; texts of others cannot break out of their cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote

from pytest_touchstone.reports.markdown import plain
from pytest_touchstone.reports.study.section import Facts, Part, Section, Table, Verbatim

SAFE: Final = "/@+=,"
"""Signs that addresses of pictures keep."""


def study_page(sections: Sequence[Section], pictures: Sequence[str] = ()) -> str:
    """Return the whole text; ``pictures`` are addresses of PNG and SVG files, shown at its end."""
    blocks = ["# Study"]
    for section in sections:
        blocks.append(f"## {plain(section.title)}")
        for part in (*section.parts, *section.details):
            blocks += _blocks(part)
    blocks += ["## Pictures", *_pictures(pictures)] if pictures else []
    return "\n\n".join(block for block in blocks if block) + "\n"


def _pictures(addresses: Sequence[str]) -> Iterable[str]:
    """Yield each PNG, a link to the SVG of its name where there is one."""
    for address in (one for one in addresses if one.endswith(".png")):
        shown = f"![{plain(PurePosixPath(address).stem.replace('_', ' '))}]({quote(address, SAFE)})"
        drawing = f"{address.removesuffix('.png')}.svg"
        yield f"[{shown}]({quote(drawing, SAFE)})" if drawing in addresses else shown


def _blocks(part: Part) -> list[str]:
    if isinstance(part, str):
        return [plain(part)]
    if isinstance(part, Facts):
        return ["\n".join(f"- **{plain(label)}**: {plain(text)}" for label, text in part.rows)]
    if isinstance(part, Verbatim):
        return ["\n".join(["```text", *(line.replace("```", "'''") for line in part.lines), "```"])]
    return [f"**{plain(part.title)}**" if part.title else "", "\n".join(_table(part))]


def _table(part: Table) -> Iterable[str]:
    yield _line(plain(title.replace("\n", " ")) for title in part.header)
    yield _line("---" if part.is_text(column) else "---:" for column in range(len(part.header)))
    for number, row in enumerate(part.rows):
        cells = ["<br>".join(plain(line) for line in cell.split("\n")) for cell in row]
        yield _line(
            f"**{cell}**" if (number, column) in part.best and cell else cell
            for column, cell in enumerate(cells)
        )


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
