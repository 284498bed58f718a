"""Finds items that a training learns or forgets between checkpoints, and reports them.

Items are judged by the primary metric of a benchmark, and only items that all checkpoints of a series have count. A
repeated evaluation gives the same greedy answers and log-probabilities, so every change is due to the checkpoint. Some
sampled answers change by chance (``statistics.paired``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

from pytest_touchstone.compare.answers import first_exchanges, shown_answers
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.text import count
from pytest_touchstone.document import Facts, Section, Table
from pytest_touchstone.document.formatting import NOTHING, p_short
from pytest_touchstone.statistics.paired import changed_by_chance, flipped_items, paths
from pytest_touchstone.statistics.verdicts import ALPHA, holm
from pytest_touchstone.study.points import Point, Series, Study, StudyMetric, facts_of, summarize_findings
from pytest_touchstone.study.pool import column_of, shared_items

if TYPE_CHECKING:
    import numpy as np

EXAMPLES: Final = 6
"""The most forgotten items of a study that are shown with their answers."""

PASS: Final = "pass@"

AnswerKind = Literal["certain", "sampled", "not known"]
OUTCOMES: Final = ("kept", "never", "learned", "lost", "unsteady")
"""The outcomes of an item over a training; ``LEGEND`` explains them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgettingStep:
    """The numbers of items forgotten and learned between two neighbouring checkpoints.

    ``p`` is McNemar's, corrected over the steps of the series by Holm's method. ``by_chance`` is the expected number of
    changes due to sampling alone; None if unknown.
    """

    before: Point
    after: Point
    forgotten: int
    learned: int
    p: float | None
    by_chance: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenItem:
    """An item that is right at ``before`` and wrong from ``after`` on, with its answers."""

    item: str
    before: Point
    after: Point
    question: str = ""
    answer_before: str = ""
    answer_after: str = ""
    gold: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """The numbers of items of a benchmark that a series learned and forgot, by outcome (``statistics.paired``).

    ``samples`` is the number of samples per item. ``examples`` are items that were lost for good, the longest right
    first; only the examples that are shown have their answers.
    """

    series: Series
    measure: StudyMetric
    items: int
    kept: int
    never: int
    learned: int
    lost: int
    unsteady: int
    kind: AnswerKind
    samples: int
    steps: tuple[ForgettingStep, ...]
    examples: tuple[ForgottenItem, ...] = ()


def find_forgetting(study: Study) -> list[Forgetting]:
    """Return what every series learned and forgot; use ``study.compute_once(find_forgetting)``.

    Series without items at two checkpoints are left out.
    """
    forgettings = [
        forgetting
        for series in study.series
        for measure in study.measures
        if measure.primary and measure.composite is None
        if (forgetting := series_forgetting(study, series, measure)) is not None
    ]
    # Examples are taken from each series and benchmark in turn.
    turns = [
        (turn, index)
        for turn in range(EXAMPLES)
        for index, forgetting in enumerate(forgettings)
        if turn < len(forgetting.examples)
    ]
    shown = set(turns[:EXAMPLES])
    return [
        replace(
            forgetting,
            examples=tuple(
                _with_answers(example, forgetting.measure)
                for turn, example in enumerate(forgetting.examples)
                if (turn, index) in shown
            ),
        )
        for index, forgetting in enumerate(forgettings)
    ]


def series_forgetting(study: Study, series: Series, measure: StudyMetric) -> Forgetting | None:
    """Return what a series learned and forgot; None without common items at two points."""
    scored = [
        (point, column)
        for point, _ in study.values_in_order(series, measure)
        if (column := column_of(study, point.candidate.entries[measure.benchmark], measure.metric))
    ]
    shared = shared_items([column for _, column in scored]) if len(scored) > 1 and measure.share else None
    if shared is None:
        return None
    points = [point for point, _ in scored]
    columns = shared.values if measure.higher_is_better else 1 - shared.values
    kind, samples = _answer_kind(points[0].candidate.entries[measure.benchmark], measure)
    changes = [flipped_items(*pair) for pair in pairwise(columns)]
    chances = [
        changed_by_chance(*pair, samples) if kind == "sampled" else 0.0 if kind == "certain" else None
        for pair in pairwise(columns)
    ]
    steps = zip(pairwise(points), changes, holm([change.p for change in changes]), chances, strict=True)
    ways = paths(columns)
    return Forgetting(
        series=series,
        measure=measure,
        items=len(shared.names),
        **{name: len(getattr(ways, name)) for name in OUTCOMES},
        kind=kind,
        samples=samples,
        steps=tuple(
            ForgettingStep(
                before=before,
                after=after,
                forgotten=len(change.forgotten),
                learned=len(change.learned),
                p=p,
                by_chance=chance,
            )
            for (before, after), change, p, chance in steps
        ),
        examples=tuple(_lost_examples(columns, ways.lost, [example for example, _ in shared.names], points)),
    )


def _answer_kind(entry: BenchmarkScores, measure: StudyMetric) -> tuple[AnswerKind, int]:
    """Return the kind of answers and the number of samples per item, from the first records of a run."""
    try:
        exchanges = first_exchanges(entry)
    except HarnessError:
        exchanges = []
    if not exchanges:
        return "not known", 1
    requests = [exchange["request"] for exchange in exchanges if exchange["kind"] == "Generate"]
    is_sampled = any(float(request.get("temperature") or 0) > 0 for request in requests)
    samples = max((int(request.get("samples") or 1) for request in requests), default=1)
    # pass@1 is the share of right samples; pass@k with k > 1 and other scores are not shares of samples.
    is_share = measure.metric == f"{PASS}1" or (
        not measure.metric.startswith(PASS) and {f"avg@{samples}", f"{PASS}1"} <= entry.saved.metrics.keys()
    )
    return ("sampled" if is_sampled else "certain"), samples if is_share else 1


def _lost_examples(
    columns: np.ndarray, indices: Sequence[int], names: Sequence[str], points: Sequence[Point]
) -> Iterable[ForgottenItem]:
    """Yield examples of lost items, the most clearly lost first: long right, then long wrong."""
    losses = []
    for index in indices:
        last = max(number for number, is_right in enumerate(columns[:, index] > 0.5) if is_right)
        losses.append((min(last + 1, len(columns) - last - 1), index, last))
    for _, index, last in sorted(losses, key=lambda loss: (-loss[0], loss[1]))[:EXAMPLES]:
        yield ForgottenItem(item=names[index], before=points[last], after=points[last + 1])


def _with_answers(example: ForgottenItem, measure: StudyMetric) -> ForgottenItem:
    """Add the question and answers of an item, if the journals have them."""
    try:
        before, after = (
            shown_answers(point.candidate.entries[measure.benchmark], measure.metric, {example.item}).get(
                example.item
            )
            for point in (example.before, example.after)
        )
    except HarnessError:  # the journal has changed since; the item is named without its answers
        return example
    answers = [answer for answer in (before, after) if answer is not None]
    return replace(
        example,
        question=next((answer.question for answer in answers), ""),
        answer_before=before.answer if before else "",
        answer_after=after.answer if after else "",
        gold=next((answer.gold for answer in answers if answer.gold), None),
    )


# The section


NO_ITEMS: Final = (
    "No evidence: item scores are missing at two checkpoints of any series. Runs of this harness have them, "
    "and so do samples of lm-evaluation-harness."
)
CERTAIN: Final = (
    "answers are greedy or log-probabilities: asked again, a checkpoint gives the same, so every change is the "
    "checkpoint's own"
)
ONE_SAMPLE: Final = (
    "answers are sampled, one for each item: how many would change by chance alone is not known. With --eval-samples 5 "
    "it would be"
)
UNKNOWN: Final = "whether answers were sampled is not known, so neither is what would change by chance alone"

QUESTION, ANSWER = 300, 160
"""The characters shown of the end of a question and of the beginning of an answer."""
LEGEND: Final = (
    ("kept", "right at every checkpoint; never: wrong at every one"),
    ("learned", "wrong at first, right from some checkpoint to the last; lost: the other way"),
    ("unsteady", "changed more than once"),
    ("p", "of steps that forget as often as they learn (McNemar's test, corrected within each series)"),
)


def forgetting_section(study: Study) -> Section:
    """Return the section on what series learned and forgot."""
    forgettings = study.compute_once(find_forgetting)
    steps = [(forgetting, step) for forgetting in forgettings for step in forgetting.steps]
    lost = [
        f"{forgetting.measure.benchmark} of {forgetting.series.name}, {_step_label(forgetting, step)}"
        for forgetting, step in steps
        if (step.p or 0.0) <= ALPHA and step.forgotten > step.learned
    ]
    outcomes = Table(
        header=("series", "benchmark", "items", *OUTCOMES),
        rows=tuple(
            (
                forgetting.series.name,
                forgetting.measure.benchmark,
                *(
                    f"{number:,}"
                    for number in (forgetting.items, *(getattr(forgetting, outcome) for outcome in OUTCOMES))
                ),
            )
            for forgetting in forgettings
        ),
        text_columns=2,
    )
    return Section(
        key="forgetting",
        title="Learned and forgotten",
        parts=(
            outcomes,
            Facts((*LEGEND, *_chance_facts(forgettings))),
            *map(_steps_table, forgettings),
            *_example_blocks(forgettings),
        )
        if forgettings
        else (NO_ITEMS,),
        line=summarize_findings(lost, len(steps), "steps that lost more items than they gained")
        if forgettings
        else "no evidence: item scores are missing",
        data=facts_of(forgettings),
    )


def _chance_facts(forgettings: Sequence[Forgetting]) -> Iterable[tuple[str, str]]:
    """Yield notes on the changes that sampling alone would cause, with their benchmarks."""
    words: dict[str, list[str]] = {}
    for forgetting in forgettings:
        sampled = ONE_SAMPLE
        if forgetting.samples > 1:
            sampled = (
                f"answers are sampled, {count(forgetting.samples, 'time')} for each item: "
                "steps have what chance alone changes"
            )
        text = {"certain": CERTAIN, "sampled": sampled, "not known": UNKNOWN}[forgetting.kind]
        words.setdefault(text, []).append(forgetting.measure.benchmark)
    for text, names in words.items():
        yield "by chance", text if len(words) == 1 else f"{', '.join(dict.fromkeys(names))}: {text}"


def _steps_table(forgetting: Forgetting) -> Table:
    return Table(
        title=f"{forgetting.series.name}, {forgetting.measure.benchmark}: from each checkpoint to the next",
        header=("step", "forgotten", "learned", "by chance", "p"),
        rows=tuple(
            (
                _step_label(forgetting, step),
                str(step.forgotten),
                str(step.learned),
                NOTHING if step.by_chance is None else f"{step.by_chance:.0f}",
                p_short(step.p or 0.0),
            )
            for step in forgetting.steps
        ),
    )


def _step_label(forgetting: Forgetting, step: ForgettingStep) -> str:
    return f"{forgetting.series.where(step.before)} to {forgetting.series.at(step.after)}"


def _example_blocks(forgettings: Sequence[Forgetting]) -> Iterable[Facts]:
    """Yield facts on the example items with their answers."""
    for series, example in [
        (forgetting.series, example) for forgetting in forgettings for example in forgetting.examples
    ]:
        before, after = series.where(example.before), series.where(example.after)
        heading = f"{example.item}, {series.name}: right at {before}, wrong from {after} on"
        has_answers = example.question or example.answer_before
        yield Facts(
            (("forgotten", heading), *(_example_facts(example) if has_answers else [("answers", "not kept")]))
        )


def _example_facts(example: ForgottenItem) -> Iterable[tuple[str, str]]:
    yield "question", _shorten(example.question, QUESTION, end=True)
    yield "before", _shorten(example.answer_before, ANSWER)
    yield "after", _shorten(example.answer_after, ANSWER)
    if example.gold:
        yield "right", _shorten(example.gold, ANSWER)


def _shorten(text: str, limit: int, *, end: bool = False) -> str:
    line = " ".join(text.split())
    if len(line) <= limit:
        return line or NOTHING
    return f"... {line[-limit:]}" if end else f"{line[:limit]} ..."
