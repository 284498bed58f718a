"""The first section of a study: its series, what is measured, and the best checkpoint by each measure."""

from __future__ import annotations

from harness.compare.study.points import Study
from harness.reports.study.section import Facts, Section, Table


def overview(study: Study) -> Section:
    """Return the series and what a reader must know before believing the numbers."""
    rows = tuple(
        (
            series.name,
            str(len(series.points)),
            series.where(series.points[0]),
            series.where(series.points[-1]),
        )
        for series in study.series
    )
    table = Table(header=("series", "checkpoints", "first", "last"), rows=rows)
    notes = Facts(tuple(("note", note) for note in study.notes))
    return Section(key="overview", title="Study", parts=(table, *((notes,) if study.notes else ())))
