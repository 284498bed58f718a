"""A dry run in words: what would be asked, how long that takes, what it costs, and where each setting comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.core.settings import DEFAULT
from pytest_touchstone.core.text import listed
from pytest_touchstone.reports.formatting import NOTHING, console_of, duration, labelled, open_table, written

if TYPE_CHECKING:
    from rich.table import Table


NAMED: Final = 3
"""Items that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunRow:
    """The questions of a benchmark to a checkpoint; None where that is not known before it is asked.

    Of the items ``looked_at`` those in ``too_long`` are longer than the tokens that the checkpoint ``takes``; their
    contexts are then ``cut``, or they are not asked.
    """

    checkpoint: str
    benchmark: str
    items: int
    shots: int
    requests: int | None = None
    prompt_tokens: int | None = None
    new_tokens: int | None = None
    cost: float | None = None
    exact: bool = False
    looked_at: int = 0
    too_long: Sequence[str] = ()
    takes: int = 0
    cut: bool = True


@dataclass(frozen=True, slots=True)
class DryRunTime:
    """The ``seconds`` of the run, from so many items that were ``asked``, and the most memory that they took."""

    seconds: float | None
    asked: int
    peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting: its option, its value, and where that is from."""

    flag: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class DryRun:
    """All of it; ``lacks`` says what served models cannot answer."""

    rows: Sequence[DryRunRow]
    time: DryRunTime | None
    left_out: Sequence[str]
    settings: Sequence[SettingRow]
    lacks: Sequence[str]


def render(plan: DryRun, *, width: int, color: bool) -> str:
    """Return it as text of at most ``width`` columns."""
    console = console_of(width, color=color)
    for name in dict.fromkeys(row.checkpoint for row in plan.rows):
        console.print(name, highlight=False)
        console.print(_table([row for row in plan.rows if row.checkpoint == name], width), highlight=False)
        console.print()
    console.print(labelled(list(_notes(plan))), highlight=False)
    console.print()
    console.print(_settings(plan.settings), highlight=False)
    return written(console)


def _table(rows: Sequence[DryRunRow], width: int) -> Table:
    table = open_table(1 if width < 100 else 2)
    table.add_column("  benchmark", overflow="fold")
    for head in ("items", "shots", "requests", "prompt tokens", "new tokens, at most"):
        table.add_column(head, justify="right")
    for row in rows:
        about = "" if row.exact else "~"
        counts = (row.requests, row.prompt_tokens, row.new_tokens)
        cells = (NOTHING if one is None else f"{about if one else ''}{one:,}" for one in counts)
        table.add_row(f"  {row.benchmark}", f"{row.items:,}", str(row.shots), *cells)
    if len(rows) > 1:
        sums = (
            sum(getattr(row, name) or 0 for row in rows)
            for name in ("requests", "prompt_tokens", "new_tokens")
        )
        table.add_row("  together", f"{sum(row.items for row in rows):,}", "", *(f"~{one:,}" for one in sums))
    return table


def _notes(plan: DryRun) -> Iterator[tuple[str, str]]:
    if not plan.rows:
        yield "asked", "nothing: no item is left"
    if (time := plan.time) is not None:
        if time.seconds is not None:
            said = f"about {duration(time.seconds)}, from {time.asked} items that were asked just now"
            yield "time", f"{said}, if nothing is taken from earlier runs"
        if time.peak_bytes is not None:
            yield "memory", f"{time.peak_bytes / 2**30:.1f} GiB for those items; larger batches take more"
    costs = [row.cost for row in plan.rows if row.cost is not None]
    if costs:
        yield "cost", f"at most {sum(costs):,.4g} by --eval-price"
    if any(row.requests is None for row in plan.rows):
        yield NOTHING, "not known before it is asked: only shipped benchmarks are started for their sizes"
    for number, line in enumerate(_too_long(plan.rows)):
        yield ("too long" if not number else ""), line
    for number, line in enumerate(plan.lacks):
        yield ("cannot" if not number else ""), line
    for number, line in enumerate(plan.left_out):
        yield ("left out" if not number else ""), line
    yield "scored", "nothing"


def _too_long(rows: Sequence[DryRunRow]) -> Iterator[str]:
    """Yield the benchmarks with items that are too long: how many, what becomes of them, and the first ones."""
    several = len({row.checkpoint for row in rows}) > 1
    for row in (row for row in rows if row.too_long):
        name = f"{row.checkpoint} {row.benchmark}" if several else row.benchmark
        of = f"{row.items:,}" if row.looked_at == row.items else f"the first {row.looked_at:,}"
        what = "contexts are cut on their left" if row.cut else "not asked: errors"
        yield (
            f"{name}: {len(row.too_long):,} of {of} items, for {row.takes:,} tokens ({what}): "
            f"{listed(row.too_long, NAMED)}"
        )


def _settings(rows: Sequence[SettingRow]) -> Table:
    """Return the settings that somebody gave, one per row, and the others in one."""
    table = open_table(2)
    for head in ("setting", "value", "from"):
        table.add_column(head, overflow="fold")
    for row in rows:
        if row.origin != DEFAULT:
            table.add_row(row.flag, _value(row.value), row.origin)
    for row in rows:
        if row.origin == DEFAULT:
            table.add_row(row.flag, _value(row.value), DEFAULT)
    return table


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return NOTHING if value is None else str(value)
