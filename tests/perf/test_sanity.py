"""``perf.sanity``: what it says of two sides that were asked the same."""

from __future__ import annotations

from typing import Any

from perf.sanity import Wanted, line
from tests.support.lines import missing

WANTED = Wanted("piqa", 0, 2)


def side(answer: float | str, acc: float, **more: Any) -> dict[str, Any]:
    both = {"row": "piqa/7", "asked": "hash", "answers": [answer]}
    return {**both, "metrics": {"none": {"acc": acc}}, "scores": {"acc": acc}, **more}


def test_equal_items_are_counted_and_none_is_listed() -> None:
    found = line(WANTED, [side(-1.0, 1.0)], [side(-1.0004, 1.0)])
    assert (found.prompts, found.answers, found.scores, found.differing) == (1, 1, 1, [])


def test_every_respect_in_which_an_item_differs_is_listed() -> None:
    found = line(WANTED, [side(-1.0, 1.0)], [side(-1.5, 0.0, asked="other")])
    assert (found.prompts, found.answers, found.scores) == (0, 0, 0)
    prompt, answers, scores = found.differing
    assert prompt == "piqa/7: another prompt"
    assert not missing(answers, "piqa/7", "ours answered [-1.5]", "the reference [-1.0]")
    assert not missing(scores, "piqa/7", "acc 0.0 by ours", "1.0 by the reference")


def test_a_text_differs_by_a_letter() -> None:
    assert line(WANTED, [side("a b", 0.0)], [side("a  b", 0.0)]).answers == 0


def test_verdicts_on_several_instructions_are_compared_by_their_mean() -> None:
    metric = "inst_level_strict_acc"
    other = {**side("text", 0.0), "metrics": {"none": {metric: [True, False]}}}
    found = {**side("text", 0.0), "scores": {metric: 1.0}}
    (scores,) = line(WANTED, [other], [found]).differing
    assert not missing(scores, "piqa/7", f"{metric} 1.0 by ours", "0.5 by the reference")
