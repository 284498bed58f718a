"""The curves of a study: their values, over-fitting, stability and beginnings, and what of it is more than noise.

Without ``-v`` a curve is one line, and the changes that are more than noise follow; the details have intervals and
every test. The words and numbers of a curve for other sections are here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.judge import Compared
from pytest_touchstone.compare.study.between import StartComparison, starts_of
from pytest_touchstone.compare.study.curves import NO_CHANGE, Curve, CurveChange, JudgedCurve, judged_curves
from pytest_touchstone.compare.study.differences import MORE, verdict_on
from pytest_touchstone.compare.study.points import Measure, Series, Study
from pytest_touchstone.core.text import count, listed, place_text
from pytest_touchstone.reports.formatting import NOTHING, in_percent, interval, number, p_exact
from pytest_touchstone.reports.study.section import (
    MOST_IN_LINE,
    Facts,
    Part,
    Section,
    StudyTable,
    comparison_facts,
    found_among,
    range_text,
)
from pytest_touchstone.statistics.verdicts import holm

MOST: Final = 40
"""The lines of a kind that are shown without ``-v``."""

PER: Final = {"epoch": "per epoch", "step": "per 1000 steps", "order": "per checkpoint"}


def curves(study: Study) -> Section | None:
    """Return the curves of every measure, and the changes that are more than noise."""
    found = study.once(judged_curves)
    if not found:
        return None
    parts: list[Part] = list(_brief_tables(found)) if len(found) <= MOST else []
    if not parts:
        parts.append(
            f"{count(len(found), 'curve')}: they are shown with -v, and are in study.md and study.json."
        )
    parts += _told(found)
    how = (
        "Intervals are 95 %. The trend is the slope of a line through all values. Verdicts on start to peak and peak "
        "to last allow for the peak's having been chosen, and all are corrected (Holm) over the tests of their kind."
    )
    rows = tuple(row for one in found for row in _rows_of_tests(one))
    header = ("measure", "series", "change", "points", "95 % interval", "p", "p (Holm)")
    tests = [StudyTable(header=header, rows=rows, left=3, title="All changes")] if rows else []
    details = (how, *_whole_tables(found), *tests)
    data = [curve_facts(one) for one in found]
    return Section(
        key="curves", title="Curves", parts=tuple(parts), details=details, line=_line(found), data=data
    )


def by_measure(found: Iterable[JudgedCurve]) -> list[tuple[Measure, list[JudgedCurve]]]:
    """Return the curves by their measure."""
    same: dict[str, list[JudgedCurve]] = {}
    for one in found:
        same.setdefault(one.curve.measure.key, []).append(one)
    return [(members[0].curve.measure, members) for members in same.values()]


def unit_of(measure: Measure) -> str:
    """Return the unit of values in tables."""
    return "per cent" if measure.share else measure.unit or "own unit"


def amount(value: float | None, measure: Measure) -> str:
    """Return a value of the measure without its unit: ``66.04``."""
    if value is None:
        return NOTHING
    return in_percent(value) if measure.share else number(value)


def limits(one: CurveChange, measure: Measure) -> str:
    """Return the limits of a change: ``[-4.06, +1.32]``; ``-`` where there are none."""
    return interval(one.low, one.high, measure.told_in.moved)


def at(curve: Curve, place: int) -> str:
    """Return a value with its place: ``66.04 at 3``."""
    where = curve.series.place(curve.points[place])
    text = amount(curve.at(place), curve.measure)
    return f"{text} at {place_text(where)}" if where is not None else f"{text} at {curve.points[place].short}"


# In brief


def _brief_tables(found: Sequence[JudgedCurve]) -> Iterable[StudyTable]:
    for measure, same in by_measure(found):
        axes = " or ".join(dict.fromkeys(one.curve.series.axis for one in same))
        rows = tuple(
            (
                curve.series.name,
                amount(curve.at(curve.start), measure),
                at(curve, curve.peak),
                at(curve, curve.lowest),
                amount(curve.at(curve.last), measure),
                curve.shape,
            )
            for curve in (one.curve for one in same)
        )
        header = ("series", "start", "peak", "lowest", "last", "curve")
        title = f"{measure.label} ({unit_of(measure)}, at {axes})"
        yield StudyTable(header=header, rows=rows, words=True, title=title)


def _told(found: Sequence[JudgedCurve]) -> list[Part]:
    """Return what is more than noise, out of how much; and what could not be tested."""
    tested = _tested(found)
    rows = [row[:5] for one in found for row in _rows_of_tests(one, only=MORE)]
    parts: list[Part] = []
    if tested:
        what = "rises to the peak, drops from it, and trends"
        told = f"{len(rows)} of them {'is' if len(rows) == 1 else 'are'}" if rows else "none of them is"
        parts.append(
            f"More than noise: of {count(tested, 'change')} ({what}) {told}, after Holm's correction for so many."
        )
        header = ("measure", "series", "change", "points", "95 % interval")
        parts += [StudyTable(header=header, rows=tuple(rows[:MOST]), left=3)] if rows else []
    if _by_totals(found):
        parts.append(
            "Only totals are known, so checkpoints are taken as asked different items. On the same items, differences "
            "are known better than this says; the scores of the items would tell."
        )
    whys = dict.fromkeys(one.curve.why for one in found if one.curve.why)
    parts += [f"Not tested: {why}." for why in whys if why]
    return parts


def _line(found: Sequence[JudgedCurve]) -> str:
    tested = _tested(found)
    if not tested:
        whys = dict.fromkeys(one.curve.why for one in found if one.curve.why)
        return f"cannot be tested: {next(iter(whys), 'an error is not known')}"
    rows = [row for one in found for row in _rows_of_tests(one, only=MORE)]
    told = [f"{label} of {name}, {change} {by} {within}" for label, name, change, by, within, *_ in rows]
    basis = " (only totals are known: taken as runs on different items)" if _by_totals(found) else ""
    return found_among(told, tested, "rises to peaks, drops from them, and trends") + basis


def _tested(found: Sequence[JudgedCurve]) -> int:
    kinds = ("start to peak", "peak to last", "trend")
    return sum(one.tests[kind].p is not None for one in found for kind in kinds)


def _by_totals(found: Sequence[JudgedCurve]) -> bool:
    return any(not one.curve.items and one.curve.trend for one in found)


# The whole


def _whole_tables(found: Sequence[JudgedCurve]) -> list[Part]:
    parts: list[Part] = []
    for measure, same in by_measure(found):
        rows = tuple(_value_row(one.curve) for one in same)
        header = ("series", "start", "peak", "lowest", "last")
        parts.append(StudyTable(header=header, rows=rows, title=f"{measure.label}, {unit_of(measure)}"))
        per = " or ".join(dict.fromkeys(PER[one.curve.series.axis] for one in same))
        changes = tuple(
            (one.curve.series.name, one.curve.shape, _cell(one.rise, measure), _cell(_per(one), measure))
            for one in same
        )
        names = ("series", "curve", "start to peak", f"trend\n{per}")
        unit = measure.told_in.name or "own unit"
        parts.append(
            StudyTable(header=names, rows=changes, left=2, title=f"{measure.label}, changes in {unit}")
        )
    return parts


def _value_row(curve: Curve) -> tuple[str, ...]:
    places = (curve.start, curve.peak, curve.lowest, curve.last)
    ranges = [range_text(curve.values[place], share=curve.measure.share) for place in places]
    cells = [
        at(curve, place) + (f"\n{limits}" if limits != NOTHING else "")
        for place, limits in zip(places, ranges, strict=True)
    ]
    return (curve.series.name, *cells)


def _per(one: JudgedCurve) -> CurveChange:
    """Return the trend, per thousand steps where its axis has steps."""
    if one.curve.series.axis != "step" or one.trend.value is None:
        return one.trend
    scaled = [
        None if value is None else 1000 * value for value in (one.trend.value, one.trend.low, one.trend.high)
    ]
    return one.trend._replace(value=scaled[0], low=scaled[1], high=scaled[2])


def _cell(one: CurveChange, measure: Measure) -> str:
    if one.value is None:
        return NOTHING
    return f"{measure.told_in.moved(one.value)} {limits(one, measure)}\n{one.verdict}"


def _rows_of_tests(one: JudgedCurve, only: str | None = None) -> list[tuple[str, ...]]:
    measure = one.curve.measure
    tests = {**one.tests, "trend": _per(one)}
    per = PER[one.curve.series.axis]
    return [
        (
            measure.label,
            one.curve.series.name,
            f"trend {per}" if name == "trend" else name,
            measure.told_in.moved(test.value),
            limits(test, measure),
            p_exact(test.p),
            p_exact(test.adjusted),
        )
        for name, test in tests.items()
        if test.value is not None and name != "stability" and only in (None, test.verdict)
    ]


# Plain data


def curve_facts(one: JudgedCurve) -> dict[str, Any]:
    """Return a curve with its tests as plain data."""
    curve = one.curve

    def place(at: int) -> dict[str, Any]:
        point, value = curve.points[at], curve.values[at]
        return {
            "point": point.name,
            "at": curve.series.place(point),
            "value": value.value,
            "low": value.low,
            "high": value.high,
        }

    return {
        "measure": curve.measure.key,
        "series": curve.series.name,
        "axis": curve.series.axis,
        "shape": curve.shape,
        **{name: place(getattr(curve, name)) for name in ("start", "peak", "lowest", "last")},
        "rise": _test_facts(one.rise) | _allowance(curve.rise),
        "drop": _test_facts(one.drop) | _allowance(curve.drop),
        "trend": _test_facts(one.trend),
        "stability": _test_facts(one.steadiness)
        | {"noise_alone": curve.steadiness.noise if curve.steadiness else None},
        "not_told_from_the_peak": None if curve.early is None else place(curve.early),
        "paired": curve.items,
        "why": curve.why,
    }


def _test_facts(one: CurveChange) -> dict[str, Any]:
    return {**one._asdict(), "verdict": one.verdict if one.value is not None else None}


def _allowance(found: Compared | None) -> dict[str, Any]:
    if found is None:
        return {}
    return {"peak_as_measured": found.measured, "peak_less_its_luck": found.shrunk}


# Over-fitting


LEAST: Final = 3
"""The checkpoints from which a curve can be said to over-fit."""


def overfitting(study: Study) -> Section | None:
    """Return the drops from the peak, how much of them is luck, and when to stop."""
    found = [one for one in study.once(judged_curves) if len(one.curve.points) >= LEAST]
    if not found:
        return None
    drops = [one for one in found if one.drop.value is not None]
    told = [one for one in drops if one.drop.verdict == MORE]
    shown = drops if len(drops) <= MOST else told[:MOST]
    parts: list[Part] = [_drop_table(shown)] if shown else []
    parts.append(_verdict(drops, told, level=len(found) - len(drops)))
    names = {one.curve.series.name for one in found}
    series = [one for one in study.series if one.name in names]
    parts.append(Facts(tuple((one.name, _advice(one, found)) for one in series)))
    how = (
        "The interval is that of the two values as measured. The verdict allows for the peak's having been chosen as "
        "the best of several: such a peak lies above the truth by luck, and less that luck it has the value beside it."
    )
    data: list[dict[str, Any]] = [
        {"series": one.name, "advice": _advice(one, found), "drops": _drop_facts(one, drops)}
        for one in series
    ]
    return Section(
        key="early_stopping",
        title="Over-fitting and when to stop",
        parts=tuple(parts),
        details=(how, _whole_table(drops)) if drops else (),
        line=_drop_line(drops, told),
        data=data,
    )


def _drop_facts(series: Series, drops: Sequence[JudgedCurve]) -> list[dict[str, Any]]:
    facts = [curve_facts(one) for one in drops if one.curve.series.name == series.name]
    return [{name: one[name] for name in ("measure", "peak", "last", "drop")} for one in facts]


def _drop_table(found: Sequence[JudgedCurve]) -> StudyTable:
    rows = tuple(
        (
            one.curve.measure.label,
            one.curve.series.name,
            at(one.curve, one.curve.peak),
            at(one.curve, one.curve.last),
            one.curve.measure.told_in.moved(one.drop.value),
            limits(one.drop, one.curve.measure),
        )
        for one in found
    )
    header = ("measure", "series", "peak", "last", "drop", "95 % interval")
    return StudyTable(header=header, rows=rows, left=2)


def _whole_table(found: Sequence[JudgedCurve]) -> StudyTable:
    rows = tuple(
        (
            one.curve.measure.label,
            one.curve.series.name,
            one.curve.measure.told_in.moved(one.drop.value),
            amount(one.curve.drop.measured if one.curve.drop else None, one.curve.measure),
            amount(one.curve.drop.shrunk if one.curve.drop else None, one.curve.measure),
            p_exact(one.drop.adjusted),
            one.drop.verdict,
        )
        for one in found
    )
    header = ("measure", "series", "drop", "peak", "less\nluck", "p\n(Holm)", "verdict")
    return StudyTable(header=header, rows=rows, left=2, words=True)


def _verdict(drops: Sequence[JudgedCurve], told: Sequence[JudgedCurve], *, level: int) -> str:
    ends = f"{level} of the curves end at their peak. " if level else ""
    if not drops:
        return f"{ends}No curve falls from its peak."
    tested = len(drops) - len(_untested(drops))
    if not tested:
        return f"{ends}Whether the {count(len(drops), 'drop')} are more than noise cannot be tested."
    one_of = f"{len(told)} of the {count(tested, 'drop')}" if told else f"None of the {count(tested, 'drop')}"
    verb = "is" if len(told) < 2 else "are"
    names = f": {listed(_drop_names(one) for one in told)}" if told else ""
    why = ", allowing for the peak's being the best of several, and for so many tests"
    others = f"; {len(drops) - tested} cannot be tested" if tested < len(drops) else ""
    return f"{ends}{one_of} {verb} more than noise{why}{names}{others}."


def _drop_line(drops: Sequence[JudgedCurve], told: Sequence[JudgedCurve]) -> str:
    if not drops:
        return "no curve falls from its peak"
    untested = _untested(drops)
    moved = (f"{_drop_names(one)} {one.curve.measure.told_in.moved(one.drop.value)}" for one in untested)
    values = listed(moved, MOST_IN_LINE, between="; ")
    if len(untested) == len(drops):
        return f"the {count(len(drops), 'drop')} from a peak cannot be tested: {values}"
    tested = len(drops) - len(untested)
    line = found_among([_drop_names(one) for one in told], tested, "drops from a peak to the last checkpoint")
    return f"{line}; {len(untested)} cannot be tested: {values}" if untested else line


def _untested(drops: Sequence[JudgedCurve]) -> list[JudgedCurve]:
    return [one for one in drops if one.drop.p is None]


def _drop_names(one: JudgedCurve) -> str:
    return f"{one.curve.measure.label} of {one.curve.series.name}"


def _advice(series: Series, found: Sequence[JudgedCurve]) -> str:
    """Return when to stop the training of a series, by all of its measures."""
    own = [one for one in found if one.curve.series.name == series.name]
    falls = [one.curve for one in own if one.drop.verdict == MORE]
    if falls:
        parts = [f"{one.measure.label} after {_where(one, one.peak)}" for one in falls]
        return f"stop early: by more than noise falls {listed(parts)}"
    known = [one.curve for one in own if one.curve.early is not None]
    if not known:
        why = next((one.curve.why for one in own if one.curve.why), "an error is not known")
        return f"cannot be told: {why}"
    latest = max(known, key=lambda curve: curve.early or 0)
    early = latest.early or 0
    none = "no evidence of over-fitting"
    rises = [one.curve for one in own if one.trend.verdict == MORE and _improves(one)]
    if rises:
        names = listed(one.measure.label for one in rises)
        more = any(one.at(one.peak) == one.at(one.last) for one in rises)
        last = "; its last value is its best, so more training may gain more" if more else ""
        return f"{none}: {names} gains along the training by more than noise{last}"
    if not early:
        return f"{none}; nor that training beyond its first checkpoint ({_where(latest, 0)}) gained anything"
    told = f"{latest.measure.label} is below its peak by more than noise before {_where(latest, early)}"
    if early == len(latest.points) - 1:
        return f"{none}: {told}, its last checkpoint; more training may gain more"
    return f"{none}: {told}; nothing is shown to be gained after that"


def _improves(one: JudgedCurve) -> bool:
    slope = one.trend.value or 0.0
    return slope > 0 if one.curve.measure.higher_is_better else slope < 0


def _where(curve: Curve, place: int) -> str:
    return curve.series.where(curve.points[place])


# Stability


def stability(study: Study) -> Section | None:
    """Return which curves change more between neighbours than noise alone makes them."""
    found = [one for one in study.once(judged_curves) if one.curve.steadiness is not None]
    if not found:
        return None
    told = [one for one in found if one.steadiness.verdict == MORE]
    how = (
        "The mean absolute change between neighbouring checkpoints, in points. Noise alone gives sqrt(2/pi) times the "
        "mean standard error of such a change, and with a chance of 95 % a value in the range beside it."
    )
    what = f"{len(told)} of {count(len(found), 'curve')}" if told else f"None of {count(len(found), 'curve')}"
    verb = "changes" if len(told) < 2 else "change"
    parts: list[Part] = [how, f"{what} {verb} by more than noise between neighbours."]
    parts += [_stability_table(told[:MOST])] if told else []
    below = sum(_below(one) for one in found)
    if below:
        parts.append(
            f"{below} of {len(found)} change less than checkpoints on different items would, as those on the same "
            "items do. The noise between them is then smaller, and only the scores of the items would tell it."
        )
    title = "Stability"
    named = [f"{one.curve.measure.label} of {one.curve.series.name}" for one in told]
    line = found_among(named, len(found), "curves, between neighbouring checkpoints")
    return Section(
        key="stability", title=title, parts=tuple(parts), details=(_stability_table(found),), line=line
    )


def _below(one: JudgedCurve) -> bool:
    test = one.steadiness
    return not one.curve.items and test.value is not None and test.low is not None and test.value < test.low


def _stability_table(found: Sequence[JudgedCurve]) -> StudyTable:
    rows = []
    for one in found:
        curve, test = one.curve, one.steadiness
        noise = curve.steadiness.noise if curve.steadiness else None
        between = f"{amount(test.low, curve.measure)} - {amount(test.high, curve.measure)}"
        numbers = (amount(test.value, curve.measure), amount(noise, curve.measure), between)
        rows.append((curve.measure.label, curve.series.name, *numbers, test.verdict))
    header = ("measure", "series", "mean\nchange", "noise\nalone", "its range", "verdict")
    return StudyTable(header=header, rows=tuple(rows), left=2, words=True)


# Beginnings


MOST_STARTS: Final = 400
"""Pairs of series, times measures, that are compared; of more, only those of leading measures."""

MOST_REASONS: Final = 3
"""Reasons why pairs were not compared, in words."""


class JudgedStart(NamedTuple):
    """A pair of beginnings and its verdict."""

    start: StartComparison
    adjusted: float | None
    verdict: str


def starts(study: Study) -> Section | None:
    """Return how the beginnings of series differ, as far as they can be compared."""
    pairs = len(study.series) * (len(study.series) - 1) // 2
    measures = study.measures if pairs * len(study.measures) <= MOST_STARTS else leading_measures(study)
    every = [one for measure in measures for one in starts_of(study, measure)]
    if not every:
        return None
    adjusted = holm([one.comparison.p for one in every])
    found = [JudgedStart(one, p, verdict_on(p, study.level)) for one, p in zip(every, adjusted, strict=True)]
    how = (
        "Series that begin at different epochs are compared at the epoch where the later one begins. A value between "
        "two checkpoints (~) is interpolated on a straight line, with the error of both and of the line itself: how "
        "far its series misses such lines elsewhere. No curve is continued beyond its checkpoints."
    )
    told = [one for one in found if one.verdict == MORE]
    tested = sum(one.adjusted is not None for one in found)
    shown = [one for one in found if one.start.comparison.difference is not None]
    parts: list[Part] = [how]
    if tested:
        some = f"{len(told)} of {tested}" if told else f"None of {tested}"
        verb = "differs" if len(told) < 2 else "differ"
        parts.append(
            f"{some} pairs of beginnings {verb} by more than noise, after Holm's correction for so many."
        )
    parts += [_start_table(told[:MOST], verdicts=False)] if told else []
    parts += [*_reasons(found), *_unequal_epochs(study)]
    return Section(
        key="starts",
        title="Beginnings",
        parts=tuple(parts),
        details=(_start_table(shown),) if shown else (),
        line=found_among([_start_names(one) for one in told], tested, "pairs of beginnings")
        if tested
        else "",
        data=[_facts(one) for one in found],
    )


def _start_names(one: JudgedStart) -> str:
    return f"{one.start.measure.label} of {one.start.first.name} and {one.start.second.name}"


def leading_measures(study: Study) -> list[Measure]:
    """Return the measures that a short report is about: the composites, else the first primary ones."""
    made = [one for one in study.measures if one.composite]
    return made or [one for one in study.measures if one.primary][:3]


def _reasons(found: Sequence[JudgedStart]) -> list[str]:
    whys = [one.start.comparison.why for one in found if one.start.comparison.difference is None]
    known = list(dict.fromkeys(why for why in whys if why))
    if not known:
        return []
    more = f"; and {len(known) - MOST_REASONS} reasons more" if len(known) > MOST_REASONS else ""
    pairs = count(len(whys), "pair")
    return [f"{pairs} could not be compared: {'; '.join(known[:MOST_REASONS])}{more}."]


def _start_table(found: Sequence[JudgedStart], *, verdicts: bool = True) -> StudyTable:
    header = ("measure", "A", "B", "epoch", "A", "B", "B - A\n95 % interval")
    return StudyTable(header=header, rows=tuple(_row(one, verdicts) for one in found), left=3)


def _row(one: JudgedStart, verdicts: bool) -> tuple[str, ...]:
    start, comparison = one.start, one.start.comparison
    measure = start.measure
    test = NO_CHANGE._replace(value=comparison.difference, low=comparison.low, high=comparison.high)
    known = None if start.between is None else start.between[0].series

    def value(given: float | None, series: Series) -> str:
        return f"~{amount(given, measure)}" if known == series.name else amount(given, measure)

    lines = [
        measure.told_in.moved(comparison.difference),
        limits(test, measure),
        *([one.verdict] if verdicts else []),
    ]
    return (
        measure.label,
        start.first.name,
        start.second.name,
        NOTHING if start.epoch is None else place_text(start.epoch),
        value(comparison.baseline, start.first),
        value(comparison.new, start.second),
        "\n".join(line for line in lines if line != NOTHING),
    )


def _unequal_epochs(study: Study) -> list[str]:
    """Return a warning where an epoch is not the same number of steps in all series."""
    known = [(one.name, one.steps_per_epoch) for one in study.series if one.steps_per_epoch is not None]
    if len(known) < 2:
        return []
    low, high = min(known, key=lambda one: one[1].low), max(known, key=lambda one: one[1].high)
    if high[1].high < 1.1 * low[1].low:
        return []
    return [
        f"An epoch is not the same amount of training everywhere: {low[1].text} steps in {low[0]}, {high[1].text} in "
        f"{high[0]}."
    ]


def _facts(one: JudgedStart) -> dict[str, Any]:
    start = one.start
    return {
        "measure": start.measure.key,
        "first": start.first.name,
        "second": start.second.name,
        "epoch": start.epoch,
        "interpolated_between": [point.name for point in start.between] if start.between else None,
        **(comparison_facts(start.comparison) or {}),
        "p_adjusted": one.adjusted,
        "verdict": one.verdict,
    }
