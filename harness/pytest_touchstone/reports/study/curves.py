"""The curves of a study: start, peak, lowest and last value, and what of their changes is more than noise.

Without ``-v`` a curve is one line, and the changes that are more than noise follow; the details have intervals and
every test. The words and numbers of a curve for other sections are here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pytest_touchstone.compare.judge import Compared
from pytest_touchstone.compare.study.curves import Curve, CurveChange, JudgedCurve, judged_curves
from pytest_touchstone.compare.study.differences import MORE
from pytest_touchstone.compare.study.points import Measure, Study
from pytest_touchstone.core.text import count, place_text
from pytest_touchstone.reports.formatting import NOTHING, number, p_exact
from pytest_touchstone.reports.study.section import Part, Section, Table, found_among, range_text

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
    tests = [Table(header=header, rows=rows, left=3, title="All changes")] if rows else []
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
    return "per cent" if measure.share else "own unit"


def amount(value: float | None, measure: Measure) -> str:
    """Return a value of the measure without its unit: ``66.04``."""
    if value is None:
        return NOTHING
    return f"{100 * value:.2f}" if measure.share else number(value)


def moved(value: float | None, measure: Measure) -> str:
    """Return a change of the measure with its sign, in points for shares: ``-1.37``."""
    if value is None:
        return NOTHING
    return f"{100 * value:+.2f}" if measure.share else f"{value:+.4g}"


def limits(one: CurveChange, measure: Measure) -> str:
    """Return the limits of a change: ``[-4.06, +1.32]``; ``-`` where there are none."""
    if one.low is None or one.high is None:
        return NOTHING
    return f"[{moved(one.low, measure)}, {moved(one.high, measure)}]"


def at(curve: Curve, place: int) -> str:
    """Return a value with its place: ``66.04 at 3``."""
    where = curve.series.place(curve.points[place])
    text = amount(curve.at(place), curve.measure)
    return f"{text} at {place_text(where)}" if where is not None else f"{text} at {curve.points[place].short}"


# In brief


def _brief_tables(found: Sequence[JudgedCurve]) -> Iterable[Table]:
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
        yield Table(header=header, rows=rows, words=True, title=title)


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
        parts += [Table(header=header, rows=tuple(rows[:MOST]), left=3)] if rows else []
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
        parts.append(Table(header=header, rows=rows, title=f"{measure.label}, {unit_of(measure)}"))
        per = " or ".join(dict.fromkeys(PER[one.curve.series.axis] for one in same))
        changes = tuple(
            (one.curve.series.name, one.curve.shape, _cell(one.rise, measure), _cell(_per(one), measure))
            for one in same
        )
        names = ("series", "curve", "start to peak", f"trend\n{per}")
        unit = "points" if measure.share else "own unit"
        parts.append(Table(header=names, rows=changes, left=2, title=f"{measure.label}, changes in {unit}"))
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
    return f"{moved(one.value, measure)} {limits(one, measure)}\n{one.verdict}"


def _rows_of_tests(one: JudgedCurve, only: str | None = None) -> list[tuple[str, ...]]:
    measure = one.curve.measure
    tests = {**one.tests, "trend": _per(one)}
    per = PER[one.curve.series.axis]
    return [
        (
            measure.label,
            one.curve.series.name,
            f"trend {per}" if name == "trend" else name,
            moved(test.value, measure),
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
