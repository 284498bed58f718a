"""The report that pytest shows at the end of a run, and ``touchstone report`` later, made to fit a screen.

It begins with the results: ``by_benchmark``, or ``by_checkpoint`` where that does not fit. Below them are changes, the
gate's verdicts, the legend, and one line per kind of note. It ends with what is not valid, where the results are, the
next command, and the gate's decision. Details have all metrics, groups and notes. ASCII only, apart from names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.compare.formats import korean_mlm
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.reports import brief, by_benchmark, by_checkpoint, formatting, next_steps, notes
from pytest_touchstone.reports.brief import Line
from pytest_touchstone.reports.formatting import command_lines, console_of, labelled, open_table, written
from pytest_touchstone.reports.gate import print_decision, print_verdicts
from pytest_touchstone.results.summary import Summary, wholes

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

NARROWEST: Final = 60
"""Columns that a report needs; in narrower terminals its lines wrap."""

ON_A_SCREEN: Final = 32
"""Lines of tables with a row per benchmark and checkpoint; for more there is a row per checkpoint."""

MOST: Final = 6
"""Of more checkpoints each has a row, whether or not more would fit; with a single benchmark also of fewer."""

MOST_ALIKE: Final = 2
"""The same, of checkpoints that have the same benchmarks."""

UNFOLDED: Final = 24
"""A checkpoint's or benchmark's name of so many characters stands on one line, and metrics fold instead."""

LABEL: Final = 10
"""Characters of the labels below the tables."""

ABOUT: Final = 3
"""Spaces between a command and what it does."""

Write = Callable[..., None]


def render(summary: Summary, width: int, color: bool, *, details: bool = False, decision: bool = True) -> str:
    """Return the whole report as text of at most ``width`` columns, with ANSI colours if wanted; a gate's decision is
    one line, however long. Without ``decision`` that line is left to the caller."""
    width = max(width, NARROWEST)
    console = console_of(width, color=color)
    write: Write = console.print
    _demonstration(summary, write, width)
    names = formatting.checkpoints(summary)
    most = MOST_ALIKE if by_checkpoint.alike(summary) else MOST
    many = len(names) > most or (len(names) > 1 and by_benchmark.row_count(summary) > ON_A_SCREEN)
    many = many and (details or not by_benchmark.has_one_benchmark(summary))
    (_many if many else _few)(summary, write, width, details)
    _changes(summary, write, details)
    if summary.gate is not None:
        print_verdicts(summary.gate, write, details=details)
        write()
    _lines(_below(summary, many, details), write)
    _ending(summary, write, width, details)
    if summary.gate is not None and decision:
        print_decision(summary.gate, write)
    return written(console)


def _demonstration(summary: Summary, write: Write, width: int) -> None:
    """Print what a run without ``--checkpoint`` is, and how to ask everything."""
    if told := summary.manifest.get("demonstration"):
        _lines([Line("touchstone", told["what"])], write)
        _command("all rows", told["all"], "", write, width)
        write()


# Results


def _few(summary: Summary, write: Write, width: int, details: bool) -> None:
    for name, what, table in by_benchmark.tables(summary, width, details=details):
        write(_heading(name, what))
        write(table)
        write()


def _many(summary: Summary, write: Write, width: int, details: bool) -> None:
    for table in by_checkpoint.tables(summary, width):
        write(table)
        write()
    if not details:
        return
    for name in dict.fromkeys(one.benchmark for one in wholes(summary)):
        same = [one for one in wholes(summary) if one.benchmark == name]
        write(_heading(name, formatting.asked_alike(same)))
        for table in by_checkpoint.details(summary, name, width):
            write(table)
            write()


def _heading(name: str, what: str) -> Text:
    from rich.text import Text

    return Text.assemble((name, "bold"), (f"  {what}" if what else "", "dim"))


# Below the tables


def _changes(summary: Summary, write: Write, details: bool) -> None:
    """Print what has changed against the best so far."""
    from rich.text import Text

    if not summary.changes:
        return
    rows, note = formatting.brief_changes(summary)
    if details:
        rows, note = formatting.shown_changes(summary), formatting.changes_left_out(summary)
    if rows:
        write(_change_table(rows, several=len({row["checkpoint"] for row in summary.changes}) > 1))
    else:
        _lines([Line("changes", "no primary metric has changed against the best so far")], write)
    for text in formatting.best_runs(rows):
        write(Text(text, style="dim"))
    if rows and note:
        write(Text(note, style="dim"))
    write()


def _change_table(rows: Sequence[Mapping[str, Any]], *, several: bool) -> Table:
    """Return a table of each metric's value before and now, the change, and the checkpoint that it is against."""
    from rich.text import Text

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
        alone = "" if row["metric"] == COMPOSITE else str(row["metric"])
        metric = formatting.change_label(row) if several else alone
        best, now, change = formatting.change_cells(row)
        whose = formatting.best_so_far(row, of=same == 1)
        moved = change.removesuffix(" points") if points else change
        table.add_row(*map(Text, ("" if name == before else name, metric, best, now, moved, whose)))
        before = name
    return table


def _below(summary: Summary, many: bool, details: bool) -> Iterator[Line]:
    if text := brief.legend(summary, many=many):
        yield Line("legend", text, "dim")
    yield from _detailed(summary) if details else brief.lines(summary)


def _detailed(summary: Summary) -> Iterator[Line]:
    """Yield every fact, a line each."""
    texts = {
        "data": _data(summary),
        "composite": _formulas(summary),
        "best": _best(summary),
        "items": [notes.items(summary)],
        "metrics": notes.directions(summary),
        "reused": notes.reused(summary),
        "outputs": notes.generated(summary),
        "programs": notes.programs(summary),
        "usage": notes.usage(summary),
        "undefined": notes.reasons(summary),
        "note": notes.warnings(summary),
        "limit": notes.short_of_limit(summary),
        "left out": notes.left_out(summary),
    }
    for label, found in texts.items():
        yield from (Line(label, text, "magenta" if label == "note" else "") for text in found)
    yield from brief.loud(summary)


def _data(summary: Summary) -> list[str]:
    """Return the dataset of each benchmark, and the marks of its values."""
    found = []
    for name in dict.fromkeys(one.benchmark for one in wholes(summary)):
        same = [one for one in wholes(summary) if one.benchmark == name]
        marks = dict.fromkeys(one.mark for one in same if one.mark)
        found.append(f"{name}: {'; '.join([*marks, formatting.dataset_line(same[0].dataset)])}")
    return found


def _formulas(summary: Summary) -> list[str]:
    formulas = {one["name"]: one["formula"] for one in summary.composites if one.get("formula")}
    marks = {
        name: {one.get("mark"): 1 for one in summary.composites if one["name"] == name} for name in formulas
    }
    return [
        "; ".join(filter(None, (f"{name} = {formula}", *marks[name]))) for name, formula in formulas.items()
    ]


def _best(summary: Summary) -> list[str]:
    """The best checkpoint by each of the Korean scores, when there are several to choose from."""
    found = korean_mlm.best(korean_mlm.rows(summary))
    return [
        f"{key}: {top['checkpoint']} of {top['of']}, {formatting.number(top['value'])}, "
        f"standard error {formatting.number(top['stderr'])}"
        for key, top in found.items()
        if top["of"] > 1
    ]


def _ending(summary: Summary, write: Write, width: int, details: bool) -> None:
    """Print where the results lie, and the next commands, in a form that can be pasted."""
    _lines([Line("saved", next_steps.saved(summary))], write)
    steps = [("more", next_steps.again(summary, details=details))]
    steps += [("next", step) for step in next_steps.steps(summary)]
    for label, step in steps:
        _command(label, step.command, step.what, write, width)


def _command(label: str, command: str, what: str, write: Write, width: int) -> None:
    """Print a command and what it does; one that is longer than a line goes on below, as a shell takes it."""
    from rich.text import Text

    style = "bold" if label == "next" else ""
    *before, last = command_lines(command, width - LABEL - 2)
    for number, line in enumerate([*before, last]):
        start = (f"{'' if number else label:{LABEL}}  ", "dim")
        about = f"{'':{ABOUT}}{what}" if what and not before else ""
        alone = len(line) + LABEL + 2 + len(about) > width
        write(Text.assemble(start, (line, style), ("" if alone else about, "dim")), soft_wrap=True)
        if number == len(before) and what and (alone or before):
            write(Text(f"{'':{LABEL + 2 + ABOUT}}{what}", style="dim"))


def _lines(lines: Iterator[Line] | list[Line], write: Write) -> None:
    """Print lines with their labels; of a label that comes again, only the first."""
    from rich.text import Text

    rows: list[tuple[str, Text]] = []
    before = ""
    for label, text, style in lines:
        rows.append((f"{'' if label == before else label:{LABEL}}", Text(text, style=style)))
        before = label
    write(labelled(rows))
