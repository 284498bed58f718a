"""``touchstone runs``: the runs of a results folder. ``touchstone report RUN``: a run's report again, one table of
several runs for a paper, or the page.

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
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.cli.command import (
    TEXT,
    Output,
    add_language,
    add_output,
    add_target,
    format_output,
    terminal,
    write,
)
from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.formats.run import about
from pytest_touchstone.compare.load import locate_results, only
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import file_name, shown_path
from pytest_touchstone.core.text import count, one_line
from pytest_touchstone.document.formatting import cell_width, cut_name
from pytest_touchstone.reports.gate import sign_key
from pytest_touchstone.results import run_of
from pytest_touchstone.results.aggregate import COLLECTED, has_ended, summary_so_far
from pytest_touchstone.results.run_directory import RunDirectory, files_of_runs, find_run, is_running
from pytest_touchstone.results.summary import (
    SUMMARY,
    Summary,
    count_items,
    load_summary,
    results_csv,
    select_checkpoints,
    summary_json,
    whole_results,
)

# The list of runs


HEADER: Final = ("run", "began", "checkpoints", "benchmarks", "items", "")
BEGAN, CHECKPOINTS, BENCHMARKS, ITEMS, STATE = range(1, len(HEADER))

SHORTEST: Final = 8
"""The columns that are left of a name where a line would be too long."""

YEAR: Final = len("2026-")

list_add_arguments = add_output


def list_run(options: argparse.Namespace) -> Output:
    """Print a row per run, the newest last. Unreadable runs have a line on standard error."""
    paths = [path for file in (SUMMARY, COLLECTED) for path in files_of_runs(options.output, file)]
    summaries = []
    for folder in sorted(set(map(run_of, paths))):
        try:
            summaries.append(summary_so_far(folder))
        except HarnessError as error:
            print(f"touchstone: {one_line(str(error))}", file=sys.stderr)
    if not summaries:
        return Output([], f"no runs in {options.output}/\n")
    return Output([_row(summary) for summary in summaries], lambda: _list(summaries))


def _row(summary: Summary) -> dict[str, Any]:
    names = sorted({result.benchmark for result in summary.results})
    whole = whole_results(summary)
    marks = {
        name: list(dict.fromkeys(result.mark for result in whole if result.benchmark == name and result.mark))
        for name in names
    }
    return {
        "run": summary.run_id,
        "checkpoints": [str(row["name"]) for row in summary.checkpoints],
        "benchmarks": names,
        "items": sum(result.collected for result in whole),
        "of": sum(max(result.of, result.collected) for result in whole),
        "marks": {name: texts for name, texts in marks.items() if texts},
        "faults": len(summary.faults),
    }


def _began(summary: Summary) -> float:
    began = summary.manifest.get("began")
    return float(began) if began else Path(summary.directory).stat().st_mtime


def _state(summary: Summary) -> str:
    """Return the state of a run: in progress, stopped, or the gate's decision and faults."""
    gate, folder = summary.gate or {}, Path(summary.directory)
    if summary.stopped or not has_ended(folder):
        return "stopped" if has_ended(folder) or not is_running(folder, time.time()) else "running"
    decision = sign_key(gate) if gate.get("mode") else ""
    if decision == "not valid":
        return "gate not valid"  # faults are a reason
    words = {"first": "gate passed, first", "unsure": "gate passed, unsure"}
    texts = [words.get(decision, f"gate {decision}")] if decision else []
    texts += [count(len(summary.faults), "fault")] if summary.faults else []
    texts += [f"{len(summary.failed_to_load)} failed to load"] if summary.failed_to_load else []
    return ", ".join(texts)


def _list(summaries: Sequence[Summary]) -> str:
    """Return a row per run in order of start, fitted to the terminal."""
    rows = [HEADER]
    for summary in sorted(summaries, key=_began):
        row, sums, state = _row(summary), count_items(summary), _state(summary)
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(_began(summary)))
        items = f"{row['items']:,}" + f"/{row['of']:,}" * (row["of"] > row["items"])
        if state in ("running", "stopped"):
            items = f"{sums['scored']:,}/{sums['collected']:,}"
        names = []
        for first, *others in (row["checkpoints"] or [""], row["benchmarks"] or [""]):
            names.append(f"{first} +{len(others)}" if others else first)
        rows.append((row["run"], began, *names, items, state))
    widths = [max(map(cell_width, column)) for column in zip(*rows, strict=True)]
    spare = terminal()["width"] - sum(widths) - (len(widths) - 1)
    if spare < 0:
        widths[BEGAN] -= YEAR
        spare += YEAR
    for column in (BENCHMARKS, CHECKPOINTS, STATE):
        excess = max(0, min(-spare, widths[column] - SHORTEST))
        widths[column] -= excess
        spare += excess
    lines = []
    for texts in rows:
        cells = []
        for text, width in zip(texts, widths, strict=True):
            name, *others = re.split(r"(?= \+\d+$)", text)
            name = cut_name(name, width - sum(map(len, others)))
            cell = "".join([name, *others])
            cells.append(cell + " " * (width - cell_width(cell)))
        cells[ITEMS] = texts[ITEMS].rjust(widths[ITEMS])
        if texts != HEADER:
            cells[BEGAN] = texts[BEGAN][-widths[BEGAN] :]
        lines.append(f"{' '.join(cells).rstrip()}\n")
    return "".join(lines)


# The report of a run, and tables of several


PAGE: Final = "report.html"
COMPARISON: Final = "comparison.html"

PAPER: Final = ("markdown", "latex")
"""The forms of one table of checkpoints by benchmarks."""


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
    """Show a report or write its file. Raises ``HarnessError`` if a run or file is inaccessible."""
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
    write(options.to, format_output(output, options))
    options.format = TEXT
    return Output(None, shown_path(options.to))


def _table(options: argparse.Namespace) -> Output:
    from pytest_touchstone.cli.study import read_study
    from pytest_touchstone.reports import score_table

    table = score_table.table_of_study(read_study(options.targets, options.output))
    make = score_table.markdown_table if options.format == "markdown" else score_table.latex_table
    return Output(None, make(table, stderr=options.stderr))


def _report(options: argparse.Namespace) -> Output:
    """Return the report of a finished run, in the width of the current terminal."""
    if len(options.targets) > 1:
        raise HarnessError(
            f"{len(options.targets)} runs: this form is of one; several have a table (--format markdown or latex) and "
            "a page (--open)"
        )
    summary = summary_so_far(find_run(options.targets[0], options.output, SUMMARY, COLLECTED))

    def text() -> str:
        from pytest_touchstone.reports.terminal import render

        return render(summary, **terminal(), details=options.verbose)

    return Output(summary_json(summary), text, csv=lambda: results_csv(summary))


# The page


class PageTarget(NamedTuple):
    """A run, or one of its checkpoints; ``checkpoint`` is empty for the whole run."""

    folder: Path
    summary: Summary
    checkpoint: str


def _page(options: argparse.Namespace) -> Output:
    """Write the page of runs or checkpoints. With ``--open`` the existing page of a single run is enough."""
    from pytest_touchstone.reports.pages import comparison_page, run_page

    targets = [_target(text, options.output) for text in options.targets]
    _check_apart(targets, ", ".join(options.targets))
    folder, _, checkpoint = targets[0]
    usual = folder / (f"report-{file_name(checkpoint)}.html" if checkpoint else PAGE)
    several = len(targets) > 1
    path = options.to or (Path(COMPARISON) if several else usual)
    if options.to or several or not (options.open and path.is_file()):
        summaries, notes = [], []
        for folder, summary, checkpoint in targets:
            if not checkpoint:
                summaries.append(summary)
                continue
            collected, _, _ = RunDirectory(folder).read_collected()
            summaries.append(select_checkpoints(summary, [checkpoint], collected))
            if len(summary.checkpoints) > 1:
                notes.append(
                    f"Of the {count(len(summary.checkpoints), 'checkpoint')} of run {summary.run_id} this page has "
                    f"{checkpoint}. What was decided over all of them is on the page of the run."
                )
        write(path, comparison_page(summaries, notes) if several else run_page(summaries[0], notes))
    closed = options.open and not _open(path)
    return Output(None, f"{'no browser could be started; open ' if closed else ''}{shown_path(path)}")


def _target(text: str, output: Path) -> PageTarget:
    """Return the run or checkpoint that a text names. Raises ``HarnessError``."""
    address = locate_results(text, output)
    run_id, name = address if address is not None else (*re.split("[#:]", text, maxsplit=1), "")[:2]
    folder = find_run(run_id, output, SUMMARY)
    summary = load_summary(folder)
    if name:
        checkpoints = [CheckpointResults(str(row["name"]), "", about(row)) for row in summary.checkpoints]
        name = only(checkpoints, name, shown_path(folder)).name
    return PageTarget(folder, summary, name)


def _check_apart(targets: Sequence[PageTarget], named: str) -> None:
    """Raise ``HarnessError`` if targets overlap, such as a run and one of its checkpoints."""
    for index, target in enumerate(targets):
        for other in targets[:index]:
            if os.path.realpath(target.folder) != os.path.realpath(other.folder):
                continue
            if target.checkpoint == other.checkpoint:
                what = "checkpoint" if target.checkpoint else "run"
                raise HarnessError(f"{named}: a {what} is named twice; name {what}s that differ")
            if not (target.checkpoint and other.checkpoint):
                raise HarnessError(f"{named}: a checkpoint is part of a run that is named too; leave one out")


def _open(path: Path) -> bool:
    """Return whether a browser has been started."""
    import webbrowser

    # Without a display, what there is may be a browser in this terminal, which cannot show the page.
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform.startswith("linux") and not display:
        return False
    return webbrowser.open(path.resolve().as_uri())
