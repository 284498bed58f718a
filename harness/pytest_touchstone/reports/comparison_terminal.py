"""A comparison for terminals: one table per pair, with its lists and notes below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.compare.pair import PairComparison
from pytest_touchstone.reports import comparison
from pytest_touchstone.reports.comparison import Cells, Flip, Flips
from pytest_touchstone.reports.formatting import NOTHING, console_of, labelled, open_table, written

if TYPE_CHECKING:
    from rich.table import Table

WIDE: Final = 126
"""The columns from which each metric has one row; below, interval, number of items and flips are on a second row."""

NARROWEST: Final = 76
"""The columns that a table needs; in narrower terminals its lines wrap."""

_STYLES: Final = {"better": "green", "worse": "bold red"}


def render(pairs: Sequence[PairComparison], flips: Sequence[Flips] = (), *, width: int, color: bool) -> str:
    """Return all comparisons as text of at most ``width`` columns (of at least 76), with ANSI colours if wanted."""
    console = console_of(max(width, NARROWEST), color=color)
    for place, pair in enumerate(pairs):
        if place:
            console.print()
        _pair(pair, flips[place] if place < len(flips) else {}, console.print, max(width, NARROWEST))
    return written(console)


def _pair(pair: PairComparison, flips: Flips, write: Callable[..., None], width: int) -> None:
    from rich.text import Text

    names = [(label, one) for label, one in (("A", pair.baseline), ("B", pair.new))]
    for label, one in names:
        write(Text.assemble((f"{label}  ", "dim"), (one.name, "bold cyan"), f"  {comparison.about(one)}"))
    write()
    write(_table(pair, wide=width >= WIDE))
    write()
    write(_notes(pair))
    for name, found in flips.items():
        write()
        _flips(name, found, write, width)


def _table(pair: PairComparison, *, wide: bool) -> Table:
    table = open_table(2 if wide else 1)
    labels = _header(pair.lines[0].comparison.level, wide=wide)
    names = 2 if wide else 1
    for place, label in enumerate(labels):
        right = names <= place < len(labels) - 1
        # Names may be broken; a number in two pieces would be two numbers.
        kept = right or (wide and place == 1)
        table.add_column(label, justify="right" if right else "left", overflow="fold", no_wrap=kept)
    before = ""
    for line in pair.lines:
        one = comparison.cells(line)
        mark = " " if not line.primary else "*" if comparison.is_valid(pair, line) else "!"
        about = comparison.about_values(pair, line)
        beside, below = (f" ({about})", "") if wide else ("", f"\n({about})")
        shown = one._replace(
            benchmark=""
            if one.benchmark == before
            else _breakable(one.benchmark) + (beside if about else ""),
            metric=f"{mark} {one.metric}{below if about else ''}",
        )
        before = one.benchmark
        table.add_row(*_texts(shown, line.primary, wide=wide))
    for line in pair.composites:
        one = comparison.composite_cells(line)
        table.add_row(*_texts(one._replace(metric=f"* {one.metric}"), True, wide=wide))
    return table


def _breakable(name: str) -> str:
    """Return the name of a group with spaces, where a narrow column may break it."""
    whole, slash, group = name.partition("/")
    return f"{whole}{slash} {group.replace('_', ' ')}" if group else name


def _header(level: float, *, wide: bool) -> list[str]:
    one = comparison.header(level)
    if wide:
        return list(one._replace(metric="  metric"))
    return [
        "benchmark\n  metric",
        one.baseline,
        one.new,
        f"points (per cent)\n{one.interval}",
        "p\nn",
        "verdict\nflips",
    ]


def _columns(one: Cells, *, wide: bool) -> list[str]:
    """Return the cells of a row; a narrow one has two lines, and its names are one below the other."""
    if wide:
        return list(one)
    relative = "" if one.percent == NOTHING else f" ({one.percent})"
    return [
        f"{one.benchmark}\n{one.metric}" if one.benchmark else one.metric,
        one.baseline,
        one.new,
        f"{one.points}{relative}\n{one.interval}",
        f"{one.p}\n{one.n}",
        one.verdict if one.flips in ("", NOTHING) else f"{one.verdict}\n{one.flips}",
    ]


def _texts(one: Cells, primary: bool, *, wide: bool) -> list[Any]:
    from rich.text import Text

    cells = _columns(one, wide=wide)
    last, numbers = len(cells) - 1, 5 if wide else 3
    style = _STYLES.get(one.verdict, "")
    return [
        Text(cell, style=style if place == last else "bold" if primary and place < numbers else "")
        for place, cell in enumerate(cells)
    ]


def _notes(pair: PairComparison) -> Table:
    from rich.text import Text

    notes = (("note", Text(text, style="yellow")) for text in comparison.notes(pair))
    return labelled([*comparison.findings(pair), *notes])


def _flips(name: str, found: Sequence[Flip], write: Callable[..., None], width: int) -> None:
    from rich.text import Text

    write(Text.assemble((name, "bold cyan"), "  items gained and lost"))
    for flip in found:
        word, style = ("gained", "green") if flip.gained else ("lost", "red")
        write(Text.assemble((word, style), f"  {flip.example}"))
        for label, text, end in (
            ("question", flip.question, True),
            ("A", flip.baseline, False),
            ("B", flip.new, False),
            ("gold", flip.gold, False),
        ):
            if text is None and (label != "gold" or flip.question is None):  # nobody stored the answers
                continue
            room = (3 if label == "question" else 2) * (width - 12) - 1
            shown = comparison.clipped(text or NOTHING, room, end=end)
            write(labelled([(label, Text(shown))], width=10))
