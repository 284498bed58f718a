"""Items that are right at one checkpoint of a series and wrong at the next, with examples, and the section on them.

By the benchmarks' primary metrics, on the items that all checkpoints of a series have. Answers that are greedy or
log-probabilities are the same when the same checkpoint is asked again, so each change is the checkpoint's own; of
sampled answers a part would change anyway (``statistics.paired``).
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
from pytest_touchstone.study.points import Point, Series, Study, StudyMetric, facts_of, found_among
from pytest_touchstone.study.pool import column_of, shared_items

if TYPE_CHECKING:
    import numpy as np

EXAMPLES: Final = 6
"""The forgotten items that are shown with their answers, of the whole study."""

PASS: Final = "pass@"

Kind = Literal["certain", "sampled", "not known"]
WAYS: Final = ("kept", "never", "learned", "lost", "unsteady")
"""The ways of items through a training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgettingStep:
    """Two neighbours: the numbers of items forgotten and learned, and Holm's p, over the neighbours of a series, that
    both are equally likely. ``by_chance`` are the changes that noise alone would give; None where not known."""

    before: Point
    after: Point
    forgotten: int
    learned: int
    p: float | None
    by_chance: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenItem:
    """A forgotten item: right at ``before``, wrong from ``after`` on, each with its answer."""

    item: str
    before: Point
    after: Point
    question: str = ""
    answer_before: str = ""
    answer_after: str = ""
    gold: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """The items that a series learned and forgot on one benchmark, by their way (``statistics.paired``).

    ``kind`` says whether answers are certain, ``samples`` are those of each item. ``examples`` are items that were lost
    for good, those that were right the longest first; the first of them have their answers.
    """

    series: Series
    measure: StudyMetric
    items: int
    kept: int
    never: int
    learned: int
    lost: int
    unsteady: int
    kind: Kind
    samples: int
    steps: tuple[ForgettingStep, ...]
    examples: tuple[ForgottenItem, ...] = ()


def forgetting(study: Study) -> list[Forgetting]:
    """Return every series with items at two checkpoints or more, by each benchmark; ``study.once`` keeps them."""
    found = [
        one
        for series in study.series
        for measure in study.measures
        if measure.primary and measure.composite is None
        if (one := forgotten_in(study, series, measure)) is not None
    ]
    # In turn from each series and benchmark.
    turns = [
        (turn, number)
        for turn in range(EXAMPLES)
        for number, one in enumerate(found)
        if turn < len(one.examples)
    ]
    shown = set(turns[:EXAMPLES])
    return [
        replace(
            one,
            examples=tuple(
                _with_answers(item, one.measure)
                for turn, item in enumerate(one.examples)
                if (turn, number) in shown
            ),
        )
        for number, one in enumerate(found)
    ]


def forgotten_in(study: Study, series: Series, measure: StudyMetric) -> Forgetting | None:
    """The changes within a series; None where fewer than two of its points have items in common."""
    known = [
        (point, column)
        for point, _ in study.ordered(series, measure)
        if (column := column_of(study, point.candidate.entries[measure.benchmark], measure.metric))
    ]
    shared = shared_items([column for _, column in known]) if len(known) > 1 and measure.share else None
    if shared is None:
        return None
    points = [point for point, _ in known]
    columns = shared.values if measure.higher_is_better else 1 - shared.values
    kind, samples = _asked(points[0].candidate.entries[measure.benchmark], measure)
    changes = [flipped_items(*pair) for pair in pairwise(columns)]
    chances = [
        changed_by_chance(*pair, samples) if kind == "sampled" else 0.0 if kind == "certain" else None
        for pair in pairwise(columns)
    ]
    steps = zip(pairwise(points), changes, holm([one.p for one in changes]), chances, strict=True)
    ways = paths(columns)
    return Forgetting(
        series=series,
        measure=measure,
        items=len(shared.names),
        **{name: len(getattr(ways, name)) for name in WAYS},
        kind=kind,
        samples=samples,
        steps=tuple(
            ForgettingStep(
                before=before,
                after=after,
                forgotten=len(one.forgotten),
                learned=len(one.learned),
                p=p,
                by_chance=chance,
            )
            for (before, after), one, p, chance in steps
        ),
        examples=tuple(_lost(columns, ways.lost, [example for example, _ in shared.names], points)),
    )


def _asked(entry: BenchmarkScores, measure: StudyMetric) -> tuple[Kind, int]:
    """The kind of answers, and the number of samples of each item, as a run's journal shows them."""
    try:
        exchanges = first_exchanges(entry)
    except HarnessError:
        exchanges = []
    if not exchanges:
        return "not known", 1
    requests = [exchange["request"] for exchange in exchanges if exchange["kind"] == "Generate"]
    warm = any(float(request.get("temperature") or 0) > 0 for request in requests)
    samples = max((int(request.get("samples") or 1) for request in requests), default=1)
    # A share of right samples, as pass@1 is; pass@k of more and other scores of a sample are none.
    is_share = measure.metric == f"{PASS}1" or (
        not measure.metric.startswith(PASS) and {f"avg@{samples}", f"{PASS}1"} <= entry.saved.metrics.keys()
    )
    return ("sampled" if warm else "certain"), samples if is_share else 1


def _lost(
    columns: np.ndarray, places: Sequence[int], names: Sequence[str], points: Sequence[Point]
) -> Iterable[ForgottenItem]:
    """The items that were lost, those first that were right, and then wrong, at the most checkpoints."""
    found = []
    for place in places:
        last = max(number for number, right in enumerate(columns[:, place] > 0.5) if right)
        found.append((min(last + 1, len(columns) - last - 1), place, last))
    for _, place, last in sorted(found, key=lambda one: (-one[0], one[1]))[:EXAMPLES]:
        yield ForgottenItem(item=names[place], before=points[last], after=points[last + 1])


def _with_answers(one: ForgottenItem, measure: StudyMetric) -> ForgottenItem:
    """The item with its question and answers, as far as journals have them."""
    try:
        before, after = (
            shown_answers(point.candidate.entries[measure.benchmark], measure.metric, {one.item}).get(
                one.item
            )
            for point in (one.before, one.after)
        )
    except HarnessError:  # the journal has changed since; the item is named without its answers
        return one
    known = [answer for answer in (before, after) if answer is not None]
    return replace(
        one,
        question=next((answer.question for answer in known), ""),
        answer_before=before.answer if before else "",
        answer_after=after.answer if after else "",
        gold=next((answer.gold for answer in known if answer.gold), None),
    )


# The section


NO_ITEMS: Final = (
    "No evidence: the scores of items are not known at two checkpoints of any series. Runs of this harness have them, "
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
"""The characters that are shown of a question (its end) and of an answer (its beginning)."""
LEGEND: Final = (
    ("kept", "right at every checkpoint; never: wrong at every one"),
    ("learned", "wrong at first, right from some checkpoint to the last; lost: the other way"),
    ("unsteady", "changed more than once"),
    ("p", "of steps that forget as often as they learn (McNemar's test, corrected within each series)"),
)


def forgotten(study: Study) -> Section:
    """Return what series learned and forgot; it says so where nothing is known."""
    found = study.once(forgetting)
    steps = [(one, step) for one in found for step in one.steps]
    lost = [
        f"{one.measure.benchmark} of {one.series.name}, {_between(one, step)}"
        for one, step in steps
        if (step.p or 0.0) <= ALPHA and step.forgotten > step.learned
    ]
    line = found_among(lost, len(steps), "steps that lost more items than they gained")
    ways = Table(
        header=("series", "benchmark", "items", *WAYS),
        rows=tuple(
            (
                one.series.name,
                one.measure.benchmark,
                *(f"{n:,}" for n in (one.items, *(getattr(one, way) for way in WAYS))),
            )
            for one in found
        ),
        left=2,
    )
    legend = Facts((*LEGEND, *_noise(found)))
    return Section(
        key="forgetting",
        title="Learned and forgotten",
        parts=(ways, legend, *map(_steps, found), *_examples(found)) if found else (NO_ITEMS,),
        line=line if found else "no evidence: the scores of items are not known",
        data=facts_of(found),
    )


def _noise(found: Sequence[Forgetting]) -> Iterable[tuple[str, str]]:
    """The words on what chance alone changes, each with its benchmarks."""
    words: dict[str, list[str]] = {}
    for one in found:
        many = f"answers are sampled, {count(one.samples, 'time')} for each item: steps have what chance alone changes"
        sampled = many if one.samples > 1 else ONE_SAMPLE
        text = {"certain": CERTAIN, "sampled": sampled, "not known": UNKNOWN}[one.kind]
        words.setdefault(text, []).append(one.measure.benchmark)
    for text, names in words.items():
        yield "by chance", text if len(words) == 1 else f"{', '.join(dict.fromkeys(names))}: {text}"


def _steps(one: Forgetting) -> Table:
    return Table(
        title=f"{one.series.name}, {one.measure.benchmark}: from each checkpoint to the next",
        header=("step", "forgotten", "learned", "by chance", "p"),
        rows=tuple(
            (
                _between(one, step),
                str(step.forgotten),
                str(step.learned),
                NOTHING if step.by_chance is None else f"{step.by_chance:.0f}",
                p_short(step.p or 0.0),
            )
            for step in one.steps
        ),
    )


def _between(one: Forgetting, step: ForgettingStep) -> str:
    return f"{one.series.where(step.before)} to {one.series.at(step.after)}"


def _examples(found: Sequence[Forgetting]) -> Iterable[Facts]:
    """Yield the forgotten items with their answers."""
    for series, example in [(one.series, example) for one in found for example in one.examples]:
        before, after = series.where(example.before), series.where(example.after)
        where = f"{example.item}, {series.name}: right at {before}, wrong from {after} on"
        known = example.question or example.answer_before
        yield Facts((("forgotten", where), *(_told(example) if known else [("answers", "not kept")])))


def _told(example: ForgottenItem) -> Iterable[tuple[str, str]]:
    yield "question", _short(example.question, QUESTION, end=True)
    yield "before", _short(example.answer_before, ANSWER)
    yield "after", _short(example.answer_after, ANSWER)
    if example.gold:
        yield "right", _short(example.gold, ANSWER)


def _short(text: str, most: int, *, end: bool = False) -> str:
    line = " ".join(text.split())
    if len(line) <= most:
        return line or NOTHING
    return f"... {line[-most:]}" if end else f"{line[:most]} ..."
