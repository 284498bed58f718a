"""Sections of a study on its curves: changes, over-fitting, stability and forecasts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, Final

from pytest_touchstone.core.text import format_step, join_names
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
from pytest_touchstone.study.points import MOST_IN_LINE, Study, StudyMetric, fields_of, summarize_findings
from pytest_touchstone.study.pool import MORE

PER: Final = {"epoch": "per epoch", "step": "per 1000 steps", "order": "per checkpoint"}

CORRECTED: Final = (
    "Intervals are 95 %. The trend is the slope of a line through all values. Verdicts on start to peak and peak to "
    "last allow for the peak's having been chosen, and all are corrected (Holm) over the tests of their kind."
)
SELECTION_NOTE: Final = (
    "The interval is that of the two values as measured. The verdict allows for the peak's having been chosen as the "
    "best of several: such a peak lies above the truth by luck, and less that luck it has the value beside it."
)
TOTALS: Final = (
    "Only totals are known, so checkpoints are taken as asked different items. On the same items, differences are known"
    " better than this says; the scores of the items would tell."
)


def tables_by_measure(
    curves: Iterable[Curve], table: Callable[[StudyMetric, list[Curve]], Table]
) -> list[Part]:
    """Group curves by measure and return a table of each group."""
    by_measure: dict[str, list[Curve]] = {}
    for curve in curves:
        by_measure.setdefault(curve.measure.key, []).append(curve)
    return [table(members[0].measure, members) for members in by_measure.values()]


def curves_section(study: Study) -> Section | None:
    """Return the section on the curves of every measure and their significant changes."""
    curves = study.compute_once(curves_of)
    if not curves:
        return None
    kinds = (RISE, DROP, TREND)
    reasons = dict.fromkeys(curve.why for curve in curves if curve.why)
    totals = [TOTALS] if any(curve.ties is not None and not curve.items for curve in curves) else []
    return Section(
        key="curves",
        title="Curves",
        parts=(
            *tables_by_measure(curves, _values_table),
            CORRECTED,
            *tables_by_measure(curves, lambda measure, curves: _tests_table(measure, curves, kinds)),
            *totals,
            *(f"Not tested: {reason}." for reason in reasons),
        ),
        line=_summary_line(curves, kinds, "changes of curves")
        + (" (only totals are known: taken as runs on different items)" if totals else ""),
        data=[_curve_facts(curve) for curve in curves],
    )


def _values_table(measure: StudyMetric, curves: Sequence[Curve]) -> Table:
    axes = " or ".join(dict.fromkeys(curve.series.axis for curve in curves))
    return Table(
        header=("series", "start", "peak", "lowest", "last"),
        rows=tuple(
            (
                curve.series.name,
                *(
                    f"{_value_at(curve, index)}\n{measure.range(curve.values[index])}".removesuffix(
                        f"\n{NOTHING}"
                    )
                    for index in (0, curve.peak, curve.lowest, curve.last)
                ),
            )
            for curve in curves
        ),
        title=f"{measure.label} ({measure.unit_text}, at {axes})",
    )


def _value_at(curve: Curve, index: int) -> str:
    """Return a value with its position: ``66.04 at 3``."""
    return f"{curve.measure.amount(curve.at(index))} at {curve.series.at(curve.points[index])}"


def scaled_change(curve: Curve, kind: str) -> CurveChange:
    """Return a change of a curve; on an axis of steps the trend is per 1000 steps."""
    change = curve.tests[kind]
    if kind != TREND or curve.series.axis != "step":
        return change
    value, low, high = (
        None if number is None else 1000 * number for number in (change.value, change.low, change.high)
    )
    return change._replace(value=value, low=low, high=high)


def _tests_table(measure: StudyMetric, curves: Sequence[Curve], kinds: Sequence[str]) -> Table:
    """Return a table with the shape of each curve above its tests."""
    rows = []
    for curve in curves:
        rows.append((curve.series.name, curve.shape, *[""] * 4))
        rows += [
            (
                "",
                _change_name(curve, kind),
                measure.difference_unit.moved(test.value),
                measure.difference_range(test),
                measure.amount(test.less_luck),
                p_exact(test.adjusted),
            )
            for kind in kinds
            if (test := scaled_change(curve, kind)).value is not None
        ]
    return Table(
        header=("series", "curve", "change", "95 % interval", "peak less\nluck", "p\n(Holm)"),
        rows=tuple(rows),
        text_columns=2,
        title=f"{measure.label}, changes in {measure.difference_unit.name or 'own unit'}",
    )


def _change_name(curve: Curve, kind: str) -> str:
    return f"{kind} {PER[curve.series.axis]}" if kind == TREND else kind


def _summary_line(curves: Sequence[Curve], kinds: Sequence[str], tests: str) -> str:
    """Name the changes that are more than noise, and those that cannot be tested."""
    changes = [(curve, kind, curve.tests[kind]) for curve in curves for kind in kinds]
    tested = [change for change in changes if change[-1].p is not None]
    findings = [_describe_change(curve, kind) for curve, kind, test in tested if test.verdict == MORE]
    untested = [
        _describe_change(curve, kind)
        for curve, kind, test in changes
        if test.p is None and test.value is not None
    ]
    clauses = [summarize_findings(findings, len(tested), tests)] if tested else []
    clauses += (
        [f"{len(untested)} cannot be tested: {join_names(untested, MOST_IN_LINE, between='; ')}"]
        if untested
        else []
    )
    return "; ".join(clauses) or f"no {tests}"


def _describe_change(curve: Curve, kind: str) -> str:
    test = scaled_change(curve, kind)
    measure = curve.measure
    subject = f"{measure.label} of {curve.series.name}"
    if kind == STABILITY:
        return subject
    change = f"{_change_name(curve, kind)} {measure.difference_unit.moved(test.value)}"
    return f"{subject}, {change} {measure.difference_range(test)}".removesuffix(f" {NOTHING}")


def _curve_facts(curve: Curve) -> dict[str, Any]:
    """Return a curve and its tests as JSON values."""

    def point_facts(index: int) -> dict[str, Any]:
        point = curve.points[index]
        return {
            "point": point.name,
            "at": curve.series.position(point),
            **fields_of(curve.values[index], "value", "low", "high"),
        }

    names = {"rise": RISE, "drop": DROP, "trend": TREND, "stability": STABILITY}
    return {
        "measure": curve.measure.key,
        "series": curve.series.name,
        "axis": curve.series.axis,
        "shape": curve.shape,
        "start": point_facts(0),
        "peak": point_facts(curve.peak),
        "lowest": point_facts(curve.lowest),
        "last": point_facts(curve.last),
        **{name: curve.tests[kind]._asdict() for name, kind in names.items()},
        "noise_alone": curve.noise_alone,
        "not_told_from_the_peak": None if curve.early is None else point_facts(curve.early),
        "within_one_point": curve.within,
        "paired": curve.items,
        "why": curve.why,
    }


# Over-fitting


LEAST: Final = 3
"""The fewest checkpoints of a curve that can show over-fitting."""


def overfitting_section(study: Study) -> Section | None:
    """Return the section on drops from the peak and on when to stop training."""
    curves = [curve for curve in study.compute_once(curves_of) if len(curve.points) >= LEAST]
    if not curves:
        return None
    series = {
        curve.series.name: [candidate for candidate in curves if candidate.series is curve.series]
        for curve in curves
    }
    advice = {series_name: _stopping_advice(members) for series_name, members in series.items()}
    drops = [curve for curve in curves if curve.tests[DROP].value is not None]
    level = len(curves) - len(drops)
    return Section(
        key="early_stopping",
        title="Over-fitting and when to stop",
        parts=(
            *tables_by_measure(drops, _drops_table),
            *([f"{level} of the curves end at their peak."] if level else []),
            Facts(tuple(advice.items())),
            SELECTION_NOTE,
        ),
        line=_summary_line(curves, [DROP], "drops from a peak to the last checkpoint"),
        data=[
            {
                "series": series_name,
                "advice": text,
                "drops": [
                    {
                        field: fact
                        for field, fact in _curve_facts(curve).items()
                        if field in ("measure", "peak", "last", "drop")
                    }
                    for curve in series[series_name]
                    if curve in drops
                ],
            }
            for series_name, text in advice.items()
        ],
    )


def _drops_table(measure: StudyMetric, curves: Sequence[Curve]) -> Table:
    return Table(
        header=("series", "peak", "last", "drop", "95 % interval", "less\nluck", "p\n(Holm)"),
        rows=tuple(
            (
                curve.series.name,
                _value_at(curve, curve.peak),
                _value_at(curve, curve.last),
                measure.difference_unit.moved(curve.tests[DROP].value),
                measure.difference_range(curve.tests[DROP]),
                measure.amount(curve.tests[DROP].less_luck),
                p_exact(curve.tests[DROP].adjusted),
            )
            for curve in curves
        ),
        title=f"{measure.label}: from the peak to the last checkpoint",
    )


def _stopping_advice(curves: Sequence[Curve]) -> str:
    """Return advice on when to stop a training, from the curves of all its measures."""
    falls = [curve for curve in curves if curve.tests[DROP].verdict == MORE]
    if falls:
        falling = [f"{curve.measure.label} after {curve.where(curve.peak)}" for curve in falls]
        return f"stop early: by more than noise falls {join_names(falling)}"
    tested = [curve for curve in curves if curve.early is not None]
    if not tested:
        return f"undecided: {next((curve.why for curve in curves if curve.why), 'an error is not known')}"
    none = "no evidence of over-fitting"
    rises = [
        curve
        for curve in tested
        if curve.tests[TREND].verdict == MORE and curve.measure.sign * (curve.tests[TREND].value or 0) > 0
    ]
    if rises:
        is_best = any(curve.at(curve.peak) == curve.at(curve.last) for curve in rises)
        last = "; its last value is its best, so more training may gain more" if is_best else ""
        names = join_names(curve.measure.label for curve in rises)
        return f"{none}: {names} gains along the training by more than noise{last}"
    latest = max(tested, key=lambda curve: curve.early or 0)
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


STABILITY_METHOD: Final = (
    "The mean absolute change between neighbouring checkpoints, in points. Noise alone gives sqrt(2/pi) times the mean "
    "standard error of such a change, and with a chance of 95 % a value in the range beside it."
)
LESS_THAN_NOISE: Final = (
    "change less than checkpoints on different items would, as those on the same items do. The noise between them is "
    "then smaller, and only the scores of the items would tell it."
)


def stability_section(study: Study) -> Section | None:
    """Return the section on changes between neighbouring checkpoints, compared with noise."""
    curves = [curve for curve in study.compute_once(curves_of) if curve.noise_alone is not None]
    if not curves:
        return None
    tested = [curve.tests[STABILITY] for curve in curves if not curve.items]
    below = [test for test in tested if (test.value or 0.0) < (test.low or 0.0)]
    return Section(
        key="stability",
        title="Stability",
        parts=(
            STABILITY_METHOD,
            *([f"{len(below)} of {len(curves)} {LESS_THAN_NOISE}"] if below else []),
            *tables_by_measure(curves, _stability_table),
        ),
        line=_summary_line(curves, [STABILITY], "curves, between neighbouring checkpoints"),
    )


def _stability_table(measure: StudyMetric, curves: Sequence[Curve]) -> Table:
    return Table(
        header=("series", "mean\nchange", "noise\nalone", "its range", "p\n(Holm)", "verdict"),
        rows=tuple(
            (
                curve.series.name,
                measure.amount(test.value),
                measure.amount(curve.noise_alone),
                measure.range(test),
                p_exact(test.adjusted),
                test.verdict,
            )
            for curve in curves
            for test in [curve.tests[STABILITY]]
        ),
        words=True,
        title=measure.label,
    )


# Forecasts


FORECAST_METHOD = (
    "A forecast is the last value before it; its 95 % interval is as wide as the curve has moved before, over the same "
    "distance. It does not foresee what the beginning does not show: a jump, or a fall after the learning rate changes."
)


def forecast_section(study: Study, at: float | None = None) -> Section | None:
    """Return the section on forecasts; None if nothing can be forecast and ``at`` is None.

    It shows how well the last values were forecast from earlier ones. With ``at``, an epoch or a step, it adds the
    forecasts for that position.
    """
    past, coming = forecasts(study), [] if at is None else forecasts(study, at)
    if not past and at is None:
        return None
    position = "" if at is None else format_step(at)
    parts: list[Part] = []
    if coming:
        parts.append(_forecast_table(coming, f"Forecast at {position}"))
    elif position:
        parts.append(
            f"Nothing can be forecast at {position}: it takes five checkpoints of a series, all before it."
        )
    if past:
        parts += [
            _forecast_table(past, "The last values, forecast from the first two thirds of the checkpoints"),
            FORECAST_METHOD,
        ]
    return Section(
        key="forecast",
        title="The end from the beginning",
        parts=tuple(parts),
        brief_parts=1 if position else 0,
        line=_forecast_line(past) if past else "",
        data={
            name: [
                {
                    "measure": forecast.curve.measure.key,
                    "series": forecast.curve.series.name,
                    "axis": forecast.curve.series.axis,
                    "from": forecast.count,
                    "of": len(forecast.curve.points),
                    "at": forecast.at,
                    **forecast.predicted._asdict(),
                    "known": forecast.actual,
                    "holds": forecast.holds if forecast.actual is not None else None,
                    "unit": forecast.curve.measure.unit_text,
                }
                for forecast in group
            ]
            for name, group in (("past", past), ("coming", coming))
        },
    )


def _forecast_line(past: Sequence[CurveForecast]) -> str:
    if len(past) == 1:
        (forecast,) = past
        curve, predicted = forecast.curve, forecast.predicted
        value, low, high, actual = map(
            curve.measure.text, (predicted.value, predicted.low, predicted.high, forecast.actual)
        )
        return (
            f"from the first {forecast.count} of {len(curve.points)} checkpoints: {value} at {curve.series.axis} "
            f"{format_step(forecast.at)}, between {low.removesuffix(' %')} and {high}; known: {actual}"
        )
    summary = f"{sum(forecast.holds for forecast in past)} of {len(past)} ends are within their forecasts"
    widths = [
        forecast.predicted.high - forecast.predicted.low for forecast in past if forecast.curve.measure.share
    ]
    return f"{summary} (median {100 * median(widths):.1f} points)" if widths else summary


def _forecast_table(forecasts: Sequence[CurveForecast], title: str) -> Table:
    return Table(
        header=("measure", "series", "from", "at", "forecast", "95 % interval", "known"),
        rows=tuple(
            (
                forecast.curve.measure.label,
                forecast.curve.series.name,
                f"{forecast.count} of {len(forecast.curve.points)}",
                format_step(forecast.at),
                forecast.curve.measure.amount(forecast.predicted.value),
                forecast.curve.measure.range(forecast.predicted),
                forecast.curve.measure.amount(forecast.actual),
            )
            for forecast in forecasts
        ),
        text_columns=2,
        title=title,
    )
