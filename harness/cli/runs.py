"""``touchstone list``: the runs of a results folder; ``touchstone report RUN``: the table of a run, again."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from harness.cli.command import Output, add_output, add_run, run_folder
from harness.results.rows import results_csv
from harness.results.summary import SUMMARY, load_summary, summary_json, wholes

list_add_arguments = add_output


def report_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The run, and how much is shown."""
    add_run(parser)
    text = "all metrics, groups and notes, as pytest -v shows them"
    parser.add_argument("-v", "--verbose", action="store_true", help=text)


def list_run(options: argparse.Namespace) -> Output:
    """Print a row per run that ended."""
    rows = [_row(path.parent) for path in sorted(options.output.glob(f"*/{SUMMARY}"))]
    return Output(rows, "\n".join(map(_line, rows)) or f"no runs in {options.output}/")


def report_run(options: argparse.Namespace) -> Output:
    """Print the report that the end of the run printed, in the width of today's terminal."""
    summary = load_summary(run_folder(options, SUMMARY))

    def text() -> str:
        from harness.reports.terminal import render

        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        width = shutil.get_terminal_size((100, 24)).columns
        return render(summary, width, color, details=options.verbose)

    return Output(summary_json(summary), text, csv=lambda: results_csv(summary))


def _row(folder: Path) -> dict[str, Any]:
    summary = load_summary(folder)
    names = sorted({result.benchmark for result in summary.results})
    whole = wholes(summary)
    marks = {name: [one.mark for one in whole if one.benchmark == name and one.mark] for name in names}
    return {
        "run": summary.run_id,
        "checkpoints": [str(one["name"]) for one in summary.checkpoints],
        "benchmarks": names,
        "items": sum(result.collected for result in whole),
        "of": sum(max(result.of, result.collected) for result in whole),
        "marks": {name: list(dict.fromkeys(found)) for name, found in marks.items() if found},
        "faults": len(summary.faults),
    }


def _line(row: dict[str, Any]) -> str:
    faults = f", {row['faults']} faults" if row["faults"] else ""
    what = f"{', '.join(row['checkpoints'])}: {', '.join(row['benchmarks'])}"
    of = f" of {row['of']}" if row["of"] > row["items"] else ""
    return f"{row['run']}  {what} ({row['items']}{of} items{faults})"
