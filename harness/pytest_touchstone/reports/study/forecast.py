"""The end of each curve as its beginning forecasts it, beside the value that is known; and a place still to come."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pytest_touchstone.compare.study.curves import CurveForecast, forecasts
from pytest_touchstone.compare.study.points import Study
from pytest_touchstone.core.text import place_text
from pytest_touchstone.reports.document import Part, Section, Table
from pytest_touchstone.reports.study.section import amount, unit_of, value_range, value_text

HOW = (
    "A forecast is the last value before it; its 95 % interval is as wide as the curve has moved before, over the same "
    "distance. It does not foresee what the beginning does not show: a jump, or a fall after the learning rate changes."
)


def forecast_section(study: Study, at: float | None = None) -> Section | None:
    """Return how the curves' ends were forecast, and with ``at`` the forecasts for that place; None without either."""
    past, coming = forecasts(study), [] if at is None else forecasts(study, at)
    if not past and at is None:
        return None
    where = "" if at is None else place_text(at)
    parts: list[Part] = []
    if coming:
        parts.append(_table(coming, f"Forecast at {where}"))
    elif where:
        parts.append(
            f"Nothing can be forecast at {where}: it takes five checkpoints of a series, all before it."
        )
    if past:
        title = "The last values, forecast from the first two thirds of the checkpoints"
        parts += [_table(past, title), HOW]
    return Section(
        key="forecast",
        title="The end from the beginning",
        parts=tuple(parts),
        brief=1 if where else 0,
        line=_line(past) if past else "",
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
                    "unit": unit_of(one.curve.measure),
                }
                for one in found
            ]
            for name, found in (("past", past), ("coming", coming))
        },
    )


def _line(past: Sequence[CurveForecast]) -> str:
    if len(past) == 1:
        (one,) = past
        value, low, high, known = (
            value_text(each, one.curve.measure)
            for each in (one.found.value, one.found.low, one.found.high, one.known)
        )
        return (
            f"from the first {one.count} of {len(one.curve.points)} checkpoints: {value} at {one.curve.series.axis} "
            f"{place_text(one.at)}, between {low.removesuffix(' %')} and {high}; known: {known}"
        )
    held = f"{sum(one.holds for one in past)} of {len(past)} ends are within their forecasts"
    widths = [one.found.high - one.found.low for one in past if one.curve.measure.share]
    return f"{held} (median {100 * median(widths):.1f} points)" if widths else held


def _table(found: Sequence[CurveForecast], title: str) -> Table:
    return Table(
        header=("measure", "series", "from", "at", "forecast", "95 % interval", "known"),
        rows=tuple(
            (
                one.curve.measure.label,
                one.curve.series.name,
                f"{one.count} of {len(one.curve.points)}",
                place_text(one.at),
                amount(one.found.value, one.curve.measure),
                value_range(one.found, one.curve.measure),
                amount(one.known, one.curve.measure),
            )
            for one in found
        ),
        left=2,
        title=title,
    )
