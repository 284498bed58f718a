"""``touchstone report RUN``: the table of a run, again."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from harness.cli.command import Output, add_run, run_folder
from harness.results.summary import SUMMARY, load_summary, summary_json

add_arguments = add_run


def run(options: argparse.Namespace) -> Output:
    """The tables that the run's end has printed, in the width of today's terminal."""
    summary = load_summary(run_folder(options, SUMMARY))

    def text() -> str:
        from harness.reports.terminal import render

        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        return render(summary, shutil.get_terminal_size((100, 24)).columns, color)

    return Output(summary_json(summary), text)
