"""The data of a study: checkpoints in series, their measures and values.

    study = load_study(["runs/a", "checkpoints.csv"], output=Path("results"))     # study.reading
    for series in study.series:
        for measure in study.measures:
            for point in series.points:
                value = study.value(point, measure)      # None if the point lacks the measure

``study.pool`` has the scores of items in one order for several points.

The names of points and series and the ``key`` of a measure are unique within a study, so they may be keys of dicts. The
points of a series are in the order of training. ``series.position(point)`` is the position on ``series.axis``, an epoch
or a step, or None if unknown.

The interval of a value depends on the data:

    a run of this harness    the limits of its result
    a table                  a share with its number of items: Wilson's limits and the binomial error;
                             a mean with its error and number of items: Student's t; without the number: normal
    a composite              the limits of its run; else from the items; else from totals: errors of metrics on the
                             same items are summed, those of different benchmarks are added in squares

Without items, their number and an error there is no interval (``low`` is None), and ``why`` says what would give one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

from pytest_touchstone.compare.candidate import AS_PUBLISHED, BenchmarkScores, CheckpointResults
from pytest_touchstone.compare.changes import composite_of_items
from pytest_touchstone.compare.formats.base import BadRow, CompositeContradiction
from pytest_touchstone.compare.metric import is_share, metric_of
from pytest_touchstone.core.composite import COMPOSITE, Composite, WeightedMetric, composite_value
from pytest_touchstone.core.text import format_step, join_names
from pytest_touchstone.document.formatting import NOTHING, in_percent, interval, number
from pytest_touchstone.results.summary import Metric
from pytest_touchstone.statistics.comparison import LEVEL, MetricUnit, unit_of, z_quantile
from pytest_touchstone.statistics.intervals import t_quantile, wilson_limits

Computed = TypeVar("Computed")
Axis: TypeAlias = Literal["epoch", "step", "order"]

UNKNOWN: Final = "not known"

MOST_IN_LINE: Final = 3
"""The most findings that the summary line of a section names."""


class Limits(Protocol):
    """Anything with an interval: a value, a comparison, a contrast, a change of a curve, a forecast."""

    @property
    def low(self) -> float | None:
        """The lower limit."""

    @property
    def high(self) -> float | None:
        """The upper limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A checkpoint of a series with all its results; unknown fields are None.

    ``name`` is unique in the study; ``short`` is the checkpoint's name without its series. ``seq_len`` is in tokens.
    """

    name: str
    short: str
    series: str
    step: int | None
    epoch: float | None
    seq_len: int | None
    val_loss: float | None
    fingerprint: str
    candidate: CheckpointResults


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyMetric:
    """A metric of a benchmark, or a composite (``benchmark`` is then its name, ``metric`` "composite").

    ``label`` is its name in tables (``Real@1``), ``key`` in data (``real_coref:real@1``). ``share`` is set if it has no
    ``unit`` and all values lie in [0, 1]; a point is then 0.01. ``primary`` is set for the metric that judges the
    benchmark, and for composites.
    """

    benchmark: str
    metric: str
    label: str
    higher_is_better: bool = True
    share: bool = True
    unit: str = ""
    primary: bool = True
    composite: Composite | None = None

    @property
    def key(self) -> str:
        """The unique name in data."""
        return self.benchmark if self.metric == COMPOSITE else f"{self.benchmark}:{self.metric}"

    @property
    def difference_unit(self) -> MetricUnit:
        """The unit of differences."""
        return unit_of(self.unit, share=self.share)

    @property
    def unit_text(self) -> str:
        """The unit of values in tables."""
        return "per cent" if self.share else self.unit or "own unit"

    def amount(self, value: float | None) -> str:
        """Format a value without its unit: ``66.04``."""
        if value is None:
            return NOTHING
        return in_percent(value) if self.share else number(value)

    def text(self, value: float | None) -> str:
        """Format a value with its unit: ``66.04 %``."""
        return f"{self.amount(value)} %" if self.share and value is not None else self.amount(value)

    def range(self, limits: Limits) -> str:
        """Format the interval of a value: ``[64.12, 67.91]``; ``-`` without one."""
        return interval(limits.low, limits.high, self.amount)

    def difference_range(self, limits: Limits | None) -> str:
        """Format the interval of a difference: ``[-4.06, +1.32]``; ``-`` without one."""
        return NOTHING if limits is None else interval(limits.low, limits.high, self.difference_unit.moved)

    @property
    def sign(self) -> int:
        """The factor, 1 or -1, that makes larger values better."""
        return 1 if self.higher_is_better else -1

    @property
    def parts(self) -> tuple[WeightedMetric, ...]:
        """The weighted metrics of a composite; the metric itself for others."""
        return self.composite.parts if self.composite else (WeightedMetric(1.0, self.benchmark, self.metric),)

    @property
    def benchmarks(self) -> list[str]:
        """The names of the benchmarks that contribute."""
        return list(dict.fromkeys(part.benchmark for part in self.parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A measure at a point: value, 95 % interval, standard error and number of items (0 if unknown).

    ``why`` is the reason for a missing interval. ``mark`` is the note of the result on its coverage. ``invalid`` is the
    reason why the result is not valid.
    """

    value: float
    low: float | None
    high: float | None
    stderr: float | None
    n: int
    method: str
    why: str | None = None
    mark: str = ""
    invalid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesInfo:
    """Facts about the training of a series: texts by name, such as ``data`` or ``method``.

    ``declared`` are in pyproject.toml and take precedence; ``noted`` are in the files of the checkpoints.
    """

    declared: Mapping[str, str] = field(default_factory=dict)
    noted: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """Return the text of a fact, or "not known"."""
        return self.declared.get(name) or self.noted.get(name) or UNKNOWN


@dataclass(frozen=True, slots=True)
class StepsPerEpoch:
    """The number of steps in an epoch, between ``low`` and ``high``, and the source of that number."""

    low: float
    high: float
    how: str

    @property
    def text(self) -> str:
        """The number as text: ``131``, or ``130 to 131``."""
        first, last = f"{self.low:.6g}", f"{self.high:.6g}"
        return first if first == last else f"{first} to {last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The points of one training at one sequence length, in the order of their training.

    ``training`` is the name without the length: ``mlm_v2`` of ``mlm_v2/1536``.
    """

    name: str
    training: str
    seq_len: int | None
    points: tuple[Point, ...]
    about: SeriesInfo = field(default_factory=SeriesInfo)
    steps_per_epoch: StepsPerEpoch | None = None

    @property
    def axis(self) -> Axis:
        """The axis: epochs if every point with a step has one, else steps, else the order of points."""
        has_epochs = any(point.epoch is not None for point in self.points)
        if has_epochs and all(point.epoch is not None or point.step is None for point in self.points):
            return "epoch"
        return "step" if any(point.step is not None for point in self.points) else "order"

    def position(self, point: Point) -> float | None:
        """Return the position of a point on the axis; None if unknown."""
        return {"epoch": point.epoch, "step": point.step, "order": None}[self.axis]

    def at(self, point: Point) -> str:
        """Return the position as text, or the checkpoint's name."""
        position = self.position(point)
        return point.short if position is None else format_step(position)

    def where(self, point: Point) -> str:
        """Return the position with its axis, ``epoch 3`` or ``step 390``, or the checkpoint's name."""
        return self.at(point) if self.position(point) is None else f"{self.axis} {self.at(point)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The series, measures and values that were read, with the faults of the data.

    ``values`` are by name of point and key of measure. ``notes`` are caveats for the reader. ``level`` is the
    confidence level of all intervals and tests.
    """

    series: tuple[Series, ...]
    measures: tuple[StudyMetric, ...]
    values: Mapping[tuple[str, str], Value]
    contradictions: tuple[CompositeContradiction, ...] = ()
    bad: tuple[tuple[str, BadRow], ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    level: float = 0.95
    computed: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def compute_once(self, make: Callable[[Study], Computed]) -> Computed:
        """Return ``make(study)``, computed at the first call; several sections share the curves."""
        if make not in self.computed:
            self.computed[make] = make(self)
        value: Computed = self.computed[make]
        return value

    @property
    def points(self) -> tuple[Point, ...]:
        """The points of all series, in order."""
        return tuple(point for series in self.series for point in series.points)

    def value(self, point: Point, measure: StudyMetric) -> Value | None:
        """Return the value of a measure at a point; None if it was not measured."""
        return self.values.get((point.name, measure.key))

    def valid_value(self, point: Point, measure: StudyMetric) -> Value | None:
        """Return the value of a measure at a point; None if missing or not valid."""
        value = self.value(point, measure)
        return None if value is None or value.invalid else value

    def valid_values(self, series: Series, measure: StudyMetric) -> list[tuple[Point, Value]]:
        """Return the points of a series with their valid values of a measure, in order."""
        values = ((point, self.valid_value(point, measure)) for point in series.points)
        return [(point, value) for point, value in values if value is not None]

    def values_in_order(self, series: Series, measure: StudyMetric) -> list[tuple[Point, Value]]:
        """Return the points with a known position and their valid values of a measure, in order."""
        return [pair for pair in self.valid_values(series, measure) if series.position(pair[0]) is not None]

    def series_of(self, point: Point) -> Series:
        """Return the series of a point."""
        return next(series for series in self.series if series.name == point.series)

    def facts(self) -> dict[str, Any]:
        """Return series, points, measures and values as JSON values."""
        return {
            "series": [
                fields_of(series, "name", "training", "seq_len", "axis")
                | {
                    "told": dict(series.about.declared),
                    "noted": dict(series.about.noted),
                    "steps_per_epoch": asdict(series.steps_per_epoch) if series.steps_per_epoch else None,
                    "points": [
                        fields_of(
                            point, "name", "short", "step", "epoch", "seq_len", "val_loss", "fingerprint"
                        )
                        | {"origin": point.candidate.origin}
                        for point in series.points
                    ],
                }
                for series in self.series
            ],
            "measures": [
                fields_of(
                    measure,
                    "key",
                    "label",
                    "benchmark",
                    "metric",
                    "higher_is_better",
                    "share",
                    "unit",
                    "primary",
                )
                | {"formula": measure.composite.formula if measure.composite else None}
                for measure in self.measures
            ],
            "values": [
                {"point": point.name, "measure": measure.key, **asdict(value)}
                for point in self.points
                for measure in self.measures
                if (value := self.value(point, measure)) is not None
            ],
            "notes": list(self.notes),
            "level": self.level,
        }


def fields_of(record: Any, *names: str) -> dict[str, Any]:
    """Return the named fields and properties of a record."""
    return {name: getattr(record, name) for name in names}


def facts_of(value: Any) -> Any:
    """Convert records to JSON values; points and series become their names, measures their keys."""
    if isinstance(value, (Point, Series)):
        return value.name
    if isinstance(value, StudyMetric):
        return value.key
    if is_dataclass(value):
        return {attribute.name: facts_of(getattr(value, attribute.name)) for attribute in fields(value)}
    if isinstance(value, Mapping):
        return {name: facts_of(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [facts_of(member) for member in value]
    return value


def format_position(position: float | None) -> str:
    """Format a position on an axis; ``-`` if unknown."""
    return NOTHING if position is None else format_step(position)


def summarize_findings(findings: Sequence[str], tested: int, tests: str) -> str:
    """Summarize significant tests: ``1 of 49 drops: Real@1 of mlm``, ``none of 12 drops``.

    Args:
        findings: The names of the significant tests.
        tested: The number of tests.
        tests: The noun for the tests, in the plural.

    """
    if not findings:
        return f"none of {tested} {tests}"
    return f"{len(findings)} of {tested} {tests}: {join_names(findings, MOST_IN_LINE, between='; ')}"


# The value of a measure at a point


_POSITIVE: Final = ("perplexity", "bits_per_byte")
"""Parts of the names of metrics that cannot be negative."""


def value_of(candidate: CheckpointResults, measure: StudyMetric) -> Value | None:
    """Return the value of a measure for a candidate; None if it was not measured."""
    if measure.composite is not None:
        return _composite_value(candidate, measure.composite)
    entry = candidate.entries.get(measure.benchmark)
    metric = metric_of(entry, measure.metric) if entry else None
    if entry is None or metric is None:
        return None
    return _value_from_metric(add_limits(metric, entry.saved.benchmark), [entry])


def add_limits(metric: Metric, benchmark: str) -> Metric:
    """Add limits to a published metric, from its error or number of items; return others unchanged."""
    value = metric.value
    if metric.method != AS_PUBLISHED or value is None:
        return metric
    if metric.n and is_share(metric):
        low, high = wilson_limits(value, metric.n, z_quantile(LEVEL))
        error = math.sqrt(value * (1 - value) / (metric.n - 1)) if metric.n > 1 else None
        if error == 0:  # all right or all wrong: not without noise, which few items did not show
            error = (high - low) / z_quantile(LEVEL)
        return replace(metric, low=low, high=high, stderr=error, method="Wilson, from the number of items")
    if metric.stderr:
        has_size = metric.n > 1
        half_width = (t_quantile(metric.n - 1, LEVEL) if has_size else z_quantile(LEVEL)) * metric.stderr
        low = value - half_width
        if any(name in metric.name for name in _POSITIVE) and value >= 0:
            low = max(0.0, low)
        return replace(metric, low=low, high=value + half_width, method="t" if has_size else "normal")
    reason = f"the number of items is not known (--items {benchmark}=N gives it)"
    return replace(metric, why=reason if 0 <= value <= 1 else "its standard error is not known")


def _value_from_metric(metric: Metric, entries: Sequence[BenchmarkScores]) -> Value | None:
    if metric.value is None:
        return None
    return Value(
        value=metric.value,
        low=metric.low,
        high=metric.high,
        stderr=metric.stderr,
        n=metric.n,
        method=metric.method,
        why=metric.why,
        mark="; ".join(dict.fromkeys(entry.saved.mark for entry in entries if entry.saved.mark)),
        invalid=next((entry.saved.invalid for entry in entries if entry.saved.invalid), None),
    )


# Composites


def _composite_value(candidate: CheckpointResults, composite: Composite) -> Value | None:
    entries = [candidate.entries[name] for name in composite.benchmarks if name in candidate.entries]
    if len(entries) < len(composite.benchmarks):
        return None
    composite_metric = candidate.composites.get(composite.name)
    if composite_metric is None and all(entry.items.examples for entry in entries):
        row = composite_of_items(composite, [(entry.saved, entry.items) for entry in entries])
        names = ("value", "low", "high", "stderr", "method", "why")
        scored = sum(entry.saved.scored for entry in entries)
        composite_metric = (
            Metric(name=composite.name, n=scored, **{name: row[name] for name in names}) if row else None
        )
    composite_metric = composite_metric or _composite_from_totals(candidate, composite)
    return _value_from_metric(composite_metric, entries) if composite_metric else None


def _composite_from_totals(candidate: CheckpointResults, composite: Composite) -> Metric | None:
    """Return a composite computed from totals; its limits and error combine those of its parts.

    Metrics on the same items are taken as fully dependent, benchmarks as independent.
    """
    metrics_by_benchmark: dict[str, list[tuple[float, Metric]]] = {}
    values: dict[tuple[str, str], float | None] = {}
    for weight, name, metric_name in composite.parts:
        metric = metric_of(candidate.entries[name], metric_name)
        if metric is None:
            return None
        values[name, metric_name] = metric.value
        metrics_by_benchmark.setdefault(name, []).append((weight, add_limits(metric, name)))
    metrics = [metric for weighted in metrics_by_benchmark.values() for _, metric in weighted]
    without_limits = next((metric for metric in metrics if metric.low is None or metric.high is None), None)

    def combine(distance: Callable[[Metric], float]) -> float:
        return math.hypot(
            *(
                math.fsum(weight * distance(metric) for weight, metric in weighted)
                for weighted in metrics_by_benchmark.values()
            )
        )

    value = composite_value(composite, values)
    metric = Metric(
        name=composite.name,
        value=value,
        low=None,
        high=None,
        stderr=None,
        n=sum(min(metric.n for _, metric in weighted) for weighted in metrics_by_benchmark.values()),
        method="none",
        why=without_limits.why if without_limits else None,
    )
    if value is None or without_limits is not None:
        return metric
    return replace(
        metric,
        low=value - combine(lambda metric: (metric.value or 0) - (metric.low or 0)),
        high=value + combine(lambda metric: (metric.high or 0) - (metric.value or 0)),
        stderr=None
        if None in (metric.stderr for metric in metrics)
        else combine(lambda metric: metric.stderr or 0.0),
        method="MOVER on totals; parts on the same items taken as wholly dependent",
    )
