"""The closing matrix of a study: every series against every other by the best of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from pytest_touchstone.compare.study.between import Between, Duel, Told
from pytest_touchstone.reports.study.section import Part, Section, Table
from pytest_touchstone.reports.study.versus import UNTOLD, main_of, shown_first

ACROSS: Final = 6
"""Columns of a matrix that fit a line; more series go into several tables."""

MOST_ROWS: Final = 20
"""The series of a brief matrix."""

CELLS: Final[dict[Told, str]] = {"better": "better", "worse": "worse", UNTOLD: "?"}

LEGEND: Final = (
    "Read from the left: the row's best is better or worse than the column's; ? cannot tell. Beside it the number of "
    "items, of the side with fewer; of a composite those of all its benchmarks. Corrected for all pairs together."
)


def matrix(found: Sequence[Between]) -> Section | None:
    """Return the closing matrix, series by series; None where there are fewer than two."""
    several = [one for one in found if len(one.bests) > 1]
    if not several:
        return None
    shown = shown_first(several)
    return Section(
        key="matrix",
        title="Every series against every other",
        parts=(*(part for one in shown for part in _matrix(one)), LEGEND),
        details=tuple(part for one in several if one not in shown for part in _matrix(one)),
        brief=tuple(_brief_matrix(main_of(several))),
        data=[_matrix_facts(one) for one in several],
    )


def _matrix(one: Between) -> Iterable[Table]:
    series = [best.series for best in one.bests]
    letters = [_letter(place) for place in range(len(series))]
    for start in range(0, len(series), ACROSS):
        columns = range(start, min(start + ACROSS, len(series)))
        rows = []
        for place, own in enumerate(series):
            cells = [_cell(one.duel(series[other], own)) for other in columns]
            rows.append((f"{letters[place]}  {own.name}", *cells))
        title = one.measure.label if start == 0 else ""
        yield Table(title=title, header=("", *(letters[other] for other in columns)), rows=tuple(rows))


def _brief_matrix(one: Between) -> Iterable[Part]:
    """The matrix where it is small, else how many others each series is better and worse than."""
    series = [best.series for best in one.bests]
    if len(series) <= ACROSS:
        yield from (replace(table, title="") for table in _matrix(one))
        yield f"By {one.measure.label}, the row's best against the column's; ? cannot tell. Beside it the items."
        return
    rows = []
    for own in series:
        told = [duel.told for other in series if (duel := one.duel(other, own)) is not None]
        rows.append((own.name, *(str(told.count(word)) for word in CELLS)))
    if all(row[-1] == str(len(series) - 1) for row in rows):
        yield f"By {one.measure.label} no series can be told from another."
        return
    rows.sort(key=lambda row: int(row[2]) - int(row[1]))
    header = ("series", "better than", "worse than", UNTOLD)
    yield Table(title=one.measure.label, header=header, rows=tuple(rows[:MOST_ROWS]))
    if len(rows) > MOST_ROWS:
        yield f"and {len(rows) - MOST_ROWS} series more"


def _cell(duel: Duel | None) -> str:
    if duel is None:
        return ""
    return f"{CELLS[duel.told]} {duel.items:,}" if duel.items else CELLS[duel.told]


def _letter(place: int) -> str:
    more, own = divmod(place, 26)
    return (_letter(more - 1) if more else "") + chr(ord("A") + own)


def _matrix_facts(one: Between) -> dict[str, Any]:
    names = [best.series.name for best in one.bests]
    cells = {
        own.series.name: {
            other.series.name: duel.told
            for other in one.bests
            if (duel := one.duel(other.series, own.series)) is not None
        }
        for own in one.bests
    }
    return {"measure": one.measure.key, "series": names, "is": cells}
