"""A study: checkpoints in series, and the measures that they have.

    study = study_of(["runs/a", "checkpoints.csv"], output=Path("results"))     # study.reading
    for series in study.series:
        for measure in study.measures:
            for point in series.points:
                value = study.value(point, measure)      # None where the point lacks the measure

``Value`` has limits and error only where the data hold them: ``low`` is None where neither items, their number nor
an error is known, and ``why`` says so. ``pool`` has the scores of items in one order for several points.

Names of points, series and measures' ``key`` are unique within a study and may serve as keys of dicts. Points stand in
the order of their training within a series. ``series.place(point)`` is the place on ``series.axis``, an epoch or a
step, or None where neither is known.

A value has as much of an interval as the data hold:

    a run of ours            the result's own limits
    a table                  a share and its number of items: Wilson's limits, the error of right and wrong items;
                             a mean, its error and its number of items: Student's t; without the number: normal
    a composite              the run's own; else from the items; else from totals, where the errors of metrics of the
                             same items are added up, and those of different benchmarks add in squares

Where neither items nor an error is known there is no interval, and the reason says what would give one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

from pytest_touchstone.compare.candidate import AS_PUBLISHED, BenchmarkScores, CheckpointResults
from pytest_touchstone.compare.changes import composite_of_items
from pytest_touchstone.compare.formats.base import BadRow, Contradiction
from pytest_touchstone.compare.metric import is_share, metric_of
from pytest_touchstone.core.composite import COMPOSITE, Composite, Part, composite_value
from pytest_touchstone.core.text import join_names, ordinal_place
from pytest_touchstone.document.formatting import NOTHING, in_percent, interval, number
from pytest_touchstone.results.summary import Metric
from pytest_touchstone.statistics.comparison import LEVEL, MetricUnit, unit_of, z_quantile
from pytest_touchstone.statistics.intervals import t_quantile, wilson_limits

Found = TypeVar("Found")
Axis: TypeAlias = Literal["epoch", "step", "order"]

UNKNOWN: Final = "not known"

MOST_IN_LINE: Final = 3
"""The findings that a section's line names."""


class Limits(Protocol):
    """What has an interval: a value, a comparison, a contrast, a change of a curve, a forecast."""

    @property
    def low(self) -> float | None:
        """The lower limit."""

    @property
    def high(self) -> float | None:
        """The upper limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A checkpoint of a series with all its results; what is not known of it is None.

    ``name`` is unique in the study, ``short`` the checkpoint's own name without its series.
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

    ``label`` names it in tables (``Real@1``), ``key`` in data (``real_coref:real@1``). ``share``: it has no ``unit``,
    and all its values lie from 0 to 1, so that a hundredth is a point. ``primary``: the benchmark is judged by it; so
    is a composite.
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
        """The name in data."""
        return self.benchmark if self.metric == COMPOSITE else f"{self.benchmark}:{self.metric}"

    @property
    def told_in(self) -> MetricUnit:
        """Return the unit of differences."""
        return unit_of(self.unit, share=self.share)

    @property
    def unit_text(self) -> str:
        """Return the unit of values in tables."""
        return "per cent" if self.share else self.unit or "own unit"

    def amount(self, value: float | None) -> str:
        """Return a value without its unit: ``66.04``."""
        if value is None:
            return NOTHING
        return in_percent(value) if self.share else number(value)

    def text(self, value: float | None) -> str:
        """Return a value: ``66.04 %`` of a share."""
        return f"{self.amount(value)} %" if self.share and value is not None else self.amount(value)

    def range(self, limits: Limits) -> str:
        """Return the interval of a value, ``[64.12, 67.91]``; ``-`` where there is none."""
        return interval(limits.low, limits.high, self.amount)

    def difference_range(self, limits: Limits | None) -> str:
        """Return the interval of a difference, ``[-4.06, +1.32]``; ``-`` where there is none."""
        return NOTHING if limits is None else interval(limits.low, limits.high, self.told_in.moved)

    @property
    def sign(self) -> int:
        """Return the factor that turns values so that larger is better."""
        return 1 if self.higher_is_better else -1

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return the weighted metrics that it is made of, which may be one."""
        return self.composite.parts if self.composite else (Part(1.0, self.benchmark, self.metric),)

    @property
    def benchmarks(self) -> list[str]:
        """Return the names of the benchmarks that it is made of."""
        return list(dict.fromkeys(part.benchmark for part in self.parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A measure at a point: value, 95 % interval, standard error and number of items (0: not known).

    ``why`` says why there is no interval. ``mark`` is the result's, ``invalid`` the reason not to believe it.
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
    """The known facts of a series' training: by pyproject.toml (``told``), else by the runs' own notes (``noted``).

    Both map a name such as ``data`` or ``method`` to a text; nothing is guessed.
    """

    told: Mapping[str, str] = field(default_factory=dict)
    noted: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """The text, or that it is not known."""
        return self.told.get(name) or self.noted.get(name) or UNKNOWN


@dataclass(frozen=True, slots=True)
class StepsPerEpoch:
    """The steps of an epoch: from ``low`` to ``high``, equal where they are known exactly; and how that is known."""

    low: float
    high: float
    how: str

    @property
    def text(self) -> str:
        """``131``, or ``130 to 131``."""
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
        """Epochs where every point with a step has one, else steps, else only their order."""
        known = any(point.epoch is not None for point in self.points)
        if known and all(point.epoch is not None or point.step is None for point in self.points):
            return "epoch"
        return "step" if any(point.step is not None for point in self.points) else "order"

    def place(self, point: Point) -> float | None:
        """The place on the axis; None where only the order is known, and for a point without a place."""
        return {"epoch": point.epoch, "step": point.step, "order": None}[self.axis]

    def at(self, point: Point) -> str:
        """The place as text, or the checkpoint's name."""
        place = self.place(point)
        return point.short if place is None else ordinal_place(place)

    def where(self, point: Point) -> str:
        """The place in words: ``epoch 3``, ``step 390``, or the checkpoint's name."""
        return self.at(point) if self.place(point) is None else f"{self.axis} {self.at(point)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Everything that was read: series, measures, values, and what is wrong with the data.

    ``values`` are by name of point and key of measure; ``value`` looks one up. ``notes`` are what a reader must know
    before believing the numbers. ``level`` is that of all intervals and tests.
    """

    series: tuple[Series, ...]
    measures: tuple[StudyMetric, ...]
    values: Mapping[tuple[str, str], Value]
    contradictions: tuple[Contradiction, ...] = ()
    bad: tuple[tuple[str, BadRow], ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    level: float = 0.95
    made: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, make: Callable[[Study], Found]) -> Found:
        """Return what a function makes of the study; asked again, the same: several sections need the curves."""
        if make not in self.made:
            self.made[make] = make(self)
        found: Found = self.made[make]
        return found

    @property
    def points(self) -> tuple[Point, ...]:
        """All points, series by series."""
        return tuple(point for series in self.series for point in series.points)

    def value(self, point: Point, measure: StudyMetric) -> Value | None:
        """The measure at the point; None where it was not measured."""
        return self.values.get((point.name, measure.key))

    def valid(self, point: Point, measure: StudyMetric) -> Value | None:
        """The measure at the point; None also where it is not to be believed."""
        value = self.value(point, measure)
        return None if value is None or value.invalid else value

    def measured(self, series: Series, measure: StudyMetric) -> list[tuple[Point, Value]]:
        """The points of a series that have a valid value of the measure, in order, each with it."""
        found = ((point, self.valid(point, measure)) for point in series.points)
        return [(point, value) for point, value in found if value is not None]

    def ordered(self, series: Series, measure: StudyMetric) -> list[tuple[Point, Value]]:
        """The same of those whose place in the training is known, which alone have an order."""
        return [one for one in self.measured(series, measure) if series.place(one[0]) is not None]

    def series_of(self, point: Point) -> Series:
        """The series that the point is in."""
        return next(one for one in self.series if one.name == point.series)

    def facts(self) -> dict[str, Any]:
        """Series, points and measures as plain data."""
        return {
            "series": [
                fields_of(one, "name", "training", "seq_len", "axis")
                | {
                    "told": dict(one.about.told),
                    "noted": dict(one.about.noted),
                    "steps_per_epoch": asdict(one.steps_per_epoch) if one.steps_per_epoch else None,
                    "points": [
                        fields_of(
                            point, "name", "short", "step", "epoch", "seq_len", "val_loss", "fingerprint"
                        )
                        | {"origin": point.candidate.origin}
                        for point in one.points
                    ],
                }
                for one in self.series
            ],
            "measures": [
                fields_of(
                    one, "key", "label", "benchmark", "metric", "higher_is_better", "share", "unit", "primary"
                )
                | {"formula": one.composite.formula if one.composite else None}
                for one in self.measures
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


def fields_of(one: Any, *names: str) -> dict[str, Any]:
    """Return fields and properties of a record by their names."""
    return {name: getattr(one, name) for name in names}


def facts_of(value: Any) -> Any:
    """Return records as plain data: points and series by their names, measures by their keys."""
    if isinstance(value, (Point, Series)):
        return value.name
    if isinstance(value, StudyMetric):
        return value.key
    if is_dataclass(value):
        return {one.name: facts_of(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: facts_of(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [facts_of(one) for one in value]
    return value


def place_or_nothing(place: float | None) -> str:
    """Return a place on an axis as text."""
    return NOTHING if place is None else ordinal_place(place)


def found_among(told: Sequence[str], tested: int, tests: str) -> str:
    """Return which of so many tests are more than noise: ``1 of 49 drops: Real@1 of mlm``, ``none of 12 drops``."""
    if not told:
        return f"none of {tested} {tests}"
    return f"{len(told)} of {tested} {tests}: {join_names(told, MOST_IN_LINE, between='; ')}"


# The value of a measure at a point


_POSITIVE: Final = ("perplexity", "bits_per_byte")
"""Parts of the names of metrics that are not below 0."""


def value_of(candidate: CheckpointResults, measure: StudyMetric) -> Value | None:
    """The measure of this candidate; None where it was not measured."""
    if measure.composite is not None:
        return _composite(candidate, measure.composite)
    entry = candidate.entries.get(measure.benchmark)
    found = metric_of(entry, measure.metric) if entry else None
    if entry is None or found is None:
        return None
    return _value(with_limits(found, entry.saved.benchmark), [entry])


def with_limits(metric: Metric, benchmark: str) -> Metric:
    """The metric of a table with the limits that follow from its error or number of items; others as they are."""
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
        known = metric.n > 1
        half = (t_quantile(metric.n - 1, LEVEL) if known else z_quantile(LEVEL)) * metric.stderr
        low = value - half
        if any(name in metric.name for name in _POSITIVE) and value >= 0:
            low = max(0.0, low)
        return replace(metric, low=low, high=value + half, method="t" if known else "normal")
    lacking = f"the number of items is not known (--items {benchmark}=N gives it)"
    return replace(metric, why=lacking if 0 <= value <= 1 else "its standard error is not known")


def _value(metric: Metric, entries: Sequence[BenchmarkScores]) -> Value | None:
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


def _composite(candidate: CheckpointResults, composite: Composite) -> Value | None:
    entries = [candidate.entries[name] for name in composite.benchmarks if name in candidate.entries]
    if len(entries) < len(composite.benchmarks):
        return None
    known = candidate.composites.get(composite.name)
    if known is None and all(entry.items.examples for entry in entries):
        row = composite_of_items(composite, [(entry.saved, entry.items) for entry in entries])
        names = ("value", "low", "high", "stderr", "method", "why")
        n = sum(entry.saved.scored for entry in entries)
        known = Metric(name=composite.name, n=n, **{name: row[name] for name in names}) if row else None
    found = known or _of_totals(candidate, composite)
    return _value(found, entries) if found else None


def _of_totals(candidate: CheckpointResults, composite: Composite) -> Metric | None:
    """The sum of totals; its limits are made of the parts' limits as its error is of their errors."""
    parts: dict[str, list[tuple[float, Metric]]] = {}
    values: dict[tuple[str, str], float | None] = {}
    for weight, name, metric in composite.parts:
        found = metric_of(candidate.entries[name], metric)
        if found is None:
            return None
        values[name, metric] = found.value
        parts.setdefault(name, []).append((weight, with_limits(found, name)))
    known = [part for same in parts.values() for _, part in same]
    lacking = next((part for part in known if part.low is None or part.high is None), None)

    def joined(distance: Callable[[Metric], float]) -> float:
        return math.hypot(*(math.fsum(w * distance(part) for w, part in same) for same in parts.values()))

    value = composite_value(composite, values)
    found = Metric(
        name=composite.name,
        value=value,
        low=None,
        high=None,
        stderr=None,
        n=sum(min(part.n for _, part in same) for same in parts.values()),
        method="none",
        why=lacking.why if lacking else None,
    )
    if value is None or lacking is not None:
        return found
    return replace(
        found,
        low=value - joined(lambda part: (part.value or 0) - (part.low or 0)),
        high=value + joined(lambda part: (part.high or 0) - (part.value or 0)),
        stderr=None if None in (part.stderr for part in known) else joined(lambda part: part.stderr or 0.0),
        method="MOVER on totals; parts on the same items taken as wholly dependent",
    )
