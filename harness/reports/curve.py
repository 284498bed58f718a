"""Many checkpoints on one benchmark: a row each, in order of series and step, and a column a metric.

The primary metric comes first, with its interval; where the others do not fit beside it they follow in further tables.
``!`` before a checkpoint: its result is not valid. Between series there is an empty row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.reports import wording
from harness.results import Result

if TYPE_CHECKING:
    from rich.table import Table

FROM: Final = 4
"""So many checkpoints are many."""


class Column(NamedTuple):
    """A heading and what stands below it, a cell a checkpoint."""

    heading: str
    cells: list[str]

    @property
    def width(self) -> int:
        """Characters that it needs, with a space after it."""
        return max(len(cell) for cell in (self.heading, *self.cells)) + 1


def tables(results: Sequence[Result], series: Mapping[str, str | None], width: int) -> list[Table]:
    """The tables of a benchmark's results, one a checkpoint, at most ``width`` wide; ``series`` tells that of a
    checkpoint."""
    names = Column(
        "  checkpoint", [f"{'!' if one.invalid else ' '} {wording.who(one, results)}" for one in results]
    )
    primary = results[0].primary
    metrics = list(dict.fromkeys(metric.name for one in results for metric in wording.shown_metrics(one)))
    first = [_values(primary, results, "* "), Column("95 % interval", [_interval(one) for one in results])]
    alike = bool(wording.common_mark(results))
    counts = [
        Column("n", [str(one.scored) if alike else wording.counted(one, one.scored) for one in results])
    ]
    for heading in ("faults", "skipped"):
        cells = [getattr(one, heading) for one in results]
        if any(cells):
            counts.append(
                Column({"faults": "err", "skipped": "skip"}[heading], [str(cell) for cell in cells])
            )
    others = [_values(name, results) for name in metrics if name != primary]
    gaps = _gaps([series.get(one.checkpoint) for one in results])
    found = []
    block = [*first, *counts]
    for column in others:
        if names.width + sum(one.width for one in block) + column.width > width and block:
            found.append(_table([names, *block], gaps))
            block = []
        block.append(column)
    return [*found, _table([names, *block], gaps)]


def _values(name: str, results: Sequence[Result], mark: str = "") -> Column:
    cells = [wording.number(one.metrics[name].value) if name in one.metrics else "" for one in results]
    return Column(f"{mark}{name}", cells)


def _interval(result: Result) -> str:
    metric = result.metrics.get(result.primary)
    return wording.NOTHING if metric is None else wording.interval(metric.low, metric.high)


def _gaps(series: Sequence[str | None]) -> set[int]:
    """The rows after which another series begins."""
    return {number for number in range(len(series) - 1) if series[number] != series[number + 1]}


def _table(columns: Sequence[Column], gaps: set[int]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for number, column in enumerate(columns):
        table.add_column(
            column.heading, justify="right" if number else "left", no_wrap=bool(number), overflow="fold"
        )
    for row, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        primary = {number for number, one in enumerate(columns) if one.heading.startswith("* ")}
        table.add_row(
            *(Text(cell, style="bold" if number in primary else "") for number, cell in enumerate(cells))
        )
        if row in gaps:
            table.add_row()
    return table
