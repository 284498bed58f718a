"""Arranges the sections of a study and writes them as JSON values, text or Markdown.

Foreign texts are escaped in Markdown, so they cannot end their cell.
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
from pytest_touchstone.results.summary import replace_non_finite
from pytest_touchstone.study.advice import advice_section, noise_section
from pytest_touchstone.study.curve_sections import (
    curves_section,
    forecast_section,
    overfitting_section,
    stability_section,
)
from pytest_touchstone.study.forgetting import forgetting_section
from pytest_touchstone.study.overview import checkpoints_section, contradictions_section, overview_section
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.series_sections import matrix_section, series_section, starts_section
from pytest_touchstone.study.sparklines import sparklines_section

BEFORE: Final = (
    overview_section,
    contradictions_section,
    checkpoints_section,
    sparklines_section,
    curves_section,
    stability_section,
    overfitting_section,
    starts_section,
)
FINDINGS: Final = (series_section, forgetting_section, noise_section, matrix_section, advice_section)


def sections_of(study: Study, forecast_at: float | None = None) -> list[Section]:
    """Return the sections of a study that have content.

    ``forecast_at`` is the epoch or step to forecast.
    """
    sections = [make_section(study) for make_section in BEFORE] + [forecast_section(study, forecast_at)]
    sections += [make_section(study) for make_section in FINDINGS]
    return [section for section in sections if section is not None]


def study_facts(study: Study, sections: Sequence[Section]) -> dict[str, Any]:
    """Return the study and the findings of its sections as a JSON object."""
    findings = {section.key: section.data for section in sections if section.data is not None}
    facts: dict[str, Any] = replace_non_finite(
        {"schema": SCHEMA, "kind": "study", **study.facts(), **findings}
    )
    return facts


NARROWEST: Final = 76
"""The fewest columns of a report; in narrower terminals lines wrap."""

TITLE: Final = "What is more than noise"

MOST_ROWS: Final = 24
"""The most rows of a part in a brief report."""

SAFE: Final = "/@+=,"
"""Characters that are not quoted in addresses of pictures."""


def render_study(sections: Sequence[Section], *, width: int, color: bool, brief: bool = False) -> str:
    """Render sections as text for a terminal.

    Args:
        sections: The sections to show.
        width: The columns of the terminal; fewer than 76 count as 76.
        color: Whether to use ANSI colours.
        brief: Whether to show only what fits a screen or two.

    """
    width = max(width, NARROWEST)
    if not brief:
        return render_text(sections, width=width, color=color)
    more = (
        "More: -v shows all, -o DIR writes it as files, --section NAME[,NAME] shows one of "
        f"{', '.join(section.key for section in sections)}."
    )
    return render_text(
        [*brief_sections(sections), Section(parts=(more,))], width=width, color=color, dense=True
    )


def brief_sections(sections: Sequence[Section]) -> list[Section]:
    """Shorten sections to their first parts, and gather their summary lines in one section."""
    lines = Facts(tuple((section.key, section.line) for section in sections if section.line))
    brief: dict[str, Section] = {}
    for section in sections:
        if section.line:
            brief.setdefault("told", Section(key="told", title=TITLE, parts=(lines,)))
        if section.brief_parts:
            parts = [
                part for full_part in section.parts[: section.brief_parts] for part in _first_rows(full_part)
            ]
            brief[section.key] = replace(section, parts=tuple(parts))
    return list(brief.values())


def _first_rows(part: Part) -> Iterable[Part]:
    """Yield the first rows of a part, and the number of further rows."""
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
    """Render sections as a Markdown document; ``pictures`` are addresses of PNG and SVG files."""
    blocks = ["# Study", *render_markdown(sections)]
    blocks += ["## Pictures", *_pictures(pictures)] if pictures else []
    return "\n\n".join(block for block in blocks if block) + "\n"


def _pictures(addresses: Sequence[str]) -> Iterable[str]:
    """Yield each SVG as an image; one that has a PNG is linked from the PNG."""
    for address in filter(lambda name: name.endswith(".svg"), addresses):
        bitmap = f"{address.removesuffix('.svg')}.png"
        name = markdown_text(PurePosixPath(address).stem.replace("_", " "))
        shown = f"![{name}]({quote(bitmap if bitmap in addresses else address, SAFE)})"
        yield f"[{shown}]({quote(address, SAFE)})" if bitmap in addresses else shown
