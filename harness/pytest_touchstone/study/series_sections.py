"""Sections of a study that compare its series: bests, lengths, epochs, beginnings, and a matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pytest_touchstone.core.text import count, format_step, join_names
from pytest_touchstone.document import BEST, Facts, Part, Section, Table
from pytest_touchstone.study.curve_sections import PER, scaled_change
from pytest_touchstone.study.curves import STABILITY, TREND, curves_of
from pytest_touchstone.study.points import Study, facts_of, format_position, summarize_findings
from pytest_touchstone.study.series_comparison import (
    FAMILIES,
    UNDECIDED,
    BestVsBest,
    ComparisonVerdict,
    EpochComparison,
    SeriesComparison,
    compare_lengths,
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
"""The most pairs of series that are shown epoch by epoch: those of six series."""

STARTS: Final = (
    "Series that begin at different epochs are compared at the epoch where the later one begins. A value between two "
    "checkpoints is interpolated on a straight line, with the error of both and of the line itself: how far its series "
    "misses such lines elsewhere. No curve is continued beyond its checkpoints."
)


def multi_series_comparisons(study: Study) -> list[SeriesComparison]:
    """Return the comparisons of measures that several series have, composites first."""
    comparisons = [
        comparison for comparison in study.compute_once(compare_series) if len(comparison.bests) > 1
    ]
    return sorted(comparisons, key=lambda comparison: comparison.measure.composite is None)


def series_section(study: Study) -> Section | None:
    """Return the section that compares series; None for fewer than two series."""
    comparisons, lengths = multi_series_comparisons(study), study.compute_once(compare_lengths)
    if not comparisons:
        return None
    lines = [
        _summary_line(
            [duel for comparison in comparisons for duel in comparison.duels], "pairs of the series' bests"
        ),
        _summary_line(lengths, "pairs of sequence lengths"),
        _summary_line(
            [pair for comparison in comparisons for pair in comparison.epochs], "pairs at equal epochs"
        ),
    ]
    return Section(
        key="between",
        title="Series against series",
        parts=(
            *(_bests_table(comparison) for comparison in comparisons),
            Facts((("corrected", CORRECTED), ("95 % interval", INTERVAL), *_verdict_notes(comparisons))),
            *([_lengths_table(lengths)] if lengths else []),
            *(
                block
                for comparison in comparisons
                for block in _epoch_parts(
                    comparison.epochs, f"{comparison.measure.label} at equal epochs: the mean difference"
                )
            ),
        ),
        brief_parts=0 if study.compute_once(curves_of) else 1,
        line="; ".join(filter(None, lines)) or "no pair of series can be tested",
        data={
            "measures": [
                {
                    "measure": comparison.measure.key,
                    "overall": comparison.overall.point.name if comparison.overall else None,
                    "bests": facts_of(comparison.bests),
                    "pairs": facts_of(comparison.duels),
                    "equal_epochs": facts_of(comparison.epochs),
                }
                for comparison in comparisons
            ],
            "lengths": facts_of(lengths),
        },
    )


def starts_section(study: Study) -> Section | None:
    """Return the section on the beginnings of series; None if none can be compared."""
    comparisons = [comparison for comparison in multi_series_comparisons(study) if comparison.starts]
    if not comparisons:
        return None
    tables = [
        block
        for comparison in comparisons
        for block in _epoch_parts(
            comparison.starts, f"{comparison.measure.label} where the later one begins: the difference"
        )
    ]
    return Section(
        key="starts",
        title="Beginnings",
        parts=(STARTS, *tables, *_unequal_epochs(study)),
        line=_summary_line(
            [start for comparison in comparisons for start in comparison.starts], "pairs of beginnings"
        ),
        data=[facts_of(start) for comparison in comparisons for start in comparison.starts],
    )


def _summary_line(tests: Sequence[BestVsBest | EpochComparison], tests_name: str) -> str:
    """Name the series that differ significantly; empty if nothing was tested."""
    findings = [
        f"{second.name} {test.told} than {first.name} by {test.measure.label}"
        for test in tests
        if test.told != UNDECIDED
        for first, second in [test.series]
    ]
    tested = sum(test.p is not None for test in tests)
    return summarize_findings(findings, tested, tests_name) if tested else ""


def _bests_table(comparison: SeriesComparison) -> Table:
    """Return a table of the best of each series and its gap to the best of all."""
    rows, measure = [], comparison.measure
    for best in comparison.bests:
        duel = comparison.duel(comparison.overall.series, best.series) if comparison.overall else None
        rows.append(
            (
                best.series.name,
                best.series.at(best.point),
                measure.text(best.value),
                measure.text(best.corrected),
                measure.difference_unit.moved(duel.as_measured.difference if duel else None),
                measure.difference_range(duel.comparison if duel else None),
                duel.told if duel else HIGHEST,
            )
        )
    unit = f", gaps in {measure.difference_unit.name}" if measure.difference_unit.name else ""
    return Table(
        title=f"{measure.label}: the best of each series{unit}",
        header=("series", "best at", "value", "corrected", "gap", "95 % interval", "verdict"),
        rows=tuple(rows),
        text_columns=2,
        words=True,
        signs={(index, 2): BEST for index, row in enumerate(rows) if row[-1] == HIGHEST},
    )


def _verdict_notes(comparisons: Sequence[SeriesComparison]) -> Iterable[tuple[str, str]]:
    """Yield labelled notes on the corrections and assumptions of the verdicts."""
    tested = Counter(
        family_of(duel.measure)
        for comparison in comparisons
        for duel in comparison.duels
        if duel.p is not None
    )
    if tests := join_names(f"{count(tested[name], 'pair')} of {name}" for name in FAMILIES if tested[name]):
        yield "verdict", f"against the best series, corrected for all tests together (Holm: {tests})"
    for reason in dict.fromkeys(
        duel.as_measured.why for comparison in comparisons for duel in comparison.duels
    ):
        if reason:
            yield "note", reason
    if any(best.by_totals and best.of > 1 for comparison in comparisons for best in comparison.bests):
        yield "note", TOTALS


def _lengths_table(duels: Sequence[BestVsBest]) -> Table:
    return Table(
        title="Sequence length: the best at the shorter one against the best at the longer one",
        header=("training", "measure", "shorter", "longer", "gap", "95 % interval", "longer is"),
        rows=tuple(
            (
                f"{short.training}\n{short.seq_len}, {long.seq_len}",
                duel.measure.label,
                duel.measure.text(duel.first.value),
                duel.measure.text(duel.second.value),
                duel.measure.difference_unit.moved(duel.as_measured.difference),
                duel.measure.difference_range(duel.comparison),
                duel.told,
            )
            for duel in duels
            for short, long in [duel.series]
        ),
        text_columns=2,
        words=True,
    )


def _epoch_parts(pairs: Sequence[EpochComparison], title: str) -> Iterable[Part]:
    """Yield the differences of series at equal epochs, and the pairs without a comparison."""
    rows: list[tuple[str, ...]] = []
    for pair in pairs:
        first, second = pair.series
        epochs = [format_step(epoch) for epoch in pair.epochs]
        if pair.contrast is not None:
            span = epochs[0] if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]} ({len(epochs)})"
            at = span if pair.how == "common" else f"{span}, interpolated"
            unit = pair.measure.difference_unit
            gap = unit.moved(pair.contrast.value)
            rows.append(
                (first.name, second.name, at, gap, pair.measure.difference_range(pair.contrast), pair.told)
            )
            each = zip(epochs, pair.gaps, strict=True) if len(epochs) > 1 and len(pairs) <= FEW else ()
            rows += [("", "", epoch, unit.moved(moved), "", "") for epoch, moved in each]
    if rows:
        header = ("first", "second", "at epochs", "gap", "95 % interval", "second is")
        yield Table(
            title=f"{title}, second less first", header=header, rows=tuple(rows), text_columns=3, words=True
        )
    reasons: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.why:
            reasons.setdefault(pair.why, []).append(" and ".join(series.name for series in pair.series))
    if reasons:
        yield Facts(
            tuple(("not compared", f"{reason}: {'; '.join(names)}") for reason, names in reasons.items())
        )


def _unequal_epochs(study: Study) -> list[str]:
    """Return a warning if the steps of an epoch differ between series by 10 % or more."""
    sizes = [
        (series.name, series.steps_per_epoch) for series in study.series if series.steps_per_epoch is not None
    ]
    low = min(sizes, key=lambda size: size[1].low, default=None)
    high = max(sizes, key=lambda size: size[1].high, default=None)
    if low is None or high is None or high[1].high < 1.1 * low[1].low:
        return []
    return [
        f"An epoch is not the same amount of training everywhere: {low[1].text} steps in {low[0]}, {high[1].text} in "
        f"{high[0]}."
    ]


# The matrix


MATRIX_COLUMNS: Final = 6
"""The columns of a matrix that fit a line; more series are split into several tables."""

VERDICT_CELLS: Final[dict[ComparisonVerdict, str]] = {"better": "better", "worse": "worse", UNDECIDED: "?"}

LEGEND: Final = (
    "Read from the left: the row's best is better or worse than the column's; ? cannot tell. Beside it the number of "
    "items, of the side with fewer; of a composite those of all its benchmarks. Corrected for all pairs together."
)
AT_A_GLANCE: Final = (
    "Beginning: the first value. Speed: where the series comes within one point of its peak. Stability: the mean "
    "change between neighbours, less is steadier. Efficiency: points per epoch (or 1000 steps) by a straight line. "
    "Better, worse: than how many others. * marks the highest best, which may not be told apart from the others."
)


def matrix_section(study: Study) -> Section | None:
    """Return the section that compares every series with every other; None for fewer than two."""
    comparisons = multi_series_comparisons(study)
    if not comparisons:
        return None
    profiles = [_series_profiles(study, comparison) for comparison in comparisons]
    tables = [
        (_profiles_table(comparison, series_profiles), *_matrix_tables(comparison))
        for comparison, series_profiles in zip(comparisons, profiles, strict=True)
    ]
    return Section(
        key="matrix",
        title="Every series against every other",
        parts=(
            *tables[0],
            LEGEND,
            *(table for more_tables in tables[1:] for table in more_tables),
            AT_A_GLANCE,
        ),
        brief_parts=2 if len(tables[0]) == 2 else 1,
        data=[
            {
                "measure": comparison.measure.key,
                "series": [best.series.name for best in comparison.bests],
                "is": {
                    best.series.name: {
                        other.series.name: duel.told
                        for other in comparison.bests
                        if (duel := comparison.duel(other.series, best.series)) is not None
                    }
                    for best in comparison.bests
                },
                "at_a_glance": series_profiles,
            }
            for comparison, series_profiles in zip(comparisons, profiles, strict=True)
        ],
    )


def _series_profiles(study: Study, comparison: SeriesComparison) -> list[dict[str, Any]]:
    """Return the properties of each series, and how many others it is better or worse than."""
    curves = {
        curve.series.name: curve
        for curve in study.compute_once(curves_of)
        if curve.measure == comparison.measure
    }
    profiles = []
    for best in comparison.bests:
        curve = curves.get(best.series.name)
        verdicts = [
            duel.told
            for other in comparison.bests
            if (duel := comparison.duel(other.series, best.series)) is not None
        ]
        profiles.append(
            {
                "series": best.series.name,
                "beginning": study.valid_values(best.series, comparison.measure)[0][1].value,
                "best": best.value,
                "speed": curve and curve.within,
                "stability": curve and curve.tests[STABILITY].value,
                "efficiency": curve and scaled_change(curve, TREND).value,
                "better": verdicts.count("better"),
                "worse": verdicts.count("worse"),
            }
        )
    return profiles


def _profiles_table(comparison: SeriesComparison, profiles: Sequence[dict[str, Any]]) -> Table:
    unit = comparison.measure.difference_unit
    axes = dict.fromkeys(best.series.axis for best in comparison.bests)
    slopes = join_names(dict.fromkeys(PER[axis] for axis in axes))
    return Table(
        title=f"{comparison.measure.label}: speed by {join_names(axes)}, stability in {unit.name}, "
        f"efficiency in {unit.name} {slopes}",
        header=tuple(profiles[0]),
        rows=tuple(
            (
                row["series"],
                comparison.measure.text(row["beginning"]),
                comparison.measure.text(row["best"]),
                format_position(row["speed"]),
                unit.moved(row["stability"]).removeprefix("+"),
                unit.moved(row["efficiency"]),
                str(row["better"]),
                str(row["worse"]),
            )
            for row in profiles
        ),
        signs={(index, 2): BEST for index, best in enumerate(comparison.bests) if best is comparison.overall},
    )


def _matrix_tables(comparison: SeriesComparison) -> Iterable[Table]:
    series = [best.series for best in comparison.bests]
    letters = [_column_letters(index) for index in range(len(series))]
    for start in range(0, len(series), MATRIX_COLUMNS):
        across = range(start, min(start + MATRIX_COLUMNS, len(series)))
        yield Table(
            header=("", *(letters[index] for index in across)),
            rows=tuple(
                (
                    f"{letter}  {row_series.name}",
                    *(_cell(comparison.duel(series[index], row_series)) for index in across),
                )
                for letter, row_series in zip(letters, series, strict=True)
            ),
        )


def _cell(duel: BestVsBest | None) -> str:
    if duel is None:
        return ""
    return f"{VERDICT_CELLS[duel.told]} {duel.items:,}" if duel.items else VERDICT_CELLS[duel.told]


def _column_letters(index: int) -> str:
    """Return the letters of a column as in a spreadsheet: A to Z, then AA."""
    preceding, letter = divmod(index, 26)
    return (_column_letters(preceding - 1) if preceding else "") + chr(ord("A") + letter)
