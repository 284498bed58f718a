"""A study: checkpoints in series, and the measures that they have.

    study = study_of(["runs/a", "checkpoints.csv"], output=Path("results"))     # compare.study.reading
    for series in study.series:
        for measure in study.measures:
            for point in series.points:
                value = study.value(point, measure)      # None where the point lacks the measure

``Value`` has limits and error only where the data hold them: ``low`` is None where neither items, their number nor
an error is known, and ``why`` says so. ``study.has_items(point, measure)`` tells whether the scores of items are
known; ``differences.aligned`` gives them in one order for several points.

Names of points, series and measures' ``key`` are unique within a study and may serve as keys of dicts. Points stand in
the order of their training within a series. ``series.place(point)`` is the place on ``series.axis``, an epoch or a
step, or None where neither is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar

from pytest_touchstone.compare.candidate import Candidate
from pytest_touchstone.compare.formats.base import BadRow, Contradiction
from pytest_touchstone.core.composite import COMPOSITE, Composite
from pytest_touchstone.core.text import place_text

Found = TypeVar("Found")
Axis: TypeAlias = Literal["epoch", "step", "order"]

UNKNOWN: Final = "not known"


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
    candidate: Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A metric of a benchmark, or a composite (``benchmark`` is then its name, ``metric`` "composite").

    ``label`` names it in tables (``Real@1``), ``key`` in data (``real_coref:real@1``). ``share``: all its values lie
    from 0 to 1, so that a hundredth is a point. ``primary``: the benchmark is judged by it; so is a composite.
    """

    benchmark: str
    metric: str
    label: str
    higher_is_better: bool = True
    share: bool = True
    primary: bool = True
    composite: Composite | None = None

    @property
    def key(self) -> str:
        """The name in data."""
        return self.benchmark if self.metric == COMPOSITE else f"{self.benchmark}:{self.metric}"

    def better(self, one: float, other: float) -> bool:
        """Return whether the first value is better than the second."""
        return one > other if self.higher_is_better else one < other


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
class About:
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
    about: About = field(default_factory=About)
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

    def where(self, point: Point) -> str:
        """The place in words: ``epoch 3``, ``step 390``, or the checkpoint's name."""
        place = self.place(point)
        return point.short if place is None else f"{self.axis} {place_text(place)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Everything that was read: series, measures, values, and what is wrong with the data.

    ``values`` are by name of point and key of measure; ``value`` looks one up. ``notes`` are what a reader must know
    before believing the numbers. ``level`` is that of all intervals and tests.
    """

    series: tuple[Series, ...]
    measures: tuple[Measure, ...]
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

    def value(self, point: Point, measure: Measure) -> Value | None:
        """The measure at the point; None where it was not measured."""
        return self.values.get((point.name, measure.key))

    def valid(self, point: Point, measure: Measure) -> Value | None:
        """The measure at the point; None also where it is not to be believed."""
        value = self.value(point, measure)
        return None if value is None or value.invalid else value

    def measured(self, series: Series, measure: Measure) -> list[tuple[Point, Value]]:
        """The points of a series that have a valid value of the measure, in order, each with it."""
        found = ((point, self.valid(point, measure)) for point in series.points)
        return [(point, value) for point, value in found if value is not None]

    def ordered(self, series: Series, measure: Measure) -> list[tuple[Point, Value]]:
        """The same of those whose place in the training is known, which alone have an order."""
        return [one for one in self.measured(series, measure) if series.place(one[0]) is not None]

    def series_of(self, point: Point) -> Series:
        """The series that the point is in."""
        return next(one for one in self.series if one.name == point.series)

    def has_items(self, point: Point, measure: Measure) -> bool:
        """Return whether the scores of its items are known, of every part of a composite."""
        names = measure.composite.benchmarks if measure.composite else [measure.benchmark]
        entries = [point.candidate.entries.get(name) for name in names]
        return all(entry is not None and entry.items.examples for entry in entries)

    def facts(self) -> dict[str, Any]:
        """Series, points and measures as plain data."""
        return {
            "series": [_series_facts(one) for one in self.series],
            "measures": [_measure_facts(one) for one in self.measures],
            "values": [
                {"point": point.name, "measure": measure.key, **_value_facts(value)}
                for point in self.points
                for measure in self.measures
                if (value := self.value(point, measure)) is not None
            ],
            "notes": list(self.notes),
            "level": self.level,
        }


def _series_facts(one: Series) -> dict[str, Any]:
    return {
        "name": one.name,
        "training": one.training,
        "seq_len": one.seq_len,
        "axis": one.axis,
        "told": dict(one.about.told),
        "noted": dict(one.about.noted),
        "steps_per_epoch": asdict(one.steps_per_epoch) if one.steps_per_epoch else None,
        "points": [
            {
                name: getattr(point, name)
                for name in ("name", "short", "step", "epoch", "seq_len", "val_loss", "fingerprint")
            }
            | {"origin": point.candidate.origin}
            for point in one.points
        ],
    }


def _measure_facts(one: Measure) -> dict[str, Any]:
    names = ("key", "label", "benchmark", "metric", "higher_is_better", "share", "primary")
    return {name: getattr(one, name) for name in names} | {
        "formula": one.composite.formula if one.composite else None
    }


def _value_facts(value: Value) -> dict[str, Any]:
    return {name: getattr(value, name) for name in Value.__dataclass_fields__}
