"""The page of a study: its sections as HTML, and the runs whose items it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pytest_touchstone.compare.study.points import Study
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.results.summary import SUMMARY, Summary, load_summary

MOST_BYTES: Final = 256 * 2**20
"""Journals that are larger in all stay out of the page of a study: their runs have pages of their own."""


def study_runs(study: Study) -> tuple[list[Summary], str]:
    """Return the runs whose items the page of a study holds, and a note where there are too many."""
    entries = (
        entry for series in study.series for one in series.points for entry in one.candidate.entries.values()
    )
    folders = dict.fromkeys(entry.answers for entry in entries if entry.answers is not None)
    known = [folder for folder in folders if (folder / SUMMARY).is_file()]
    size = sum(path.stat().st_size for folder in known for path in Path(folder).glob("items-*.jsonl"))
    if size > MOST_BYTES:
        return [], (
            f"The items of these {len(known)} runs ({size / 2**20:.0f} MiB) are not on this page: "
            "`touchstone page RUN` makes one of a run, `touchstone page RUN RUN` of two side by side."
        )
    found = []
    for folder in known:
        try:
            found.append(load_summary(folder))
        except HarnessError:  # its numbers come from elsewhere; only its items are left out
            continue
    return found, ""
