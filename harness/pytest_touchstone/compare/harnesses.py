"""Why two results of a benchmark differ where answers come from files of other harnesses (``touchstone score``).

Each side has a value by its own harness, the mean of the verdicts that its file has, and one by our scorer on the same
answers. The difference of the former is the sum of these parts, each in the unit of the score:

    scoring    what the verdicts differ from our scores, over all items of a side: extraction and metric
    rows       what the means over all items of a side differ from those over the items that both have
    length     over items of both, by our scorer: one answer is the beginning of the other (stops, limit of tokens)
    prompts    the other differences between answers to prompts that are not the same
    answers    the other differences between answers to the same prompts

A run of our own has no verdicts but its scores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Final, NamedTuple

from pytest_touchstone.compare.answers import read_records, shown_record
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.core.requests import VERDICT_KINDS
from pytest_touchstone.metrics.samples import mean_of
from pytest_touchstone.results.item_view import prompt_hash
from pytest_touchstone.results.records import Record

CAUSES: Final = ("scoring", "rows", "length", "prompts", "answers")

SHOWN: Final = 10
"""The items that show best why two results differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessAnswer:
    """An item as one side has it.

    ``verdict`` is that of its harness, ``score`` that of our scorer, ``scores`` has those by our other metrics.
    ``read`` is what we extract from the ``answer``, ``read_there`` what the harness extracted; empty if unknown.
    ``has_verdict``: the file has one.
    """

    prompt: str
    prompt_sha256: str
    answer: str
    read: str
    read_there: str
    verdict: float
    score: float
    scores: Mapping[str, float]
    has_verdict: bool


class Cause(NamedTuple):
    """A cause of a difference: its name, its size in the unit of the score, and its items.

    The items with the largest change come first.
    """

    name: str
    size: float
    items: tuple[str, ...]


class Rule(NamedTuple):
    """Our metric that stands for a harness's rule, with the ``values`` of both sides by it.

    It gives the harness's verdicts on ``equal`` of ``of`` answers.
    """

    metric: str
    equal: int
    of: int
    values: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessDifference:
    """Why two results of a benchmark differ; pairs have A first.

    ``verdicts`` are the values by each side's own harness, ``scores`` those by our scorer. ``rules`` say by which
    metric of ours a harness judges, None of a run and of a file without verdicts. ``settings`` are those that differ,
    None where they are not known.
    """

    benchmark: str
    metric: str
    verdicts: tuple[float, float]
    scores: tuple[float, float]
    causes: tuple[Cause, ...]
    rules: tuple[Rule | None, Rule | None]
    settings: Mapping[str, tuple[Any, Any]]
    answers: tuple[Mapping[str, HarnessAnswer], Mapping[str, HarnessAnswer]]

    @property
    def examples(self) -> list[tuple[str, str]]:
        """The items that show it best, each with its cause: one of each cause in turn, largest first."""
        ordered = sorted(self.causes, key=lambda cause: -abs(cause.size))
        turns = zip_longest(*([(item, cause.name) for item in cause.items] for cause in ordered))
        chosen: dict[str, str] = {}
        for item, cause in filter(None, chain.from_iterable(turns)):
            chosen.setdefault(item, cause)
        return list(chosen.items())[:SHOWN]


def explain_difference(a: BenchmarkScores, b: BenchmarkScores, metric: str) -> HarnessDifference | None:
    """Return why two results differ; None for two runs of our own, and without answers.

    Raises ``HarnessError`` where a journal cannot be read.
    """
    if not any(entry.saved.checkpoint_info.get("answers") for entry in (a, b)):
        return None
    before, after = (
        {record.example: answer for record in read_records(entry) if (answer := _answer_of(record, metric))}
        for entry in (a, b)
    )
    if not before or not after:
        return None
    sides = before, after
    verdicts, scores = (
        tuple(mean_of([getattr(answer, name) for answer in side.values()]) for side in sides)
        for name in ("verdict", "score")
    )
    return HarnessDifference(
        benchmark=a.saved.benchmark,
        metric=metric,
        verdicts=(verdicts[0], verdicts[1]),
        scores=(scores[0], scores[1]),
        causes=tuple(causes_of(before, after)),
        rules=(_rule_of(before, sides, metric), _rule_of(after, sides, metric)),
        settings=_differing_settings(a, b, sides),
        answers=sides,
    )


def _answer_of(record: Record, metric: str) -> HarnessAnswer | None:
    asked = next((exchange for exchange in record.exchanges if exchange["kind"] not in VERDICT_KINDS), None)
    if asked is None or metric not in record.scores:
        return None
    answers = [exchange["answer"].get("provenance") for exchange in record.exchanges]
    provenance: Mapping[str, Any] = next(filter(None, answers), {})
    verdicts, prompt = provenance.get("verdicts", {}), provenance.get("prompt", "")
    read_there = provenance.get("extracted", {})
    shown, read = shown_record(record, metric), (record.facts or {}).get("extracted", {})
    score = record.scores[metric]
    return HarnessAnswer(
        prompt=prompt or shown.question,
        prompt_sha256=hashlib.sha256(prompt.encode("utf-8", "backslashreplace")).hexdigest()
        if prompt
        else prompt_hash(asked),
        answer=shown.answer,
        read=str(next((text for rule, text in read.items() if metric.endswith(rule)), None) or ""),
        read_there=read_there.get(metric, next(iter(read_there.values()), "")),
        verdict=verdicts.get(metric, next(iter(verdicts.values()), score)),
        score=score,
        scores=record.scores,
        has_verdict=bool(verdicts),
    )


def causes_of(before: Mapping[str, HarnessAnswer], after: Mapping[str, HarnessAnswer]) -> list[Cause]:
    """Return the parts of the difference between two sides' values, in the order of ``CAUSES``."""
    both = [example for example in before if example in after]
    sizes = dict.fromkeys(CAUSES, 0.0)
    changes: dict[str, dict[str, float]] = {name: {} for name in CAUSES}
    for side, sign in ((before, -1.0), (after, 1.0)):
        for example, answer in side.items():
            if answer.verdict != answer.score:
                sizes["scoring"] += sign * (answer.verdict - answer.score) / len(side)
                changes["scoring"][example] = abs(answer.verdict - answer.score)
            if not (example in before and example in after):
                changes["rows"][example] = abs(answer.score)
        shared = mean_of([side[example].score for example in both]) if both else 0.0
        sizes["rows"] += sign * (mean_of([answer.score for answer in side.values()]) - shared)
    for example in both:
        a, b = before[example], after[example]
        if change := b.score - a.score:
            name = _cause_of(a, b)
            sizes[name] += change / len(both)
            changes[name][example] = abs(change)
    return [
        Cause(name, sizes[name], tuple(sorted(found, key=lambda example: -found[example])))
        for name, found in changes.items()
    ]


def _cause_of(a: HarnessAnswer, b: HarnessAnswer) -> str:
    """Return why our scorer scores two answers to an item differently."""
    one, other = a.answer.strip(), b.answer.strip()
    if one and other and one != other and (one.startswith(other) or other.startswith(one)):
        return "length"
    return "answers" if a.prompt_sha256 == b.prompt_sha256 else "prompts"


def _rule_of(
    side: Mapping[str, HarnessAnswer], sides: Sequence[Mapping[str, HarnessAnswer]], metric: str
) -> Rule | None:
    """Return our metric that agrees most often with a side's harness, and both sides' values by it.

    Of several it is the compared ``metric``.
    """
    judged = [answer for answer in side.values() if answer.has_verdict]
    names = set.intersection(*(set(answer.scores) for found in sides for answer in found.values()))
    if not judged or not names:
        return None
    equal = {name: sum(answer.scores[name] == answer.verdict for answer in judged) for name in sorted(names)}
    best = max(equal, key=lambda name: (equal[name], name == metric))
    first, second = (mean_of([answer.scores[best] for answer in found.values()]) for found in sides)
    return Rule(best, equal[best], len(judged), (first, second))


def _differing_settings(
    a: BenchmarkScores, b: BenchmarkScores, sides: Sequence[Mapping[str, HarnessAnswer]]
) -> dict[str, tuple[Any, Any]]:
    """Return the known differences in how both sides were run and scored."""
    mine, theirs = (
        _settings_of(entry) | {"rows": len(side)} for entry, side in zip((a, b), sides, strict=True)
    )
    names = dict.fromkeys((*mine, *theirs))
    return {name: (mine.get(name), theirs.get(name)) for name in names if mine.get(name) != theirs.get(name)}


def _settings_of(entry: BenchmarkScores) -> dict[str, Any]:
    """Return the harness and the settings of a side: those in its file, or those of our run."""
    if answers := entry.saved.checkpoint_info.get("answers"):
        return {"harness": answers["kind"], **answers["asked"]}
    known = entry.saved.known
    settings = {name: known.get(name) for name in ("shots", "template")}
    record = next((record for record in read_records(entry) if record.exchanges), None)
    request = record.exchanges[0]["request"] if record is not None else {}
    asked = {name: request[name] for name in ("stop", "max_new_tokens", "temperature") if name in request}
    return {"harness": "pytest-touchstone", **settings, **asked, "metric": entry.saved.primary}
