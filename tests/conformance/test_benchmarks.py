"""Gold scored against gold is right on every shipped row, another answer on none.

Nothing is asked or scored anew unnoticed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from pytest_touchstone.core.grade import NO_ANSWER
from pytest_touchstone.core.reasoning import DELIMITERS, without_trace
from pytest_touchstone.core.requests import Answer, Generate, GenerateAnswer, Request
from tests.conformance.kit import (
    PINS,
    TEXT,
    WITHOUT_GOLD,
    Kit,
    kits,
    metric_of,
    pin,
    right_answers,
    wrong_answers,
)

NEVER_RIGHT = {
    "real_coref": {187: "핸드스프링", 229: "선형", 261: "팜소스", 305: "서로"},
    "ko_lambada_wiki": {
        38: "동군연합",
        133: "역임",
        134: "계속",
        146: "제기",
        168: "미조나",
        171: "계속",
        179: "대학교",
        193: "자기중심",
    },
}
"""Rows whose gold is a noun in its sentence, but which Kiwi, given the word alone as the rule wants it, takes for two
words or for another kind of word: no checkpoint can be right there under that rule."""

KITS = {kit.spec.name: kit for kit in kits()}
GOLD = {name: kit for name, kit in KITS.items() if name not in WITHOUT_GOLD}
PINNED = json.loads(PINS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("kit", GOLD.values(), ids=list(GOLD))
def test_gold_against_gold_is_right_on_every_row(kit: Kit) -> None:
    loaded = kit.loaded(0)
    wrong = {
        example.id: scores
        for example in kit.examples
        if (scores := kit.score(example, loaded, partial(right_answers, kit, example)))[
            metric_of(kit, example)
        ]
        != 1.0
    }
    known = NEVER_RIGHT.get(kit.spec.name, {})
    assert set(wrong) == {f"{kit.spec.name}/{number}" for number in known}
    targets = {example.id: example.row.get("target") for example in kit.examples}
    assert all(targets[f"{kit.spec.name}/{number}"] == word for number, word in known.items())


@pytest.mark.parametrize("kit", KITS.values(), ids=list(KITS))
def test_a_wrong_answer_is_right_on_no_row(kit: Kit) -> None:
    loaded = kit.loaded(0)
    for example in kit.examples:
        for turn in range(1, max(2, len(kit.begin(example, loaded)[1]))):
            scores = kit.score(example, loaded, partial(wrong_answers, kit, example, turn))
            assert scores[metric_of(kit, example)] < 1.0, example.id


@pytest.mark.parametrize("kit", GOLD.values(), ids=list(GOLD))
def test_a_benchmark_names_all_its_scores(kit: Kit) -> None:
    loaded = kit.loaded(0)
    examples = kit.examples[:: max(1, len(kit.examples) // 8)]
    found = {
        name for one in examples for name in kit.score(one, loaded, partial(right_answers, kit, one))
    } - {NO_ANSWER}
    assert kit.spec.primary in found <= set(kit.spec.metrics)


@pytest.mark.parametrize("name", sorted(TEXT))
def test_gold_is_right_under_every_rule_of_a_generated_answer(name: str) -> None:
    kit = KITS[name]
    loaded = kit.loaded(0)
    for example in kit.examples:
        scores = kit.score(example, loaded, partial(right_answers, kit, example))
        assert scores.pop("no_answer") == 0.0
        if name == "drop":  # as one string or as a list, whichever it is
            form = metric_of(kit, example).removeprefix("f1")
            scores = {f"{name}{form}": scores[f"{name}{form}"] for name in ("f1", "em")}
        if name == "math":  # this rule reads between the first and the last dollar sign of a whole solution
            scores = {metric: value for metric, value in scores.items() if "hendrycks" not in metric}
        assert set(scores.values()) == {1.0}, example.id


TRACE = (
    '<think>Question: is it #### 7, \\boxed{8} or "(B)"?\n\nThe answer is 9.\n'
    "```python\nassert False\n```\n</think>\n\n"
)
INSTRUCTED = "<<A title>>\n\n* a point, in lower case\n* another\n\nP.S. That is all."
"""An answer to instructions, of which some are followed."""


@pytest.mark.parametrize("name", [name for name, kit in KITS.items() if Generate in kit.spec.asks])
def test_a_reasoning_before_a_text_changes_no_program_and_no_score(name: str) -> None:
    kit = KITS[name]
    loaded = kit.loaded(0)

    def outcome(kind: str, number: int, before: str) -> tuple[Any, list[Sequence[Request]]]:
        """The scores of one row, and all that was asked."""
        example, asked = kit.examples[number], list[Sequence[Request]]()

        def answer(requests: Sequence[Request]) -> list[Answer]:
            asked.append(requests)
            if kind == "right" and name in TEXT:
                found = right_answers(kit, example, requests)
            else:
                found = wrong_answers(kit, example, 1, requests)
            return [traced(one, before) if isinstance(one, GenerateAnswer) else one for one in found]

        return kit.score(example, loaded, answer), asked

    for number in range(0, len(kit.examples), max(1, len(kit.examples) // 4)):
        for kind in ("right", "wrong"):
            assert outcome(kind, number, TRACE) == outcome(kind, number, ""), kit.examples[number].id


def traced(answer: GenerateAnswer, before: str) -> GenerateAnswer:
    """The answer of a model that writes so much before its text, as a benchmark is given it: the blank lines between
    are no part of it."""
    texts = [re.sub(r"\A(?:[^\S\n]*\n)+", "", one.text or INSTRUCTED) for one in answer.samples]
    samples = tuple(replace(one, text=before + text) for one, text in zip(answer.samples, texts, strict=True))
    found = without_trace(replace(answer, samples=samples), DELIMITERS)
    assert [one.reasoning is not None for one in found.samples] == [bool(before)] * len(samples)
    return found


@pytest.mark.parametrize("kit", KITS.values(), ids=list(KITS))
def test_what_is_asked_and_how_it_is_scored_is_pinned_to_the_version(kit: Kit) -> None:
    name, now = kit.spec.name, pin(kit)
    assert name in PINNED, "a new benchmark: python -m tests.conformance.kit"
    if now["version"] == PINNED[name]["version"]:
        assert now == PINNED[name], (
            f"{name} asks or scores something else: raise its version, then pin it again"
        )
    assert now == PINNED[name], f"{name} has a new version: python -m tests.conformance.kit"


def test_every_pin_belongs_to_a_benchmark() -> None:
    assert set(PINNED) == set(KITS)
