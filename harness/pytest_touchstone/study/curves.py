"""Curves of measures along series: start, peak, lowest and last value, and their tests.

- **Peak** is the best value, the first of equals, and **lowest** the worst. If lower is better, the peak is the
  smallest value.
- **Start to peak** and **peak to last** are tested like the bests of two series (``series_comparison``), which corrects
  for the selection of the peak: the best of eleven equal checkpoints exceeds the last by luck alone.
- **Trend** and **stability** are those of ``statistics.curves``.
- **Ties** are the points that do not differ significantly from the peak, by a t test with a Bonferroni correction for
  the selection among the points (``statistics.best_of_many``) and for the number of curves. **Early** is the first of
  them, or the peak; the items show no gain after it.
- **Within** is the first position within one point of the peak.
- **Forecast**: the last value, forecast from the first two thirds of the points, shows how accurate forecasts are
  here. A value at a requested position is forecast from all points.

The tests of each kind are corrected together over all curves (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from pytest_touchstone.statistics.curves import FORECAST_LEAST, Forecast, forecast, steadiness, trend
from pytest_touchstone.statistics.verdicts import MARGIN, holm
from pytest_touchstone.study.points import Point, Series, Study, StudyMetric, Value
from pytest_touchstone.study.pool import UNTESTED, noise_verdict, pools_of
from pytest_touchstone.study.series_comparison import SeriesContest

LEAST: Final = 2
"""The fewest points of a curve."""

RISE, DROP, TREND, STABILITY = KINDS = ("start to peak", "peak to last", "trend", "stability")
"""The tests of a curve by their names in reports."""


class CurveChange(NamedTuple):
    """A change of a curve in the unit of its measure, with its interval, p-value and verdict.

    ``adjusted`` is the p-value after Holm's correction. The limits of the stability are those of noise alone.
    ``less_luck`` is the value of the peak, corrected for its selection.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    adjusted: float | None = None
    verdict: str = UNTESTED
    less_luck: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A measure along a series: the points that have it, in order, with their values.

    ``peak``, ``lowest`` and ``ties`` are indices of points. ``tests`` are by kind, empty if there is nothing to test.
    ``ties`` is None if an error is unknown (``why``). ``noise_alone`` is the mean change between neighbours due to
    noise alone. ``items`` is set if item scores are known.
    """

    series: Series
    measure: StudyMetric
    points: tuple[Point, ...]
    values: tuple[Value, ...]
    peak: int
    lowest: int
    tests: Mapping[str, CurveChange] = field(default_factory=lambda: dict.fromkeys(KINDS, CurveChange()))
    noise_alone: float | None = None
    ties: tuple[int, ...] | None = None
    items: bool = False
    why: str | None = None

    @property
    def early(self) -> int | None:
        """The index of the first point that ties with the peak, or of the peak; None if unknown."""
        return None if self.ties is None else min(self.peak, *self.ties, self.peak)

    @property
    def last(self) -> int:
        """The index of the last point."""
        return len(self.points) - 1

    @property
    def within(self) -> float | None:
        """The first position within one point of the peak; None if values are not shares."""
        near = (
            point
            for point, value in zip(self.points, self.values, strict=True)
            if abs(value.value - self.at(self.peak)) <= MARGIN + 1e-12
        )
        return self.series.position(next(near)) if self.measure.share else None

    def at(self, index: int) -> float:
        """Return the value of a point, by its index."""
        return self.values[index].value

    def where(self, index: int) -> str:
        """Return the position of a point in words, by its index."""
        return self.series.where(self.points[index])

    @property
    def shape(self) -> str:
        """The measured shape in words: ``peaks at 3, then falls``."""
        up, down = ("rises", "falls") if self.measure.higher_is_better else ("falls", "rises")
        if self.at(self.peak) == self.at(self.lowest):
            return "is level"
        if self.at(self.last) == self.at(self.peak):
            return (
                f"{up} to the end"
                if self.peak == self.last
                else f"{up}, level from {self.where(self.peak)} on"
            )
        if self.peak == 0:
            return f"{down} from the start"
        peaks = "peaks" if self.measure.higher_is_better else "is lowest"
        return f"{peaks} at {self.where(self.peak)}, then {down}"


def curves_of(study: Study) -> list[Curve]:
    """Return the tested curves by measure and series; use ``study.compute_once(curves_of)``.

    A series with fewer than two points of a measure has no curve.
    """
    curves = [
        curve
        for measure in study.measures
        for series in study.series
        if (curve := curve_of(study, series, measure)) is not None
    ]
    adjusted = {kind: holm([curve.tests[kind].p for curve in curves]) for kind in KINDS}
    return [
        replace(
            curve,
            tests={
                kind: test._replace(
                    adjusted=adjusted[kind][index], verdict=noise_verdict(adjusted[kind][index], study.level)
                )
                for kind, test in curve.tests.items()
            },
        )
        for index, curve in enumerate(curves)
    ]


def curve_of(study: Study, series: Series, measure: StudyMetric) -> Curve | None:
    """Return the curve of a measure along a series; None for fewer than two points in order."""
    values_at_points = study.values_in_order(series, measure)
    if len(values_at_points) < LEAST:
        return None
    levels = [measure.sign * value.value for _, value in values_at_points]
    curve = Curve(
        series=series,
        measure=measure,
        points=tuple(point for point, _ in values_at_points),
        values=tuple(value for _, value in values_at_points),
        peak=levels.index(max(levels)),
        lowest=levels.index(min(levels)),
        why=next((value.why for _, value in values_at_points if value.stderr is None), None),
    )
    return _add_tests(study, curve)


def _add_tests(study: Study, curve: Curve) -> Curve:
    """Return the curve with its tests; without known noise, with the sizes of its changes."""
    pool = study.compute_once(pools_of)[curve.measure.key]
    indices = pool.places(curve.points)
    noise = pool.noise(indices)
    contest = None
    if noise is not None:
        groups = (indices[:1], indices[1:], indices[:-1], indices[-1:])
        contest = SeriesContest(study, pool, [(curve.series, group) for group in groups])

    def change(before: int, after: int, first: int, peak: int) -> CurveChange:
        change_size = curve.at(after) - curve.at(before)
        if not change_size or contest is None:
            return CurveChange(value=change_size or None)
        duel = contest.duel(first, first + 1)
        as_measured = duel.as_measured
        return CurveChange(
            value=change_size if as_measured.difference is None else as_measured.difference,
            low=as_measured.low,
            high=as_measured.high,
            p=duel.comparison.p,
            less_luck=contest.bests[peak].corrected,
        )

    tests = {
        RISE: change(0, curve.peak, 0, 1),
        DROP: change(curve.peak, curve.last, 2, 2),
        TREND: CurveChange(),
        STABILITY: CurveChange(),
    }
    if noise is None:
        return replace(curve, tests=tests)
    positions = [
        float(position) for point in curve.points if (position := curve.series.position(point)) is not None
    ]
    means = [curve.measure.sign * pool.means[index] for index in indices]
    slope, steady = trend(positions, means, noise, study.level), steadiness(means, noise, level=study.level)
    if slope is not None:
        tests[TREND] = CurveChange(slope.slope, slope.low, slope.high, slope.p)
    if steady is not None:
        tests[STABILITY] = CurveChange(steady.change, steady.low, steady.high, steady.p)
    level = 1 - (1 - study.level) / (len(study.series) * len(study.measures))
    rivals = pool.rivals(indices[curve.peak], indices, level)
    return replace(
        curve,
        tests=tests,
        noise_alone=steady.noise if steady else None,
        ties=tuple(point_index for point_index, index in enumerate(indices) if index in rivals),
        items=not any(pool.errors[index] for index in indices),
        why=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveForecast:
    """A forecast for the position ``at`` from the first ``count`` points of a curve.

    ``actual`` is the measured value at that position; None if it is still to come.
    """

    curve: Curve
    count: int
    at: float
    predicted: Forecast
    actual: float | None

    @property
    def holds(self) -> bool:
        """Return whether the actual value is within the interval."""
        return self.actual is not None and self.predicted.low <= self.actual <= self.predicted.high


def forecasts(study: Study, at: float | None = None) -> list[CurveForecast]:
    """Forecast all curves of five points or more: at ``at``, or by default their last values."""
    curve_forecasts = []
    for curve in study.compute_once(curves_of):
        positions = [float(curve.series.position(point) or 0.0) for point in curve.points]
        values = [value.value for value in curve.values]
        if len(values) <= FORECAST_LEAST:
            continue
        count = max(FORECAST_LEAST, math.ceil(2 * len(values) / 3)) if at is None else len(values)
        target = positions[-1] if at is None else at
        prediction = forecast(positions[:count], values[:count], target, study.level)
        if prediction is None:
            continue
        if curve.measure.share:
            prediction = Forecast(prediction.value, max(0.0, prediction.low), min(1.0, prediction.high))
        curve_forecasts.append(
            CurveForecast(
                curve=curve,
                count=count,
                at=target,
                predicted=prediction,
                actual=values[-1] if at is None else None,
            )
        )
    return curve_forecasts
