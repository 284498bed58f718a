"""Results of a run, baselines and a plan -> a ``GateResult``.

Each checkpoint's benchmarks and metrics are judged together, as one family. A line fails where its verdict is
"worse"; for a strict gate also where it is inconclusive, or nothing was compared for lack of items. It fails where
the measured value is below the baseline's by more than max_drop, and where a floor is not kept. It is not valid where
the result is not whole, or could not be compared with a baseline that should have been there.

``--eval-set gate_metric`` and ``metrics`` name one metric or several. Each is a line of every benchmark that has it,
compared with the best by that metric; a benchmark that has none of them goes by its primary metric and says so. A
composite is a line of its own, compared with the checkpoint whose composite is the best; where nothing but composites
is named, that checkpoint is the baseline of the composite's benchmarks too. All lines of a checkpoint are corrected
together.

All items of a checkpoint together have a line, too (``pooled``). It decides nothing unless the plan says so; then it is
one more of the lines that are corrected together.

A line is a ``BenchmarkComparison``: its verdict, and the reasons to fail or not to believe it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.baselines import (
    NO_REFERENCE,
    BaselineChoice,
    BaselineSource,
    find_baselines,
    incomplete,
)
from pytest_touchstone.compare.benchmark_comparison import STRICT, BenchmarkComparison
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.comparison_verdicts import (
    NOT_COMPARED,
    POOLED,
    CompositeComponent,
    Pooled,
    PooledPart,
    check_means,
    columns,
    compare,
    compare_composite,
    compute_verdicts,
    of_the_same_checkpoints,
    pool,
    score_name,
)
from pytest_touchstone.compare.gate.accepted import AcceptedDrop, apply_accepted_drops
from pytest_touchstone.compare.gate.config import Floor, GateConfig, check_names
from pytest_touchstone.compare.gate.result import GateResult
from pytest_touchstone.compare.prompts import EDITED, OTHER, OTHERS, changed_text, edited_text
from pytest_touchstone.compare.standings import Reference, choose_references
from pytest_touchstone.core.aggregation import LOG_ODDS, SOFT, SOFT_METRICS
from pytest_touchstone.core.composite import COMPOSITE, Composite
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.core.text import join_names
from pytest_touchstone.results.store_entry import StoredResult, composites_of
from pytest_touchstone.results.summary import base_name
from pytest_touchstone.statistics.comparison import Comparison, undefined
from pytest_touchstone.statistics.sequential import EarlyStop
from pytest_touchstone.statistics.verdicts import P_DECIDES, ROUNDING, is_at_odds


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCase:
    """One checkpoint's results: entries by benchmark, and its composites' values by name."""

    checkpoint: str
    entries: Mapping[str, BenchmarkScores]
    composites: Mapping[str, float | None]


def cases_of(
    entries: Sequence[BenchmarkScores], composites: Sequence[Mapping[str, Any]]
) -> list[CheckpointCase]:
    """A run's results by checkpoint."""
    return [
        CheckpointCase(
            checkpoint=name,
            entries={entry.saved.benchmark: entry for entry in entries if entry.saved.checkpoint == name},
            composites={one["name"]: one["value"] for one in composites if one["checkpoint"] == name},
        )
        for name in dict.fromkeys(entry.saved.checkpoint for entry in entries)
    ]


class EarlyVerdict(NamedTuple):
    """A verdict that was settled before all items were asked, its baselines, and where it stopped."""

    found: BaselineChoice
    judged: BenchmarkComparison
    stop: EarlyStop | None = None


def decide(
    cases: Sequence[CheckpointCase],
    source: BaselineSource,
    plan: GateConfig,
    early: Mapping[tuple[str, str], EarlyVerdict] = MappingProxyType({}),
) -> GateResult:
    """The result of the gate over all checkpoints; ``early`` has the verdicts that are settled already, by checkpoint
    and benchmark. Raises ``GateError`` for a metric that was asked for and that no result has."""
    results = [entry.saved for case in cases for entry in case.entries.values()]
    plan = replace(plan, composites=tuple(composites_of([*results, *source.saved])))
    if known := dict.fromkeys(metric for saved in results for metric in saved.metrics):
        named = [*known, *(one.name for one in plan.composites)]
        if SOFT in plan.metrics and SOFT not in named:
            raise GateError(
                f"--eval-set gate_metric: {SOFT} needs a benchmark of choices, each with a log-probability"
            )
        check_names(plan.metrics, named, "--eval-set gate_metric", "metric")
    judged = [judge_case(case, source, plan, early) for case in cases]
    lines = [line for found, _ in judged for line in found]
    if plan.accepted:
        lines = [_held(line, cases, source, plan) for line in lines]
    lines += _floors_not_run(cases, plan)
    pooled = tuple(line for _, line in judged if line is not None)
    shown = [line.comparison for line in (*lines, *pooled)]
    nothing = source.kind == "run" and all(line.state == "absent" for line in lines)
    return GateResult(
        mode=plan.mode,
        baseline=source.name,
        margin=plan.margin,
        alpha=plan.alpha,
        lines=tuple(lines),
        pooled=pooled,
        notes=(
            *source.damaged,
            *_left_out(cases, source, lines),
            *_notes_of_lines(lines),
            *([NOT_POOLED] if plan.pooled and any(_lacks_pooled(*one) for one in judged) else []),
            *(
                [P_DECIDES]
                if any(is_at_odds(one.low, one.high, one.p_adjusted, plan.alpha) for one in shown)
                else []
            ),
        ),
        fault=f"{source.name} has no result of any benchmark of this run" if nothing else None,
    )


def _held(
    line: BenchmarkComparison, cases: Sequence[CheckpointCase], source: BaselineSource, plan: GateConfig
) -> BenchmarkComparison:
    """The line as the accepted drops leave it."""
    (case,) = [one for one in cases if one.checkpoint == line.checkpoint]
    margin = plan.margin if line.comparison.margin is None else line.comparison.margin

    def further(entry: BenchmarkScores, drop: AcceptedDrop) -> bool | None:
        mine = [one for one in source.saved if drop.is_of(one)]
        if not mine or not entry.items.examples:
            return None
        known = replace(source, kind="run", name=drop.run, saved=mine)
        found = find_baselines(entry, known, metric=line.metric, allow=plan.allow)
        if found.state != "chosen":
            return None
        compared = compare(entry, found.baselines, line.metric, level=1 - plan.alpha)
        key = (line.benchmark, line.metric)
        return (
            compute_verdicts({key: compared}, margin=margin, alpha=plan.alpha)[key].comparison.verdict
            == "worse"
        )

    return apply_accepted_drops(
        line, case.entries.get(line.benchmark), plan.accepted, margin=margin, further=further
    )


def judge_case(
    case: CheckpointCase,
    source: BaselineSource,
    plan: GateConfig,
    early: Mapping[tuple[str, str], EarlyVerdict],
) -> tuple[list[BenchmarkComparison], BenchmarkComparison | None]:
    """The lines of one checkpoint: one per benchmark and metric, then one per composite. Then the line of all items
    together, which is among the others where it may fail the gate."""
    settled = {name: early[key] for name in case.entries if (key := (case.checkpoint, name)) in early}
    keys = [(name, metric) for name, entry in case.entries.items() for metric in metrics_of(entry, plan)]
    found = {
        (name, metric): settled[name].found
        if name in settled
        else _find(case.entries[name], source, plan, metric)
        for name, metric in keys
    }
    margins: dict[tuple[str, str], float] = {}
    for name, metric in keys:
        try:
            margins[name, metric] = margin_of(case.entries[name].saved, metric, plan)
        except GateError as error:
            if plan.mode is not None:
                raise
            found[name, metric] = BaselineChoice(state="absent", reason=str(error))
    composites = [one for name in plan.metrics if (one := plan.composite_of(name)) is not None]
    wholes = [_whole(case, composite, source, plan) for composite in composites]
    compared = _compare(case, wholes, found, settled, plan)
    pooled = None if settled else _pool(case, found, compared, plan)
    if pooled is not None and plan.pooled:
        compared[pooled.compared.benchmark, POOLED] = pooled.compared
    margins |= {
        key: margin
        for key in compared
        if key not in margins and (margin := plan.own(key[0]).margin) is not None
    }
    judged = compute_verdicts(compared, margin=plan.margin, margins=margins, alpha=plan.alpha)
    judged |= {key: settled[key[0]].judged for key in keys if key[0] in settled}
    whole = _pooled_line(case, pooled, judged, plan) if pooled is not None else None
    told = pooled.benchmarks if pooled and whole and whole.kind in ("better", "not worse") else ()
    lines = [
        benchmark_line(
            case.entries[name],
            metric,
            found[name, metric],
            judged.get((name, metric)),
            plan,
            early=name in settled,
            together=name in told,
        )
        for name, metric in keys
    ]
    lines += [
        composite_line(
            _plain_composite(case, one.composite),
            one.found,
            judged.get((one.composite.name, COMPOSITE)),
            plan,
        )
        for one in wholes
    ]
    lines += [whole] if whole is not None and plan.pooled else []
    return lines + _composite_floors(case, plan), whole


def _pool(
    case: CheckpointCase,
    found: Mapping[tuple[str, str], BaselineChoice],
    compared: Mapping[tuple[str, str], BenchmarkComparison],
    plan: GateConfig,
) -> Pooled | None:
    """All items of the valid benchmarks that are compared, by the first metric of each."""
    parts: dict[str, PooledPart] = {}
    for (name, metric), one in found.items():
        if one.state == "chosen" and not case.entries[name].saved.invalid:
            parts.setdefault(name, PooledPart(case.entries[name], one.baselines, compared[name, metric]))
    return pool(parts, level=1 - plan.alpha)


def _pooled_line(
    case: CheckpointCase,
    pooled: Pooled,
    judged: Mapping[tuple[str, str], BenchmarkComparison],
    plan: GateConfig,
) -> BenchmarkComparison:
    """The line of all items together; where it decides nothing it is a test of its own, and has no reason to fail."""
    key = (pooled.compared.benchmark, POOLED)
    line = (
        judged.get(key) or compute_verdicts({key: pooled.compared}, margin=plan.margin, alpha=plan.alpha)[key]
    )
    line = composite_line(line, BaselineChoice(state="chosen"), line, plan)
    if wrong := [name for name, entry in case.entries.items() if entry.saved.invalid]:
        line = replace(line, notes=(*line.notes, f"without {join_names(wrong)}, NOT VALID"))
    if others := [name for name in case.entries if name not in (*pooled.benchmarks, *wrong)]:
        line = replace(line, notes=(*line.notes, f"without {join_names(others)}, not compared by shares"))
    return line if plan.pooled else replace(line, fails=(), notes=(*line.notes, SHOWN))


def _find(entry: BenchmarkScores, source: BaselineSource, plan: GateConfig, metric: str) -> BaselineChoice:
    if source.kind == "none":
        return BaselineChoice(state="absent", reason="compared with no baseline")
    if not entry.items.examples:
        return BaselineChoice(state="refused", reason="no item was scored")
    return find_baselines(entry, source, metric=metric, allow=plan.allow)


def _compare(
    case: CheckpointCase,
    wholes: Sequence[_Whole],
    found: dict[tuple[str, str], BaselineChoice],
    settled: Mapping[str, EarlyVerdict],
    plan: GateConfig,
) -> dict[tuple[str, str], BenchmarkComparison]:
    """Compare what can be compared, by benchmark and metric."""
    level = 1 - plan.alpha
    compared: dict[tuple[str, str], BenchmarkComparison] = {}
    references = _references(wholes, found, plan)
    for key in [key for key in references if key[0] not in settled]:
        name, metric = key
        found[key] = replace(found[key], baselines=references[key].results)
        one = compare(
            case.entries[name], found[key].baselines, metric, chosen=references[key].chosen, level=level
        )
        if one.comparison.why.startswith(NOT_COMPARED):
            found[key] = replace(found[key], state="apart", reason=one.comparison.why)
        else:
            compared[key] = one
    return compared | {
        (one.composite.name, COMPOSITE): one.compared for one in wholes if one.compared is not None
    }


def _references(
    wholes: Sequence[_Whole], found: Mapping[tuple[str, str], BaselineChoice], plan: GateConfig
) -> dict[tuple[str, str], Reference]:
    """Choose what each benchmark and metric is compared with.

    The first metrics of all benchmarks go with the checkpoint that is the best over all items, and so do their second
    ones. Where only composites are asked for, their benchmarks go with the checkpoint that the first of them chose.
    """
    rounds: list[dict[str, str]] = []
    for name, metric in (key for key, choice in found.items() if choice.state == "chosen"):
        metrics = next((metrics for metrics in rounds if name not in metrics), None)
        if metrics is None:
            rounds.append(metrics := {})
        metrics[name] = metric
    references: dict[tuple[str, str], Reference] = {}
    for metrics in rounds:
        earlier = {name: found[name, metric].baselines for name, metric in metrics.items()}
        references |= {
            (name, metrics[name]): reference
            for name, reference in choose_references(earlier, metrics).items()
        }
    # Of several composites with a benchmark the first counts.
    by_benchmark = {name: one for one in reversed(wholes) for name in one.parts}
    for name, metric in () if plan.plain_metrics else references:
        whole = by_benchmark.get(name)
        if whole is not None and whole.compared is not None:
            references[name, metric] = Reference(whole.parts[name], whole.compared.place)
    return references


# Composites


@dataclass(frozen=True, slots=True)
class _Whole:
    """A composite, its baselines, those of each of its benchmarks in the same order, and the comparison."""

    composite: Composite
    found: BaselineChoice
    parts: Mapping[str, tuple[BenchmarkScores, ...]]
    compared: BenchmarkComparison | None = None


def _whole(case: CheckpointCase, composite: Composite, source: BaselineSource, plan: GateConfig) -> _Whole:
    """The comparison of a composite with the checkpoints that have all of its parts."""
    names = composite.benchmarks
    missing = [name for name in names if name not in case.entries]
    if missing:
        reason = f"{composite.name} needs {', '.join(missing)}, which was not run"
        return _Whole(composite, BaselineChoice(state="refused", reason=reason), {})
    entries = {name: case.entries[name] for name in names}
    found = {name: _find(one, source, plan, one.saved.primary) for name, one in entries.items()}
    for name, one in found.items():
        if one.state != "chosen":
            reason = f"{name}: {one.reason}" if one.reason else ""
            return _Whole(composite, replace(one, reason=reason, notes=()), {})
    shared = of_the_same_checkpoints([found[name].baselines for name in names])
    if not shared[0]:
        reason = f"no saved checkpoint has all parts of {composite.name}"
        return _Whole(composite, BaselineChoice(state="refused", reason=reason), {})
    parts = dict(zip(names, shared, strict=True))
    try:
        check_means([(entries[part.benchmark], part.metric) for part in composite.parts])
    except GateError as error:
        return _Whole(composite, BaselineChoice(state="apart", reason=f"{NOT_COMPARED}: {error}"), {})
    weighed = [
        CompositeComponent(part.weight, part.metric, entries[part.benchmark], parts[part.benchmark])
        for part in composite.parts
    ]
    part = next((one.part for one in found.values() if one.part), "")
    return _Whole(
        composite,
        BaselineChoice(state="chosen", baselines=parts[names[0]], part=part),
        parts,
        compare_composite(composite.name, weighed, level=1 - plan.alpha),
    )


def _plain_composite(case: CheckpointCase, composite: Composite) -> BenchmarkComparison:
    return BenchmarkComparison(
        checkpoint=case.checkpoint,
        benchmark=composite.name,
        metric=COMPOSITE,
        comparison=undefined("", new=case.composites.get(composite.name)),
        state="absent",
        about="; ".join(
            f"{name}: {case.entries[name].saved.mark}"
            for name in composite.benchmarks
            if name in case.entries and case.entries[name].saved.mark
        ),
    )


def _composite_floors(case: CheckpointCase, plan: GateConfig) -> list[BenchmarkComparison]:
    """A line for each composite that has floors and is not compared."""
    alone = BaselineChoice(
        state="absent", reason="only its floors are checked; --eval-set gate_metric compares it"
    )
    return [
        composite_line(_plain_composite(case, composite), alone, None, plan)
        for composite in plan.composites
        if composite.name not in plan.metrics
        and composite.name in case.composites
        and plan.own(composite.name).floors
    ]


# What was asked for and is missing


def _floors_not_run(cases: Sequence[CheckpointCase], plan: GateConfig) -> list[BenchmarkComparison]:
    """A line for each benchmark or composite that has floors and was not run."""
    measured = {name for case in cases for name in (*case.entries, *case.composites)}
    measured |= {base_name(name) for name in measured}
    measured |= {one.name for one in plan.composites if one.name in plan.metrics}
    return [
        BenchmarkComparison(
            checkpoint=", ".join(case.checkpoint for case in cases),
            benchmark=name,
            metric=own.floors[0].metric,
            comparison=undefined("it has floors and was not run"),
            invalid=(f"floor {own.floors[0].text}: it was not measured in this run",),
            state="absent",
        )
        for name, own in plan.benchmarks.items()
        if own.floors and name not in measured
    ]


def _notes_of_lines(lines: Sequence[BenchmarkComparison]) -> Iterable[str]:
    """The notes of lines that a short report shows too: on prompts that have changed, or may have."""
    notes = (
        f"{line.benchmark}: {note}"
        for line in lines
        for note in line.notes
        if note.startswith((OTHER, OTHERS, EDITED, SOFT_FELL, REFERENCE_STAYS, NO_REFERENCE))
    )
    return dict.fromkeys(notes)


def _left_out(
    cases: Sequence[CheckpointCase], source: BaselineSource, lines: Sequence[BenchmarkComparison]
) -> list[str]:
    """Benchmarks that the baselines have and this run has not."""
    run = {name for case in cases for name in case.entries}
    used = {(line.against.run_id, line.against.checkpoint) for line in lines if line.against is not None}
    names = {
        saved.benchmark
        for saved in source.saved
        if saved.complete and (source.kind == "run" or (saved.run_id, saved.checkpoint) in used)
    }
    missing = ", ".join(sorted(names - run))
    return (
        [f"the baseline has results of {missing}, which this run did not ask: not judged"] if missing else []
    )


NOT_POOLED: Final = (
    "nothing is pooled: no saved checkpoint has all of two or more benchmarks with scores in [0, 1]"
)


def _lacks_pooled(lines: Sequence[BenchmarkComparison], pooled: BenchmarkComparison | None) -> bool:
    """Return whether several benchmarks of a checkpoint are compared, and not all together."""
    return (
        pooled is None
        and len({line.benchmark for line in lines if line.comparison.difference is not None}) > 1
    )


SHOWN: Final = "shown only: with `pooled = true` it can fail the gate"

FIRST: Final = "no baseline yet: this result is the first"


@dataclass(slots=True)
class Reasons:
    """The reasons why a line fails, and why nothing can be said."""

    fails: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)


def metrics_of(entry: BenchmarkScores, plan: GateConfig) -> tuple[str, ...]:
    """The metrics by which a benchmark is compared: its own in the plan, else those of the gate that it has, else the
    primary one. Raises ``GateError`` where it lacks one of its own."""
    saved = entry.saved
    found = plan.metrics_of(saved.benchmark, saved.primary, saved.metrics)
    if entry.items.examples:
        for metric in found:
            score_name(saved, metric)
        return found
    return (saved.primary,) if plan.own(saved.benchmark).metrics else found


def margin_of(saved: StoredResult, metric: str, plan: GateConfig) -> float:
    """The loss of the result's metric that does not matter; raises ``GateError`` where a unit has none."""
    return plan.margin_of(saved.benchmark, metric, saved.aggregation(metric))


def benchmark_line(
    entry: BenchmarkScores,
    metric: str,
    found: BaselineChoice,
    judged: BenchmarkComparison | None,
    plan: GateConfig,
    *,
    early: bool = False,
    together: bool = False,
) -> BenchmarkComparison:
    """The line of one metric of a benchmark; one that was settled ``early`` may have items that were not asked.

    ``together``: over all items, these included, the checkpoint is better or not worse.
    """
    saved = entry.saved
    # What it skips and an earlier result has scored may be what got worse.
    saved = replace(
        saved, skips_declared=saved.skips_declared and not (found.state == "apart" and found.part)
    )
    whole = replace(saved, skipped=0).complete if early else saved.complete
    reasons = _reasons(found, plan, "" if whole else f"the result is not whole: {incomplete(saved)}")
    if entry.items.examples:
        others = metrics_of(entry, plan)
        known = {key: one.value for key, one in saved.metrics.items()}
        # Each floor once: with its own metric, or with the first.
        mine = [
            floor
            for floor in plan.own(saved.benchmark).floors
            if floor.metric == metric or (floor.metric not in others and metric == others[0])
        ]
        apply_floors(known, saved.benchmark, mine, reasons)
    how = saved.aggregation(metric)
    notes = (
        *found.notes,
        *([f"values are means of {how.of}, by which {metric} is compared"] * how.is_perplexity),
        *([] if how.compared_higher_is_better else [f"lower is better for {metric}"]),
        *([f"asked to the end: {metric} is no mean of item scores"] if early and how.is_corpus_level else []),
        *_without(saved, plan),
        *dict.fromkeys(
            filter(
                None, (text(one, entry) for one in found.baselines for text in (changed_text, edited_text))
            )
        ),
    )
    value = saved.metrics[metric].value
    line = judged or BenchmarkComparison(
        checkpoint=saved.checkpoint,
        benchmark=saved.benchmark,
        metric=metric,
        comparison=undefined(found.reason or FIRST, new=value),
    )
    line = replace(
        line,
        notes=notes,
        state=found.state,
        part=found.part,
        early=early,
        about=saved.about,
        together=together,
    )
    if judged is None:
        return _reasoned(line, reasons)
    _note_verdict(line, plan, reasons)
    comparison = line.comparison
    if comparison.new is None:
        comparison = replace(comparison, new=value)
    if comparison.verdict in ("worse", "better") and _same_answers(entry, found.baselines[line.place]):
        same = f"no answer changed: {saved.primary} is as before on every item"
        comparison = replace(comparison, why=f"{comparison.why}; {same}")
    stands_in = how.compared(metric) if how.is_perplexity else ""
    baseline = found.baselines[line.place]
    contradictions = _contradictions(entry, baseline, comparison, metric, together=together)
    line = replace(line, notes=(*line.notes, *contradictions))
    return _reasoned(replace(line, comparison=comparison, stands_in=stands_in), reasons)


SOFT_FELL: Final = "the soft scores of the same items fell by more than chance"
REFERENCE_STAYS: Final = "measured higher, and not told from it"

LEAST_Z: Final = -2.8
"""The standard errors below which a soft score contradicts a verdict: one in 200 equal runs falls so far."""

ALSO_FELL: Final = -1.0
"""The same of ``soft``, which no other scale of the logits moves, where the log-odds contradict."""


def _contradictions(
    entry: BenchmarkScores, baseline: BenchmarkScores, comparison: Comparison, metric: str, *, together: bool
) -> Iterable[str]:
    """Yield what speaks against taking the checkpoint for as good: its soft scores, and that nothing is settled."""
    both = [name for name in (SOFT, LOG_ODDS) if all(name in one.saved.metrics for one in (entry, baseline))]
    if metric not in SOFT_METRICS and comparison.verdict != "worse":
        z = {name: _standard_errors(entry, baseline, name, comparison.level) for name in both}
        name = min(z, key=z.__getitem__, default="")
        if name and z[name] < LEAST_Z and z.get(SOFT, 0.0) < ALSO_FELL:
            yield f"{SOFT_FELL} ({name}, z {z[name]:.1f})"
    if comparison.verdict == "inconclusive" and not together and (comparison.oriented.difference or 0) > 0:
        yield f"{REFERENCE_STAYS}: {baseline.saved.checkpoint} stays the reference"


def _standard_errors(entry: BenchmarkScores, baseline: BenchmarkScores, metric: str, level: float) -> float:
    """Return the difference in standard errors, below 0 where the new result is worse; 0 where it is not known."""
    comparison = compare(entry, [baseline], metric, level=level).comparison.oriented
    return (comparison.difference or 0.0) / comparison.stderr if comparison.stderr else 0.0


def _same_answers(entry: BenchmarkScores, baseline: BenchmarkScores) -> bool:
    """Return whether every item that both have scores as before by the primary metric."""
    how = entry.saved.aggregation(entry.saved.primary)
    shared = columns(entry.items, [baseline.items], how.of)
    return how.is_mean and bool(shared.new) and shared.baselines[0] == shared.new


def _without(saved: StoredResult, plan: GateConfig) -> list[str]:
    """The note on a benchmark that has none of the metrics that were asked for."""
    named = plan.plain_metrics
    if not named or plan.own(saved.benchmark).metrics or any(one in saved.metrics for one in named):
        return []
    return [f"{saved.benchmark} has no {' or '.join(named)}: judged by {saved.primary}, its primary metric"]


def composite_line(
    plain: BenchmarkComparison, found: BaselineChoice, judged: BenchmarkComparison | None, plan: GateConfig
) -> BenchmarkComparison:
    """The line of a composite; ``plain`` has its names, mark and value."""
    reasons = _reasons(found, plan)
    if judged is None:
        line = replace(plain, comparison=replace(plain.comparison, why=found.reason or FIRST))
    else:
        value = plain.comparison.new if judged.comparison.new is None else judged.comparison.new
        line = replace(judged, about=plain.about, comparison=replace(judged.comparison, new=value))
        _note_verdict(line, plan, reasons)
    line = replace(line, state=found.state, part=found.part)
    floors = plan.own(line.benchmark).floors
    apply_floors({line.benchmark: line.comparison.new}, line.benchmark, floors, reasons)
    return _reasoned(line, reasons)


def _reasons(found: BaselineChoice, plan: GateConfig, flaw: str = "") -> Reasons:
    """The reasons that the baseline and a flaw of the result give."""
    fails = [STRICT] if found.state == "apart" and plan.mode == "strict" else []
    return Reasons(fails, [flaw or found.reason] if flaw or found.state == "refused" else [])


def apply_floors(
    known: Mapping[str, float | None], name: str, floors: Iterable[Floor], reasons: Reasons
) -> None:
    """Note every floor that is not kept, or that the data leave open; raises ``GateError`` for an unknown metric."""
    for floor in floors:
        if floor.metric not in known:
            raise GateError(f"floor {floor.text!r} of {name}: no such metric; it has {', '.join(known)}")
        value = known[floor.metric]
        if value is None:
            reasons.invalid.append(f"floor {floor.text}: the metric is undefined in this run")
        elif not floor.holds(value):
            reasons.fails.append(f"floor {floor.text}: it is {floor.shown(value)}")


def _reasoned(line: BenchmarkComparison, reasons: Reasons) -> BenchmarkComparison:
    return replace(line, fails=tuple(reasons.fails), invalid=tuple(reasons.invalid))


def _note_verdict(line: BenchmarkComparison, plan: GateConfig, reasons: Reasons) -> None:
    """Note the reasons to fail that a verdict and the largest drop allowed give."""
    verdict, measured = line.comparison.verdict, line.as_measured
    if verdict == "worse":
        reasons.fails.append("worse")
    if plan.mode == "strict" and verdict == "inconclusive":
        reasons.fails.append(STRICT)
    most, gain = plan.own(line.benchmark).max_drop, measured.oriented.difference
    if most is not None and line.metric != SOFT and gain is not None and gain < -most - ROUNDING:
        word = "dropped" if measured.higher_is_better else "rose"
        lost = measured.told_in.told(-gain).removeprefix("+")
        reasons.fails.append(f"{word} by {lost} as measured; max_drop is {measured.told_in.factor * most:g}")
