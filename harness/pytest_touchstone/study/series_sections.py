"""Series against series: their bests, sequence lengths, equal epochs, beginnings, and the closing matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pytest_touchstone.core.text import count, join_names, ordinal_place
from pytest_touchstone.document import BEST, Facts, Part, Section, Table
from pytest_touchstone.study.curve_sections import PER, shown_change
from pytest_touchstone.study.curves import STABILITY, TREND, curves_of
from pytest_touchstone.study.points import Study, facts_of, found_among, place_or_nothing
from pytest_touchstone.study.series_comparison import (
    FAMILIES,
    UNTOLD,
    AtEpochs,
    BestVsBest,
    SeriesComparison,
    Told,
    by_length,
    compare_series,
    family_of,
)

CORRECTED: Final = "the best value less the part that luck has in being the best of several"
TOTALS: Final = (
    "where only totals are known, the checkpoints of a series are taken as independent. On the same items luck has "
    "less of a part in the best, and the intervals are narrower"
)
INTERVAL: Final = "of the difference, allowing for both choices"
HIGHEST: Final = "highest"
FEW: Final = 15
"""Pairs of series that are shown epoch by epoch: those of six series."""

STARTS: Final = (
    "Series that begin at different epochs are compared at the epoch where the later one begins. A value between two "
    "checkpoints is interpolated on a straight line, with the error of both and of the line itself: how far its series "
    "misses such lines elsewhere. No curve is continued beyond its checkpoints."
)


def several_in(study: Study) -> list[SeriesComparison]:
    """Return what was found of the measures that several series have, composites first."""
    several = [one for one in study.once(compare_series) if len(one.bests) > 1]
    return sorted(several, key=lambda one: one.measure.composite is None)


def series_sections(study: Study) -> Section | None:
    """Return the bests of series, their lengths and equal epochs; None where there are fewer than two series."""
    found, lengths = several_in(study), study.once(by_length)
    if not found:
        return None
    lines = [
        _line([duel for one in found for duel in one.duels], "pairs of the series' bests"),
        _line(lengths, "pairs of sequence lengths"),
        _line([pair for one in found for pair in one.epochs], "pairs at equal epochs"),
    ]
    return Section(
        key="between",
        title="Series against series",
        parts=(
            *(_bests(one) for one in found),
            Facts((("corrected", CORRECTED), ("95 % interval", INTERVAL), *_how(found))),
            *([_lengths(lengths)] if lengths else []),
            *(
                part
                for one in found
                for part in _at_epochs(
                    one.epochs, f"{one.measure.label} at equal epochs: the mean difference"
                )
            ),
        ),
        brief=0 if study.once(curves_of) else 1,
        line="; ".join(filter(None, lines)) or "no pair of series can be tested",
        data={
            "measures": [
                {
                    "measure": one.measure.key,
                    "overall": one.overall.point.name if one.overall else None,
                    "bests": facts_of(one.bests),
                    "pairs": facts_of(one.duels),
                    "equal_epochs": facts_of(one.epochs),
                }
                for one in found
            ],
            "lengths": facts_of(lengths),
        },
    )


def starts(study: Study) -> Section | None:
    """Return how the beginnings of series differ, as far as they can be compared."""
    found = [one for one in several_in(study) if one.starts]
    if not found:
        return None
    parts = [
        part
        for one in found
        for part in _at_epochs(one.starts, f"{one.measure.label} where the later one begins: the difference")
    ]
    return Section(
        key="starts",
        title="Beginnings",
        parts=(STARTS, *parts, *_unequal_epochs(study)),
        line=_line([start for one in found for start in one.starts], "pairs of beginnings"),
        data=[facts_of(start) for one in found for start in one.starts],
    )


def _line(tests: Sequence[BestVsBest | AtEpochs], what: str) -> str:
    """Return which series are told apart by these tests; empty where none could be made."""
    told = [
        f"{second.name} {one.told} than {first.name} by {one.measure.label}"
        for one in tests
        if one.told != UNTOLD
        for first, second in [one.series]
    ]
    tested = sum(one.p is not None for one in tests)
    return found_among(told, tested, what) if tested else ""


def _bests(one: SeriesComparison) -> Table:
    """Return the best of each series, and how far it is from the best of all."""
    rows, measure = [], one.measure
    for best in one.bests:
        duel = one.duel(one.overall.series, best.series) if one.overall else None
        rows.append(
            (
                best.series.name,
                best.series.at(best.point),
                measure.text(best.value),
                measure.text(best.corrected),
                measure.told_in.moved(duel.as_measured.difference if duel else None),
                measure.difference_range(duel.comparison if duel else None),
                duel.told if duel else HIGHEST,
            )
        )
    unit = f", gaps in {measure.told_in.name}" if measure.told_in.name else ""
    return Table(
        title=f"{measure.label}: the best of each series{unit}",
        header=("series", "best at", "value", "corrected", "gap", "95 % interval", "verdict"),
        rows=tuple(rows),
        left=2,
        words=True,
        signs={(place, 2): BEST for place, row in enumerate(rows) if row[-1] == HIGHEST},
    )


def _how(found: Sequence[SeriesComparison]) -> Iterable[tuple[str, str]]:
    """Yield what the verdicts allow for."""
    tested = Counter(family_of(duel.measure) for one in found for duel in one.duels if duel.p is not None)
    if tests := join_names(f"{count(tested[name], 'pair')} of {name}" for name in FAMILIES if tested[name]):
        yield "verdict", f"against the best series, corrected for all tests together (Holm: {tests})"
    for why in dict.fromkeys(duel.as_measured.why for one in found for duel in one.duels):
        if why:
            yield "note", why
    if any(best.by_totals and best.of > 1 for one in found for best in one.bests):
        yield "note", TOTALS


def _lengths(found: Sequence[BestVsBest]) -> Table:
    return Table(
        title="Sequence length: the best at the shorter one against the best at the longer one",
        header=("training", "measure", "shorter", "longer", "gap", "95 % interval", "longer is"),
        rows=tuple(
            (
                f"{short.training}\n{short.seq_len}, {long.seq_len}",
                one.measure.label,
                one.measure.text(one.first.value),
                one.measure.text(one.second.value),
                one.measure.told_in.moved(one.as_measured.difference),
                one.measure.difference_range(one.comparison),
                one.told,
            )
            for one in found
            for short, long in [one.series]
        ),
        left=2,
        words=True,
    )


def _at_epochs(pairs: Sequence[AtEpochs], title: str) -> Iterable[Part]:
    """Yield the mean differences of series at equal epochs, with those at each of a few, and what was not compared."""
    rows: list[tuple[str, ...]] = []
    for pair in pairs:
        first, second = pair.series
        epochs = [ordinal_place(epoch) for epoch in pair.epochs]
        if pair.contrast is not None:
            span = epochs[0] if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]} ({len(epochs)})"
            at = span if pair.how == "common" else f"{span}, interpolated"
            unit = pair.measure.told_in
            gap = unit.moved(pair.contrast.value)
            rows.append(
                (first.name, second.name, at, gap, pair.measure.difference_range(pair.contrast), pair.told)
            )
            each = zip(epochs, pair.gaps, strict=True) if len(epochs) > 1 and len(pairs) <= FEW else ()
            rows += [("", "", epoch, unit.moved(moved), "", "") for epoch, moved in each]
    if rows:
        header = ("first", "second", "at epochs", "gap", "95 % interval", "second is")
        yield Table(title=f"{title}, second less first", header=header, rows=tuple(rows), left=3, words=True)
    reasons: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.why:
            reasons.setdefault(pair.why, []).append(" and ".join(one.name for one in pair.series))
    if reasons:
        yield Facts(tuple(("not compared", f"{why}: {'; '.join(who)}") for why, who in reasons.items()))


def _unequal_epochs(study: Study) -> list[str]:
    """Return a warning where an epoch is not the same number of steps in all series."""
    known = [(one.name, one.steps_per_epoch) for one in study.series if one.steps_per_epoch is not None]
    low = min(known, key=lambda one: one[1].low, default=None)
    high = max(known, key=lambda one: one[1].high, default=None)
    if low is None or high is None or high[1].high < 1.1 * low[1].low:
        return []
    return [
        f"An epoch is not the same amount of training everywhere: {low[1].text} steps in {low[0]}, {high[1].text} in "
        f"{high[0]}."
    ]


# The matrix


ACROSS: Final = 6
"""Columns of a matrix that fit a line; more series go into several tables."""

CELLS: Final[dict[Told, str]] = {"better": "better", "worse": "worse", UNTOLD: "?"}

LEGEND: Final = (
    "Read from the left: the row's best is better or worse than the column's; ? cannot tell. Beside it the number of "
    "items, of the side with fewer; of a composite those of all its benchmarks. Corrected for all pairs together."
)
AT_A_GLANCE: Final = (
    "Beginning: the first value. Speed: where the series comes within one point of its peak. Stability: the mean "
    "change between neighbours, less is steadier. Efficiency: points per epoch (or 1000 steps) by a straight line. "
    "Better, worse: than how many others. * marks the highest best, which need not be told from the others."
)


def matrix(study: Study) -> Section | None:
    """Return the closing matrices: every series by what was found of it, and against every other; None where there
    are fewer than two."""
    found = several_in(study)
    if not found:
        return None
    profiles = [_profiles(study, one) for one in found]
    tables = [(_at_a_glance(one, own), *_matrix(one)) for one, own in zip(found, profiles, strict=True)]
    return Section(
        key="matrix",
        title="Every series against every other",
        parts=(*tables[0], LEGEND, *(table for several in tables[1:] for table in several), AT_A_GLANCE),
        brief=2 if len(tables[0]) == 2 else 1,
        data=[
            {
                "measure": one.measure.key,
                "series": [best.series.name for best in one.bests],
                "is": {
                    best.series.name: {
                        other.series.name: duel.told
                        for other in one.bests
                        if (duel := one.duel(other.series, best.series)) is not None
                    }
                    for best in one.bests
                },
                "at_a_glance": own,
            }
            for one, own in zip(found, profiles, strict=True)
        ],
    )


def _profiles(study: Study, one: SeriesComparison) -> list[dict[str, Any]]:
    """Return the beginning, best, speed, stability and efficiency of each series, and how many it is told from."""
    curves = {curve.series.name: curve for curve in study.once(curves_of) if curve.measure == one.measure}
    found = []
    for best in one.bests:
        curve = curves.get(best.series.name)
        told = [duel.told for other in one.bests if (duel := one.duel(other.series, best.series)) is not None]
        found.append(
            {
                "series": best.series.name,
                "beginning": study.measured(best.series, one.measure)[0][1].value,
                "best": best.value,
                "speed": curve and curve.within,
                "stability": curve and curve.tests[STABILITY].value,
                "efficiency": curve and shown_change(curve, TREND).value,
                "better": told.count("better"),
                "worse": told.count("worse"),
            }
        )
    return found


def _at_a_glance(one: SeriesComparison, profiles: Sequence[dict[str, Any]]) -> Table:
    unit = one.measure.told_in
    axes = dict.fromkeys(best.series.axis for best in one.bests)
    slopes = join_names(dict.fromkeys(PER[axis] for axis in axes))
    return Table(
        title=f"{one.measure.label}: speed by {join_names(axes)}, stability in {unit.name}, "
        f"efficiency in {unit.name} {slopes}",
        header=tuple(profiles[0]),
        rows=tuple(
            (
                row["series"],
                one.measure.text(row["beginning"]),
                one.measure.text(row["best"]),
                place_or_nothing(row["speed"]),
                unit.moved(row["stability"]).removeprefix("+"),
                unit.moved(row["efficiency"]),
                str(row["better"]),
                str(row["worse"]),
            )
            for row in profiles
        ),
        signs={(place, 2): BEST for place, best in enumerate(one.bests) if best is one.overall},
    )


def _matrix(one: SeriesComparison) -> Iterable[Table]:
    series = [best.series for best in one.bests]
    letters = [_letter(place) for place in range(len(series))]
    for start in range(0, len(series), ACROSS):
        across = range(start, min(start + ACROSS, len(series)))
        yield Table(
            header=("", *(letters[place] for place in across)),
            rows=tuple(
                (f"{letter}  {own.name}", *(_cell(one.duel(series[place], own)) for place in across))
                for letter, own in zip(letters, series, strict=True)
            ),
        )


def _cell(duel: BestVsBest | None) -> str:
    if duel is None:
        return ""
    return f"{CELLS[duel.told]} {duel.items:,}" if duel.items else CELLS[duel.told]


def _letter(place: int) -> str:
    more, own = divmod(place, 26)
    return (_letter(more - 1) if more else "") + chr(ord("A") + own)
