"""The curves of a study, their stability and over-fitting, how their ends are forecast, and what is more than noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, Final

from pytest_touchstone.core.text import join_names, ordinal_place
from pytest_touchstone.document import Facts, Part, Section, Table
from pytest_touchstone.document.formatting import NOTHING, p_exact
from pytest_touchstone.study.curves import (
    DROP,
    RISE,
    STABILITY,
    TREND,
    Curve,
    CurveChange,
    CurveForecast,
    curves_of,
    forecasts,
)
from pytest_touchstone.study.points import MOST_IN_LINE, Study, StudyMetric, fields_of, found_among
from pytest_touchstone.study.pool import MORE

PER: Final = {"epoch": "per epoch", "step": "per 1000 steps", "order": "per checkpoint"}

CORRECTED: Final = (
    "Intervals are 95 %. The trend is the slope of a line through all values. Verdicts on start to peak and peak to "
    "last allow for the peak's having been chosen, and all are corrected (Holm) over the tests of their kind."
)
CHOSEN: Final = (
    "The interval is that of the two values as measured. The verdict allows for the peak's having been chosen as the "
    "best of several: such a peak lies above the truth by luck, and less that luck it has the value beside it."
)
TOTALS: Final = (
    "Only totals are known, so checkpoints are taken as asked different items. On the same items, differences are known"
    " better than this says; the scores of the items would tell."
)


def per_measure(found: Iterable[Curve], table: Callable[[StudyMetric, list[Curve]], Table]) -> list[Part]:
    """Return a table for each measure, made of its curves."""
    same: dict[str, list[Curve]] = {}
    for one in found:
        same.setdefault(one.measure.key, []).append(one)
    return [table(members[0].measure, members) for members in same.values()]


def curves(study: Study) -> Section | None:
    """Return the curves of every measure, and the changes that are more than noise."""
    found = study.once(curves_of)
    if not found:
        return None
    kinds = (RISE, DROP, TREND)
    whys = dict.fromkeys(one.why for one in found if one.why)
    totals = [TOTALS] if any(one.ties is not None and not one.items for one in found) else []
    line = _line(found, kinds, "changes of curves")
    return Section(
        key="curves",
        title="Curves",
        parts=(
            *per_measure(found, _values),
            CORRECTED,
            *per_measure(found, lambda measure, same: _tests(measure, same, kinds)),
            *totals,
            *(f"Not tested: {why}." for why in whys),
        ),
        line=line + (" (only totals are known: taken as runs on different items)" if totals else ""),
        data=[_facts(one) for one in found],
    )


def _values(measure: StudyMetric, found: Sequence[Curve]) -> Table:
    axes = " or ".join(dict.fromkeys(one.series.axis for one in found))
    return Table(
        header=("series", "start", "peak", "lowest", "last"),
        rows=tuple(
            (
                one.series.name,
                *(
                    f"{_at(one, place)}\n{measure.range(one.values[place])}".removesuffix(f"\n{NOTHING}")
                    for place in (0, one.peak, one.lowest, one.last)
                ),
            )
            for one in found
        ),
        title=f"{measure.label} ({measure.unit_text}, at {axes})",
    )


def _at(curve: Curve, place: int) -> str:
    """Return a value with its place: ``66.04 at 3``."""
    return f"{curve.measure.amount(curve.at(place))} at {curve.series.at(curve.points[place])}"


def shown_change(curve: Curve, kind: str) -> CurveChange:
    """Return a change of a curve, its trend per thousand steps where its axis has steps."""
    one = curve.tests[kind]
    if kind != TREND or curve.series.axis != "step":
        return one
    value, low, high = (None if each is None else 1000 * each for each in (one.value, one.low, one.high))
    return one._replace(value=value, low=low, high=high)


def _tests(measure: StudyMetric, found: Sequence[Curve], kinds: Sequence[str]) -> Table:
    """Return the curves in words, each above its tests of these kinds."""
    rows = []
    for curve in found:
        rows.append((curve.series.name, curve.shape, *[""] * 4))
        rows += [
            (
                "",
                _name(curve, kind),
                measure.told_in.moved(test.value),
                measure.difference_range(test),
                measure.amount(test.less_luck),
                p_exact(test.adjusted),
            )
            for kind in kinds
            if (test := shown_change(curve, kind)).value is not None
        ]
    return Table(
        header=("series", "curve", "change", "95 % interval", "peak less\nluck", "p\n(Holm)"),
        rows=tuple(rows),
        left=2,
        title=f"{measure.label}, changes in {measure.told_in.name or 'own unit'}",
    )


def _name(curve: Curve, kind: str) -> str:
    return f"{kind} {PER[curve.series.axis]}" if kind == TREND else kind


def _line(found: Sequence[Curve], kinds: Sequence[str], tests: str) -> str:
    """Return what of the tests of these kinds is more than noise, and what could not be tested."""
    changes = [(one, kind, one.tests[kind]) for one in found for kind in kinds]
    tested = [change for change in changes if change[-1].p is not None]
    told = [_told(one, kind) for one, kind, test in tested if test.verdict == MORE]
    untested = [_told(one, kind) for one, kind, test in changes if test.p is None and test.value is not None]
    parts = [found_among(told, len(tested), tests)] if tested else []
    parts += (
        [f"{len(untested)} cannot be tested: {join_names(untested, MOST_IN_LINE, between='; ')}"]
        if untested
        else []
    )
    return "; ".join(parts) or f"no {tests}"


def _told(curve: Curve, kind: str) -> str:
    test = shown_change(curve, kind)
    text = f"{_name(curve, kind)} {curve.measure.told_in.moved(test.value)} {curve.measure.difference_range(test)}"
    named = f"{curve.measure.label} of {curve.series.name}"
    return named if kind == STABILITY else f"{named}, {text.removesuffix(f' {NOTHING}')}"


def _facts(one: Curve) -> dict[str, Any]:
    """Return a curve with its tests as plain data."""

    def place(at: int) -> dict[str, Any]:
        point = one.points[at]
        limits = fields_of(one.values[at], "value", "low", "high")
        return {"point": point.name, "at": one.series.place(point), **limits}

    names = {"rise": RISE, "drop": DROP, "trend": TREND, "stability": STABILITY}
    return {
        "measure": one.measure.key,
        "series": one.series.name,
        "axis": one.series.axis,
        "shape": one.shape,
        "start": place(0),
        "peak": place(one.peak),
        "lowest": place(one.lowest),
        "last": place(one.last),
        **{name: one.tests[kind]._asdict() for name, kind in names.items()},
        "noise_alone": one.noise_alone,
        "not_told_from_the_peak": None if one.early is None else place(one.early),
        "within_one_point": one.within,
        "paired": one.items,
        "why": one.why,
    }


# Over-fitting


LEAST: Final = 3
"""The checkpoints from which a curve can be said to over-fit."""


def overfitting(study: Study) -> Section | None:
    """Return the drops from the peak, how much of them is luck, and when to stop."""
    found = [one for one in study.once(curves_of) if len(one.points) >= LEAST]
    if not found:
        return None
    series = {one.series.name: [other for other in found if other.series is one.series] for one in found}
    told = {name: _advice(own) for name, own in series.items()}
    drops = [one for one in found if one.tests[DROP].value is not None]
    level = len(found) - len(drops)
    return Section(
        key="early_stopping",
        title="Over-fitting and when to stop",
        parts=(
            *per_measure(drops, _drops),
            *([f"{level} of the curves end at their peak."] if level else []),
            Facts(tuple(told.items())),
            CHOSEN,
        ),
        line=_line(found, [DROP], "drops from a peak to the last checkpoint"),
        data=[
            {
                "series": name,
                "advice": text,
                "drops": [
                    {
                        key: value
                        for key, value in _facts(one).items()
                        if key in ("measure", "peak", "last", "drop")
                    }
                    for one in series[name]
                    if one in drops
                ],
            }
            for name, text in told.items()
        ],
    )


def _drops(measure: StudyMetric, found: Sequence[Curve]) -> Table:
    return Table(
        header=("series", "peak", "last", "drop", "95 % interval", "less\nluck", "p\n(Holm)"),
        rows=tuple(
            (
                one.series.name,
                _at(one, one.peak),
                _at(one, one.last),
                measure.told_in.moved(one.tests[DROP].value),
                measure.difference_range(one.tests[DROP]),
                measure.amount(one.tests[DROP].less_luck),
                p_exact(one.tests[DROP].adjusted),
            )
            for one in found
        ),
        title=f"{measure.label}: from the peak to the last checkpoint",
    )


def _advice(found: Sequence[Curve]) -> str:
    """Return when to stop the training of a series, by the curves of all of its measures."""
    falls = [one for one in found if one.tests[DROP].verdict == MORE]
    if falls:
        parts = [f"{one.measure.label} after {one.where(one.peak)}" for one in falls]
        return f"stop early: by more than noise falls {join_names(parts)}"
    known = [one for one in found if one.early is not None]
    if not known:
        return f"cannot be told: {next((one.why for one in found if one.why), 'an error is not known')}"
    none = "no evidence of over-fitting"
    rises = [
        one
        for one in known
        if one.tests[TREND].verdict == MORE and one.measure.sign * (one.tests[TREND].value or 0) > 0
    ]
    if rises:
        more = any(one.at(one.peak) == one.at(one.last) for one in rises)
        last = "; its last value is its best, so more training may gain more" if more else ""
        names = join_names(one.measure.label for one in rises)
        return f"{none}: {names} gains along the training by more than noise{last}"
    latest = max(known, key=lambda one: one.early or 0)
    early = latest.early or 0
    if not early:
        return f"{none}; nor that training beyond its first checkpoint ({latest.where(0)}) gained anything"
    end = (
        ", its last checkpoint; more training may gain more"
        if early == latest.last
        else "; nothing is shown to be gained after that"
    )
    return f"{none}: {latest.measure.label} is below its peak by more than noise before {latest.where(early)}{end}"


# Stability


STEADY: Final = (
    "The mean absolute change between neighbouring checkpoints, in points. Noise alone gives sqrt(2/pi) times the mean "
    "standard error of such a change, and with a chance of 95 % a value in the range beside it."
)
BELOW: Final = (
    "change less than checkpoints on different items would, as those on the same items do. The noise between them is "
    "then smaller, and only the scores of the items would tell it."
)


def stability(study: Study) -> Section | None:
    """Return which curves change more between neighbours than noise alone makes them."""
    found = [one for one in study.once(curves_of) if one.noise_alone is not None]
    if not found:
        return None
    tests = [one.tests[STABILITY] for one in found if not one.items]
    below = [one for one in tests if (one.value or 0.0) < (one.low or 0.0)]
    return Section(
        key="stability",
        title="Stability",
        parts=(
            STEADY,
            *([f"{len(below)} of {len(found)} {BELOW}"] if below else []),
            *per_measure(found, _steadiness),
        ),
        line=_line(found, [STABILITY], "curves, between neighbouring checkpoints"),
    )


def _steadiness(measure: StudyMetric, found: Sequence[Curve]) -> Table:
    return Table(
        header=("series", "mean\nchange", "noise\nalone", "its range", "p\n(Holm)", "verdict"),
        rows=tuple(
            (
                one.series.name,
                measure.amount(test.value),
                measure.amount(one.noise_alone),
                measure.range(test),
                p_exact(test.adjusted),
                test.verdict,
            )
            for one in found
            for test in [one.tests[STABILITY]]
        ),
        words=True,
        title=measure.label,
    )


# Forecasts


HOW = (
    "A forecast is the last value before it; its 95 % interval is as wide as the curve has moved before, over the same "
    "distance. It does not foresee what the beginning does not show: a jump, or a fall after the learning rate changes."
)


def forecast_section(study: Study, at: float | None = None) -> Section | None:
    """Return how the curves' ends were forecast, and with ``at`` the forecasts for that place; None without either."""
    past, coming = forecasts(study), [] if at is None else forecasts(study, at)
    if not past and at is None:
        return None
    where = "" if at is None else ordinal_place(at)
    parts: list[Part] = []
    if coming:
        parts.append(_forecast_table(coming, f"Forecast at {where}"))
    elif where:
        parts.append(
            f"Nothing can be forecast at {where}: it takes five checkpoints of a series, all before it."
        )
    if past:
        title = "The last values, forecast from the first two thirds of the checkpoints"
        parts += [_forecast_table(past, title), HOW]
    return Section(
        key="forecast",
        title="The end from the beginning",
        parts=tuple(parts),
        brief=1 if where else 0,
        line=_forecast_line(past) if past else "",
        data={
            name: [
                {
                    "measure": one.curve.measure.key,
                    "series": one.curve.series.name,
                    "axis": one.curve.series.axis,
                    "from": one.count,
                    "of": len(one.curve.points),
                    "at": one.at,
                    **one.found._asdict(),
                    "known": one.known,
                    "holds": one.holds if one.known is not None else None,
                    "unit": one.curve.measure.unit_text,
                }
                for one in found
            ]
            for name, found in (("past", past), ("coming", coming))
        },
    )


def _forecast_line(past: Sequence[CurveForecast]) -> str:
    if len(past) == 1:
        (one,) = past
        value, low, high, known = (
            one.curve.measure.text(each)
            for each in (one.found.value, one.found.low, one.found.high, one.known)
        )
        return (
            f"from the first {one.count} of {len(one.curve.points)} checkpoints: {value} at {one.curve.series.axis} "
            f"{ordinal_place(one.at)}, between {low.removesuffix(' %')} and {high}; known: {known}"
        )
    held = f"{sum(one.holds for one in past)} of {len(past)} ends are within their forecasts"
    widths = [one.found.high - one.found.low for one in past if one.curve.measure.share]
    return f"{held} (median {100 * median(widths):.1f} points)" if widths else held


def _forecast_table(found: Sequence[CurveForecast], title: str) -> Table:
    return Table(
        header=("measure", "series", "from", "at", "forecast", "95 % interval", "known"),
        rows=tuple(
            (
                one.curve.measure.label,
                one.curve.series.name,
                f"{one.count} of {len(one.curve.points)}",
                ordinal_place(one.at),
                one.curve.measure.amount(one.found.value),
                one.curve.measure.range(one.found),
                one.curve.measure.amount(one.known),
            )
            for one in found
        ),
        left=2,
        title=title,
    )
