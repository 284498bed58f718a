"""The table that pytest shows at the end of a run, and ``touchstone report`` later.

One checkpoint: one table, a benchmark after the other, the groups of a benchmark above its whole. Several
checkpoints: a table a benchmark, each metric with the checkpoints below each other; many checkpoints
(``harness.reports.curve``): a row each, a column a metric. ``*`` marks the primary metric, ``!`` every metric
of a result that is not valid. Below: what was left out and why, and where the results lie. ASCII only, apart
from names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from harness.reports import by_checkpoint, curve, wording
from harness.reports.changes import print_changes
from harness.reports.console import console_of, written
from harness.reports.gate import print_gate
from harness.results import Metric, Result, Summary, wholes

if TYPE_CHECKING:
    from rich.table import Table

WIDE: Final = 132
"""Columns from which the data pack has a column of its own; below, packs are listed under the table."""

FAULTS_SHOWN: Final = 5
GROUPS_SHOWN: Final = 3
"""Groups are shown for at most so many checkpoints; the page and the files always have them."""


class Row(NamedTuple):
    """One line of a table: the cells, and whether it is the primary metric and has faults."""

    cells: tuple[str, ...]
    primary: bool = False
    faulty: bool = False


def render(summary: Summary, width: int, color: bool) -> str:
    """The whole report as text of at most ``width`` columns, with ANSI colours if wanted; a gate's decision is one
    line, however long."""
    console = console_of(max(width, 40), color=color)
    names = wording.checkpoints(summary)
    if len(names) == 1:
        _one_checkpoint(summary, console.print, width)
    else:
        _several(summary, console.print, max(width, 40))
    print_changes(summary, console.print)
    _notes(summary, console.print, width)
    print_gate(summary.gate, console.print)
    return written(console)


# One checkpoint


def _one_checkpoint(summary: Summary, write: Callable[..., None], width: int) -> None:
    [(name, what)] = wording.checkpoints(summary).items()
    _heading(write, name, what)
    wide = width >= WIDE
    rows = [row for result in summary.results for row in _result_rows(result, wide)]
    rows += [row for one in summary.composites for row in _composite_rows(one, one["name"], wide)]
    write(_table("benchmark", rows, wide, metric_first=False))
    write()


def _result_rows(result: Result, wide: bool) -> list[Row]:
    label = result.benchmark if result.group is None else _group(result.group)
    if result.group is None and wording.asked(result):
        label = f"{label} {wording.asked(result)}"
    rows = []
    for index, metric in enumerate(wording.shown_metrics(result)):
        data = wording.pack(result.pack) if index == 0 and result.group is None else ""
        rows.append(_row(result, metric, label if index == 0 else "", index == 0, [data] if wide else []))
    return _marked(rows, result.mark) if result.group is None else rows


def _marked(rows: list[Row], mark: str) -> list[Row]:
    """The rows with the mark below the label of the first: a line for each of its parts."""
    lines = [f" {part}" for part in mark.split(", ")] if mark else []
    empty = Row(("",) * len(rows[0].cells))
    rows = rows + [empty] * (1 + len(lines) - len(rows))
    return [
        row._replace(cells=(lines[place - 1], *row.cells[1:])) if 0 < place <= len(lines) else row
        for place, row in enumerate(rows)
    ]


# Several checkpoints


def _several(summary: Summary, write: Callable[..., None], width: int) -> None:
    many = len(wording.checkpoints(summary)) >= curve.FROM
    series = {str(info.get("name")): info.get("series") for info in summary.checkpoints}
    for declared in dict.fromkeys(result.benchmark for result in wholes(summary)):
        results = [result for result in summary.results if result.benchmark == declared]
        whole = [result for result in results if result.group is None]
        mark = wording.common_mark(whole)
        data = wording.pack(whole[0].pack)
        name = f"{declared} {wording.asked_alike(whole)}".rstrip()
        _heading(write, name, f"{mark}; {data}" if mark else data)
        if many:
            found = curve.tables(whole, series, width)
            for number, table in enumerate(found):
                if number:
                    write()
                write(table)
        else:
            write(_table("checkpoint", _benchmark_rows(results), False, metric_first=True))
        write()
    for name in dict.fromkeys(composite["name"] for composite in summary.composites):
        same = [composite for composite in summary.composites if composite["name"] == name]
        _heading(write, name, same[0].get("formula", ""))
        rows = [row for one in same for row in _composite_rows(one, one["checkpoint"], False)]
        write(_table("checkpoint", rows, False, metric_first=False))
        write()


def _benchmark_rows(results: Sequence[Result]) -> list[Row]:
    """Metric by metric, the checkpoints below each other, groups first."""
    groups = dict.fromkeys(result.group for result in results if result.group is not None)
    checkpoints = dict.fromkeys(result.checkpoint for result in results)
    kept = [*groups, None] if len(checkpoints) <= GROUPS_SHOWN else [None]
    alike = bool(wording.common_mark([one for one in results if one.group is None]))
    rows = []
    for group in kept:
        same = [result for result in results if result.group == group]
        for name in dict.fromkeys(metric.name for result in same for metric in wording.shown_metrics(result)):
            for index, result in enumerate(one for one in same if name in one.metrics):
                primary = name == result.primary
                label = wording.who(result, same)
                row = _row(result, result.metrics[name], label, primary, [], plain=alike)
                label = row.cells[1] if group is None else _group(group)
                shown = label if index == 0 else ""
                rows.append(row._replace(cells=(shown, row.cells[0], *row.cells[2:])))
    return rows


# Rows and tables


def _row(
    result: Result, metric: Metric, label: str, counts: bool, more: Sequence[str], *, plain: bool = True
) -> Row:
    """``plain``: the mark of a whole stands elsewhere, and its number of items is nothing but that."""
    primary = metric.name == result.primary
    return Row(
        (
            label,
            f"{'!' if result.invalid else '*' if primary else ' '} {metric.name}",
            wording.number(metric.value),
            wording.interval(metric.low, metric.high),
            str(metric.n) if plain and result.group is None else wording.counted(result, metric.n),
            str(result.faults) if counts else "",
            str(result.skipped) if counts else "",
            *more,
        ),
        primary=primary and result.group is None,
        faulty=counts and result.faults > 0,
    )


def _composite_rows(composite: dict[str, Any], label: str, wide: bool) -> list[Row]:
    limits = wording.interval(composite["low"], composite["high"])
    cells = (label, "* composite", wording.number(composite["value"]), limits, "", "", "")
    return _marked([Row((*cells, "") if wide else cells, primary=True)], composite.get("mark", ""))


def _group(name: str) -> str:
    """A group's name, indented, with spaces where a narrow column may break it."""
    return f"  {name.replace('_', ' ')}"


def _table(first: str, rows: Sequence[Row], wide: bool, *, metric_first: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2 if wide else 1, 0, 0), header_style="dim")
    labels = ("  metric", first) if metric_first else (first, "  metric")
    for label in labels:
        table.add_column(label, overflow="fold", no_wrap=label == "  metric" and not metric_first)
    for label in ("value", "95 % interval", "n", "err", "skip"):
        table.add_column(label, justify="right", no_wrap=True)
    if wide:
        table.add_column("data")
    for row in rows:
        cells = [
            Text(cell, style="bold" if row.primary and index < 4 else "")
            for index, cell in enumerate(row.cells)
        ]
        if row.faulty:
            cells[5].stylize("bold red")
        table.add_row(*cells)
    return table


def _heading(write: Callable[..., None], name: str, what: str) -> None:
    from rich.text import Text

    write(Text.assemble((name, "bold cyan"), f"  {what}" if what else ""))


# Below the tables


def _notes(summary: Summary, write: Callable[..., None], width: int) -> None:
    from rich.table import Table
    from rich.text import Text

    notes = Table.grid(padding=(0, 2, 0, 0))
    notes.add_column(no_wrap=True, style="dim")
    notes.add_column(overflow="fold")
    for label, text, style in _note_lines(summary, width):
        notes.add_row(label, Text(text, style=style))
    write(notes)


def _note_lines(summary: Summary, width: int) -> list[tuple[str, str, str]]:
    """Label, text and style of each line."""
    single = len(wording.checkpoints(summary)) == 1
    lines = []
    if single and width < WIDE:
        lines += [("data", wording.pack(info), "") for info in wording.packs(summary)]
    if single:
        lines += [(c["name"], f"= {c['formula']}", "") for c in summary.composites if c.get("formula")]
    if (
        not single
        and len(wording.checkpoints(summary)) > GROUPS_SHOWN
        and len(wholes(summary)) < len(summary.results)
    ):
        lines.append(("groups", "in report.html and the files", ""))
    lines += [("best", text, "") for text in _best(summary)]
    lines.append(("items", f"{wording.items(summary)}", "bold red" if summary.faults else ""))
    lines += [("reused", text, "") for text in wording.reused(summary)]
    lines += [("broken", text, "bold red") for text in wording.broken(summary)]
    faults = wording.faults(summary)
    lines += [(status, text, "red") for status, text in faults[:FAULTS_SHOWN]]
    if (rest := len(faults) - FAULTS_SHOWN) > 0:
        lines.append(("", f"and {rest} other messages, in errors.log", "red"))
    lines += [("outputs", text, "") for text in wording.generated(summary)]
    lines += [("programs", text, "") for text in wording.programs(summary)]
    lines += [("effort", text, "") for text in wording.effort(summary)]
    lines += [("note", text, "yellow") for text in wording.warnings(summary)]
    lines += [("undefined", text, "") for text in wording.reasons(summary)]
    lines += [("left out", text, "") for text in wording.left_out(summary)]
    place = wording.place(summary)
    lines.append(("results", f"{place} (summary.json, report.html)", ""))
    lines.append(("again", f"touchstone report {place}", ""))
    return lines


def _best(summary: Summary) -> list[str]:
    """The best checkpoint by each of the Korean scores, when there are several to choose from."""
    found = by_checkpoint.best(by_checkpoint.rows(summary))
    return [
        f"{key}: {top['checkpoint']} of {top['of']}, {wording.number(top['value'])}, "
        f"standard error {wording.number(top['stderr'])}"
        for key, top in found.items()
        if top["of"] > 1
    ]
