"""What a run has changed against the best so far: a table, and notes on whose the best values are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pytest_touchstone.core.aggregation import is_soft
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.text import listed
from pytest_touchstone.document import Part, Section, Table
from pytest_touchstone.document.formatting import number
from pytest_touchstone.results.summary import Summary
from pytest_touchstone.statistics.comparison import POINTS, unit_of

MOST_CHANGES: Final = 3
"""With more checkpoints than this, only the largest change of each metric is shown: the files have all of them."""

BRIEF_CHANGES: Final = 5
"""Changes in a report that fits a screen."""


def changes_section(summary: Summary, *, brief: bool = False) -> Section | None:
    """Return the changes that a report has room for, None where there are none.

    Of one checkpoint they are those of all metrics but soft scores, of several those of primary metrics and composites.
    A brief report has the largest of primary metrics.
    """
    if not summary.changes:
        return None
    several = len({row["checkpoint"] for row in summary.changes})
    rows = _shown(summary, several)
    notes = [f"of each the largest of {several} checkpoints; all are in summary.json"] * (
        several > MOST_CHANGES
    )
    if brief:
        rows, note = _largest(summary, rows, several)
        notes = [note, *notes] if note else notes
    parts: list[Part] = [_table(rows, several=several > 1), *best_runs(rows), *notes]
    if not rows:
        parts = ["no primary metric has changed against the best so far"]
    return Section(key="changes", title="Change against the best so far", parts=tuple(parts))


def _shown(summary: Summary, checkpoints: int) -> list[dict[str, Any]]:
    if checkpoints <= 1:
        return [row for row in summary.changes if not is_soft(row["metric"])]
    rows = _of_primary_metrics(summary)
    if checkpoints <= MOST_CHANGES:
        return rows
    largest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: float(row["change"])):
        largest[row["benchmark"], row["metric"]] = row
    return [row for row in rows if row is largest[row["benchmark"], row["metric"]]]


def _largest(
    summary: Summary, rows: Sequence[dict[str, Any]], checkpoints: int
) -> tuple[list[dict[str, Any]], str]:
    """Return the largest changes, and a note on the others; of one checkpoint also those of primary metrics at other
    numbers (``real@5``)."""
    decisive = _of_primary_metrics(summary, family=checkpoints == 1)
    rows = [row for row in rows if row in decisive]
    moved = [row for row in rows if round(row["change"], 2)]
    largest = sorted(moved, key=lambda row: -abs(float(row["change"])))[:BRIEF_CHANGES]
    parts = [f"{len(moved) - len(largest)} with smaller changes"] if len(largest) < len(moved) else []
    parts += [f"{len(rows) - len(moved)} as the best so far"] if len(moved) < len(rows) else []
    return [row for row in moved if row in largest], f"besides: {', '.join(parts)} (-v)" if parts else ""


def _of_primary_metrics(summary: Summary, *, family: bool = False) -> list[dict[str, Any]]:
    """Return the changes of primary metrics and composites, with ``family`` of ``real@5`` beside ``real@1`` too."""
    primary = {result.benchmark: result.primary for result in summary.results}
    return [
        row
        for row in summary.changes
        if row["metric"] in (COMPOSITE, name := primary.get(row["benchmark"], ""))
        or (family and _is_of_family(row["metric"], name))
    ]


def _is_of_family(metric: str, primary: str) -> bool:
    """Return whether a metric is the primary one at another number: ``real@5`` beside ``real@1``."""
    stem, at, number = metric.partition("@")
    return number.isdecimal() and primary.startswith(f"{stem}{at}")


def _table(rows: Sequence[Mapping[str, Any]], *, several: bool) -> Table:
    in_points = all(row["unit"] == POINTS.name for row in rows)
    best_of = {row["of"] for row in rows}
    same = best_of.pop() if len(best_of) == 1 else 1
    cells = []
    before = ""
    for row in rows:
        name = row["checkpoint"] if several else row["benchmark"]
        metric = "" if row["metric"] == COMPOSITE else str(row.get("label") or row["metric"])
        if several:
            metric = f"{row['benchmark']} {metric}".rstrip()
        change = change_text(row).removesuffix(" points") if in_points else change_text(row)
        against = best_so_far(row, of=same == 1)
        values = (number(row["best"]), number(row["value"]), change, _per_cent(row))
        cells.append(("" if name == before else name, metric, *values, against))
        before = name
    return Table(
        header=(
            "checkpoint" if several else "benchmark",
            "metric",
            "best\nso far",
            "now",
            "points" if in_points else "change",
            "%",
            f"against the\nbest of {same}" if same > 1 else "against",
        ),
        rows=tuple(cells),
        left=2,
        words=True,
    )


def change_text(row: Mapping[str, Any]) -> str:
    """Return a change with its unit: ``-1.20 points``."""
    unit = unit_of(row["unit"], share=row["unit"] == POINTS.name)
    return unit.told(row["change"] / unit.factor)


def _per_cent(row: Mapping[str, Any]) -> str:
    """Return the change in per cent of the value before, ``+2.0``; nothing where that is none."""
    before = row["best"]
    if not before or before < 0:
        return ""
    return f"{round(100 * (row['value'] - before) / before, 1) or 0.0:+.1f}"  # no -0.0


def best_so_far(row: Mapping[str, Any], *, of: bool = True) -> str:
    """Return the checkpoint that the best value belongs to, with its run if it has the same name.

    With ``of`` it also says how many it is the best of.
    """
    again = f" of run {row['run_id']}" if row["against"] == row["checkpoint"] else ""
    return f"{row['against']}{again}" + (f" (best of {row['of']})" if of and row["of"] > 1 else "")


def best_runs(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return notes on whose the best values of other checkpoints are: their runs, and other models by their kind."""
    runs: dict[str, None] = {}
    models: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        if row["against"] != row["checkpoint"]:
            runs[f"{row['against']} of run {row['run_id']}"] = None
        if what := row.get("other_model"):  # rows of former versions do not say
            models.setdefault((row["against"], what), {})[row["checkpoint"]] = None
    found = [f"best so far: {listed(runs, 3)}"] if runs else []
    return found + [
        f"{against} is another model ({what}) than {listed(names, 3)}"
        for (against, what), names in models.items()
    ]
