"""The sections of a study in their order, and the whole as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from harness.compare.study.points import Study
from harness.core.files import SCHEMA
from harness.reports.study.curves import curves
from harness.reports.study.findings import finding_sections
from harness.reports.study.overfitting import overfitting
from harness.reports.study.overview import checkpoints, contradictions, overview
from harness.reports.study.section import Maker, Section
from harness.reports.study.sparklines import glance
from harness.reports.study.stability import stability
from harness.reports.study.starts import starts
from harness.results.summary import finite

SECTIONS: Final[tuple[Maker, ...]] = (
    overview,
    contradictions,
    checkpoints,
    glance,
    curves,
    stability,
    overfitting,
    starts,
)


def sections_of(study: Study) -> list[Section]:
    """Return the sections that the study has something for."""
    found = [section for make in SECTIONS if (section := make(study)) is not None]
    return [*found, *finding_sections(study)]


def study_facts(study: Study, sections: Sequence[Section]) -> dict[str, Any]:
    """Return the study with the findings of every section as a JSON object."""
    found: dict[str, Any] = {"schema": SCHEMA, "kind": "study", **study.facts()}
    found |= {one.key: one.data for one in sections if one.data is not None}
    plain: dict[str, Any] = finite(found)
    return plain
