"""The report on the terminal at the end of a run, and of ``touchstone report``, made to fit a screen.

It begins with the results: by benchmark, or by checkpoint where that does not fit. Below them are the gate's verdicts,
changes, the legend, and one line per kind of fact. It ends with what is not valid, which checkpoint is best, where the
results are, the next command, and the gate's decision. Details have all metrics, groups and notes. ASCII only, apart
from names. Errors, lost items and checkpoints that failed to load are told as fully without details.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pytest_touchstone.document import Headline, Section, render_brief
from pytest_touchstone.reports.next_steps import resume_text
from pytest_touchstone.reports.run_report import DECISION, run_report
from pytest_touchstone.results.aggregate import has_ended
from pytest_touchstone.results.summary import Summary, count_items, reportable_part

NARROWEST: Final = 60
"""Columns that a report needs; in narrower terminals its lines wrap."""

OF_STOPPED: Final = ("results", "legend", "failed", "faults", "warnings", "files")
"""The sections that the report of a stopped run has."""


def render(summary: Summary, width: int, color: bool, *, details: bool = False, decision: bool = True) -> str:
    """Render the report of a run as text of at most ``width`` columns.

    The gate's decision is one line of any length. Without ``decision`` that line and the hint on resuming a stopped run
    are left to the caller; only complete results are shown then.
    """
    sections = run_report(reportable_part(summary, partly=decision), details=details)
    if summary.stopped:
        counts, whole = count_items(summary), has_ended(Path(summary.directory))
        word = "stopped" if whole else "unfinished"
        line = resume_text(counts["scored"], counts["collected"], summary.manifest, word)
        sections = [section for section in sections if section.key in OF_STOPPED]
        sections.append(Section(key=DECISION, parts=(Headline(line),), rank=6))
    shown = [section for section in sections if decision or section.key != DECISION]
    return render_brief(shown, width=max(width, NARROWEST), color=color)
