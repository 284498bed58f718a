"""A dry run in words: what would be asked, what it costs, and where the settings that were given come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_touchstone.core.text import listed
from pytest_touchstone.document import Facts, Part, Section, Table, render_text
from pytest_touchstone.document.formatting import NOTHING

NAMED: Final = 3
"""Items that are named."""


@dataclass(slots=True, kw_only=True)
class DryRunRow:
    """The questions of a benchmark to a checkpoint; None where that is not known before it is asked.

    Of the ``sampled`` items those in ``too_long`` are longer than the tokens that the checkpoint ``takes``; their
    contexts are then ``cut``, or they are not asked.
    """

    checkpoint: str
    benchmark: str
    items: int
    shots: int = 0
    sampled: int = 0
    requests: int | None = None
    prompt_tokens: int | None = None
    new_tokens: int | None = None
    cost: float | None = None
    exact: bool = False
    too_long: Sequence[str] = ()
    takes: int = 0
    cut: bool = True


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting that is no default: its option, its value, and where that is from."""

    flag: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class DryRun:
    """All of it; ``lacks`` says what served models cannot answer."""

    rows: Sequence[DryRunRow]
    left_out: Sequence[str]
    settings: Sequence[SettingRow]
    lacks: Sequence[str]


def render(plan: DryRun, *, width: int, color: bool) -> str:
    """Return it as text of at most ``width`` columns."""
    names = dict.fromkeys(row.checkpoint for row in plan.rows)
    tables = [_table(name, [row for row in plan.rows if row.checkpoint == name]) for name in names]
    parts: list[Part] = [*tables, Facts(tuple(_notes(plan))), _settings(plan.settings)]
    return render_text([Section(parts=tuple(parts))], width=width, color=color)


def _table(checkpoint: str, rows: Sequence[DryRunRow]) -> Table:
    cells = []
    for row in rows:
        counts = (
            (row.requests, row.sampled == row.items),
            (row.prompt_tokens, row.exact),
            (row.new_tokens, row.exact),
        )
        numbers = (NOTHING if n is None else f"{n:,}" if exact or not n else f"~{n:,}" for n, exact in counts)
        cells.append((f"  {row.benchmark}", f"{row.items:,}", str(row.shots), *numbers))
    if len(rows) > 1:
        sums = (
            sum(getattr(row, name) or 0 for row in rows)
            for name in ("requests", "prompt_tokens", "new_tokens")
        )
        items = sum(row.items for row in rows)
        cells.append(("  together", f"{items:,}", "", *(f"~{number:,}" for number in sums)))
    return Table(
        header=("  benchmark", "items", "shots", "requests", "prompt tokens", "new tokens,\nat most"),
        rows=tuple(cells),
        title=checkpoint,
    )


def _notes(plan: DryRun) -> Iterator[tuple[str, str]]:
    if not plan.rows:
        yield "asked", "nothing: no item is left"
    costs = [row.cost for row in plan.rows if row.cost is not None]
    if costs:
        yield "cost", f"at most {sum(costs):,.4g} by --eval-set price"
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
        of = f"{row.sampled:,}" if row.sampled == row.items else f"{row.sampled:,} sampled"
        what = "contexts are cut on their left" if row.cut else "not asked: errors"
        yield (
            f"{name}: {len(row.too_long):,} of {of} items, for {row.takes:,} tokens ({what}): "
            f"{listed(row.too_long, NAMED)}"
        )


def _settings(rows: Sequence[SettingRow]) -> Table:
    """Return the settings that somebody gave."""
    cells = tuple((row.flag, _value(row.value), row.origin) for row in rows)
    return Table(header=("setting", "value", "from"), rows=cells, left=3)


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return NOTHING if value is None else str(value)
