"""The sections of a study in their order: as plain data, for a terminal, and as Markdown.

In Markdown, texts of others cannot break out of their cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from pytest_touchstone.core.files import SCHEMA
from pytest_touchstone.core.text import count
from pytest_touchstone.document import Facts, Part, Section, Verbatim, render_markdown, render_text
from pytest_touchstone.document.formatting import markdown_text
from pytest_touchstone.results.summary import finite
from pytest_touchstone.study.advice import advice_section, noise_section
from pytest_touchstone.study.curve_sections import curves, forecast_section, overfitting, stability
from pytest_touchstone.study.forgetting import forgotten
from pytest_touchstone.study.overview import checkpoints, contradictions, overview
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.series_sections import matrix, series_sections, starts
from pytest_touchstone.study.sparklines import glance

BEFORE: Final = (
    overview,
    contradictions,
    checkpoints,
    glance,
    curves,
    stability,
    overfitting,
    starts,
)
FINDINGS: Final = (series_sections, forgotten, noise_section, matrix, advice_section)


def sections_of(study: Study, forecast_at: float | None = None) -> list[Section]:
    """Return the sections that the study has something for; the place is one to forecast."""
    found = [make(study) for make in BEFORE] + [forecast_section(study, forecast_at)]
    found += [make(study) for make in FINDINGS]
    return [section for section in found if section is not None]


def study_facts(study: Study, sections: Sequence[Section]) -> dict[str, Any]:
    """Return the study with the findings of every section as a JSON object."""
    found: dict[str, Any] = {"schema": SCHEMA, "kind": "study", **study.facts()}
    found |= {one.key: one.data for one in sections if one.data is not None}
    plain: dict[str, Any] = finite(found)
    return plain


NARROWEST: Final = 76
"""The columns that tables need; in narrower terminals lines wrap."""

TITLE: Final = "What is more than noise"

MOST_ROWS: Final = 24
"""The rows of a part that a brief report shows."""

SAFE: Final = "/@+=,"
"""Signs that addresses of pictures keep."""


def render(sections: Sequence[Section], *, width: int, color: bool, brief: bool = False) -> str:
    """Return sections as text of at most ``width`` columns (of at least 76), whole or what decides of them in a screen
    or two."""
    width = max(width, NARROWEST)
    if not brief:
        return render_text(sections, width=width, color=color)
    names = ", ".join(one.key for one in sections)
    more = f"More: -v shows all, -o DIR writes it as files, --section NAME[,NAME] shows one of {names}."
    return render_text(
        [*brief_sections(sections), Section(parts=(more,))], width=width, color=color, dense=True
    )


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
        yield f"and {count(len(rows) - MOST_ROWS, 'more row')} (-v)"


# Markdown


def study_markdown(sections: Sequence[Section], pictures: Sequence[str] = ()) -> str:
    """Return the whole text; ``pictures`` are addresses of PNG and SVG files, shown at its end."""
    blocks = ["# Study", *render_markdown(sections)]
    blocks += ["## Pictures", *_pictures(pictures)] if pictures else []
    return "\n\n".join(block for block in blocks if block) + "\n"


def _pictures(addresses: Sequence[str]) -> Iterable[str]:
    """Yield each SVG, or its PNG as a link to it where there is one."""
    for address in (one for one in addresses if one.endswith(".svg")):
        bitmap = f"{address.removesuffix('.svg')}.png"
        name = markdown_text(PurePosixPath(address).stem.replace("_", " "))
        shown = f"![{name}]({quote(bitmap if bitmap in addresses else address, SAFE)})"
        yield f"[{shown}]({quote(address, SAFE)})" if bitmap in addresses else shown
