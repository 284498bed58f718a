"""Over-fitting: the drop of each curve from its peak to its last checkpoint, and when to stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_touchstone.compare.study.curves import Curve, JudgedCurve, judged_curves
from pytest_touchstone.compare.study.differences import MORE
from pytest_touchstone.compare.study.points import Series, Study
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.reports.formatting import p_exact
from pytest_touchstone.reports.study.curves import MOST, amount, at, limits, moved
from pytest_touchstone.reports.study.section import Facts, Part, Section, Table, found_among

LEAST: int = 3
"""The checkpoints from which a curve can be said to over-fit."""


def overfitting(study: Study) -> Section | None:
    """Return the drops from the peak, how much of them is luck, and when to stop."""
    found = [one for one in study.once(judged_curves) if len(one.curve.points) >= LEAST]
    if not found:
        return None
    drops = [one for one in found if one.drop.value is not None]
    told = [one for one in drops if one.drop.verdict == MORE]
    shown = drops if len(drops) <= MOST else told[:MOST]
    parts: list[Part] = [_table(shown)] if shown else []
    parts.append(_verdict(drops, told, level=len(found) - len(drops)))
    names = {one.curve.series.name for one in found}
    series = [one for one in study.series if one.name in names]
    parts.append(Facts(tuple((one.name, _advice(one, found)) for one in series)))
    how = (
        "The interval is that of the two values as measured. The verdict allows for the peak's having been chosen as "
        "the best of several: such a peak lies above the truth by luck, and less that luck it has the value beside it."
    )
    data: list[dict[str, Any]] = [{"series": one.name, "advice": _advice(one, found)} for one in series]
    return Section(
        key="early_stopping",
        title="Over-fitting and when to stop",
        parts=tuple(parts),
        details=(how, _whole_table(drops)) if drops else (),
        line=_line(drops, told),
        data=data,
    )


def _table(found: Sequence[JudgedCurve]) -> Table:
    rows = tuple(
        (
            one.curve.measure.label,
            one.curve.series.name,
            at(one.curve, one.curve.peak),
            at(one.curve, one.curve.last),
            moved(one.drop.value, one.curve.measure),
            limits(one.drop, one.curve.measure),
        )
        for one in found
    )
    header = ("measure", "series", "peak", "last", "drop", "95 % interval")
    return Table(header=header, rows=rows, left=2)


def _whole_table(found: Sequence[JudgedCurve]) -> Table:
    rows = tuple(
        (
            one.curve.measure.label,
            one.curve.series.name,
            moved(one.drop.value, one.curve.measure),
            amount(one.curve.drop.measured if one.curve.drop else None, one.curve.measure),
            amount(one.curve.drop.shrunk if one.curve.drop else None, one.curve.measure),
            p_exact(one.drop.adjusted),
            one.drop.verdict,
        )
        for one in found
    )
    header = ("measure", "series", "drop", "peak", "less\nluck", "p\n(Holm)", "verdict")
    return Table(header=header, rows=rows, left=2, words=True)


def _verdict(drops: Sequence[JudgedCurve], told: Sequence[JudgedCurve], *, level: int) -> str:
    ends = f"{level} of the curves end at their peak. " if level else ""
    if not drops:
        return f"{ends}No curve falls from its peak."
    tested = sum(one.drop.p is not None for one in drops)
    if not tested:
        return f"{ends}Whether the {count(len(drops), 'drop')} are more than noise cannot be tested."
    one_of = f"{len(told)} of the {count(tested, 'drop')}" if told else f"None of the {count(tested, 'drop')}"
    verb = "is" if len(told) < 2 else "are"
    names = f": {listed(_named(one) for one in told)}" if told else ""
    why = ", allowing for the peak's being the best of several, and for so many tests"
    return f"{ends}{one_of} {verb} more than noise{why}{names}."


def _line(drops: Sequence[JudgedCurve], told: Sequence[JudgedCurve]) -> str:
    if not drops:
        return "no curve falls from its peak"
    tested = sum(one.drop.p is not None for one in drops)
    if not tested:
        return f"the {count(len(drops), 'drop')} from a peak cannot be tested"
    return found_among([_named(one) for one in told], tested, "drops from a peak to the last checkpoint")


def _named(one: JudgedCurve) -> str:
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
