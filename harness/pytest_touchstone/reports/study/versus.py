"""Series against series: their bests, sequence lengths, equal epochs, efficiency, and the closing matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from pytest_touchstone.compare.study.between import (
    FAMILIES,
    SAME_EPOCH,
    AtEpochs,
    Between,
    Duel,
    Lengths,
    Told,
    family_of,
)
from pytest_touchstone.compare.study.curves import judged_curves
from pytest_touchstone.compare.study.points import Measure, Study
from pytest_touchstone.core.text import count, listed, place_text
from pytest_touchstone.reports.formatting import NOTHING, interval
from pytest_touchstone.reports.study.section import (
    Facts,
    Part,
    Section,
    StudyTable,
    comparison_facts,
    found_among,
    share_text,
)
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.contrasts import Contrast
from pytest_touchstone.statistics.units import MetricUnit

SHOWN: Final = 4
"""Measures that are shown in full at once; of more, the first alone, and the others among the details."""

UNTOLD: Final[Told] = "cannot tell"

CORRECTED: Final = "the best value less the part that luck has in being the best of several"
TOTALS: Final = (
    "where only totals are known, the checkpoints of a series are taken as independent. On the same items luck has "
    "less of a part in the best, and the intervals are narrower"
)
INTERVAL: Final = "of the difference, allowing for both choices"


def versus(study: Study, found: Sequence[Between], lengths: Sequence[Lengths]) -> Section | None:
    """Return the section; None where there are fewer than two series."""
    several = [one for one in found if len(one.bests) > 1]
    if len(study.series) < 2 or not several:
        return None
    shown = shown_first(several)
    rest = [one for one in several if one not in shown]
    first = main_of(several)
    by_epoch = {one.measure.key: list(_by_epoch(study, one)) for one in several}
    parts: list[Part] = [part for one in shown for part in _bests(one)]
    parts.append(Facts((("corrected", CORRECTED), ("95 % interval", INTERVAL), *_how(several))))
    parts += [*_lengths(lengths), *_epochs(first), *_efficiency(first)]
    parts += [
        part for one in dict.fromkeys((several[0].measure.key, first.measure.key)) for part in by_epoch[one]
    ]
    details = [part for one in rest for part in _bests(one)]
    details += [part for one in several if one is not first for part in (*_epochs(one), *_efficiency(one))]
    details += [part for one in several[1:] if one is not first for part in by_epoch[one.measure.key]]
    return Section(
        key="between",
        title="Series against series",
        parts=tuple(parts),
        details=tuple(details),
        brief=() if study.once(judged_curves) else tuple(_bests(first)),
        line=_line(several, lengths),
        data={
            "measures": [_facts(one) for one in found],
            "lengths": [_length_facts(one) for one in lengths],
        },
    )


def _line(several: Sequence[Between], lengths: Sequence[Lengths]) -> str:
    several = sorted(several, key=lambda one: one is not main_of(several))
    epochs = [(one, pair) for one in several for pair in one.epochs if pair.p is not None]
    at_epochs = [
        f"{pair.second.name} {pair.told} than {pair.first.name} by {one.measure.label}"
        for one, pair in epochs
        if pair.told != UNTOLD
    ]
    kinds = [
        ([(one.measure, duel) for one in several for duel in one.duels], "pairs of the series' bests"),
        ([(one.measure, one.duel) for one in lengths], "pairs of sequence lengths"),
    ]
    lines = []
    for duels, tests in kinds:
        told = [f"{_said(duel)} by {measure.label}" for measure, duel in duels if duel.told != UNTOLD]
        tested = sum(duel.p is not None for _, duel in duels)
        lines += [found_among(told, tested, tests)] if tested else []
    lines += [found_among(at_epochs, len(epochs), "pairs at equal epochs")] if epochs else []
    return "; ".join(lines) or "no pair of series can be tested"


def _said(duel: Duel) -> str:
    return f"{duel.second.series.name} {duel.told} than {duel.first.series.name}"


def main_of(found: Sequence[Between]) -> Between:
    """Return the measure that is shown first: the first composite, else the first of all."""
    return next((one for one in found if one.measure.composite is not None), found[0])


def shown_first(several: Sequence[Between]) -> Sequence[Between]:
    """Return the measures that are shown without ``-v``: all of a few, else the first alone."""
    return several if len(several) <= SHOWN else [main_of(several)]


# Bests


def _bests(one: Between) -> Iterable[Part]:
    share, unit = one.measure.share, one.measure.told_in
    axes = {own.series.axis for own in one.bests}
    alike = len(axes) == 1 and "order" not in axes
    rows, best = [], frozenset[tuple[int, int]]()
    for place, own in enumerate(one.bests):
        top = one.overall is not None and own.series.name == one.overall.series.name
        duel = None if one.overall is None or top else one.duel(one.overall.series, own.series)
        if top:
            best = frozenset({(place, 2)})
        rows.append(
            (
                own.series.name,
                _place(own.series.place(own.point)) if alike else own.series.where(own.point),
                share_text(own.value, share=share),
                share_text(own.shrunk, share=share),
                NOTHING if duel is None else unit.moved(duel.as_measured.difference),
                NOTHING if duel is None else limits(duel.comparison, unit),
                "highest" if top else NOTHING if duel is None else duel.told,
            )
        )
    at = axes.pop() if alike else "best at"
    header = ("series", at, "value", "corrected", "gap", "95 % interval", "verdict")
    yield StudyTable(
        title=_title(one.measure), header=header, rows=tuple(rows), left=2, words=True, best=best
    )


def _title(measure: Measure) -> str:
    unit = f", gaps in {measure.told_in.name}" if measure.told_in.name else ""
    return f"{measure.label}: the best of each series{unit}"


def _how(found: Sequence[Between]) -> Iterable[tuple[str, str]]:
    family = dict.fromkeys(FAMILIES, 0)
    for one in found:
        family[family_of(one.measure)] += sum(duel.p is not None for duel in one.duels)
    tests = listed([f"{count(n, 'pair')} of {name}" for name, n in family.items() if n])
    if tests:
        yield "verdict", f"against the best series, corrected for all tests together (Holm: {tests})"
    whys = dict.fromkeys(duel.as_measured.why for one in found for duel in one.duels if duel.as_measured.why)
    for why in whys:
        yield "note", why
    if any(own.by_totals and own.of > 1 for one in found for own in one.bests):
        yield "note", TOTALS


def limits(one: Comparison | Contrast | None, unit: MetricUnit) -> str:
    """Return an interval of a difference, ``[-4.06, +1.32]``."""
    return NOTHING if one is None else span(one.low, one.high, unit)


def span(low: float | None, high: float | None, unit: MetricUnit) -> str:
    """Return the same of two limits."""
    return interval(low, high, unit.moved)


# Lengths


def _lengths(found: Sequence[Lengths]) -> Iterable[Part]:
    pairs: dict[tuple[int | None, int | None], list[Lengths]] = {}
    for one in found:
        pairs.setdefault((one.duel.first.series.seq_len, one.duel.second.series.seq_len), []).append(one)
    for (short, long), same in pairs.items():
        rows = tuple(
            (
                one.training,
                one.measure.label,
                share_text(one.duel.first.value, share=one.measure.share),
                share_text(one.duel.second.value, share=one.measure.share),
                one.measure.told_in.moved(one.duel.as_measured.difference),
                limits(one.duel.comparison, one.measure.told_in),
                one.duel.told,
            )
            for one in same
        )
        yield StudyTable(
            title=f"Sequence length: the best at {short} tokens against the best at {long}",
            header=("training", "measure", f"{short}", f"{long}", "gap", "95 % interval", f"at {long}"),
            rows=rows,
            left=2,
            words=True,
        )


# Equal epochs


def _epochs(one: Between) -> Iterable[Part]:
    unit = one.measure.told_in
    compared = [pair for pair in one.epochs if pair.how != "not at all"]
    if compared:
        rows = tuple(
            (
                pair.first.name,
                pair.second.name,
                _at(pair),
                unit.moved(pair.contrast.value if pair.contrast else None),
                limits(pair.contrast, unit),
                pair.told,
            )
            for pair in compared
        )
        yield StudyTable(
            title=f"{one.measure.label} at equal epochs: the mean difference, second less first",
            header=("first", "second", "at epochs", "gap", "95 % interval", "second is"),
            rows=rows,
            left=3,
            words=True,
        )
    reasons: dict[str, list[str]] = {}
    for pair in one.epochs:
        if pair.how == "not at all":
            reasons.setdefault(pair.why, []).append(f"{pair.first.name} and {pair.second.name}")
    if reasons:
        yield Facts(tuple(("not compared", f"{why}: {'; '.join(who)}") for why, who in reasons.items()))


def _at(pair: AtEpochs) -> str:
    first, last = _place(min(pair.epochs)), _place(max(pair.epochs))
    text = first if len(pair.epochs) == 1 else f"{first} to {last} ({len(pair.epochs)})"
    return text if pair.how == "common" else f"{text}, interpolated"


MOST_EPOCHS: Final = 40
"""The epochs of a table; of more, those at even distances."""


def _by_epoch(study: Study, one: Between) -> Iterable[Part]:
    """Yield a table for each series: its values by epoch, and how far they are above each other series there."""
    share, gap = one.measure.share, one.measure.told_in
    values: dict[str, dict[float, float]] = {}
    for own in one.bests:
        if own.series.axis == "epoch":
            measured = study.measured(own.series, one.measure)
            values[own.series.name] = {p.epoch: v.value for p, v in measured if p.epoch is not None}
    tables = []
    for name, own_values in values.items():
        others = [other for other in values if other != name]
        for start in range(0, len(others), ACROSS - 1):
            columns = others[start : start + ACROSS - 1]
            rows = [
                (place_text(epoch), share_text(value, share=share), *cells)
                for epoch, value in own_values.items()
                if set(cells := [_above(value, epoch, values[other], gap) for other in columns]) != {NOTHING}
            ]
            rows = rows[:: 1 + len(rows) // (MOST_EPOCHS + 1)]
            if rows:
                header = ("epoch", name, *columns)
                tables.append(StudyTable(header=header, rows=tuple(rows), left=0))
    if tables:
        unit = f", in {gap.name}" if gap.name else ""
        title = f"{one.measure.label} by epoch: each series less each other at the same epoch{unit}"
        yield from (replace(table, title=title if table is tables[0] else "") for table in tables)
        yield "Single differences are not tested: their mean above is."


def _above(value: float, epoch: float, other: dict[float, float], unit: MetricUnit) -> str:
    at = next((one for one in other if abs(one - epoch) < SAME_EPOCH), None)
    return NOTHING if at is None else unit.moved(value - other[at])


# Efficiency


def _efficiency(one: Between) -> Iterable[Part]:
    share, unit, rows = one.measure.share, one.measure.told_in, []
    for own in one.efficiency:
        axis = own.series.axis
        if own.first is None:
            continue
        factor = 1.0 if axis == "epoch" else 1000.0
        slope = own.slope
        rows.append(
            (
                own.series.name,
                "epoch" if axis == "epoch" else "1000 steps",
                NOTHING if slope is None else unit.moved(factor * slope.slope),
                NOTHING if slope is None else span(factor * slope.low, factor * slope.high, unit),
                _place(own.first),
                _place(own.within),
                _place(own.peak),
                _place(own.last),
            )
        )
    if rows:
        header = (
            "series",
            "per",
            unit.name or "change",
            "95 % interval",
            "first",
            "within 1",
            "peak",
            "last",
        )
        yield StudyTable(
            title=f"{one.measure.label}: training efficiency, by the straight line through all checkpoints",
            header=header if share else (*header[:5], "near", *header[6:]),
            rows=tuple(rows),
            left=2,
        )
        if share:
            yield "within 1: the first place within one point of the measured peak"


def _place(value: float | None) -> str:
    return NOTHING if value is None else place_text(value)


# Data


def _facts(one: Between) -> dict[str, Any]:
    return {
        "measure": one.measure.key,
        "overall": one.overall.point.name if one.overall else None,
        "bests": [
            {
                "series": best.series.name,
                "point": best.point.name,
                "value": best.value,
                "corrected": best.shrunk,
                "of": best.of,
                "not_told_apart": [point.name for point in best.rivals],
            }
            for best in one.bests
        ],
        "pairs": [duel_facts(duel) for duel in one.duels],
        "equal_epochs": [
            {
                "first": pair.first.name,
                "second": pair.second.name,
                "how": pair.how,
                "epochs": list(pair.epochs),
                "why": pair.why or None,
                **contrast_facts(pair.contrast),
                "p_corrected": pair.p,
                "verdict": pair.told,
            }
            for pair in one.epochs
        ],
        "efficiency": [
            {
                "series": own.series.name,
                "per": own.series.axis,
                "slope": asdict(own.slope) if own.slope else None,
                "first": own.first,
                "within_one_point": own.within,
                "peak": own.peak,
                "last": own.last,
                "why": own.why or None,
            }
            for own in one.efficiency
        ],
    }


def duel_facts(duel: Duel) -> dict[str, Any]:
    """Return the comparison of two bests as plain data; ``verdict`` is about the second."""
    return {
        "first": duel.first.series.name,
        "second": duel.second.series.name,
        "first_point": duel.first.point.name,
        "second_point": duel.second.point.name,
        "as_measured": comparison_facts(duel.as_measured),
        "corrected": comparison_facts(duel.comparison),
        "p_corrected": duel.p,
        "items": duel.items,
        "verdict": duel.told,
    }


def contrast_facts(one: Contrast | None) -> dict[str, Any]:
    """Return a weighted sum as plain data; all None where there is none."""
    names = ("value", "stderr", "low", "high", "p")
    return {name: None if one is None else getattr(one, name) for name in names}


def _length_facts(one: Lengths) -> dict[str, Any]:
    return {"training": one.training, "measure": one.measure.key, **duel_facts(one.duel)}


# The matrix


ACROSS: Final = 6
"""Columns of a matrix that fit a line; more series go into several tables."""

MOST_ROWS: Final = 20
"""The series of a brief matrix."""

CELLS: Final[dict[Told, str]] = {"better": "better", "worse": "worse", UNTOLD: "?"}

LEGEND: Final = (
    "Read from the left: the row's best is better or worse than the column's; ? cannot tell. Beside it the number of "
    "items, of the side with fewer; of a composite those of all its benchmarks. Corrected for all pairs together."
)


def matrix(study: Study, found: Sequence[Between]) -> Section | None:
    """Return the closing matrices: every series by what was found of it, and against every other; None where there
    are fewer than two."""
    several = [one for one in found if len(one.bests) > 1]
    if not several:
        return None
    shown = shown_first(several)
    return Section(
        key="matrix",
        title="Every series against every other",
        parts=(
            *(_at_a_glance(study, one) for one in shown),
            AT_A_GLANCE,
            *(part for one in shown for part in _matrix(one)),
            LEGEND,
        ),
        details=tuple(
            part for one in several if one not in shown for part in (_at_a_glance(study, one), *_matrix(one))
        ),
        brief=tuple(_brief_matrix(study, main_of(several))),
        data=[{**_matrix_facts(one), "at_a_glance": _profiles(study, one)} for one in several],
    )


AT_A_GLANCE: Final = (
    "Beginning: the first value. Speed: where the series comes within one point of its peak. Stability: the mean "
    "change between neighbours, less is steadier. Efficiency: points per epoch (or 1000 steps) by a straight line. "
    "* marks the highest best, which need not be told from the others."
)


def _profiles(study: Study, one: Between) -> list[dict[str, Any]]:
    """Return the beginning, best, speed, stability and efficiency of each series."""
    curves = [found for found in study.once(judged_curves) if found.curve.measure == one.measure]
    steady = {found.curve.series.name: found.steadiness.value for found in curves}
    ways = {own.series.name: own for own in one.efficiency}
    found = []
    for own in one.bests:
        way = ways[own.series.name]
        factor = 1.0 if own.series.axis == "epoch" else 1000.0
        found.append(
            {
                "series": own.series.name,
                "beginning": next(
                    (value.value for _, value in study.measured(own.series, one.measure)), None
                ),
                "best": own.value,
                "speed": way.within,
                "stability": steady.get(own.series.name),
                "efficiency": None if way.slope is None else factor * way.slope.slope,
            }
        )
    return found


def _at_a_glance(study: Study, one: Between) -> StudyTable:
    share, unit = one.measure.share, one.measure.told_in
    profiles = _profiles(study, one)
    top = one.overall.series.name if one.overall is not None else None
    rows = tuple(
        (
            row["series"],
            share_text(row["beginning"], share=share),
            share_text(row["best"], share=share),
            _place(row["speed"]),
            unit.moved(row["stability"]).removeprefix("+"),
            unit.moved(row["efficiency"]),
        )
        for row in profiles
    )
    best = frozenset((place, 2) for place, row in enumerate(profiles) if row["series"] == top)
    return StudyTable(title=one.measure.label, header=tuple(profiles[0]), rows=rows, best=best)


def _matrix(one: Between) -> Iterable[StudyTable]:
    series = [best.series for best in one.bests]
    letters = [_letter(place) for place in range(len(series))]
    for start in range(0, len(series), ACROSS):
        columns = range(start, min(start + ACROSS, len(series)))
        rows = []
        for place, own in enumerate(series):
            cells = [_cell(one.duel(series[other], own)) for other in columns]
            rows.append((f"{letters[place]}  {own.name}", *cells))
        title = one.measure.label if start == 0 else ""
        yield StudyTable(title=title, header=("", *(letters[other] for other in columns)), rows=tuple(rows))


def _brief_matrix(study: Study, one: Between) -> Iterable[Part]:
    """The matrix where it is small, else how many others each series is better and worse than."""
    series = [best.series for best in one.bests]
    if len(series) <= ACROSS:
        yield replace(_at_a_glance(study, one), title="")
        yield from (replace(table, title="") for table in _matrix(one))
        yield f"By {one.measure.label}, the row's best against the column's; ? cannot tell. Beside it, items."
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
    yield StudyTable(title=one.measure.label, header=header, rows=tuple(rows[:MOST_ROWS]))
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
