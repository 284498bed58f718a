"""The sections of a study in their order, and the whole as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pytest_touchstone.compare.study.points import Study
from pytest_touchstone.core.files import SCHEMA
from pytest_touchstone.reports.document import Section
from pytest_touchstone.reports.study.advice import advice_section, noise_section
from pytest_touchstone.reports.study.curves import curves, overfitting, stability
from pytest_touchstone.reports.study.forecast import forecast_section
from pytest_touchstone.reports.study.forgetting import forgotten
from pytest_touchstone.reports.study.overview import checkpoints, contradictions, overview
from pytest_touchstone.reports.study.section import Maker
from pytest_touchstone.reports.study.sparklines import glance
from pytest_touchstone.reports.study.versus import matrix, starts, versus
from pytest_touchstone.results.summary import finite

BEFORE: Final[tuple[Maker, ...]] = (
    overview,
    contradictions,
    checkpoints,
    glance,
    curves,
    stability,
    overfitting,
    starts,
)
FINDINGS: Final[tuple[Maker, ...]] = (versus, forgotten, noise_section, matrix, advice_section)


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
