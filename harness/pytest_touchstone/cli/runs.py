"""``touchstone runs``: the runs of a results folder."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.cli.command import Output, add_output, terminal
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.text import count, one_line
from pytest_touchstone.reports.gate import standing
from pytest_touchstone.results import run_of
from pytest_touchstone.results.aggregate import COLLECTED, ended, summary_so_far
from pytest_touchstone.results.run_directory import files_of_runs, goes_on
from pytest_touchstone.results.summary import SUMMARY, Summary, totals, wholes

ITEMS: Final = 4
CUT: Final = (2, 3, 5)
"""The columns of ``touchstone runs`` with numbers, and those that are cut where a line would be too long."""

SHORTEST: Final = 8

add_arguments = add_output


def run(options: argparse.Namespace) -> Output:
    """Print a row per run, the newest last; one that cannot be read has a line on standard error."""
    paths = [path for file in (SUMMARY, COLLECTED) for path in files_of_runs(options.output, file)]
    found = []
    for folder in sorted(set(map(run_of, paths))):
        try:
            found.append(summary_so_far(folder))
        except HarnessError as error:
            print(f"touchstone: {one_line(str(error))}", file=sys.stderr)
    nothing = f"no runs in {options.output}/\n"
    return Output([_row(one) for one in found], lambda: _table(found) if found else nothing)


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
    """Return the first name, and how many others there are."""
    return " ".join([*names[:1], *([f"+{len(names) - 1}"] if len(names) > 1 else [])])


def _state(summary: Summary) -> str:
    """Return whether a run goes on or was stopped, else the gate's decision, and what went wrong."""
    gate, folder = summary.gate or {}, Path(summary.directory)
    if summary.stopped or not ended(folder):
        return "stopped" if ended(folder) or not goes_on(folder, time.time()) else "running"
    wrong = [count(len(summary.faults), "fault")] if summary.faults else []
    wrong += [f"{len(summary.failed_to_load)} failed to load"] if summary.failed_to_load else []
    told = {"first": "first, no baseline", "unsure": "gate passed, unsure"}
    decision = standing(gate) if gate.get("mode") else ""
    return ", ".join([*([told.get(decision, f"gate {decision}")] if decision else []), *wrong])


def _table(summaries: Sequence[Summary]) -> str:
    """Return a line per run, by the time at which they began; names are cut where lines would be too long."""
    from rich.cells import cell_len

    width, _ = terminal()
    rows = [("run", "began", "checkpoints", "benchmarks", "items", "")]
    for one in sorted(summaries, key=_began):
        row, sums, state = _row(one), totals(one), _state(one)
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(_began(one)))
        items = f"{row['items']:,}" + f"/{row['of']:,}" * (row["of"] > row["items"])
        if state in ("running", "stopped"):
            items = f"{sums['scored']:,}/{sums['collected']:,}"
        names = [_counted(row[key]) for key in ("checkpoints", "benchmarks")]
        rows.append((row["run"], when, *names, items, state))
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) + len(widths) - 1 > width and (most := max(widths[one] for one in CUT)) > SHORTEST:
        widths[next(one for one in CUT if widths[one] == most)] -= 1
    return "".join(f"{' '.join(map(_cell, row, widths, range(len(row)))).rstrip()}\n" for row in rows)


def _cell(text: str, width: int, column: int) -> str:
    """Return a text in that many columns of the terminal, numbers at the right."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > width:
        begin, end = (width - 2) // 2, len(text) - (width - 1) // 2  # names of a series differ at their ends
        return set_cell_size(f"{text[:begin]}..{text[end:]}", width)
    return text.rjust(width) if column == ITEMS else set_cell_size(text, width)
