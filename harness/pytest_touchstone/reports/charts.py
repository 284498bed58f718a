"""Charts of results as plain data: lines with bands over a training, and grouped bars over checkpoints.

``reports.plots`` draws them. For values from elsewhere (a tracker's experiment), make a ``LineChart`` or a
``BarChart``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.study.points import Point, Series, Study, StudyMetric, Value, value_of

LIMITS: Final = "95 % intervals"
"""The words of charts for their intervals."""


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A point of a line chart.

    ``place`` is its step or epoch, ``name`` its checkpoint; the limits are those of its interval.
    """

    place: float
    value: float
    low: float | None = None
    high: float | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class CurveLine:
    """The points of a series in order of their steps.

    ``best`` is the index of the best point. ``invalid`` has the points that are NOT VALID; they are drawn apart from
    the line.
    """

    name: str
    dots: tuple[ChartPoint, ...]
    best: int | None = None
    invalid: tuple[ChartPoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """The curves of one metric over one axis. With ``percent``, values are proportions and shown in per cent."""

    key: str
    title: str
    axis: str
    lines: tuple[CurveLine, ...]
    percent: bool = True
    higher_is_better: bool = True

    @property
    def limits(self) -> bool:
        """Return whether any point has an interval."""
        return any(dot.low is not None and dot.high is not None for line in self.lines for dot in line.dots)


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """Bars grouped by checkpoint.

    ``groups`` are the names below the bars. ``bars`` has a row of values for each metric, None where a checkpoint has
    none. ``sections`` are the series, each with the index of its first checkpoint; their names stand above the bars.
    """

    key: str
    title: str
    groups: tuple[str, ...]
    bars: tuple[tuple[str, tuple[Value | None, ...]], ...]
    percent: bool = True
    sections: tuple[tuple[int, str], ...] = ()


def line_charts(study: Study) -> list[LineChart]:
    """Return a line chart for each metric and axis with more than one point."""
    charts = []
    for measure in study.measures:
        for axis in dict.fromkeys(series.axis for series in study.series):
            lines = [line_of(study, series, measure) for series in study.series if series.axis == axis]
            if any(len(line.dots) > 1 for line in lines):
                charts.append(
                    LineChart(
                        key=chart_key(measure.key),
                        title=measure.label,
                        axis="checkpoint" if axis == "order" else axis,
                        lines=tuple(line for line in lines if line.dots),
                        percent=measure.share,
                        higher_is_better=measure.higher_is_better,
                    )
                )
    keys = [chart.key for chart in charts]
    return [
        replace(chart, key=f"{chart.key}-{chart.axis}") if keys.count(chart.key) > 1 else chart
        for chart in charts
    ]


def line_of(study: Study, series: Series, measure: StudyMetric) -> CurveLine:
    """Return the curve of a metric in a series.

    Points are numbered from 1 where the series has neither steps nor epochs.
    """
    dots = []
    for number, point in enumerate(series.points, start=1):
        value, position = study.value(point, measure), series.position(point)
        is_placed = position is not None or series.axis == "order"
        if value is not None and math.isfinite(value.value) and is_placed:
            x = float(number if position is None else position)
            dots.append(
                (ChartPoint(x, value.value, value.low, value.high, point.short), value.invalid is None)
            )
    return curve_line(series.name, dots, higher=measure.higher_is_better)


def curve_line(name: str, dots: Iterable[tuple[ChartPoint, bool]], *, higher: bool) -> CurveLine:
    """Return the curve of pairs of a point and its validity."""
    ordered = sorted(dots, key=lambda dot_and_validity: dot_and_validity[0].place)
    valid, invalid = (
        tuple(dot for dot, fine in ordered if fine is valid_ones) for valid_ones in (True, False)
    )
    return CurveLine(name, valid, best_of((dot.value for dot in valid), higher=higher), invalid)


def best_of(values: Iterable[float], *, higher: bool = True) -> int | None:
    """Return the index of the best value, the first of equal ones; None without values."""
    numbers = list(values)
    return numbers.index(max(numbers) if higher else min(numbers)) if numbers else None


def bar_charts(study: Study) -> list[BarChart]:
    """Return a bar chart for each benchmark and one for the composites.

    The bars are the metrics that are proportions, pass@k among them.
    """
    benchmarks = dict.fromkeys(metric.benchmark for metric in study.measures if metric.metric != COMPOSITE)
    charts = [_bars(study, name, _measures(study, name)) for name in benchmarks]
    composites = [metric for metric in study.measures if metric.metric == COMPOSITE and metric.share]
    charts.append(_bars(study, "composites", composites))
    return [chart for chart in charts if chart is not None]


def _measures(study: Study, benchmark: str) -> list[StudyMetric]:
    """Return the metrics of a benchmark that are proportions, with every pass@k of the results."""
    metrics = [metric for metric in study.measures if metric.benchmark == benchmark and metric.share]
    entries = [point.candidate.entries.get(benchmark) for point in study.points]
    names = {name for entry in entries if entry for name in entry.saved.metrics}
    passes = {name: int(match[1]) for name in names if (match := _PASS_AT.fullmatch(name))}
    pass_names = sorted(passes.keys() - {metric.metric for metric in metrics}, key=lambda name: passes[name])
    return metrics + [
        StudyMetric(benchmark=benchmark, metric=name, label=name, primary=False) for name in pass_names
    ]


_PASS_AT: Final = re.compile(r"pass(?:@|_at_)(\d+)")


def _bars(study: Study, key: str, measures: Sequence[StudyMetric]) -> BarChart | None:
    points = [point for point in study.points if any(_value(study, point, measure) for measure in measures)]
    if not points:
        return None
    few = len(points) <= MOST_BARS
    points = points if few else _chosen(study, points, measures[0])
    series = [point.series for point in points]
    sections = tuple((series.index(name), name) for name in dict.fromkeys(series))
    sections = sections if len(sections) < len(series) else ()
    # Below a series that stands above its group the checkpoint's own name will do, if it is the only one there.
    shorts = {(point.series if sections else "", point.short) for point in points}
    return BarChart(
        key=chart_key(key),
        title=key if few else f"{key}: first, best {measures[0].label} and last of each series",
        groups=tuple(point.short if len(shorts) == len(points) else point.name for point in points),
        bars=tuple(
            (measure.label.removeprefix(f"{key} "), tuple(_value(study, point, measure) for point in points))
            for measure in measures
        ),
        sections=sections,
    )


def _chosen(study: Study, points: Sequence[Point], measure: StudyMetric) -> list[Point]:
    """Return the first, the last and the best point of each series."""
    names = set()
    for series in study.series:
        own_points = [point for point in points if point.series == series.name]
        measured = [
            (point, value) for point in own_points if (value := _value(study, point, measure)) is not None
        ]
        best = best_of((value.value for _, value in measured), higher=measure.higher_is_better)
        names |= {point.name for point in (*own_points[:1], *own_points[-1:])}
        names |= set() if best is None else {measured[best][0].name}
    return [point for point in points if point.name in names]


def _value(study: Study, point: Point, measure: StudyMetric) -> Value | None:
    value = study.value(point, measure) or (None if measure.composite else value_of(point.candidate, measure))
    return None if value is None or value.invalid else value


def chart_key(text: str) -> str:
    """Return a name that is safe in files and as an element's id: ``real_coref-real@1``."""
    return re.sub(r"[^\w.@+-]+", "-", text).strip("-") or "chart"


MOST_BARS: Final = 60
"""The checkpoints that one chart of bars has; of more only some of each series are shown."""

TINY: Final = 1e-9
"""The difference below which numbers of a chart count as equal."""


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return about ``most`` round numbers that cover the range from ``low`` to ``high``."""
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, TINY):
        pad = 0.05 * (size if size > TINY else 1.0)
        low, high = low - pad, high + pad
    rough = (high - low) / max(most - 1, 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def extent(chart: LineChart) -> tuple[float, float]:
    """Return the least and the greatest number in a chart, intervals included."""
    dots = [dot for line in chart.lines for dot in line.dots]
    numbers = [dot.value for line in chart.lines for dot in line.invalid]
    numbers += [limit for dot in dots for limit in (dot.value, dot.low, dot.high) if limit is not None]
    return min(numbers), max(numbers)
