"""Many checkpoints: one row each, in order of series and step, with a column per benchmark; what does not fit beside
each other follows in further blocks. Between series there is an empty row.

    *    the best of its column, where that can be told from every other one
    !    not valid, or items are missing
    c    asked through a chat template, unlike others of its column
    ~    over fewer items than others of its column

With details, each benchmark has a table of all its metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.reports import formatting
from pytest_touchstone.reports.formatting import cell_width, folded, open_table
from pytest_touchstone.results.summary import Result, Summary, wholes

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table

TOLD: Final = "told from each other one by a paired test on the same items, at 5 % corrected for the choice"

SIGNS: Final = {
    "*": f"best of its column, {TOLD} (without it: not told)",
    "!": "not valid, or items are missing",
    "c": "through a chat template, unlike others of its column",
    "~": "over fewer items than others of its column",
}
SPREAD: Final = "+-"
"""The label of the row below a table, with half the widest interval of each column."""

ITEMS: Final = "n/N"
"""The title of numbers of items."""

FOLDED: Final = 12
"""Names in headings fold from so many columns."""

STYLES: Final = {"*": "bold", "!": "red"}


class Cell(NamedTuple):
    """A value with its signs."""

    text: str
    signs: str = ""


class Column(NamedTuple):
    """A heading, in parts of one or more lines, the cells below it, and the foot."""

    heading: tuple[tuple[str, ...], ...]
    cells: Sequence[Cell]
    foot: str = ""

    @property
    def signs(self) -> int:
        """Characters that the signs take."""
        return max((len(cell.signs) for cell in self.cells), default=0)

    @property
    def width(self) -> int:
        """Characters that it needs, with a space after it."""
        lines = [line for part in self.heading for line in part]
        texts = [self.foot, *(cell.text for cell in self.cells)]
        return max(*map(cell_width, lines), *(cell_width(text) + self.signs for text in texts)) + 1


def alike(summary: Summary) -> bool:
    """Return whether all checkpoints have the same benchmarks."""
    found: dict[str, set[str]] = {name: set() for name in formatting.checkpoints(summary)}
    for one in wholes(summary):
        found.setdefault(one.checkpoint, set()).add(one.benchmark)
    return len({frozenset(one) for one in found.values()}) == 1


def tables(summary: Summary, width: int) -> Iterator[Table]:
    """Yield the tables of primary metrics and composites, block by block; each kind of checkpoint has its own."""
    kinds = {str(info.get("name")): info.get("kind") for info in summary.checkpoints}
    names = in_order(summary)
    for kind in dict.fromkeys(kinds.get(name) for name in names):
        same = [name for name in names if kinds.get(name) == kind]
        longest = max(map(cell_width, [f"checkpoint {ITEMS}", *same]))
        title = f"checkpoint{ITEMS:>{longest - len('checkpoint')}}"
        first = Column(((), (), (title,)), [Cell(name) for name in same], SPREAD)
        yield from _blocks(first, list(_columns(summary, same)), width, ends(summary, same))


def details(summary: Summary, benchmark: str, width: int) -> Iterator[Table]:
    """Yield the tables of all metrics of a benchmark, the primary one first with its interval and its items."""
    same = [one for one in wholes(summary) if one.benchmark == benchmark]
    primary = same[0].primary
    names = dict.fromkeys(metric for one in same for metric in one.metrics)
    first = Column((("checkpoint",),), [Cell(formatting.who(one, same)) for one in same])
    columns = [_metric(same, primary), _interval(same, primary)]
    own = benchmark in formatting.own_rows(summary)
    columns.append(Column(((ITEMS,),), [Cell(formatting.of_all(one, own=own)) for one in same]))
    for heading, field in (("err", "faults"), ("skip", "skipped")):
        counts = [getattr(one, field) for one in same]
        columns += [Column(((heading,),), [Cell(str(one)) for one in counts])] if any(counts) else []
    columns += [_metric(same, name) for name in names if name != primary]
    yield from _blocks(first, columns, width, ends(summary, [one.checkpoint for one in same]))


def occurring(summary: Summary) -> list[str]:
    """Return the signs that occur in ``tables``, in the order of the legend."""
    names = in_order(summary)
    found = {sign for column in _columns(summary, names) for cell in column.cells for sign in cell.signs}
    return [sign for sign in SIGNS if sign in found]


def in_order(summary: Summary) -> list[str]:
    """Return the checkpoints that have results, as they were given: by series and step."""
    known = formatting.checkpoints(summary)
    listed = [str(info.get("name")) for info in summary.checkpoints]
    return [*(name for name in listed if name in known), *(name for name in known if name not in listed)]


def ends(summary: Summary, names: Sequence[str]) -> list[bool]:
    """Return for each checkpoint whether a series ends with it and another follows."""
    series = {str(info.get("name")): info.get("series") for info in summary.checkpoints}
    return [*(series.get(one) != series.get(after) for one, after in pairwise(names)), False]


# Columns


def _columns(summary: Summary, names: Sequence[str]) -> Iterator[Column]:
    best = {(one["benchmark"], one["checkpoint"]) for one in summary.leaders}
    own = formatting.own_rows(summary)
    for benchmark in dict.fromkeys(one.benchmark for one in wholes(summary) if one.checkpoint in names):
        same = {one.checkpoint: one for one in wholes(summary) if one.benchmark == benchmark}
        mine = [one for one in same.values() if one.checkpoint in names]
        cells = [
            _cell(same[name], mine, best=(benchmark, name) in best) if name in same else Cell("")
            for name in names
        ]
        title = f"{benchmark} {formatting.asked_alike(mine)}".rstrip()
        most = max(mine, key=lambda one: one.scored)
        items = formatting.of_all(most, own=benchmark in own)
        heading = (_folded(title), _folded(most.primary), (items,))
        metrics = [one.metrics[one.primary] for one in mine]
        yield Column(heading, cells, _spread([(one.low, one.high) for one in metrics]))
    for name in dict.fromkeys(one["name"] for one in summary.composites if one["checkpoint"] in names):
        values = {one["checkpoint"]: one for one in summary.composites if one["name"] == name}
        yield _composite(name, [values.get(who) for who in names], [(name, who) in best for who in names])


def _cell(result: Result, among: Sequence[Result], *, best: bool) -> Cell:
    signs = "*" * best + "!" * bool(result.invalid or result.faults)
    alike = bool(formatting.asked_alike(among)) or not any(map(formatting.asked, among))
    signs += "c" * (not alike and result.template in ("chat", "mixed"))
    signs += "~" * (not result.faults and result.scored < max(one.scored for one in among))
    return Cell(formatting.number(result.metrics[result.primary].value), signs)


def _composite(name: str, values: Sequence[Mapping[str, Any] | None], best: Sequence[bool]) -> Column:
    cells = [
        Cell(formatting.number(one["value"]), "*" * lead) if one else Cell("")
        for one, lead in zip(values, best, strict=True)
    ]
    known = [one for one in values if one]
    spread = _spread([(one["low"], one["high"]) for one in known])
    return Column((_folded(name), (COMPOSITE,), (formatting.of_parts(known[0]),)), cells, spread)


def _metric(results: Sequence[Result], name: str) -> Column:
    cells = [
        Cell(
            formatting.number(one.metrics[name].value) if name in one.metrics else "", "!" * bool(one.invalid)
        )
        for one in results
    ]
    return Column((_folded(name),), cells)


def _interval(results: Sequence[Result], name: str) -> Column:
    known = [one.metrics[name] for one in results]
    cells = [Cell(formatting.interval(one.low, one.high)) for one in known]
    return Column((("95 % interval",),), cells)


def _spread(limits: Sequence[tuple[float | None, float | None]]) -> str:
    """Return half of the widest interval."""
    widths = [high - low for low, high in limits if low is not None and high is not None]
    return formatting.number(max(widths) / 2) if widths else formatting.NOTHING


def _folded(name: str) -> tuple[str, ...]:
    return tuple(folded(name, FOLDED))


# Tables


def _blocks(first: Column, columns: Sequence[Column], width: int, ends: Sequence[bool]) -> Iterator[Table]:
    """Yield tables of as many columns beside the first one as fit; each has at least one."""
    block: list[Column] = []
    for column in columns:
        if block and first.width + sum(one.width for one in block) + column.width > width + 1:
            yield _table([first, *block], ends)
            block = []
        block.append(column)
    yield _table([first, *block], ends)


def _table(columns: Sequence[Column], ends: Sequence[bool]) -> Table:
    from rich.text import Text

    table = open_table()
    for number, (column, heading) in enumerate(zip(columns, _headings(columns), strict=True)):
        justify: JustifyMethod = "right" if number else "left"
        shifted = "\n".join(line + " " * column.signs for line in heading)
        table.add_column(shifted, justify=justify, no_wrap=bool(number), overflow="fold")
    for place, last in enumerate(ends):
        table.add_row(*(_text(column.cells[place], column.signs) for column in columns))
        if last:
            table.add_row()
    if any(column.foot for column in columns[1:]):
        table.add_row(*(Text(column.foot + " " * column.signs, style="dim") for column in columns))
    return table


def _text(cell: Cell, signs: int) -> Any:
    from rich.text import Text

    style = next((STYLES[sign] for sign in cell.signs if sign in STYLES), "")
    return Text(cell.text + cell.signs.ljust(signs), style=style)


def _headings(columns: Sequence[Column]) -> list[list[str]]:
    """Return the lines of each heading; what belongs together stands in one line."""
    tall = [max(map(len, parts)) for parts in zip(*(column.heading for column in columns), strict=True)]
    return [
        [
            line
            for part, lines in zip(column.heading, tall, strict=True)
            for line in (*[""] * (lines - len(part)), *part)
        ]
        for column in columns
    ]
