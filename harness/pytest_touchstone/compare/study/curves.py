"""The curve of a measure along a series: start, peak, lowest and last value, and what of it is more than noise.

- **Peak** is the best value, the first of equals, and **lowest** the worst one; where lower is better, the peak is the
  smallest value.
- **Rise** (start to peak) and **drop** (peak to last) allow for the peak's having been chosen
  (``statistics.best_of_many``): the best of eleven equal checkpoints lies above the last of them by luck alone.
- **Trend** and **steadiness** are those of ``statistics.curves``.
- **Ties**: the points that cannot be told from the peak, by a t test corrected (Bonferroni) for choosing one of many
  points, as ``statistics.best_of_many`` says, and for the number of curves. **Early** is the first of them, or the
  peak. Nothing that these items can show was gained after it.

- **Forecast**: from the first two thirds of the points the last value, which is known, so that a reader sees what
  forecasts are worth here; and from all of them the value at a place that is asked for.

``judged_curves`` has the verdicts on all curves, each kind (rises, drops, trends, changes) corrected together (Holm).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from pytest_touchstone.compare.judge import Compared
from pytest_touchstone.compare.study.differences import UNTESTED, PointsTogether, together, verdict_on
from pytest_touchstone.compare.study.points import Measure, Point, Series, Study, Value
from pytest_touchstone.statistics.curves import (
    FORECAST_LEAST,
    Forecast,
    Steadiness,
    Trend,
    forecast,
    steadiness,
    trend,
)
from pytest_touchstone.statistics.verdicts import holm

LEAST: Final = 2
"""The points that a curve has at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A measure along a series; ``points`` and ``values`` are those that have it, in order.

    ``start``, ``peak``, ``lowest`` and ``last`` are places among them. What cannot be computed is None: all tests
    where an error is not known (``why``), the drop where the last point is the peak, the rise where the first is.
    """

    series: Series
    measure: Measure
    points: tuple[Point, ...]
    values: tuple[Value, ...]
    start: int
    peak: int
    lowest: int
    last: int
    rise: Compared | None = None
    drop: Compared | None = None
    trend: Trend | None = None
    steadiness: Steadiness | None = None
    ties: tuple[int, ...] | None = None
    items: bool = False
    why: str | None = None

    @property
    def early(self) -> int | None:
        """The first point that cannot be told from the peak, or the peak."""
        return None if self.ties is None else min(self.peak, *self.ties, self.peak)

    def at(self, place: int) -> float:
        """The value at a place of the curve."""
        return self.values[place].value

    @property
    def shape(self) -> str:
        """The curve as measured, in words: ``peaks at 3, then falls``."""
        up, down = ("rises", "falls") if self.measure.higher_is_better else ("falls", "rises")
        if self.at(self.peak) == self.at(self.lowest):
            return "is level"
        if self.at(self.last) == self.at(self.peak):
            level = "" if self.peak == self.last else f" from {self.series.where(self.points[self.peak])} on"
            return f"{up} to the end" if not level else f"{up}, level{level}"
        if self.peak == 0:
            return f"{down} from the start"
        peaks = "peaks" if self.measure.higher_is_better else "is lowest"
        return f"{peaks} at {self.series.where(self.points[self.peak])}, then {down}"


def curves_of(study: Study) -> list[Curve]:
    """The curves of the study, by measure and series; none of a series with fewer than two points of the measure."""
    return [
        curve
        for measure in study.measures
        for series in study.series
        if (curve := curve_of(study, series, measure)) is not None
    ]


def curve_of(study: Study, series: Series, measure: Measure) -> Curve | None:
    """The curve of a measure along a series; None with fewer than two points that have it at a known place."""
    found = study.ordered(series, measure)
    if len(found) < LEAST:
        return None
    points, values = tuple(point for point, _ in found), tuple(value for _, value in found)
    sign = 1 if measure.higher_is_better else -1
    levels = [sign * value.value for value in values]
    peak, lowest, last = levels.index(max(levels)), levels.index(min(levels)), len(levels) - 1
    known = together(study, points, measure)
    plain = Curve(
        series=series,
        measure=measure,
        points=points,
        values=values,
        start=0,
        peak=peak,
        lowest=lowest,
        last=last,
        why=None if known else next((value.why for value in values if value.stderr is None), None),
    )
    return plain if known is None else _tested(study, plain, known)


def _tested(study: Study, plain: Curve, known: PointsTogether) -> Curve:
    sample = known.sample()
    drop = rise = None
    if plain.at(plain.last) != plain.at(plain.peak):
        drop = known.best(range(plain.last), plain.last, sample)
    if plain.at(plain.start) != plain.at(plain.peak):
        rise = known.best(range(1, len(plain.points)), 0, sample)
    at = [float(place) for point in plain.points if (place := plain.series.place(point)) is not None]
    return replace(
        plain,
        drop=drop,
        rise=rise,
        trend=trend(at, known.means, known.noise, study.level),
        steadiness=steadiness(known.means, known.noise, sample, study.level),
        ties=_ties(known, plain.peak, (1 - study.level) / (len(study.series) * len(study.measures))),
        items=known.items,
    )


def _ties(known: PointsTogether, peak: int, alpha: float) -> tuple[int, ...]:
    from scipy.special import stdtr

    covariance, freedom = known.noise.covariance, max(1, known.noise.units - 1)
    found = []
    for place in range(len(known.means)):
        square = covariance[place, place] + covariance[peak, peak] - 2 * covariance[place, peak]
        gap = abs(known.means[peak] - known.means[place])
        p = 2 * float(stdtr(freedom, -gap / math.sqrt(square))) if square > 0 else (0.0 if gap else 1.0)
        if place != peak and p * len(known.means) / 2 > alpha:
            found.append(place)
    return tuple(found)


class CurveChange(NamedTuple):
    """A number of a curve in its measure's unit, with its limits, its p, that after Holm's correction, and the
    verdict."""

    value: float | None
    low: float | None
    high: float | None
    p: float | None
    adjusted: float | None
    verdict: str


NO_CHANGE: Final = CurveChange(None, None, None, None, None, UNTESTED)


class JudgedCurve(NamedTuple):
    """A curve and its four tests: rise and drop as measured, with the p that allows for the choice of the peak."""

    curve: Curve
    rise: CurveChange
    drop: CurveChange
    trend: CurveChange
    steadiness: CurveChange

    @property
    def tests(self) -> dict[str, CurveChange]:
        """The tests by their names in reports."""
        names = ("start to peak", "peak to last", "trend", "stability")
        return dict(zip(names, (self.rise, self.drop, self.trend, self.steadiness), strict=True))


def judged_curves(study: Study) -> list[JudgedCurve]:
    """All curves with their tests, each kind corrected together (Holm); ``study.once(judged_curves)`` keeps them."""
    curves = curves_of(study)

    def of_kind(found: list[CurveChange]) -> list[CurveChange]:
        adjusted = holm([one.p for one in found])
        return [
            one._replace(adjusted=p, verdict=verdict_on(p, study.level))
            for one, p in zip(found, adjusted, strict=True)
        ]

    rises = of_kind([_of_choice(one, one.rise, one.start, one.peak) for one in curves])
    drops = of_kind([_of_choice(one, one.drop, one.peak, one.last) for one in curves])
    trends = of_kind([_as_measured(one.trend) for one in curves])
    changes = of_kind([_as_measured(one.steadiness) for one in curves])
    return [JudgedCurve(*one) for one in zip(curves, rises, drops, trends, changes, strict=True)]


def _of_choice(curve: Curve, found: Compared | None, before: int, after: int) -> CurveChange:
    """The change between two places of a curve, one of which is the peak; without a test, its value alone."""
    if curve.at(before) == curve.at(after):
        return NO_CHANGE
    difference = None if found is None else found.as_measured.difference
    if found is None or difference is None:
        return NO_CHANGE._replace(value=curve.at(after) - curve.at(before))
    low, high = found.as_measured.low, found.as_measured.high
    if after == curve.peak:  # the comparison is of the start with the peak
        difference, low, high = (None if value is None else -value for value in (difference, high, low))
    return NO_CHANGE._replace(value=difference, low=low, high=high, p=found.comparison.p)


def _as_measured(one: Trend | Steadiness | None) -> CurveChange:
    if one is None:
        return NO_CHANGE
    value = one.slope if isinstance(one, Trend) else one.change
    return NO_CHANGE._replace(value=value, low=one.low, high=one.high, p=one.p)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveForecast:
    """The forecast from the first ``count`` points of a curve for a place; ``known`` is the value there, None where it
    is still to come."""

    curve: Curve
    count: int
    at: float
    found: Forecast
    known: float | None

    @property
    def holds(self) -> bool:
        """Return whether the known value is within the interval."""
        return self.known is not None and self.found.low <= self.known <= self.found.high


def forecasts(study: Study, at: float | None = None) -> list[CurveForecast]:
    """The forecasts of all curves of five points or more: for ``at``, or without it of the last value."""
    found = []
    for curve in (one.curve for one in study.once(judged_curves)):
        places = [float(curve.series.place(point) or 0.0) for point in curve.points]
        values = [value.value for value in curve.values]
        if len(values) <= FORECAST_LEAST:
            continue
        count = max(FORECAST_LEAST, math.ceil(2 * len(values) / 3)) if at is None else len(values)
        wanted = places[-1] if at is None else at
        made = forecast(places[:count], values[:count], wanted, study.level)
        if made is None:
            continue
        if curve.measure.share:
            made = Forecast(made.value, max(0.0, made.low), min(1.0, made.high))
        known = values[-1] if at is None else None
        found.append(CurveForecast(curve=curve, count=count, at=wanted, found=made, known=known))
    return found
