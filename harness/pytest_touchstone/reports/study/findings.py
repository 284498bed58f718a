"""The sections on what comparing the series finds, of findings that are made once."""

from __future__ import annotations

from pytest_touchstone.compare.study.advice import find
from pytest_touchstone.compare.study.points import Study
from pytest_touchstone.reports.study.advice import advice_section
from pytest_touchstone.reports.study.forgetting import forgotten
from pytest_touchstone.reports.study.matrix import matrix
from pytest_touchstone.reports.study.noise import noise_section
from pytest_touchstone.reports.study.section import Section
from pytest_touchstone.reports.study.versus import versus


def finding_sections(study: Study) -> list[Section]:
    """Return series against series, what was forgotten, the noise, the closing matrix and the advice."""
    found = find(study)
    sections = [
        versus(study, found.between, found.lengths),
        forgotten(found.forgetting),
        noise_section(found.noise),
        matrix(found.between),
        advice_section(found.advice),
    ]
    return [section for section in sections if section is not None]
