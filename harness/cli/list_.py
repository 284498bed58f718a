"""``touchstone list``: the runs of a results folder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.cli.command import Output, add_output
from harness.results.summary import SUMMARY, Result, load_summary, wholes

add_arguments = add_output


def run(options: argparse.Namespace) -> Output:
    """A row per run that ended."""
    rows = [_row(path.parent) for path in sorted(options.output.glob(f"*/{SUMMARY}"))]
    return Output(rows, "\n".join(map(_line, rows)) or f"no runs in {options.output}/")


def _row(folder: Path) -> dict[str, Any]:
    summary = load_summary(folder)
    names = sorted({result.benchmark for result in summary.results})
    whole = wholes(summary)
    return {
        "run": summary.run_id,
        "checkpoints": [str(one["name"]) for one in summary.checkpoints],
        "benchmarks": names,
        "items": sum(result.collected for result in whole),
        "of": sum(max(result.of, result.collected) for result in whole),
        "marks": {name: marks for name in names if (marks := _marks(whole, name))},
        "faults": len(summary.faults),
    }


def _line(row: dict[str, Any]) -> str:
    faults = f", {row['faults']} faults" if row["faults"] else ""
    what = f"{', '.join(row['checkpoints'])}: {', '.join(row['benchmarks'])}"
    of = f" of {row['of']}" if row["of"] > row["items"] else ""
    return f"{row['run']}  {what} ({row['items']}{of} items{faults})"


def _marks(results: Sequence[Result], benchmark: str) -> list[str]:
    """The marks of a benchmark's results, each once."""
    return list(dict.fromkeys(one.mark for one in results if one.benchmark == benchmark and one.mark))
