"""The table that pytest shows at the end of a run, and ``touchstone report`` later.

- One checkpoint: one table, benchmark after benchmark, the groups of a benchmark above its whole.
- Several checkpoints: one table per benchmark, each metric with the checkpoints below each other.
- Many checkpoints: one row per checkpoint in order of series and step, one column per metric. The primary metric comes
  first, with its interval; others that do not fit beside it follow in further tables. Between series there is an
  empty row.

``*`` marks the primary metric, ``!`` a result that is not valid. Below: what was left out and why, and where the
results lie. ASCII only, apart from names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from harness.compare.formats import korean_mlm
from harness.reports import formatting, notes
from harness.reports.formatting import console_of, labelled, open_table, written
from harness.reports.gate import print_gate
from harness.results.summary import Metric, Result, Summary, wholes

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table


WIDE: Final = 132
"""The columns from which the dataset has a column; below, datasets are listed under the table."""

FAULTS_SHOWN: Final = 5
UNFOLDED: Final = 24
"""Up to this length, the name of a checkpoint or benchmark is on one line, and metrics fold instead."""

GROUPS_SHOWN: Final = 3
"""Groups are shown for up to this many checkpoints; the page and the files always have them."""


class Row(NamedTuple):
    """One line of a table: the cells, and whether it is the primary metric and has faults."""

    cells: tuple[str, ...]
    primary: bool = False
    faulty: bool = False


def render(summary: Summary, width: int, color: bool) -> str:
    """Return the whole report as text of at most ``width`` columns, with ANSI colours if wanted.

    A gate's decision is one line, however long.
    """
    console = console_of(max(width, 40), color=color)
    names = formatting.checkpoints(summary)
    if len(names) == 1:
        _one_checkpoint(summary, console.print, width)
    else:
        _several(summary, console.print, max(width, 40))
    _changes(summary, console.print)
    _notes(summary, console.print, width)
    print_gate(summary.gate, console.print)
    return written(console)


# One checkpoint


def _one_checkpoint(summary: Summary, write: Callable[..., None], width: int) -> None:
    [(name, what)] = formatting.checkpoints(summary).items()
    _heading(write, name, what)
    wide = width >= WIDE
    rows = [row for result in summary.results for row in _result_rows(result, wide)]
    rows += [row for one in summary.composites for row in _composite_rows(one, one["name"], wide)]
    write(_table("benchmark", rows, wide, metric_first=False))
    write()


def _result_rows(result: Result, wide: bool) -> list[Row]:
    label = result.benchmark if result.group is None else _group(result.group)
    if result.group is None and formatting.asked(result):
        label = f"{label} {formatting.asked(result)}"
    rows = []
    for index, metric in enumerate(formatting.shown_metrics(result)):
        data = formatting.dataset_line(result.dataset) if index == 0 and result.group is None else ""
        rows.append(_row(result, metric, label if index == 0 else "", index == 0, [data] if wide else []))
    return _marked(rows, result.mark) if result.group is None else rows


def _marked(rows: list[Row], mark: str) -> list[Row]:
    """Return the rows with the mark below the label of the first: a line for each of its parts."""
    lines = [f" {part}" for part in mark.split(", ")] if mark else []
    empty = Row(("",) * len(rows[0].cells))
    rows = rows + [empty] * (1 + len(lines) - len(rows))
    return [
        row._replace(cells=(lines[place - 1], *row.cells[1:])) if 0 < place <= len(lines) else row
        for place, row in enumerate(rows)
    ]


# Several checkpoints


def _several(summary: Summary, write: Callable[..., None], width: int) -> None:
    many = len(formatting.checkpoints(summary)) >= FROM
    series = {str(info.get("name")): info.get("series") for info in summary.checkpoints}
    for declared in dict.fromkeys(result.benchmark for result in wholes(summary)):
        results = [result for result in summary.results if result.benchmark == declared]
        whole = [result for result in results if result.group is None]
        mark = formatting.common_mark(whole)
        data = formatting.dataset_line(whole[0].dataset)
        name = f"{declared} {formatting.asked_alike(whole)}".rstrip()
        _heading(write, name, f"{mark}; {data}" if mark else data)
        if many:
            found = tables(whole, series, width)
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
    """Return the rows metric by metric, the checkpoints one below the other, groups first."""
    groups = dict.fromkeys(result.group for result in results if result.group is not None)
    checkpoints = dict.fromkeys(result.checkpoint for result in results)
    kept = [*groups, None] if len(checkpoints) <= GROUPS_SHOWN else [None]
    alike = bool(formatting.common_mark([one for one in results if one.group is None]))
    rows = []
    for group in kept:
        same = [result for result in results if result.group == group]
        for name in dict.fromkeys(
            metric.name for result in same for metric in formatting.shown_metrics(result)
        ):
            for index, result in enumerate(one for one in same if name in one.metrics):
                primary = name == result.primary
                label = formatting.who(result, same)
                row = _row(result, result.metrics[name], label, primary, [], plain=alike)
                label = row.cells[1] if group is None else _group(group)
                shown = label if index == 0 else ""
                rows.append(row._replace(cells=(shown, row.cells[0], *row.cells[2:])))
    return rows


# Rows and tables


def _row(
    result: Result, metric: Metric, label: str, counts: bool, more: Sequence[str], *, plain: bool = True
) -> Row:
    """Return one row; with ``plain``, a whole has its mark elsewhere, and its number of items stands alone."""
    primary = metric.name == result.primary
    return Row(
        (
            label,
            f"{'!' if result.invalid else '*' if primary else ' '} {metric.name}",
            formatting.number(metric.value),
            formatting.interval(metric.low, metric.high),
            str(metric.n) if plain and result.group is None else formatting.counted(result, metric.n),
            str(result.faults) if counts else "",
            str(result.skipped) if counts else "",
            *more,
        ),
        primary=primary and result.group is None,
        faulty=counts and result.faults > 0,
    )


def _composite_rows(composite: dict[str, Any], label: str, wide: bool) -> list[Row]:
    limits = formatting.interval(composite["low"], composite["high"])
    cells = (label, "* composite", formatting.number(composite["value"]), limits, "", "", "")
    return _marked([Row((*cells, "") if wide else cells, primary=True)], composite.get("mark", ""))


def _group(name: str) -> str:
    """Return a group's name, indented, with spaces where a narrow column may break it."""
    return f"  {name.replace('_', ' ')}"


def _table(first: str, rows: Sequence[Row], wide: bool, *, metric_first: bool) -> Table:
    from rich.text import Text

    table = open_table(2 if wide else 1)
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


def _changes(summary: Summary, write: Callable[..., None]) -> None:
    """Print each metric's value before and now, the change, and the checkpoint that it is measured against."""
    from rich.text import Text

    rows = formatting.shown_changes(summary)
    if not rows:
        return
    several = len({row["checkpoint"] for row in summary.changes}) > 1
    points = all(row["unit"] == "points" for row in rows)
    of = {row["of"] for row in rows}
    same = of.pop() if len(of) == 1 else 1
    table = open_table()
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
        alone = "" if row["metric"] == "composite" else str(row["metric"])
        metric = formatting.change_label(row) if several else alone
        best, now, change = formatting.change_cells(row)
        whose = formatting.best_so_far(row, of=same == 1)
        moved = change.removesuffix(" points") if points else change
        table.add_row(*map(Text, ("" if name == before else name, metric, best, now, moved, whose)))
        before = name
    write(table)
    if left_out := formatting.changes_left_out(summary):
        write(Text(left_out, style="dim"))
    write()


def _notes(summary: Summary, write: Callable[..., None], width: int) -> None:
    from rich.text import Text

    write(labelled((label, Text(text, style=style)) for label, text, style in _note_lines(summary, width)))


def _note_lines(summary: Summary, width: int) -> list[tuple[str, str, str]]:
    """Return label, text and style of each line."""
    single = len(formatting.checkpoints(summary)) == 1
    lines = []
    if single and width < WIDE:
        lines += [("data", formatting.dataset_line(info), "") for info in formatting.datasets(summary)]
    if single:
        lines += [(c["name"], f"= {c['formula']}", "") for c in summary.composites if c.get("formula")]
    many = len(formatting.checkpoints(summary)) > GROUPS_SHOWN
    if many and len(wholes(summary)) < len(summary.results):
        lines.append(("groups", "in report.html and the files", ""))
    lines += [("best", text, "") for text in _best(summary)]
    lines.append(("items", f"{notes.items(summary)}", "bold red" if summary.faults else ""))
    lines += [("metrics", text, "") for text in notes.directions(summary)]
    lines += [("reused", text, "") for text in notes.reused(summary)]
    lines += [("failed", text, "bold red") for text in notes.failed_to_load(summary)]
    faults = notes.faults(summary)
    lines += [(status, text, "red") for status, text in faults[:FAULTS_SHOWN]]
    if (rest := len(faults) - FAULTS_SHOWN) > 0:
        lines.append(("", f"and {rest} other messages, in errors.log", "red"))
    lines += [("outputs", text, "") for text in notes.generated(summary)]
    lines += [("programs", text, "") for text in notes.programs(summary)]
    lines += [("usage", text, "") for text in notes.usage(summary)]
    lines += [("note", text, "yellow") for text in notes.warnings(summary)]
    lines += [("undefined", text, "") for text in notes.reasons(summary)]
    lines += [("left out", text, "") for text in notes.left_out(summary)]
    place = formatting.place(summary)
    lines.append(("results", f"{place} (summary.json, report.html)", ""))
    lines.append(("again", f"touchstone report {place}", ""))
    return lines


def _best(summary: Summary) -> list[str]:
    """Return the best checkpoint by each of the Korean scores, when there are several to choose from."""
    found = korean_mlm.best(korean_mlm.rows(summary))
    return [
        f"{key}: {top['checkpoint']} of {top['of']}, {formatting.number(top['value'])}, "
        f"standard error {formatting.number(top['stderr'])}"
        for key, top in found.items()
        if top["of"] > 1
    ]


FROM: Final = 4
"""The number of checkpoints that counts as many."""


class Column(NamedTuple):
    """A heading and the cells below it, one per checkpoint."""

    heading: str
    cells: list[str]

    @property
    def width(self) -> int:
        """Return the characters that it needs, with a space after it."""
        return max(len(cell) for cell in (self.heading, *self.cells)) + 1


def tables(results: Sequence[Result], series: Mapping[str, str | None], width: int) -> list[Table]:
    """Return the tables of a benchmark's results, one row per checkpoint, at most ``width`` wide.

    ``series`` has each checkpoint's series.
    """
    names = Column(
        "  checkpoint", [f"{'!' if one.invalid else ' '} {formatting.who(one, results)}" for one in results]
    )
    primary = results[0].primary
    metrics = dict.fromkeys(metric.name for one in results for metric in formatting.shown_metrics(one))
    known = [one.metrics.get(primary) for one in results]
    limits = [formatting.interval(one.low, one.high) if one else formatting.NOTHING for one in known]
    alike = bool(formatting.common_mark(results))
    counts = [str(one.scored) if alike else formatting.counted(one, one.scored) for one in results]
    block = [_values(primary, results, "* "), Column("95 % interval", limits), Column("n", counts)]
    for heading, field in (("err", "faults"), ("skip", "skipped")):
        cells = [getattr(one, field) for one in results]
        block += [Column(heading, list(map(str, cells)))] if any(cells) else []
    last = [series.get(one.checkpoint) != series.get(after.checkpoint) for one, after in pairwise(results)]
    found = []
    for column in (_values(name, results) for name in metrics if name != primary):
        if block and names.width + sum(one.width for one in block) + column.width > width:
            found.append(_curve_table([names, *block], last))
            block = []
        block.append(column)
    return [*found, _curve_table([names, *block], last)]


def _values(name: str, results: Sequence[Result], mark: str = "") -> Column:
    cells = [formatting.number(one.metrics[name].value) if name in one.metrics else "" for one in results]
    return Column(f"{mark}{name}", cells)


def _curve_table(columns: Sequence[Column], last: Sequence[bool]) -> Table:
    """Return the columns as a table; ``last`` says of each row but the final one whether it ends a series."""
    from rich.text import Text

    table = open_table()
    for number, column in enumerate(columns):
        justify: JustifyMethod = "right" if number else "left"
        table.add_column(column.heading, justify=justify, no_wrap=bool(number), overflow="fold")
    styles = ["bold" if column.heading.startswith("* ") else "" for column in columns]
    for cells, ends in zip(
        zip(*(column.cells for column in columns), strict=True), (*last, False), strict=True
    ):
        table.add_row(*(Text(cell, style=style) for cell, style in zip(cells, styles, strict=True)))
        if ends:
            table.add_row()
    return table
