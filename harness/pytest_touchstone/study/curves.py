"""The curve of a measure along a series: start, peak, lowest and last value, and what of it is more than noise.

- **Peak** is the best value, the first of equals, and **lowest** the worst one; where lower is better, the peak is the
  smallest value.
- **Start to peak** and **peak to last** are tested as the bests of two series are (``between``), which allows for the
  peak's having been chosen: the best of eleven equal checkpoints lies above the last of them by luck alone.
- **Trend** and **stability** are those of ``statistics.curves``.
- **Ties**: the points that cannot be told from the peak, by a t test corrected (Bonferroni) for choosing one of many
  points, as ``statistics.best_of_many`` says, and for the number of curves. **Early** is the first of them, or the
  peak. Nothing that these items can show was gained after it.
- **Within**: the first place within one point of the peak.
- **Forecast**: from the first two thirds of the points the last value, which is known, so that a reader sees what
  forecasts are worth here; and from all of them the value at a place that is asked for.

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
from pytest_touchstone.study.pool import UNTESTED, pools_of, verdict_on
from pytest_touchstone.study.series_comparison import SeriesContest

LEAST: Final = 2
"""The points that a curve has at least."""

RISE, DROP, TREND, STABILITY = KINDS = ("start to peak", "peak to last", "trend", "stability")
"""The tests of a curve by their names in reports."""


class CurveChange(NamedTuple):
    """A number of a curve in its measure's unit, with its limits, its p, that after Holm's correction, and the verdict.

    Of the stability the limits are those of what noise alone gives. ``less_luck`` is the peak's value less the part
    that luck has in it.
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
    """A measure along a series; ``points`` and ``values`` are those that have it, in order.

    ``peak`` and ``lowest`` are places among them. ``tests`` are by the kinds, without values where there is nothing to
    test. What cannot be computed is None: ``ties`` where an error is not known (``why``). ``noise_alone`` is the change
    between neighbours that noise alone gives. ``items``: the scores of items are known.
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
        """The first point that cannot be told from the peak, or the peak."""
        return None if self.ties is None else min(self.peak, *self.ties, self.peak)

    @property
    def last(self) -> int:
        """The place of the last point."""
        return len(self.points) - 1

    @property
    def within(self) -> float | None:
        """The first place on the axis within one point of the peak; None where values are no shares."""
        near = (
            point
            for point, value in zip(self.points, self.values, strict=True)
            if abs(value.value - self.at(self.peak)) <= MARGIN + 1e-12
        )
        return self.series.place(next(near)) if self.measure.share else None

    def at(self, place: int) -> float:
        """The value at a place of the curve."""
        return self.values[place].value

    def where(self, place: int) -> str:
        """The place on the axis in words."""
        return self.series.where(self.points[place])

    @property
    def shape(self) -> str:
        """The curve as measured, in words: ``peaks at 3, then falls``."""
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
    """The curves of the study, by measure and series; none of a series with fewer than two points of the measure.

    ``study.once(curves_of)`` keeps them.
    """
    curves = [
        curve
        for measure in study.measures
        for series in study.series
        if (curve := curve_of(study, series, measure)) is not None
    ]
    adjusted = {kind: holm([one.tests[kind].p for one in curves]) for kind in KINDS}
    return [
        replace(
            one,
            tests={
                kind: test._replace(
                    adjusted=adjusted[kind][number], verdict=verdict_on(adjusted[kind][number], study.level)
                )
                for kind, test in one.tests.items()
            },
        )
        for number, one in enumerate(curves)
    ]


def curve_of(study: Study, series: Series, measure: StudyMetric) -> Curve | None:
    """The curve of a measure along a series; None with fewer than two points that have it at a known place."""
    found = study.ordered(series, measure)
    if len(found) < LEAST:
        return None
    levels = [measure.sign * value.value for _, value in found]
    plain = Curve(
        series=series,
        measure=measure,
        points=tuple(point for point, _ in found),
        values=tuple(value for _, value in found),
        peak=levels.index(max(levels)),
        lowest=levels.index(min(levels)),
        why=next((value.why for _, value in found if value.stderr is None), None),
    )
    return _tested(study, plain)


def _tested(study: Study, plain: Curve) -> Curve:
    """The curve with its tests; without an error, with the values of its changes alone."""
    pool = study.once(pools_of)[plain.measure.key]
    places = pool.places(plain.points)
    noise = pool.noise(places)
    contest = None
    if noise is not None:
        groups = (places[:1], places[1:], places[:-1], places[-1:])
        contest = SeriesContest(study, pool, [(plain.series, group) for group in groups])

    def change(before: int, after: int, first: int, peak: int) -> CurveChange:
        moved = plain.at(after) - plain.at(before)
        if not moved or contest is None:
            return CurveChange(value=moved or None)
        duel = contest.duel(first, first + 1)
        plainly = duel.as_measured
        return CurveChange(
            value=moved if plainly.difference is None else plainly.difference,
            low=plainly.low,
            high=plainly.high,
            p=duel.comparison.p,
            less_luck=contest.bests[peak].corrected,
        )

    tests = {
        RISE: change(0, plain.peak, 0, 1),
        DROP: change(plain.peak, plain.last, 2, 2),
        TREND: CurveChange(),
        STABILITY: CurveChange(),
    }
    if noise is None:
        return replace(plain, tests=tests)
    at = [float(place) for point in plain.points if (place := plain.series.place(point)) is not None]
    means = [plain.measure.sign * pool.means[place] for place in places]
    slope, steady = trend(at, means, noise, study.level), steadiness(means, noise, level=study.level)
    if slope is not None:
        tests[TREND] = CurveChange(slope.slope, slope.low, slope.high, slope.p)
    if steady is not None:
        tests[STABILITY] = CurveChange(steady.change, steady.low, steady.high, steady.p)
    level = 1 - (1 - study.level) / (len(study.series) * len(study.measures))
    rivals = pool.rivals(places[plain.peak], places, level)
    return replace(
        plain,
        tests=tests,
        noise_alone=steady.noise if steady else None,
        ties=tuple(number for number, place in enumerate(places) if place in rivals),
        items=not any(pool.errors[place] for place in places),
        why=None,
    )


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
    for curve in study.once(curves_of):
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
