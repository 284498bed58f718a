"""The change against the best so far: a short block below the tables of the terminal, and its words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from harness.reports import formatting
from harness.results.summary import Summary

MOST: Final = 3
"""Of more checkpoints than this only the largest change of each metric is shown: the files have all."""

UNFOLDED: Final = 24
"""A checkpoint's or benchmark's name of so many signs stands on one line, and metrics fold instead."""


def print_changes(summary: Summary, write: Callable[..., None]) -> None:
    """Prints each metric's value before and now, the change and against which checkpoint; of several checkpoints the
    primary metrics and composites."""
    from rich.table import Table
    from rich.text import Text

    rows = shown(summary)
    if not rows:
        return
    several = len(_checkpoints(summary)) > 1
    points = all(row["unit"] == "points" for row in rows)
    of = {row["of"] for row in rows}
    same = of.pop() if len(of) == 1 else 1
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    first = "checkpoint" if several else "benchmark"
    longest = max(len(str(row[first])) for row in rows)
    table.add_column(f"\n{first}", overflow="fold", min_width=min(longest, UNFOLDED))
    table.add_column("\nmetric", overflow="fold")
    for name in ("best\nso far", "\nnow", "\npoints" if points else "\nchange"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(f"against the\nbest of {same}" if same > 1 else "\nagainst", overflow="fold")
    before = ""
    for row in rows:
        name = str(row[first])
        metric = label(row) if several else "" if row["metric"] == "composite" else str(row["metric"])
        best, now, change, _ = cells(row)
        whose = against(row) if same > 1 else _of(row)
        moved = change.removesuffix(" points") if points else change
        table.add_row(*map(Text, ("" if name == before else name, metric, best, now, moved, whose)))
        before = name
    write(table)
    if note(summary):
        write(Text(note(summary), style="dim"))
    write()


def shown(summary: Summary) -> list[dict[str, Any]]:
    """The rows of a short report."""
    checkpoints = _checkpoints(summary)
    if len(checkpoints) <= 1:
        return summary.changes
    primary = {(one.benchmark, one.primary) for one in summary.results}
    rows = [
        row
        for row in summary.changes
        if row["metric"] == "composite" or (row["benchmark"], row["metric"]) in primary
    ]
    if len(checkpoints) <= MOST:
        return rows
    largest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: float(row["change"])):
        largest[row["benchmark"], row["metric"]] = row
    return [row for row in rows if row is largest[row["benchmark"], row["metric"]]]


def note(summary: Summary) -> str:
    """What a short report leaves out; empty where it has all checkpoints."""
    count = len(_checkpoints(summary))
    return f"of each the largest of {count} checkpoints; all are in summary.json" if count > MOST else ""


def _checkpoints(summary: Summary) -> set[str]:
    return {row["checkpoint"] for row in summary.changes}


def label(row: dict[str, Any]) -> str:
    """Benchmark and metric; of a composite its name."""
    return str(row["benchmark"]) if row["metric"] == "composite" else f"{row['benchmark']} {row['metric']}"


def cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    """The value before and now, the change, and against what."""
    points = row["unit"] == "points"
    digits = 2 if points else 4
    moved = f"{round(row['change'], digits) or 0.0:+.{digits}f}{' points' * points}"  # no -0.00
    return formatting.number(row["best"]), formatting.number(row["value"]), moved, f"against {_of(row)}"


def against(row: dict[str, Any]) -> str:
    """Whose value is the best so far; of a checkpoint with the very name, also which run's."""
    again = f" of run {row['run_id']}" if row["against"] == row["checkpoint"] else ""
    return f"{row['against']}{again}"


def _of(row: dict[str, Any]) -> str:
    return f"{against(row)} (best of {row['of']})" if row["of"] > 1 else against(row)
