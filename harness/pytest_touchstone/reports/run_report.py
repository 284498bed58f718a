"""The report of a run as one list of sections, which the terminal, Markdown and the page show.

To add a section, write a function that returns one and name it in ``run_report``. The order is that of a page and of
Markdown; a terminal goes by the sections' ranks. A section without parts is left out.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from pytest_touchstone.compare.gate.result import lines_from_json
from pytest_touchstone.document import VIEWS, Commands, Facts, Headline, Section, formatting
from pytest_touchstone.reports import notes
from pytest_touchstone.reports.best import best_of_run, changes_section
from pytest_touchstone.reports.gate import failure_facts, gate_sections, sign_key
from pytest_touchstone.reports.next_steps import NextStep, next_steps, steps_after_gate
from pytest_touchstone.reports.page.payload import PageRun
from pytest_touchstone.reports.page.summary import (
    benchmark_sections,
    curve_sections,
    overview_sections,
    source_sections,
)
from pytest_touchstone.reports.result_tables import results_sections
from pytest_touchstone.results import file_path
from pytest_touchstone.results.summary import Summary

DECISION: Final = "decision"
"""The section of the gate's decision."""

FILES: Final = ("report.html", "summary.json", "results.csv", "checkpoints.csv", "errors.log")
"""Files of a run that are named, where they are there and hold anything."""


def run_report(summary: Summary, *, details: bool, items: PageRun | None = None) -> list[Section]:
    """Return the sections of a run's report.

    Args:
        summary: The run.
        details: Whether to give all metrics, groups and notes.
        items: The run with its items, which only a page has; its curves and tables come with them.

    """
    sections = [
        *demonstration_sections(summary),
        *decision_sections(summary),
        notes.items_section(summary, details=details),
        notes.failed_section(summary),
        best_section(summary),
        *results_sections(summary, details=details),
        *_of_page(overview_sections, items),
        notes.warnings_section(summary, details=details),
        *_of_page(curve_sections, items),
        *gate_sections(summary.gate, details=details),
        *_of_page(benchmark_sections, items),
        changes_section(summary, brief=not details),
        *added_sections(summary),
        notes.data_section(summary, details=details),
        *_of_page(source_sections, items),
        notes.left_out_section(summary, details=details),
        notes.faults_section(summary),
        notes.costs_section(summary, details=details),
        *files_sections(summary, details=details),
        next_section(summary),
    ]
    return [section for section in sections if section is not None and section.parts]


def _of_page(
    make_sections: Callable[[PageRun], Iterable[Section]], items: PageRun | None
) -> Iterable[Section]:
    return () if items is None else make_sections(items)


def demonstration_sections(summary: Summary) -> Iterator[Section]:
    """Yield what a run without a checkpoint of the user's shows, and how all rows are asked."""
    if (demonstration := summary.manifest.get("demonstration")) and not summary.stopped:
        commands = Commands((("all rows", demonstration["all"], ""),))
        yield Section(key="demonstration", parts=(Facts((("touchstone", demonstration["what"]),)), commands))


def decision_sections(summary: Summary) -> Iterator[Section]:
    """Yield the gate's decision, and after a failed gate what dropped, how to look at it, and how to accept it."""
    if summary.gate is None:
        return
    headline = Headline(str(summary.gate.get("text", "")), sign_key(summary.gate))
    yield Section(key=DECISION, parts=(headline,), rank=6)
    if has_failed(summary):
        rows = tuple(("", step.command, step.what) for step in steps_after_gate(summary))
        yield Section(key="failures", parts=(failure_facts(summary.gate),), views=("markdown",))
        yield Section(key="drop", parts=(Commands(rows),) * bool(rows), views=("markdown", "page"))


def has_failed(summary: Summary) -> bool:
    """Return whether the gate found a line that fails."""
    return summary.gate is not None and any(line.fails for line in lines_from_json(summary.gate))


def added_sections(summary: Summary) -> Iterator[Section]:
    """Yield the sections that hooks of others have returned, a paragraph per line."""
    for row in summary.sections:
        yield Section(parts=(Headline(row["title"]), *row["text"].splitlines()))


def best_section(summary: Summary) -> Section | None:
    """Return which checkpoint is best, in a sentence."""
    if not (best := best_of_run(summary)):
        return None
    return Section(key="best", parts=(Headline(best, label="best"),), rank=3)


def files_sections(summary: Summary, *, details: bool) -> Iterator[Section]:
    """Yield the run's folder with its main files, and the command that shows the report again."""
    folder, shown = Path(summary.directory), formatting.place(summary)
    paths = [path for name in FILES if (path := file_path(folder, name)).is_file() and path.stat().st_size]
    saved = "   ".join([f"{shown}/", *(str(path.relative_to(folder)) for path in paths)])
    yield Section(key="files", parts=(Facts((("saved", saved),)),), views=("terminal",), rank=4)
    command = f"touchstone report {shlex.quote(shown)}"
    step = NextStep(f"{command} -v", "all metrics, groups and notes")
    if details:
        step = NextStep(command, "this report")
    yield Section(
        key="again", parts=(Commands((("more", step.command, step.what),)),), views=("terminal",), rank=4
    )


def next_section(summary: Summary) -> Section:
    """Return the commands that come next; other forms than a terminal begin with those after a failed gate."""
    rows = tuple(("next", step.command, step.what) for step in next_steps(summary))
    views = ("terminal",) if has_failed(summary) else VIEWS
    return Section(key="next", title="Next", parts=(Commands(rows),) * bool(rows), views=views, rank=5)
