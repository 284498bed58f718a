"""Items that are right at one checkpoint of a series and wrong at the next, with examples.

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
from pytest_touchstone.statistics.paired import changed, changed_by_chance, paths
from pytest_touchstone.statistics.verdicts import holm
from pytest_touchstone.study.differences import column_of, shared_items
from pytest_touchstone.study.points import Measure, Point, Series, Study

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
    measure: Measure
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


def forgetting(study: Study, examples: int = EXAMPLES) -> list[Forgetting]:
    """Every series with items at two checkpoints or more, by each benchmark; so many examples altogether."""
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
    shown = set(turns[:examples])
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


def forgotten_in(study: Study, series: Series, measure: Measure) -> Forgetting | None:
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
    changes = [changed(*pair) for pair in pairwise(columns)]
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


def _asked(entry: BenchmarkScores, measure: Measure) -> tuple[Kind, int]:
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


def _with_answers(one: ForgottenItem, measure: Measure) -> ForgottenItem:
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
