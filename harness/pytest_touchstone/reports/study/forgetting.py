"""The items that series learned and forgot: by their way, the steps that lost most, and examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pytest_touchstone.compare.study.forgetting import Forgetting, ForgettingStep, ForgottenItem
from pytest_touchstone.core.text import count
from pytest_touchstone.reports.formatting import NOTHING, p_short
from pytest_touchstone.reports.study.section import Facts, Part, Section, StudyTable, found_among
from pytest_touchstone.statistics.verdicts import ALPHA

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


def forgotten(found: Sequence[Forgetting]) -> Section:
    """Return the section; it says so where nothing is known."""
    title = "Learned and forgotten"
    if not found:
        line = "no evidence: the scores of items are not known"
        return Section(key="forgetting", title=title, parts=(NO_ITEMS,), line=line, data=[])
    table = StudyTable(
        header=("series", "benchmark", "items", "kept", "never", "learned", "lost", "unsteady"),
        rows=tuple(
            (
                one.series.name,
                one.measure.benchmark,
                *(f"{n:,}" for n in (one.items, one.kept, one.never, one.learned, one.lost, one.unsteady)),
            )
            for one in found
        ),
        left=2,
    )
    parts: list[Part] = [table, Facts((*LEGEND, *_noise(found)))]
    parts += [*_losses(found), *_examples(found)]
    named = [
        f"{one.measure.benchmark} of {one.series.name}, {_between(one, step)}" for one, step in _lost(found)
    ]
    steps = sum(len(one.steps) for one in found)
    return Section(
        key="forgetting",
        title=title,
        parts=tuple(parts),
        details=tuple(part for one in found for part in _steps(one)),
        line=found_among(named, steps, "steps that lost more items than they gained"),
        data=[_facts(one) for one in found],
    )


LEGEND: Final = (
    ("kept", "right at every checkpoint; never: wrong at every one"),
    ("learned", "wrong at first, right from some checkpoint to the last; lost: the other way"),
    ("unsteady", "changed more than once"),
)


def _noise(found: Sequence[Forgetting]) -> Iterable[tuple[str, str]]:
    """The words on what chance alone changes, each with its benchmarks."""
    words: dict[str, list[str]] = {}
    for one in found:
        many = f"answers are sampled, {count(one.samples, 'time')} for each item: steps have what chance alone changes"
        text = {
            "certain": CERTAIN,
            "sampled": many if one.samples > 1 else ONE_SAMPLE,
            "not known": UNKNOWN,
        }[one.kind]
        words.setdefault(text, []).append(one.measure.benchmark)
    for text, names in words.items():
        yield "by chance", text if len(words) == 1 else f"{', '.join(dict.fromkeys(names))}: {text}"


def _losses(found: Sequence[Forgetting]) -> Iterable[Part]:
    """The steps at which more was forgotten than learned, by more than chance."""
    rows = [(one.series.name, one.measure.benchmark, *_cells(one, step)) for one, step in _lost(found)]
    if rows:
        header = ("series", "benchmark", "step", "forgotten", "learned", "by chance", "p")
        title = "Steps that lost more than they gained, by more than chance"
        yield StudyTable(title=title, header=header, rows=tuple(rows), left=3)
    else:
        yield (
            "No step from a checkpoint to the next lost more items than it gained by more than chance (McNemar's "
            "test, corrected within each series)."
        )


def _lost(found: Sequence[Forgetting]) -> list[tuple[Forgetting, ForgettingStep]]:
    return [
        (one, step)
        for one in found
        for step in one.steps
        if step.p <= ALPHA and step.forgotten > step.learned
    ]


def _steps(one: Forgetting) -> Iterable[Part]:
    yield StudyTable(
        title=f"{one.series.name}, {one.measure.benchmark}: from each checkpoint to the next",
        header=("step", "forgotten", "learned", "by chance", "p"),
        rows=tuple(_cells(one, step) for step in one.steps),
    )


def _cells(one: Forgetting, step: ForgettingStep) -> tuple[str, ...]:
    chance = NOTHING if step.by_chance is None else f"{step.by_chance:.0f}"
    return (_between(one, step), str(step.forgotten), str(step.learned), chance, p_short(step.p))


def _between(one: Forgetting, step: ForgettingStep) -> str:
    after = one.series.where(step.after).removeprefix(f"{one.series.axis} ")
    return f"{one.series.where(step.before)} to {after}"


def _examples(found: Sequence[Forgetting]) -> Iterable[Part]:
    for one in found:
        for example in one.examples:
            where = one.series.where(example.before), one.series.where(example.after)
            told = [
                (
                    "forgotten",
                    f"{example.item}, {one.series.name}: right at {where[0]}, wrong from {where[1]} on",
                ),
                *_told(example),
            ]
            yield Facts(tuple(told))


def _told(example: ForgottenItem) -> Iterable[tuple[str, str]]:
    if not example.question and not example.answer_before:
        yield "answers", "not kept"
        return
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


def _facts(one: Forgetting) -> dict[str, Any]:
    counts = ("items", "kept", "never", "learned", "lost", "unsteady", "samples")
    return {
        "series": one.series.name,
        "benchmark": one.measure.benchmark,
        "metric": one.measure.metric,
        **{name: getattr(one, name) for name in counts},
        "answers": one.kind,
        "steps": [
            {
                "before": step.before.name,
                "after": step.after.name,
                "forgotten": step.forgotten,
                "learned": step.learned,
                "p_corrected": step.p,
                "by_chance": step.by_chance,
            }
            for step in one.steps
        ],
        "examples": [_example_facts(example) for example in one.examples],
    }


def _example_facts(one: ForgottenItem) -> dict[str, Any]:
    return {
        "item": one.item,
        "before": one.before.name,
        "after": one.after.name,
        "question": one.question or None,
        "answer_before": one.answer_before or None,
        "answer_after": one.answer_after or None,
        "gold": one.gold,
    }
