"""The comparison of a benchmark between a checkpoint and its baseline: the one record from test to report.

The numbers and the verdict are those of ``statistics.comparison``. The record adds what they are of: the metric, the
baseline and its choice, the items, and the reasons of a gate. A composite, and all items together, have such a record
as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.core.files import from_plain
from pytest_touchstone.statistics.best_of_many import BestOfMany
from pytest_touchstone.statistics.comparison import POINTS, Comparison

WITHOUT: Final = {"first": "first", "apart": "not compared"}
"""The kind of a line without a comparison, by the state of its baseline."""

REFERENCES: Final = ("better", "not worse", "first", "accepted", "no baseline", "not compared")
"""The findings of a gate after which a result may be the best that others are compared with."""

STRICT: Final = "inconclusive, and the gate is strict"


class FlippedIds(NamedTuple):
    """Ids of the items that the new run scores better, and worse."""

    gained: tuple[str, ...]
    lost: tuple[str, ...]


class ItemCounts(NamedTuple):
    """The numbers of items of the baseline and the new result that were compared, 0 where not known.

    ``paired``: item by item. ``each`` says how many each has and how many are common, where both have them. ``size`` is
    the most items that the benchmark has, 0 where that is not known.
    """

    baseline: int = 0
    new: int = 0
    paired: bool = True
    each: tuple[int, int, int] | None = None
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What is compared with: the run at ``chosen`` in ``runs``, where ``candidates`` may be the best.

    ``as_measured`` is the comparison that does not allow for the choice.
    """

    checkpoint: str
    run_id: str
    step: int | None
    as_measured: Comparison = field(compare=False)
    chosen: int = field(default=0, compare=False)
    runs: int = 1
    candidates: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkComparison:
    """One metric of one benchmark of one checkpoint, compared with a baseline.

    ``comparison`` allows for the baseline's being the best of several. ``stands_in`` names the metric with what stands
    for it in values and differences, where anything does. ``identical``: the same checkpoint, and every item scores as
    before. ``primary`` is False for metrics that are shown beside the primary one. ``flips`` is None where items are
    not compared in pairs.

    Of a gate, ``fails`` and ``invalid`` are the reasons for exit code 8 and 9. ``state`` is that of the baseline.
    ``part``: how many of an earlier result's items it has, where it lacks some, such as "2 of 400 items". ``early``:
    settled by an interim analysis, whose p is not corrected. ``about``: what must be known beside the value, its mark.
    ``accepted``: what would make it fail, and who has accepted that. ``sees`` is the smallest true drop that such a
    line calls worse with power 0.8, where known. ``together``: over all items, these included, the checkpoint is better
    or not worse.
    """

    checkpoint: str
    benchmark: str
    metric: str
    comparison: Comparison
    against: Baseline | None = None
    stands_in: str = ""
    identical: bool = False
    primary: bool = True
    counts: ItemCounts = field(default=ItemCounts(), compare=False)
    flips: FlippedIds | None = None
    fails: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    state: str = "chosen"
    about: str = ""
    part: str = ""
    early: bool = False
    accepted: str = ""
    sees: float | None = field(default=None, compare=False)
    together: bool = field(default=False, compare=False)

    @property
    def label(self) -> str:
        """The name of the benchmark and metric of the value."""
        return self.stands_in or self.metric

    @property
    def as_measured(self) -> Comparison:
        """The comparison that does not allow for the choice of the baseline."""
        return self.comparison if self.against is None else self.against.as_measured

    @property
    def is_unchanged(self) -> bool:
        """Return whether every common item scores as before."""
        if self.flips is None:
            return self.identical
        return not any(self.flips) and not self.comparison.difference

    @property
    def kind(self) -> str:
        """The finding in a word or two, one of ``compare.gate.result.KINDS``."""
        verdict = self.comparison.verdict
        if self.invalid:
            return "not judged" if verdict is None else "not valid"
        if self.accepted and not self.fails:
            return "accepted"
        if verdict == "worse":
            return "worse"
        if any(reason != STRICT for reason in self.fails):
            return "failed"
        return verdict or WITHOUT.get(self.state, "no baseline")

    @property
    def is_reference(self) -> bool:
        """Return whether later runs may be compared with the result."""
        return self.kind in REFERENCES or (self.kind == "inconclusive" and self.together)

    @property
    def place(self) -> int:
        """The place of the baseline among those that it was chosen from."""
        return 0 if self.against is None else self.against.chosen

    @property
    def percent(self) -> float | None:
        """The difference in per cent of the baseline's value; None where that is 0 or below."""
        base, moved = self.comparison.baseline, self.comparison.difference
        return None if base is None or moved is None or base <= 0 else 100 * moved / base


def record_of(
    new: BenchmarkScores,
    baselines: Sequence[BenchmarkScores],
    metric: str,
    selection: BestOfMany,
    *,
    unit: str = "",
    identical: bool = False,
) -> BenchmarkComparison:
    """Return the record of a comparison with the chosen baseline.

    If every item scores as before, it is compared with that baseline as measured.
    """
    baseline = baselines[selection.chosen].saved
    as_measured = replace(selection.as_measured, unit=unit)
    return BenchmarkComparison(
        checkpoint=new.saved.checkpoint,
        benchmark=new.saved.benchmark,
        metric=metric,
        comparison=as_measured if identical else replace(selection.comparison, unit=unit),
        against=Baseline(
            checkpoint=baseline.checkpoint,
            run_id=baseline.run_id,
            step=baseline.step,
            as_measured=as_measured,
            chosen=selection.chosen,
            runs=selection.runs,
            candidates=len(selection.candidates),
        ),
        identical=identical,
        counts=ItemCounts(size=new.saved.size),
    )


# As plain data


def plain_line(line: BenchmarkComparison) -> dict[str, Any]:
    """Return the record as flat data, as ``summary.json`` has it."""
    row = asdict(replace(line, flips=None)) | asdict(line.comparison)
    row |= {
        "kind": line.kind,
        "value": row.pop("new"),
        "as_measured": line.as_measured.difference,
        "unit": line.comparison.told_in.name,
        "items": row.pop("items_to_tell"),
    }
    if line.against is not None:
        choice = {
            name: getattr(line.against, name)
            for name in ("checkpoint", "run_id", "step", "runs", "candidates")
        }
        row["against"] = {**choice, "measured": line.as_measured.baseline, "shrunk": line.comparison.baseline}
    return {
        name: value
        for name, value in row.items()
        if name not in ("comparison", "counts", "primary", "baseline", "together")
    }


def line_of(row: Mapping[str, Any]) -> BenchmarkComparison:
    """Return the record that flat data describe; raises ``ValueError`` naming a wrong field."""
    row, against = from_plain(dict[str, Any], row), row.get("against")
    n = row.get("n", 0)
    numbers = {"n": n, "units": n, **row, "new": row.get("value"), "items_to_tell": row.get("items")}
    numbers["unit"] = str(row.get("unit", "")).removeprefix(POINTS.name)
    if isinstance(against, dict):
        measured = {**numbers, "baseline": against.get("measured"), "difference": row.get("as_measured")}
        numbers["baseline"], against = against.get("shrunk"), {**against, "as_measured": measured}
    return from_plain(BenchmarkComparison, {**row, "flips": None, "comparison": numbers, "against": against})
