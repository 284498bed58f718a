"""Follows a run's journal and says which items are not needed any more.

The looks at a benchmark begin when the first of them can be taken: only then is it known whether it was asked through a
chat template, and with that what it can be held against. Where there is no baseline nothing stops.

``--eval-gate-sequential``: a benchmark is asked in a drawn order and stops once its verdict is settled.

order     the order of the items, and where there are looks
watch     whether what has been scored so far settles a verdict

Where a benchmark stops: looks at growing shares of its items, held against its baselines.

The looks and what they decide are ``statistics.sequential``'s. A look needs a score of every item so far; after
one that ended in error or was skipped there is no further look. What a look says depends on the items in front of it
alone, so every process that has their records comes to the same end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from harness.compare.baselines import BaselineChoice, BaselineSource, find
from harness.compare.candidate import Entry
from harness.compare.gate.config import GateConfig
from harness.compare.gate.decide import Early, metrics_of
from harness.compare.items import columns, score_name
from harness.compare.judge import Compared, Judged, compare
from harness.results.journal import Following, latest
from harness.results.records import Record
from harness.results.run_directory import RunDirectory
from harness.results.store_entry import ItemScores, StoredResult, items_of, stored_result
from harness.results.summary import Declaration, Metric
from harness.statistics.sequential import Plan, Stop, look_at, plan_looks
from harness.statistics.verdicts import Verdict

Series: TypeAlias = tuple[str, str]
"""A checkpoint's name and a benchmark's: what one verdict is about."""


class LookSchedule(NamedTuple):
    """One checkpoint's items of one benchmark in the order in which they are asked: node ids, ids of the examples,
    hashes of their rows; and after how many one looks, the last being all."""

    items: list[str]
    examples: list[str]
    rows: list[str]
    looks: tuple[int, ...]


@dataclass(slots=True)
class SequentialMonitor:
    """The looks of a run. ``courses`` has the order of each checkpoint's items of each benchmark."""

    directory: RunDirectory
    courses: Mapping[Series, LookSchedule]
    declarations: Mapping[str, Declaration]
    source: BaselineSource
    plan: GateConfig
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

    def _saved(self, series: Series, records: Sequence[Record]) -> StoredResult:
        """The result that is on its way, as far as it is known: without numbers."""
        checkpoint, benchmark = series
        declaration = self.declarations[benchmark]
        manifest: dict[str, Any] = self.directory.read_manifest()
        row: dict[str, Any] = next(
            (one for one in manifest.get("checkpoints", ()) if one["name"] == checkpoint), {}
        )
        scores = dict.fromkeys(name for record in records for name in record.scores)
        return stored_result(
            declaration,
            manifest,
            row,
            run_id=self.directory.run_id,
            directory=str(self.directory.path),
            checkpoint=checkpoint,
            chat=any(record.chat for record in records),
            metrics={name: _unknown(name) for name in (*scores, *declaration.aggregate)},
            collected=len(self.courses[series].items),
        )


def looks_at(
    course: LookSchedule, new: Entry, source: BaselineSource, plan: GateConfig, family: int
) -> Looks | None:
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


def early_of(settled: Settled, benchmark: str, plan: GateConfig, family: int) -> Early:
    """The verdict of a stop as the gate takes it."""
    margin = plan.margin_of(benchmark)
    return Early(settled.found, judged(settled, margin=margin, alpha=plan.alpha, family=family))


def _all_items(course: LookSchedule, saved: StoredResult) -> ItemScores:
    """All the items of the course as if they had been scored, to find what has the same."""
    count = len(course.items)
    made_of = [saved.aggregation(name).of for name in saved.aggregate]
    return ItemScores(
        examples=list(course.examples),
        rows=list(course.rows),
        groups=[None] * count,
        clusters=[None] * count,
        scores={name: [0.0] * count for name in (*saved.metrics, *made_of)},
    )


def _unknown(name: str) -> Metric:
    return Metric(name=name, value=None, low=None, high=None, stderr=None, n=0, method="none")


@dataclass(frozen=True, slots=True)
class Settled:
    """The baseline of a benchmark that stopped, the stop, and the comparison that decided it."""

    found: BaselineChoice
    stop: Stop
    compared: Compared

    @property
    def text(self) -> str:
        """Where it stopped, for a person."""
        return f"settled after {self.stop.items} of {self.stop.total} items: {self.stop.kind}"


@dataclass(slots=True)
class Looks:
    """The looks at one benchmark of one checkpoint, by one metric. ``saved`` is its result without numbers,
    ``found`` what it is held against."""

    course: LookSchedule
    plan: Plan
    saved: StoredResult
    found: BaselineChoice
    metric: str
    settled: Settled | None = None
    _next: int = field(default=0)

    def advance(self, records: Mapping[str, Record]) -> Settled | None:
        """Takes every look whose items all have a score; returns the stop, once there is one."""
        while self.settled is None and self._next < len(self.course.looks):
            items = self.course.items[: self.course.looks[self._next]]
            known = [record for item in items if (record := records.get(item)) is not None]
            if len(known) < len(items) or any(record.status != "scored" for record in known):
                break
            new = Entry(self.saved, items_of(known))
            compared = compare(
                new,
                self.found.baselines,
                self.metric,
                chosen=self._best(new),
                level=self.plan.levels[self._next],
            )
            stop = look_at(self.plan, self._next, compared.comparison)
            if stop is not None:
                self.settled = Settled(self.found, stop, compared)
            self._next += 1
        return self.settled

    def _best(self, new: Entry) -> int:
        """The baseline that is best over all its items: another look must not choose another one."""
        score = score_name(new.saved, self.metric)
        baselines = self.found.baselines
        found = columns(baselines[0].items, [one.items for one in baselines], score)
        means = [math.fsum(column) / len(column) for column in found.baselines]
        better = max if self.saved.aggregation(self.metric).higher_score_is_better else min
        return means.index(better(means))


def judged(settled: Settled, *, margin: float, alpha: float, family: int) -> Judged:
    """The verdict of a stop. Its p is not adjusted: the looks' own levels allow for their number and for that of the
    benchmarks."""
    comparison = settled.compared.comparison
    return Judged(
        compared=settled.compared,
        verdict=Verdict(
            kind=settled.stop.kind,
            comparison=comparison,
            margin=margin,
            alpha=alpha,
            p_adjusted=None,
            family=family,
            items=None,
            why=_why(settled.stop),
        ),
    )


def _why(stop: Stop) -> str:
    one = stop.comparison
    if one.difference is None:
        return one.why or "nothing to compare"
    moved = f"{100 * one.difference:+.2f} points"
    if one.low is not None and one.high is not None:
        moved += f" [{100 * one.low:+.2f}, {100 * one.high:+.2f}] at this analysis's level"
    when = "at the last look" if stop.items == stop.total else f"after {stop.items} of {stop.total} items"
    return f"{moved}: settled {when}; {stop.why}"
