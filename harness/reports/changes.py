"""The change against the best so far: a short block below the tables, and a table in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from harness.reports import wording
from harness.results import Summary

MOST: Final = 3
"""Of more checkpoints than this the block has the composites and primary metrics of none: the files have them."""

HEAD: Final = ("", "best so far", "now", "change", "")


def print_changes(summary: Summary, write: Callable[..., None]) -> None:
    """Prints each metric's value before and now, the change and against which checkpoint; of several checkpoints the
    primary metrics and composites."""
    from rich.table import Table
    from rich.text import Text

    rows = shown(summary)
    if not rows:
        if summary.changes:
            write(Text("best so far: changes against it are in summary.json", style="dim"))
        return
    several = len({row["checkpoint"] for row in rows}) > 1
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, name in enumerate(HEAD):
        table.add_column(
            name, justify="right" if 0 < place < 4 else "left", no_wrap=0 < place < 4, overflow="fold"
        )
    for row in rows:
        whose = f"{row['checkpoint']} " if several else ""
        table.add_row(*(Text(cell) for cell in (f"{whose}{label(row)}", *cells(row))))
    write(table)
    write()


def shown(summary: Summary) -> list[dict[str, Any]]:
    """The rows of a short report."""
    checkpoints = {row["checkpoint"] for row in summary.changes}
    if len(checkpoints) > MOST:
        return []
    if len(checkpoints) == 1:
        return summary.changes
    primary = {(one.benchmark, one.primary) for one in summary.results}
    return [
        row
        for row in summary.changes
        if row["metric"] == "composite" or (row["benchmark"], row["metric"]) in primary
    ]


def label(row: dict[str, Any]) -> str:
    """Benchmark and metric; of a composite its name."""
    return str(row["benchmark"]) if row["metric"] == "composite" else f"{row['benchmark']} {row['metric']}"


def cells(row: dict[str, Any]) -> Sequence[str]:
    """The value before and now, the change, and against what."""
    moved = f"{row['change']:+.2f} points" if row["unit"] == "points" else f"{row['change']:+.4f}"
    against = f"against {row['against']}"
    return (
        wording.number(row["best"]),
        wording.number(row["value"]),
        moved,
        f"{against} (best of {row['of']})" if row["of"] > 1 else against,
    )
