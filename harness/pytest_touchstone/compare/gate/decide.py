"""Decide a gate: from the results of a run, baselines and a plan to a ``GateResult``.

The benchmarks and metrics of each checkpoint are judged together, as one family. A line fails if

- its verdict is "worse"; with a strict gate also if it is inconclusive, or if too few items left nothing to compare,
- the measured value is below the baseline's by more than max_drop, or
- it misses a floor.

A line is not valid if the result is not whole or not valid, or could not be compared with a required baseline.

``--eval-set gate_metric`` and ``metrics`` name one metric or several. Each makes a line for every benchmark that has
it, compared with the best result by that metric; a benchmark that has none of them is judged by its primary metric,
with a note. A composite has a line of its own, compared with the checkpoint that has the best composite. If only
composites are named, that checkpoint is the baseline of their benchmarks too. All lines of a checkpoint are corrected
together.

All items of a checkpoint together have a line too (``pooled``). It fails nothing unless the plan asks for it; then
it joins the lines that are corrected together. Always, where it is better or not worse, benchmarks that are
inconclusive alone become references.

A line is a ``BenchmarkComparison``: a verdict, with the reasons to fail or not to trust it.
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
    flaw_of,
    incomplete_reason,
)
from pytest_touchstone.compare.benchmark_comparison import STRICT, BenchmarkComparison
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.comparison_verdicts import (
    NOT_COMPARED,
    POOLED,
    CompositeComponent,
    PooledComparison,
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
from pytest_touchstone.compare.standings import EarlierBest, choose_references
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
    """The results of one checkpoint: entries by benchmark, and values of composites by name."""

    checkpoint: str
    entries: Mapping[str, BenchmarkScores]
    composites: Mapping[str, float | None]


def cases_of(
    entries: Sequence[BenchmarkScores], composites: Sequence[Mapping[str, Any]]
) -> list[CheckpointCase]:
    """Group the results of a run by checkpoint."""
    return [
        CheckpointCase(
            checkpoint=name,
            entries={entry.saved.benchmark: entry for entry in entries if entry.saved.checkpoint == name},
            composites={
                composite["name"]: composite["value"]
                for composite in composites
                if composite["checkpoint"] == name
            },
        )
        for name in dict.fromkeys(entry.saved.checkpoint for entry in entries)
    ]


class EarlyVerdict(NamedTuple):
    """A verdict that was settled before all items were asked, with its baselines and its stopping point."""

    choice: BaselineChoice
    judged: BenchmarkComparison
    stop: EarlyStop | None = None


def decide(
    cases: Sequence[CheckpointCase],
    source: BaselineSource,
    plan: GateConfig,
    early: Mapping[tuple[str, str], EarlyVerdict] = MappingProxyType({}),
) -> GateResult:
    """Return the result of the gate over all checkpoints.

    Args:
        cases: The results of the run, by checkpoint.
        source: The baselines.
        plan: The settings of the gate.
        early: Verdicts that are settled already, by checkpoint and benchmark.

    Raises:
        GateError: If no result has a metric that the plan names.

    """
    results = [entry.saved for case in cases for entry in case.entries.values()]
    plan = replace(plan, composites=tuple(composites_of([*results, *source.saved])))
    if metrics := dict.fromkeys(metric for saved in results for metric in saved.metrics):
        names = [*metrics, *(composite.name for composite in plan.composites)]
        if SOFT in plan.metrics and SOFT not in names:
            raise GateError(
                f"--eval-set gate_metric: {SOFT} needs a benchmark of choices, each with a log-probability"
            )
        check_names(plan.metrics, names, "--eval-set gate_metric", "metric")
    judged = [judge_case(case, source, plan, early) for case in cases]
    lines = [line for case_lines, _ in judged for line in case_lines]
    if plan.accepted:
        lines = [_with_accepted_drops(line, cases, source, plan) for line in lines]
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
            *_notes_on_benchmarks_not_run(cases, source, lines),
            *_prompt_notes(lines),
            *(
                [NOT_POOLED]
                if plan.pooled and any(_lacks_pooled(*case_judged) for case_judged in judged)
                else []
            ),
            *(
                [P_DECIDES]
                if any(
                    is_at_odds(comparison.low, comparison.high, comparison.p_adjusted, plan.alpha)
                    for comparison in shown
                )
                else []
            ),
        ),
        fault=f"{source.name} has no result of any benchmark of this run" if nothing else None,
    )


def _with_accepted_drops(
    line: BenchmarkComparison, cases: Sequence[CheckpointCase], source: BaselineSource, plan: GateConfig
) -> BenchmarkComparison:
    """Return the line after the accepted drops are applied."""
    (case,) = [case for case in cases if case.checkpoint == line.checkpoint]
    margin = plan.margin if line.comparison.margin is None else line.comparison.margin

    def further(entry: BenchmarkScores, drop: AcceptedDrop) -> bool | None:
        matches = [saved for saved in source.saved if drop.is_of(saved)]
        if not matches or not entry.items.examples:
            return None
        accepted_runs = replace(source, kind="run", name=drop.run, saved=matches)
        choice = find_baselines(entry, accepted_runs, metric=line.metric, allow=plan.allow)
        if choice.state != "chosen":
            return None
        compared = compare(entry, choice.baselines, line.metric, level=1 - plan.alpha)
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
    """Return the lines of one checkpoint, and the line of all its items pooled.

    There is a line for each benchmark and metric, then one for each composite. The pooled line, None without a pooled
    test, is among the lines too if it may fail the gate.
    """
    settled = {name: early[key] for name in case.entries if (key := (case.checkpoint, name)) in early}
    keys = [(name, metric) for name, entry in case.entries.items() for metric in metrics_of(entry, plan)]
    choices = {
        (name, metric): settled[name].choice
        if name in settled
        else _choose_baselines(case.entries[name], source, plan, metric)
        for name, metric in keys
    }
    margins: dict[tuple[str, str], float] = {}
    for name, metric in keys:
        try:
            margins[name, metric] = margin_of(case.entries[name].saved, metric, plan)
        except GateError as error:
            if plan.mode is not None:
                raise
            choices[name, metric] = BaselineChoice(state="absent", reason=str(error))
    named = [composite for name in plan.metrics if (composite := plan.composite_of(name)) is not None]
    composites = [_compare_composite(case, composite, source, plan) for composite in named]
    compared = _compare_all(case, composites, choices, settled, plan)
    flaws = _flaws(case, compared, named)
    pooled = None if settled else _pool(case, choices, compared, flaws, plan)
    if pooled is not None and plan.pooled:
        compared[pooled.compared.benchmark, POOLED] = pooled.compared
    margins |= {
        key: margin
        for key in compared
        if key not in margins and (margin := plan.rules_of(key[0]).margin) is not None
    }
    judged = compute_verdicts(compared, margin=plan.margin, margins=margins, alpha=plan.alpha, flaws=flaws)
    judged |= {key: settled[key[0]].judged for key in keys if key[0] in settled}
    pooled_line = _pooled_line(case, pooled, judged, plan) if pooled is not None else None
    covered = (
        pooled.benchmarks if pooled and pooled_line and pooled_line.kind in ("better", "not worse") else ()
    )
    lines = [
        benchmark_line(
            case.entries[name],
            metric,
            choices[name, metric],
            judged.get((name, metric)),
            plan,
            early=name in settled,
            # Of several metrics only the first is pooled.
            together=name in covered and metric == metrics_of(case.entries[name], plan)[0],
        )
        for name, metric in keys
    ]
    lines += [
        composite_line(
            _composite_without_baseline(case, compared_composite.composite),
            compared_composite.choice,
            judged.get((compared_composite.composite.name, COMPOSITE)),
            plan,
        )
        for compared_composite in composites
    ]
    lines += [pooled_line] if pooled_line is not None and plan.pooled else []
    return lines + _composite_floors(case, plan), pooled_line


def _flaws(
    case: CheckpointCase,
    compared: Iterable[tuple[str, str]],
    composites: Iterable[Composite],
) -> dict[tuple[str, str], str]:
    """Return the reasons why comparisons are not valid; a composite is as valid as its benchmarks."""
    made_of = {composite.name: composite.benchmarks for composite in composites}
    flaws = {
        key: flaw_of(case.entries[name].saved for name in made_of.get(key[0], key[:1])) for key in compared
    }
    return {key: flaw for key, flaw in flaws.items() if flaw}


def _pool(
    case: CheckpointCase,
    choices: Mapping[tuple[str, str], BaselineChoice],
    compared: Mapping[tuple[str, str], BenchmarkComparison],
    flaws: Mapping[tuple[str, str], str],
    plan: GateConfig,
) -> PooledComparison | None:
    """Compare all items of the valid benchmarks together, by the first metric of each."""
    parts: dict[str, PooledPart] = {}
    for (name, metric), choice in choices.items():
        if choice.state == "chosen" and (name, metric) not in flaws:
            parts.setdefault(name, PooledPart(case.entries[name], choice.baselines, compared[name, metric]))
    return pool(parts, level=1 - plan.alpha)


def _pooled_line(
    case: CheckpointCase,
    pooled: PooledComparison,
    judged: Mapping[tuple[str, str], BenchmarkComparison],
    plan: GateConfig,
) -> BenchmarkComparison:
    """Return the line of all items together; unless the plan pools, it is a separate test that cannot fail."""
    key = (pooled.compared.benchmark, POOLED)
    line = (
        judged.get(key) or compute_verdicts({key: pooled.compared}, margin=plan.margin, alpha=plan.alpha)[key]
    )
    line = composite_line(line, BaselineChoice(state="chosen"), line, plan)
    if wrong := [name for name, entry in case.entries.items() if flaw_of([entry.saved])]:
        line = replace(line, notes=(*line.notes, f"without {join_names(wrong)}, NOT VALID"))
    if others := [name for name in case.entries if name not in (*pooled.benchmarks, *wrong)]:
        line = replace(line, notes=(*line.notes, f"without {join_names(others)}, not compared by shares"))
    return line if plan.pooled else replace(line, fails=(), notes=(*line.notes, SHOWN))


def _choose_baselines(
    entry: BenchmarkScores, source: BaselineSource, plan: GateConfig, metric: str
) -> BaselineChoice:
    if source.kind == "none":
        return BaselineChoice(state="absent", reason="compared with no baseline")
    if not entry.items.examples:
        return BaselineChoice(state="refused", reason="no item was scored")
    return find_baselines(entry, source, metric=metric, allow=plan.allow)


def _compare_all(
    case: CheckpointCase,
    composites: Sequence[_ComparedComposite],
    choices: dict[tuple[str, str], BaselineChoice],
    settled: Mapping[str, EarlyVerdict],
    plan: GateConfig,
) -> dict[tuple[str, str], BenchmarkComparison]:
    """Compare what can be compared, by benchmark and metric."""
    level = 1 - plan.alpha
    compared: dict[tuple[str, str], BenchmarkComparison] = {}
    references = _references(composites, choices, plan)
    for key in [key for key in references if key[0] not in settled]:
        name, metric = key
        choices[key] = replace(choices[key], baselines=references[key].results)
        comparison = compare(
            case.entries[name], choices[key].baselines, metric, chosen=references[key].chosen, level=level
        )
        if comparison.comparison.why.startswith(NOT_COMPARED):
            choices[key] = replace(choices[key], state="apart", reason=comparison.comparison.why)
        else:
            compared[key] = comparison
    return compared | {
        (composite.composite.name, COMPOSITE): composite.compared
        for composite in composites
        if composite.compared is not None
    }


def _references(
    composites: Sequence[_ComparedComposite],
    choices: Mapping[tuple[str, str], BaselineChoice],
    plan: GateConfig,
) -> dict[tuple[str, str], EarlierBest]:
    """Choose what each benchmark and metric is compared with.

    The first metrics of all benchmarks share one reference, the best checkpoint over all items; so do their second
    metrics. If the gate names only composites, their benchmarks are compared with the checkpoint of the first of them.

    """
    rounds: list[dict[str, str]] = []
    for name, metric in (key for key, choice in choices.items() if choice.state == "chosen"):
        metrics = next((metrics for metrics in rounds if name not in metrics), None)
        if metrics is None:
            rounds.append(metrics := {})
        metrics[name] = metric
    references: dict[tuple[str, str], EarlierBest] = {}
    for metrics in rounds:
        earlier = {name: choices[name, metric].baselines for name, metric in metrics.items()}
        references |= {
            (name, metrics[name]): reference
            for name, reference in choose_references(earlier, metrics).items()
        }
    # The first composite that contains a benchmark decides its reference.
    by_benchmark = {name: composite for composite in reversed(composites) for name in composite.parts}
    for name, metric in () if plan.plain_metrics else references:
        composite = by_benchmark.get(name)
        if composite is not None and composite.compared is not None:
            references[name, metric] = EarlierBest(composite.parts[name], composite.compared.place)
    return references


# Composites


@dataclass(frozen=True, slots=True)
class _ComparedComposite:
    """A composite and its comparison. ``parts`` has the baselines by benchmark, in the same order in each."""

    composite: Composite
    choice: BaselineChoice
    parts: Mapping[str, tuple[BenchmarkScores, ...]]
    compared: BenchmarkComparison | None = None


def _compare_composite(
    case: CheckpointCase, composite: Composite, source: BaselineSource, plan: GateConfig
) -> _ComparedComposite:
    """Compare a composite with the checkpoints that have all of its benchmarks."""
    names = composite.benchmarks
    missing = [name for name in names if name not in case.entries]
    if missing:
        reason = f"{composite.name} needs {', '.join(missing)}, which was not run"
        return _ComparedComposite(composite, BaselineChoice(state="refused", reason=reason), {})
    entries = {name: case.entries[name] for name in names}
    choices = {
        name: _choose_baselines(result, source, plan, result.saved.primary)
        for name, result in entries.items()
    }
    for name, choice in choices.items():
        if choice.state != "chosen":
            reason = f"{name}: {choice.reason}" if choice.reason else ""
            return _ComparedComposite(composite, replace(choice, reason=reason, notes=()), {})
    shared = of_the_same_checkpoints([choices[name].baselines for name in names])
    if not shared[0]:
        reason = f"no saved checkpoint has all parts of {composite.name}"
        return _ComparedComposite(composite, BaselineChoice(state="refused", reason=reason), {})
    by_benchmark = dict(zip(names, shared, strict=True))
    try:
        check_means([(entries[component.benchmark], component.metric) for component in composite.parts])
    except GateError as error:
        return _ComparedComposite(
            composite, BaselineChoice(state="apart", reason=f"{NOT_COMPARED}: {error}"), {}
        )
    weighed = [
        CompositeComponent(
            component.weight,
            component.metric,
            entries[component.benchmark],
            by_benchmark[component.benchmark],
        )
        for component in composite.parts
    ]
    coverage = next((choice.part for choice in choices.values() if choice.part), "")
    return _ComparedComposite(
        composite,
        BaselineChoice(state="chosen", baselines=by_benchmark[names[0]], part=coverage),
        by_benchmark,
        compare_composite(composite.name, weighed, level=1 - plan.alpha),
    )


def _composite_without_baseline(case: CheckpointCase, composite: Composite) -> BenchmarkComparison:
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
    """Return a line for each composite that has floors and is not compared."""
    alone = BaselineChoice(
        state="absent", reason="only its floors are checked; --eval-set gate_metric compares it"
    )
    return [
        composite_line(_composite_without_baseline(case, composite), alone, None, plan)
        for composite in plan.composites
        if composite.name not in plan.metrics
        and composite.name in case.composites
        and plan.rules_of(composite.name).floors
    ]


# What was asked for and is missing


def _floors_not_run(cases: Sequence[CheckpointCase], plan: GateConfig) -> list[BenchmarkComparison]:
    """Return a line for each benchmark or composite that has floors and was not run."""
    measured = {name for case in cases for name in (*case.entries, *case.composites)}
    measured |= {base_name(name) for name in measured}
    measured |= {composite.name for composite in plan.composites if composite.name in plan.metrics}
    return [
        BenchmarkComparison(
            checkpoint=", ".join(case.checkpoint for case in cases),
            benchmark=name,
            metric=rules.floors[0].metric,
            comparison=undefined("it has floors and was not run"),
            invalid=(f"floor {rules.floors[0].text}: it was not measured in this run",),
            state="absent",
        )
        for name, rules in plan.benchmarks.items()
        if rules.floors and name not in measured
    ]


def _prompt_notes(lines: Sequence[BenchmarkComparison]) -> Iterable[str]:
    """Return the notes that a short report shows too, such as those on changed prompts."""
    notes = (
        f"{line.benchmark}: {note}"
        for line in lines
        for note in line.notes
        if note.startswith((OTHER, OTHERS, EDITED, SOFT_FELL, REFERENCE_STAYS, NO_REFERENCE))
    )
    return dict.fromkeys(notes)


def _notes_on_benchmarks_not_run(
    cases: Sequence[CheckpointCase], source: BaselineSource, lines: Sequence[BenchmarkComparison]
) -> list[str]:
    """Return a note on benchmarks that the baselines have and this run lacks."""
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
class FailureReasons:
    """The reasons why a line fails, and why it is not valid."""

    fails: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)


def metrics_of(entry: BenchmarkScores, plan: GateConfig) -> tuple[str, ...]:
    """Return the metrics by which a benchmark is compared.

    These are the benchmark's own in the plan, else those of the gate that it has, else the primary one. Raises
    ``GateError`` if the result lacks one of the benchmark's own.
    """
    saved = entry.saved
    metrics = plan.metrics_of(saved.benchmark, saved.primary, saved.metrics)
    if entry.items.examples:
        for metric in metrics:
            score_name(saved, metric)
        return metrics
    return (saved.primary,) if plan.rules_of(saved.benchmark).metrics else metrics


def margin_of(saved: StoredResult, metric: str, plan: GateConfig) -> float:
    """Return the margin of a result's metric; raises ``GateError`` for a unit without a margin."""
    return plan.margin_of(saved.benchmark, metric, saved.aggregation(metric))


def benchmark_line(
    entry: BenchmarkScores,
    metric: str,
    choice: BaselineChoice,
    judged: BenchmarkComparison | None,
    plan: GateConfig,
    *,
    early: bool = False,
    together: bool = False,
) -> BenchmarkComparison:
    """Return the line of one metric of a benchmark.

    Args:
        entry: The new result.
        metric: The metric that is compared.
        choice: The baselines, or the reason why there are none.
        judged: The comparison with its verdict; None if nothing was compared.
        plan: The settings of the gate.
        early: Whether an interim analysis settled the verdict, so that items may be missing.
        together: Whether the checkpoint is better or not worse over all its items pooled, these included.

    """
    saved = entry.saved
    # The loss may be on items that this result skips and an earlier one has scored.
    saved = replace(
        saved, skips_declared=saved.skips_declared and not (choice.state == "apart" and choice.part)
    )
    whole = replace(saved, skipped=0).complete if early else saved.complete
    flaw = f"the result is not {'valid' if saved.invalid else 'whole'}: {incomplete_reason(saved)}"
    reasons = _reasons(choice, plan, "" if whole else flaw)
    if entry.items.examples:
        others = metrics_of(entry, plan)
        values = {key: score.value for key, score in saved.metrics.items()}
        # Each floor is checked once: on the line of its metric, else on the first line.
        mine = [
            floor
            for floor in plan.rules_of(saved.benchmark).floors
            if floor.metric == metric or (floor.metric not in others and metric == others[0])
        ]
        apply_floors(values, saved.benchmark, mine, reasons)
    how = saved.aggregation(metric)
    notes = (
        *choice.notes,
        *([f"values are means of {how.score}, by which {metric} is compared"] * how.is_perplexity),
        *([] if how.compared_higher_is_better else [f"lower is better for {metric}"]),
        *(
            [f"asked to the end: {metric} is not a mean of item scores"]
            if early and how.is_corpus_level
            else []
        ),
        *_note_on_metrics(saved, plan),
        *dict.fromkeys(
            filter(
                None,
                (
                    text(baseline, entry)
                    for baseline in choice.baselines
                    for text in (changed_text, edited_text)
                ),
            )
        ),
    )
    value = saved.metrics[metric].value
    line = judged or BenchmarkComparison(
        checkpoint=saved.checkpoint,
        benchmark=saved.benchmark,
        metric=metric,
        comparison=undefined(choice.reason or FIRST, new=value),
    )
    line = replace(
        line,
        notes=notes,
        state=choice.state,
        part=choice.part,
        early=early,
        about=saved.about,
        together=together,
    )
    if judged is None:
        return _with_reasons(line, reasons)
    _note_verdict(line, plan, reasons)
    comparison = line.comparison
    if comparison.new is None:
        comparison = replace(comparison, new=value)
    if comparison.verdict in ("worse", "better") and _same_answers(entry, choice.baselines[line.place]):
        same = f"no answer changed: {saved.primary} is as before on every item"
        comparison = replace(comparison, why=f"{comparison.why}; {same}")
    stands_in = how.compared(metric) if how.is_perplexity else ""
    baseline = choice.baselines[line.place]
    contradictions = _contradictions(entry, baseline, comparison, metric, together=together)
    line = replace(line, notes=(*line.notes, *contradictions))
    return _with_reasons(replace(line, comparison=comparison, stands_in=stands_in), reasons)


SOFT_FELL: Final = "the soft scores of the same items fell by more than chance"
REFERENCE_STAYS: Final = "measured higher, and not told apart from it"

LEAST_Z: Final = -2.8
"""The z score below which a soft score contradicts a verdict; one in 200 equal runs falls below it."""

ALSO_FELL: Final = -1.0
"""The z score below which ``soft`` confirms the log-odds; unlike them, it ignores the scale of the logits."""


def _contradictions(
    entry: BenchmarkScores, baseline: BenchmarkScores, comparison: Comparison, metric: str, *, together: bool
) -> Iterable[str]:
    """Yield notes that contradict a verdict: fallen soft scores, or a gain that is inconclusive."""
    both = [
        name for name in (SOFT, LOG_ODDS) if all(name in result.saved.metrics for result in (entry, baseline))
    ]
    if metric not in SOFT_METRICS and comparison.verdict != "worse":
        z = {
            name: compare(entry, [baseline], name, level=comparison.level).comparison.oriented.z
            for name in both
        }
        name = min(z, key=z.__getitem__, default="")
        if name and z[name] < LEAST_Z and z.get(SOFT, 0.0) < ALSO_FELL:
            yield f"{SOFT_FELL} ({name}, z {z[name]:.1f})"
    if comparison.verdict == "inconclusive" and not together and (comparison.oriented.difference or 0) > 0:
        yield f"{REFERENCE_STAYS}: {baseline.saved.checkpoint} stays the reference"


def _same_answers(entry: BenchmarkScores, baseline: BenchmarkScores) -> bool:
    """Return whether every shared item scores as before by the primary metric."""
    how = entry.saved.aggregation(entry.saved.primary)
    shared = columns(entry.items, [baseline.items], how.score)
    return how.is_mean and bool(shared.new) and shared.baselines[0] == shared.new


def _note_on_metrics(saved: StoredResult, plan: GateConfig) -> list[str]:
    """Return a note for a benchmark that has none of the metrics of the gate."""
    metrics = plan.plain_metrics
    if (
        not metrics
        or plan.rules_of(saved.benchmark).metrics
        or any(name in saved.metrics for name in metrics)
    ):
        return []
    return [f"{saved.benchmark} has no {' or '.join(metrics)}: judged by {saved.primary}, its primary metric"]


def composite_line(
    plain: BenchmarkComparison, choice: BaselineChoice, judged: BenchmarkComparison | None, plan: GateConfig
) -> BenchmarkComparison:
    """Return the line of a composite; ``plain`` has its names, mark and value."""
    reasons = _reasons(choice, plan)
    if judged is None:
        line = replace(plain, comparison=replace(plain.comparison, why=choice.reason or FIRST))
    else:
        value = plain.comparison.new if judged.comparison.new is None else judged.comparison.new
        line = replace(judged, about=plain.about, comparison=replace(judged.comparison, new=value))
        _note_verdict(line, plan, reasons)
    line = replace(line, state=choice.state, part=choice.part)
    floors = plan.rules_of(line.benchmark).floors
    apply_floors({line.benchmark: line.comparison.new}, line.benchmark, floors, reasons)
    return _with_reasons(line, reasons)


def _reasons(choice: BaselineChoice, plan: GateConfig, flaw: str = "") -> FailureReasons:
    """Return the reasons that the baseline and a flaw of the result give."""
    fails = [STRICT] if choice.state == "apart" and plan.mode == "strict" else []
    return FailureReasons(fails, [flaw or choice.reason] if flaw or choice.state == "refused" else [])


def apply_floors(
    values: Mapping[str, float | None], name: str, floors: Iterable[Floor], reasons: FailureReasons
) -> None:
    """Note every floor that is missed or undefined; raises ``GateError`` for an unknown metric."""
    for floor in floors:
        if floor.metric not in values:
            raise GateError(f"floor {floor.text!r} of {name}: no such metric; it has {', '.join(values)}")
        value = values[floor.metric]
        if value is None:
            reasons.invalid.append(f"floor {floor.text}: the metric is undefined in this run")
        elif not floor.holds(value):
            reasons.fails.append(f"floor {floor.text}: it is {floor.shown(value)}")


def _with_reasons(line: BenchmarkComparison, reasons: FailureReasons) -> BenchmarkComparison:
    return replace(line, fails=tuple(reasons.fails), invalid=tuple(reasons.invalid))


def _note_verdict(line: BenchmarkComparison, plan: GateConfig, reasons: FailureReasons) -> None:
    """Note the reasons to fail that the verdict and ``max_drop`` give."""
    verdict, measured = line.comparison.verdict, line.as_measured
    if verdict == "worse":
        reasons.fails.append("worse")
    if plan.mode == "strict" and verdict == "inconclusive" and not reasons.invalid:
        reasons.fails.append(STRICT)
    most, gain = plan.rules_of(line.benchmark).max_drop, measured.oriented.difference
    if most is not None and line.metric != SOFT and gain is not None and gain < -most - ROUNDING:
        word = "dropped" if measured.higher_is_better else "rose"
        lost = measured.told_in.told(-gain).removeprefix("+")
        reasons.fails.append(f"{word} by {lost} as measured; max_drop is {measured.told_in.factor * most:g}")
