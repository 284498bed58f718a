"""Where a benchmark stops: looks at growing shares of its items, held against its baselines.

The looks and what they decide are ``statistics.sequential``'s. A look needs a score of every item so far; after
one that ended in error or was skipped there is no further look. What a look says depends on the items in front of it
alone, so every process that has their records comes to the same end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.gate.baselines import Found
from harness.gate.judging import Compared, Judged, compare
from harness.gate.pairing import Entry, columns, score_name
from harness.records import Record
from harness.saved.build import items_of
from harness.saved.entry import Saved
from harness.sequential.order import Course
from harness.statistics.sequential import Plan, Stop, look_at
from harness.statistics.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Settled:
    """What a benchmark is held against, the stop, and the comparison that decided it."""

    found: Found
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

    course: Course
    plan: Plan
    saved: Saved
    found: Found
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
        return means.index(max(means))


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
        moved += f" [{100 * one.low:+.2f}, {100 * one.high:+.2f}] at this look's level"
    when = "at the last look" if stop.items == stop.total else f"after {stop.items} of {stop.total} items"
    return f"{moved}: settled {when}; {stop.why}"
