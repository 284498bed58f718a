"""``touchstone report RUN``: its report again, one table of several runs for a paper, or the page.

touchstone report last                            as at its end; of a run that was killed, what it has scored
touchstone report RUN RUN --format latex          checkpoints by benchmarks: markdown, or latex with booktabs
touchstone report RUN --format csv                every number of a run, as results.csv
touchstone report last --open                     the page in a browser; of two runs, side by side
touchstone report RUN#OLD RUN#NEW -o cmp.html     the page of two checkpoints
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pytest_touchstone.cli.command import (
    TEXT,
    Output,
    add_language,
    add_output,
    add_target,
    shown,
    terminal,
    write,
)
from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.formats.run import about
from pytest_touchstone.compare.load import only, place_of
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import file_name, shown_path
from pytest_touchstone.core.text import count
from pytest_touchstone.results.aggregate import COLLECTED, summary_so_far
from pytest_touchstone.results.run_directory import RunDirectory, find_run
from pytest_touchstone.results.summary import (
    SUMMARY,
    Summary,
    load_summary,
    of_checkpoints,
    results_csv,
    summary_json,
)

PAGE: Final = "report.html"
COMPARISON: Final = "comparison.html"

PAPER: Final = ("markdown", "latex")
"""The forms of one table of checkpoints by benchmarks."""


class PageTarget(NamedTuple):
    """A run, or one of its checkpoints; ``checkpoint`` is empty for all of them."""

    folder: Path
    summary: Summary
    checkpoint: str = ""

    @property
    def page(self) -> Path:
        """The file of its page."""
        name = f"report-{file_name(self.checkpoint)}.html" if self.checkpoint else PAGE
        return self.folder / name

    @property
    def notes(self) -> list[str]:
        """The facts that a reader of the page must know."""
        if not self.checkpoint or len(self.summary.checkpoints) < 2:
            return []
        return [
            f"Of the {count(len(self.summary.checkpoints), 'checkpoint')} of run {self.summary.run_id} this page has "
            f"{self.checkpoint}. What was decided over all of them is on the page of the run."
        ]

    @property
    def part(self) -> Summary:
        """The summary of what is meant."""
        if not self.checkpoint:
            return self.summary
        collected, _, _ = RunDirectory(self.folder).read_collected()
        return of_checkpoints(self.summary, [self.checkpoint], collected)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs, the form, and how much is shown."""
    text = (
        "a run id, a run's folder, or last; of several there is a table (--format markdown, latex), or a page, where "
        "the first is the baseline; one of their checkpoints: RUN#NAME"
    )
    parser.add_argument("targets", nargs="+", metavar="RUN", help=text)
    parser.set_defaults(format=None)
    add_output(parser)
    text = (
        f"write there, without --format the page (default of the page: {PAGE} in the run's folder, "
        f"report-CHECKPOINT.html for one checkpoint, {COMPARISON} here for several)"
    )
    add_target(parser, text, "FILE")
    parser.add_argument(
        "--open", action="store_true", help="open the page in a browser, and make it if need be"
    )
    text = "all metrics, groups and notes, as pytest -v shows them"
    parser.add_argument("-v", "--verbose", action="store_true", help=text)
    text = "in a table for a paper: standard errors in place of 95 %% intervals"
    parser.add_argument("--stderr", action="store_true", help=text)
    add_language(parser)


def run(options: argparse.Namespace) -> Output:
    """Show or write it. Raises ``HarnessError`` where a run cannot be read, or the file not be written."""
    if options.format is None and (options.to is not None or options.open):
        options.format = "html"
    if options.format == "html":
        return _page(options)
    if options.open:
        raise HarnessError(
            f"--open: is for the page, and --format {options.format} is none; leave one of them out"
        )
    if options.stderr and options.format not in PAPER:
        raise HarnessError("--stderr: is for a table; give --format markdown or latex too")
    output = _table(options) if options.format in PAPER else _report(options)
    if options.to is None:
        return output
    write(options.to, shown(output, options))
    options.format = TEXT
    return Output(None, shown_path(options.to))


def _report(options: argparse.Namespace) -> Output:
    """Return the report that the end of the run printed, in the width of today's terminal."""
    if len(options.targets) > 1:
        raise HarnessError(
            f"{len(options.targets)} runs: this form is of one; several have a table (--format markdown or latex) and "
            "a page (--open)"
        )
    summary = summary_so_far(find_run(options.targets[0], options.output, SUMMARY, COLLECTED))

    def text() -> str:
        from pytest_touchstone.reports.terminal import render

        return render(summary, *terminal(), details=options.verbose)

    return Output(summary_json(summary), text, csv=lambda: results_csv(summary))


def _table(options: argparse.Namespace) -> Output:
    from pytest_touchstone.cli.study import read_study
    from pytest_touchstone.reports import score_table

    table = score_table.table_of_study(read_study(options.targets, options.output))
    make = score_table.markdown_table if options.format == "markdown" else score_table.latex_table
    return Output(None, make(table, stderr=options.stderr))


# The page


def _page(options: argparse.Namespace) -> Output:
    """Make the page of what is named; with ``--open`` that of one run need not be made if it is there."""
    targets = _targets(options)
    path = targets[0].page
    if options.to or len(targets) > 1 or not (options.open and path.is_file()):
        path = _written(targets, options.to)
    opened = options.open and _opened(path)
    how = "no browser could be started; open " if options.open and not opened else ""
    return Output(None, f"{how}{shown_path(path)}")


def _targets(options: argparse.Namespace) -> list[PageTarget]:
    """Return what is named; raises ``HarnessError`` for what is not there, and where two overlap."""
    targets = [_target(text, options.output) for text in options.targets]
    named = ", ".join(options.targets)
    for place, one in enumerate(targets):
        for other in targets[:place]:
            if os.path.realpath(one.folder) != os.path.realpath(other.folder):
                continue
            if one.checkpoint == other.checkpoint:
                what = "checkpoint" if one.checkpoint else "run"
                raise HarnessError(f"{named}: a {what} is named twice; name {what}s that differ")
            if not (one.checkpoint and other.checkpoint):
                raise HarnessError(f"{named}: a checkpoint is part of a run that is named too; leave one out")
    return targets


def _target(text: str, output: Path) -> PageTarget:
    place = place_of(text, output)
    run_id, name = place if place is not None else (*re.split("[#:]", text, maxsplit=1), "")[:2]
    folder = find_run(run_id, output, SUMMARY)
    summary = load_summary(folder)
    if not name:
        return PageTarget(folder, summary)
    known = [CheckpointResults(str(row["name"]), "", about(row)) for row in summary.checkpoints]
    return PageTarget(folder, summary, only(known, name, shown_path(folder)).name)


def _written(targets: Sequence[PageTarget], file: Path | None) -> Path:
    from pytest_touchstone.reports.page.builder import comparison_page, run_page

    parts, notes = [one.part for one in targets], [note for one in targets for note in one.notes]
    if len(targets) == 1:
        path, text = file or targets[0].page, run_page(parts[0], notes)
    else:
        path, text = file or Path(COMPARISON), comparison_page(parts, notes)
    write(path, text)
    return path


def _opened(path: Path) -> bool:
    """Return whether a browser has been started."""
    import webbrowser

    # Without a display, what there is may be a browser in this terminal, which cannot show the page.
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    return webbrowser.open(path.resolve().as_uri())
