"""Follows a run's journal and says which items are not needed any more.

The looks at a benchmark begin when the first of them can be taken: only then is it known whether it was asked through a
chat template, and with that what it can be held against. Where there is no baseline nothing stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.checkpoints.progress import step_of_row
from harness.gate.baselines import Source, find
from harness.gate.config import Plan
from harness.gate.deciding import Early
from harness.gate.lines import metrics_of
from harness.gate.pairing import Entry
from harness.journal import Following, latest
from harness.records import Record
from harness.results import Declaration, Metric
from harness.rundir import RunDirectory
from harness.saved.build import conditions_of
from harness.saved.entry import Items, Saved
from harness.sequential.order import Course, Series
from harness.sequential.stops import Looks, Settled, judged
from harness.statistics.sequential import plan_looks


@dataclass(slots=True)
class Watch:
    """The looks of a run. ``courses`` has the order of each checkpoint's items of each benchmark."""

    directory: RunDirectory
    courses: Mapping[Series, Course]
    declarations: Mapping[str, Declaration]
    source: Source
    plan: Plan
    _looks: dict[Series, Looks | None] = field(default_factory=dict)
    _records: dict[str, Record] = field(default_factory=dict)
    _places: dict[str, tuple[Series, int]] = field(default_factory=dict)
    _tail: Following | None = None

    def __post_init__(self) -> None:
        for series, course in self.courses.items():
            for place, item in enumerate(course.items):
                self._places[item] = series, place

    def settled(self, item: str) -> str | None:
        """Why the item is not needed any more; None where it is."""
        series, place = self._places.get(item, (None, 0))
        if series is None or place < self.courses[series].looks[0]:
            return None
        found = self._advance(series)
        return found.text if found is not None and place >= found.stop.items else None

    def stops(self) -> dict[Series, Settled]:
        """The stop of each benchmark whose verdict a look has settled, at the last look too."""
        return {series: found for series in self.courses if (found := self._advance(series)) is not None}

    def family(self, series: Series) -> int:
        """How many benchmarks of the checkpoint share the chance of a false alarm: all that were collected."""
        return sum(checkpoint == series[0] for checkpoint, _ in self.courses)

    def early(self) -> dict[Series, Early]:
        """The verdicts that were settled by a look, and what each was held against."""
        return {
            series: early_of(one, series[1], self.plan, self.family(series))
            for series, one in self.stops().items()
        }

    def _advance(self, series: Series) -> Settled | None:
        if (known := self._looks.get(series)) is not None and known.settled is not None:
            return known.settled
        self._read()
        if series not in self._looks:
            first = self.courses[series].items[: self.courses[series].looks[0]]
            records = [record for item in first if (record := self._records.get(item)) is not None]
            if len(records) < len(first):
                return None
            self._looks[series] = self._begin(series, records)
        looks = self._looks[series]
        return None if looks is None else looks.advance(self._records)

    def _read(self) -> None:
        if self._tail is None:
            self._tail = Following(self.directory.path)
        for item, record in latest(self._tail.new()).items():
            if record.status != "lost" or item not in self._records:
                self._records[item] = record

    def _begin(self, series: Series, records: Sequence[Record]) -> Looks | None:
        """The looks at a benchmark whose first items have these records; None where it has no baseline."""
        course = self.courses[series]
        saved = self._saved(series, records)
        everything = Entry(saved, _all_items(course, saved))
        return looks_at(course, everything, self.source, self.plan, self.family(series))

    def _saved(self, series: Series, records: Sequence[Record]) -> Saved:
        """The result that is on its way, as far as it is known: without numbers."""
        checkpoint, benchmark = series
        declaration = self.declarations[benchmark]
        manifest: dict[str, Any] = self.directory.read_manifest()
        row: dict[str, Any] = next(
            (one for one in manifest.get("checkpoints", ()) if one["name"] == checkpoint), {}
        )
        scores = dict.fromkeys(name for record in records for name in record.scores)
        count = len(self.courses[series].items)
        return Saved(
            run_id=self.directory.run_id,
            directory=str(self.directory.path),
            began=float(manifest.get("began") or 0.0),
            checkpoint=checkpoint,
            fingerprint=row.get("fingerprint") or "",
            path=row.get("path") or "",
            step=step_of_row(row),
            benchmark=benchmark,
            primary=declaration.primary,
            conditions=conditions_of(
                declaration,
                manifest.get("settings", {}),
                chat=any(record.chat for record in records),
            ),
            aggregate=declaration.aggregate,
            metrics={name: _unknown(name) for name in (*scores, *declaration.aggregate)},
            collected=count,
            scored=count,
            skipped=0,
            faults=0,
            invalid=None,
            items_sha256="",
        )


def looks_at(course: Course, new: Entry, source: Source, plan: Plan, family: int) -> Looks | None:
    """The looks at a benchmark in a gate over ``family`` of them; None where it has no baseline. ``new`` is its result
    as if all items had been scored, to find what has the same."""
    metric = metrics_of(new, plan)[0]
    found = find(new, source, metric=metric, allow=plan.allow)
    if found.state != "chosen":
        return None
    looks = plan_looks(
        course.looks,
        family=family,
        margin=plan.margin_of(new.saved.benchmark),
        alpha=plan.alpha,
        strict=plan.mode == "strict",
    )
    return Looks(course, looks, new.saved, found, metric)


def early_of(settled: Settled, benchmark: str, plan: Plan, family: int) -> Early:
    """The verdict of a stop as the gate takes it."""
    margin = plan.margin_of(benchmark)
    return Early(settled.found, judged(settled, margin=margin, alpha=plan.alpha, family=family))


def _all_items(course: Course, saved: Saved) -> Items:
    """All the items of the course as if they had been scored, to find what has the same."""
    count = len(course.items)
    return Items(
        examples=list(course.examples),
        rows=list(course.rows),
        groups=[None] * count,
        clusters=[None] * count,
        scores={name: [0.0] * count for name in (*saved.metrics, *_scores_of(saved))},
    )


def _scores_of(saved: Saved) -> list[str]:
    return [one["of"] for one in saved.aggregate.values()]


def _unknown(name: str) -> Metric:
    return Metric(name=name, value=None, low=None, high=None, stderr=None, n=0, method="none")
