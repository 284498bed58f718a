"""Stop benchmarks early (``--eval-set gate_sequential``) once more items cannot change their verdicts.

A benchmark is asked in a drawn order, and stops when an interim analysis of its first items settles its verdict against
the baselines. A benchmark without a baseline never stops, nor does one with a corpus-level metric. The first analysis
waits until its items are scored, because the baselines depend on whether a chat template was used.

``statistics.sequential`` plans the analyses and decides at each. An analysis needs a score for every item so far; an
item that ended in error or was skipped ends the analyses. A decision depends only on the items before it, so all
processes with their records agree.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

from pytest_touchstone.compare.baselines import BaselineChoice, BaselineSource, find_baselines
from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.comparison_verdicts import compare
from pytest_touchstone.compare.gate.config import GateConfig
from pytest_touchstone.compare.gate.decide import EarlyVerdict, margin_of, metrics_of
from pytest_touchstone.compare.prompts import PROMPTS
from pytest_touchstone.compare.standings import EarlierBest, choose_references
from pytest_touchstone.core.aggregation import facts_beside
from pytest_touchstone.results.journal import JournalFollower, latest_records
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.store_entry import ItemScores, StoredResult, item_scores_of, stored_result
from pytest_touchstone.results.summary import Declaration, Metric
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.sequential import (
    AnalysisPlan,
    EarlyStop,
    cut,
    decide_at,
    item_order,
    plan_analyses,
)
from pytest_touchstone.statistics.verdicts import moved_text

Series: TypeAlias = tuple[str, str]
"""The names of a checkpoint and a benchmark: the subject of one verdict."""


class InterimSchedule(NamedTuple):
    """The items of one checkpoint and benchmark in running order: node ids, example ids, hashes of rows.

    ``analyses`` are the numbers of items at the interim analyses; the last is the number of all items.
    """

    items: list[str]
    examples: list[str]
    rows: list[str]
    analyses: tuple[int, ...]


def draw_schedule(
    items: Sequence[str],
    examples: Sequence[str],
    rows: Sequence[str],
    clusters: Sequence[Hashable | None],
    *,
    seed: int,
) -> tuple[list[int], InterimSchedule]:
    """Return the indices of the items in their drawn order, and the schedule in that order."""
    order = item_order(examples, clusters, seed=seed)
    return order, InterimSchedule(
        [items[index] for index in order],
        [examples[index] for index in order],
        [rows[index] for index in order],
        cut([clusters[index] for index in order]),
    )


class JournalTail(Protocol):
    """A journal that grows."""

    def new(self) -> list[Record]:
        """Return the records since the last call."""


@dataclass(slots=True)
class SequentialMonitor:
    """The interim analyses of a run.

    ``schedules`` has the order of the items by checkpoint and benchmark. The records come from the journal in the run's
    folder, or from another ``tail``.
    """

    directory: RunDirectory
    schedules: Mapping[Series, InterimSchedule]
    declarations: Mapping[str, Declaration]
    source: BaselineSource
    plan: GateConfig
    tail: JournalTail | None = None
    _analyses: dict[Series, InterimAnalyses | None] = field(default_factory=dict)
    _records: dict[str, Record] = field(default_factory=dict)
    _positions: dict[str, tuple[Series, int]] = field(default_factory=dict)
    _baselines: dict[Series, tuple[str, BaselineChoice]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for series, schedule in self.schedules.items():
            for index, item in enumerate(schedule.items):
                self._positions[item] = series, index

    def settled(self, item: str) -> str | None:
        """Return the reason why an item need not be asked; None if it must be."""
        series, index = self._positions.get(item, (None, 0))
        if series is None or index < self.schedules[series].analyses[0]:
            return None
        early = self._advance(series)
        if early is None or early.stop is None or index < early.stop.items:
            return None
        return early.stop.text

    def family(self, series: Series) -> int:
        """Return the number of collected benchmarks of the checkpoint, which share the chance of a false alarm."""
        return sum(checkpoint == series[0] for checkpoint, _ in self.schedules)

    def early(self) -> dict[Series, EarlyVerdict]:
        """Return the verdicts that an interim or final analysis has settled."""
        return {series: early for series in self.schedules if (early := self._advance(series)) is not None}

    def _advance(self, series: Series) -> EarlyVerdict | None:
        if (analyses := self._analyses.get(series)) is not None and analyses.settled is not None:
            return analyses.settled
        self._read_journal()
        if series not in self._analyses:
            first = self.schedules[series].items[: self.schedules[series].analyses[0]]
            records = [record for item in first if (record := self._records.get(item)) is not None]
            if len(records) < len(first):
                return None
            self._analyses[series] = self._begin(series, records)
        analyses = self._analyses[series]
        return None if analyses is None else analyses.advance(self._records)

    def _read_journal(self) -> None:
        if self.tail is None:
            self.tail = JournalFollower(self.directory.path)
        for item, record in latest_records(self.tail.new()).items():
            if record.status != "lost" or item not in self._records:
                self._records[item] = record

    def _begin(self, series: Series, records: Sequence[Record]) -> InterimAnalyses | None:
        """Begin the interim analyses of a benchmark whose first items have these records.

        Return None without a baseline. The baselines of the checkpoint's other benchmarks are chosen without their
        records, so that all processes agree.
        """
        for key, schedule in self.schedules.items():
            if key[0] == series[0] and key not in self._baselines:
                earlier = [saved for saved in self.source.saved if saved.benchmark == key[1]]
                names = dict.fromkeys(name for saved in earlier for name in saved.metrics)
                other = self._saved(key, (), names)
                new = BenchmarkScores(other, _all_items(schedule, other))
                metric = metrics_of(new, self.plan)[0]
                allowed = {*self.plan.allow, "template", PROMPTS}
                choice = find_baselines(new, self.source, metric=metric, allow=allowed)
                self._baselines[key] = metric, choice
        return interim_analyses(
            self.schedules[series],
            self._saved(series, records),
            self.source,
            self.plan,
            self.family(series),
            others={
                name: baseline
                for (checkpoint, name), baseline in self._baselines.items()
                if checkpoint == series[0]
            },
        )

    def _saved(self, series: Series, records: Sequence[Record], metrics: Iterable[str] = ()) -> StoredResult:
        """Return the coming result of a benchmark, without numbers; ``metrics`` are others that it will have."""
        checkpoint, benchmark = series
        declaration = self.declarations[benchmark]
        manifest: dict[str, Any] = self.directory.read_manifest()
        row: dict[str, Any] = next(
            (
                checkpoint_row
                for checkpoint_row in manifest.get("checkpoints", ())
                if checkpoint_row["name"] == checkpoint
            ),
            {},
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
            metrics={
                name: Metric(name=name, value=None, low=None, high=None, stderr=None, n=0, method="none")
                for name in (declaration.primary, *scores, *declaration.aggregate, *metrics)
            },
            collected=len(self.schedules[series].items),
        )


def interim_analyses(
    schedule: InterimSchedule,
    saved: StoredResult,
    source: BaselineSource,
    plan: GateConfig,
    family: int,
    *,
    others: Mapping[str, tuple[str, BaselineChoice]] = MappingProxyType({}),
) -> InterimAnalyses | None:
    """Return the interim analyses of a benchmark; None without a baseline.

    Args:
        schedule: The items in the order of asking.
        saved: The coming result, without numbers.
        source: The baselines.
        plan: The settings of the gate.
        family: The number of benchmarks that share the chance of a false alarm.
        others: The metrics and baselines of the checkpoint's other benchmarks: all use the best checkpoint over all
            items.

    """
    new = BenchmarkScores(saved, _all_items(schedule, saved))
    metric = metrics_of(new, plan)[0]
    choice = find_baselines(new, source, metric=metric, allow=plan.allow)
    if choice.state != "chosen":
        return None
    if saved.aggregation(metric).is_corpus_level:  # stopping boundaries exist only for means
        schedule = schedule._replace(analyses=schedule.analyses[-1:])
    analyses = plan_analyses(
        schedule.analyses,
        family=family,
        margin=margin_of(saved, metric, plan),
        alpha=plan.alpha,
        strict=plan.mode == "strict",
    )
    chosen = {name: other for name, other in others.items() if other[1].state == "chosen"}
    chosen[saved.benchmark] = metric, choice
    references = choose_references(
        {name: other.baselines for name, (_, other) in chosen.items()},
        {name: first for name, (first, _) in chosen.items()},
    )
    reference = references[saved.benchmark]
    choice = replace(choice, baselines=reference.results)
    return InterimAnalyses(schedule, analyses, saved, choice, reference, metric, family)


def _all_items(schedule: InterimSchedule, saved: StoredResult) -> ItemScores:
    """Return all items of the schedule with scores of 0, to match them with those of baselines."""
    count = len(schedule.items)
    made_of = [saved.aggregation(name).score for name in saved.aggregate]
    pairs = sorted(zip(schedule.examples, schedule.rows, strict=True))
    return ItemScores(
        examples=[example for example, _ in pairs],
        rows=[row for _, row in pairs],
        groups=[None] * count,
        clusters=[None] * count,
        scores={name: [0.0] * count for name in (*saved.metrics, *made_of)},
    )


@dataclass(slots=True)
class InterimAnalyses:
    """The interim analyses of one benchmark of one checkpoint, by one metric.

    ``saved`` is the result without numbers, ``choice`` has the baselines, ``reference`` is the best of them over all
    items.
    """

    schedule: InterimSchedule
    plan: AnalysisPlan
    saved: StoredResult
    choice: BaselineChoice
    reference: EarlierBest
    metric: str
    family: int
    settled: EarlyVerdict | None = None
    _next: int = field(default=0)

    def advance(self, records: Mapping[str, Record]) -> EarlyVerdict | None:
        """Make every analysis whose items are all scored; return the early verdict, once there is one."""
        while self.settled is None and self._next < len(self.schedule.analyses):
            items = self.schedule.items[: self.schedule.analyses[self._next]]
            scored = [record for item in items if (record := records.get(item)) is not None]
            if len(scored) < len(items) or any(record.status != "scored" for record in scored):
                break
            new = BenchmarkScores(self.saved, item_scores_of(scored, facts_beside(self.saved.aggregate)))
            compared = compare(
                new,
                self.choice.baselines,
                self.metric,
                chosen=self.reference.chosen,
                level=self.plan.levels[self._next],
            )
            stop = decide_at(self.plan, self._next, compared.comparison, compared.as_measured)
            if stop is not None:
                self.settled = EarlyVerdict(self.choice, self._with_verdict(compared, stop), stop)
            self._next += 1
        return self.settled

    def _with_verdict(self, compared: BenchmarkComparison, stop: EarlyStop) -> BenchmarkComparison:
        """Return the comparison with the verdict of a stop.

        Its p is not adjusted: the levels of the analyses already allow for the numbers of analyses and benchmarks.
        """
        comparison = replace(
            compared.comparison,
            verdict=stop.kind,
            margin=self.plan.margin,
            family=self.family,
            why=_explain(compared.comparison, stop),
        )
        return replace(compared, comparison=comparison)


def _explain(comparison: Comparison, stop: EarlyStop) -> str:
    if comparison.difference is None:
        return comparison.why or "nothing to compare"
    when = "at the last analysis" if stop.items == stop.total else f"after {stop.items} of {stop.total} items"
    moved = moved_text(comparison, " at this analysis's level")
    return f"{moved}: settled {when}; {stop.why}"
