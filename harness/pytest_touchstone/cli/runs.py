"""``touchstone list``: the runs of a results folder; ``touchstone report RUN``: the table of a run, again."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.cli.command import Output, add_output, add_run, run_folder, terminal
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.outside import one_line
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.results.aggregate import COLLECTED, ended, summary_so_far
from pytest_touchstone.results.rows import results_csv
from pytest_touchstone.results.summary import SUMMARY, Summary, summary_json, totals, wholes

NAMED: Final = 2
"""The most checkpoints or benchmarks of a run that are named."""

list_add_arguments = add_output


def report_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The run, and how much is shown."""
    add_run(parser)
    text = "all metrics, groups and notes, as pytest -v shows them"
    parser.add_argument("-v", "--verbose", action="store_true", help=text)


def list_run(options: argparse.Namespace) -> Output:
    """Print a row per run, the newest last; one that cannot be read has a line on standard error."""
    paths = [path for file in (SUMMARY, COLLECTED) for path in options.output.glob(f"*/{file}")]
    found = []
    for folder in sorted({path.parent for path in paths}):
        try:
            found.append(summary_so_far(folder))
        except HarnessError as error:
            print(f"touchstone: {one_line(str(error))}", file=sys.stderr)
    nothing = f"no runs in {options.output}/\n"
    return Output([_row(one) for one in found], lambda: _table(found) if found else nothing)


def report_run(options: argparse.Namespace) -> Output:
    """Print the report that the end of the run printed, in the width of today's terminal; of a run that was killed,
    that of what it has scored."""
    folder = run_folder(options, SUMMARY, COLLECTED)
    summary = summary_so_far(folder)

    def text() -> str:
        from pytest_touchstone.reports.terminal import render

        shown = render(summary, *terminal(), details=options.verbose)
        return shown if ended(folder) else f"{shown}\n{_unfinished(summary)}"

    return Output(summary_json(summary), text, csv=lambda: results_csv(summary))


def _unfinished(summary: Summary) -> str:
    """Return a line about a run that has not summed up."""
    counts = totals(summary)
    return (
        f"unfinished  {counts['scored']:,} of {count(counts['collected'], 'item')} scored: the run goes on, or was "
        "killed; the same command goes on from there"
    )


def _row(summary: Summary) -> dict[str, Any]:
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


def _began(summary: Summary) -> float:
    began = summary.manifest.get("began")
    return float(began) if began else Path(summary.directory).stat().st_mtime


def _counted(names: Sequence[str]) -> str:
    """Return the first names, after their number where that says more."""
    few = listed(names, NAMED)
    return f"{len(names)}: {few}" if len(names) > NAMED else few


def _outcome(summary: Summary) -> str:
    """Return the gate's decision, and what went wrong."""
    gate = summary.gate or {}
    if not ended(Path(summary.directory)):
        return "unfinished"
    wrong = [count(len(summary.faults), "fault")] if summary.faults else []
    wrong += [f"{len(summary.failed_to_load)} failed to load"] if summary.failed_to_load else []
    return ", ".join([*([f"gate {gate['decision']}"] if gate.get("mode") else []), *wrong])


def _table(summaries: Sequence[Summary]) -> str:
    """Return a table of the runs, by the time at which they began."""
    from rich.text import Text

    from pytest_touchstone.reports.formatting import console_of, open_table, written

    width, color = terminal()
    console = console_of(width, color=color)
    table = open_table()
    for title, fixed in {"run": 1, "began": 1, "checkpoints": 0, "benchmarks": 0, "items": 1, "": 0}.items():
        justify: Any = "right" if title == "items" else "left"
        table.add_column(title, no_wrap=bool(fixed), overflow="fold", justify=justify)
    for one in sorted(summaries, key=_began):
        row = _row(one)
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(_began(one)))
        items = f"{row['items']:,}" + f"/{row['of']:,}" * (row["of"] > row["items"])
        names = [_counted(row[key]) for key in ("checkpoints", "benchmarks")]
        table.add_row(*map(Text, (row["run"], when, *names, items, _outcome(one))))
    console.print(table)
    return written(console)
