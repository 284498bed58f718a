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

from pytest_touchstone.compare.answers import Shown, first_exchanges, shown_answers
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.study.differences import Aligned, aligned
from pytest_touchstone.compare.study.points import Measure, Point, Series, Study
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.statistics.paired import changed, changed_by_chance, paths
from pytest_touchstone.statistics.verdicts import holm

if TYPE_CHECKING:
    import numpy as np

EXAMPLES: Final = 6
"""The forgotten items that are shown with their answers, of the whole study."""

PASS: Final = "pass@"

Kind = Literal["certain", "sampled", "not known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgettingStep:
    """Two neighbours: the numbers of items forgotten and learned, and Holm's p, over the neighbours of a series, that
    both are equally likely. ``by_chance`` are the changes that noise alone would give; None where not known."""

    before: Point
    after: Point
    forgotten: int
    learned: int
    p: float
    by_chance: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenItem:
    """A forgotten item: right at ``before``, wrong from ``after`` on."""

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

    ``kind`` says whether answers are certain, ``samples`` are those of each item. ``candidates`` are the items that
    were lost for good, those that were right the longest first.
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
    candidates: tuple[ForgottenItem, ...] = ()
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
    return _with_examples(found, examples)


def forgotten_in(study: Study, series: Series, measure: Measure) -> Forgetting | None:
    """The changes within a series; None where fewer than two of its points have items in common."""
    points = [point for point, _ in study.ordered(series, measure) if study.has_items(point, measure)]
    scores = aligned(study, points, measure) if len(points) > 1 else None
    if scores is None or not measure.share:
        return None
    columns = _right(scores, measure)
    entry = points[0].candidate.entries[measure.benchmark]
    kind, samples = _asked(entry, measure)
    steps = []
    for place, (a, b) in enumerate(pairwise(columns)):
        one = changed(a, b)
        chance = changed_by_chance(a, b, samples) if kind == "sampled" else 0.0 if kind == "certain" else None
        steps.append(
            ForgettingStep(
                before=points[place],
                after=points[place + 1],
                forgotten=len(one.forgotten),
                learned=len(one.learned),
                p=one.p,
                by_chance=chance,
            )
        )
    adjusted = holm([step.p for step in steps])
    ways = paths(columns)
    return Forgetting(
        series=series,
        measure=measure,
        items=len(scores.names),
        kept=len(ways.kept),
        never=len(ways.never),
        learned=len(ways.learned),
        lost=len(ways.lost),
        unsteady=len(ways.unsteady),
        kind=kind,
        samples=samples,
        steps=tuple(replace(step, p=p or 0.0) for step, p in zip(steps, adjusted, strict=True)),
        candidates=tuple(_lost(columns, ways.lost, scores.names, points)),
    )


def _right(scores: Aligned, measure: Measure) -> np.ndarray:
    """The scores by point, larger is better."""
    return scores.scores if measure.higher_is_better else 1 - scores.scores


def _asked(entry: BenchmarkScores, measure: Measure) -> tuple[Kind, int]:
    """The kind of answers, and the number of samples of each item."""
    if measure.metric.startswith(PASS):
        told = entry.saved.conditions
        samples = int(told.get("samples") or 1)
        if "temperature" not in told:
            return "not known", samples
        warm = float(told.get("temperature") or 0) > 0
        plain = measure.metric == f"{PASS}1"  # a share of the samples; pass@k of more is none
        return ("sampled" if warm else "certain"), samples if plain else 1
    try:
        exchanges = first_exchanges(entry)
    except HarnessError:
        exchanges = []
    if not exchanges:
        return "not known", 1
    asked = [one["request"] for one in exchanges if one["kind"] == "Generate"]
    warm = any(float(request.get("temperature") or 0) > 0 for request in asked)
    many = max((int(request.get("samples") or 1) for request in asked), default=1)
    # A share of right samples, as pass@1 is; other scores of a sample are not counted.
    shares = f"avg@{many}" in entry.saved.metrics and f"{PASS}1" in entry.saved.metrics
    return ("sampled" if warm else "certain"), many if shares else 1


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


def _with_examples(found: Sequence[Forgetting], count: int) -> list[Forgetting]:
    """The same with the answers of the first candidates, in turn from each series and benchmark."""
    chosen: dict[int, list[ForgottenItem]] = {}
    rounds = max((len(one.candidates) for one in found), default=0)
    turns = [
        (number, one.candidates[turn])
        for turn in range(rounds)
        for number, one in enumerate(found)
        if turn < len(one.candidates)
    ][:count]
    asked: dict[tuple[int, str], tuple[Point, set[str]]] = {}
    for number, one in turns:
        for point in (one.before, one.after):
            asked.setdefault((number, point.name), (point, set()))[1].add(one.item)
    shown = {
        (number, name): _answers(point, found[number].measure, items)
        for (number, name), (point, items) in asked.items()
    }
    for number, one in turns:
        before, after = (shown[number, point.name].get(one.item) for point in (one.before, one.after))
        chosen.setdefault(number, []).append(_told(one, before, after))
    return [replace(one, examples=tuple(chosen.get(number, ()))) for number, one in enumerate(found)]


def _answers(point: Point, measure: Measure, items: set[str]) -> dict[str, Shown]:
    try:
        return shown_answers(point.candidate.entries[measure.benchmark], measure.metric, items)
    except HarnessError:  # the journal has changed since; the items are named without their answers
        return {}


def _told(one: ForgottenItem, before: Shown | None, after: Shown | None) -> ForgottenItem:
    known = before or after
    if known is None:
        return one
    return replace(
        one,
        question=known.question,
        answer_before=before.answer if before else "",
        answer_after=after.answer if after else "",
        gold=(before.gold if before else None) or (after.gold if after else None),
    )
