"""The study on a screen or two: what decides, and where the rest is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pytest_touchstone.reports.study.section import Facts, Section

TITLE: Final = "What is more than noise"


def brief_sections(sections: Sequence[Section]) -> list[Section]:
    """Return the sections with their brief parts alone; all lines are a section, at the place of the first."""
    lines = Facts(tuple((one.key, one.line) for one in sections if one.line))
    found: list[Section] = []
    told = not lines.rows
    for one in sections:
        if one.line and not told:
            found.append(Section(key="told", title=TITLE, parts=(lines,)))
            told = True
        if one.brief:
            found.append(Section(key=one.key, title=one.title, parts=one.brief))
    return found


def where_more(sections: Sequence[Section]) -> str:
    """Return a sentence on how to see the rest."""
    names = ", ".join(one.key for one in sections)
    return f"More: -v shows all, -o DIR writes it as files, --section NAME[,NAME] shows one of {names}."
