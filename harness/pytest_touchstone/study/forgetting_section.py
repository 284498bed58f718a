"""The items that series learned and forgot: by their way, the steps that lost most, and examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pytest_touchstone.core.text import count
from pytest_touchstone.document import Facts, Section, Table
from pytest_touchstone.document.formatting import NOTHING, p_short
from pytest_touchstone.statistics.verdicts import ALPHA
from pytest_touchstone.study.advice import find
from pytest_touchstone.study.forgetting import WAYS, Forgetting, ForgettingStep, ForgottenItem
from pytest_touchstone.study.points import Study, facts_of
from pytest_touchstone.study.texts import found_among

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
    found = study.once(find).forgetting
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
