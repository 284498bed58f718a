"""Markdown as its readers see it: paragraphs, links, anchors."""

from __future__ import annotations

import re
from collections.abc import Iterator

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
BULLET = re.compile(r"\s*(?:[-*]|\d+\.) ")
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


def paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs and list items, without code blocks, tables and headings.

    A number with a full stop in the midst of a paragraph begins no item.
    """
    lines: list[str] = []
    numbered = False
    for line in [*FENCED.sub("\n", text).splitlines(), ""]:
        code = line.startswith("    ") and not lines
        apart = not line.strip() or line.startswith(("#", "|")) or code
        bullet = BULLET.match(line)
        number = bullet is not None and bullet[0].strip()[0].isdigit()
        if number and lines and not numbered:
            bullet = None
        if (apart or bullet) and lines:
            yield " ".join(lines)
            lines = []
        if not lines:
            numbered = number
        if not apart:
            lines.append(line[bullet.end() :] if bullet else line.strip())


def links(text: str) -> Iterator[str]:
    """Yield the targets of links and pictures."""
    for found in LINK.finditer(re.sub(r"`[^`]+`", "", FENCED.sub("", text))):
        yield found["target"]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
