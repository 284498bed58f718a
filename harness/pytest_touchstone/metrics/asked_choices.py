"""Questions with choices, as benchmarks ask them: every choice after the same context.

    return (yield from ask_choices(fewshot, prompt, [" A", " B"], right))
    return (yield from ask_answers(fewshot, prompt, texts, right))

The first is for choices that stand in the prompt, such as letters; the second for answers that are texts, which differ
in length.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from string import ascii_uppercase
from typing import Any, TypeAlias

from typing_extensions import TypedDict

from pytest_touchstone.core.few_shot import FewShot
from pytest_touchstone.metrics.multiple_choice import ChoiceScores, argmax, score_choices, with_bits

ChoiceAnswers: TypeAlias = Generator[Any, Any, ChoiceScores]
"""A part of a benchmark (``yield from``) that returns the scores of a choice."""


class LabelledChoices(TypedDict):
    """Answers, and their labels, as many sets on the Hub have them."""

    text: list[str]
    label: list[str]


def lettered(texts: Sequence[str]) -> list[str]:
    """A line for each text, with its letter: "A. ", "B. " and so on."""
    return [f"{letter}. {text}" for letter, text in zip(ascii_uppercase, texts, strict=False)]


def ask_choices(
    fewshot: FewShot,
    context: str,
    choices: Sequence[str],
    right: int,
    *,
    header: str = "",
    names: Sequence[str] = ("acc",),
    bits: bool = False,
) -> ChoiceAnswers:
    """Ask for one space and each choice after the context. The scores of these names are 1.0 where the choice with the
    highest log-probability, the first on a tie, is number ``right``, else 0.0. With ``bits`` the bits per byte of the
    right choice are a score too."""
    answers = yield [fewshot.loglikelihood(context, f" {choice}", header=header) for choice in choices]
    chosen = argmax([one.logprob for one in answers])
    found = ChoiceScores(dict.fromkeys(names, float(chosen == right)), right, chosen)
    return with_bits(found, answers, choices) if bits else found


def ask_answers(
    fewshot: FewShot, context: str, texts: Sequence[str], right: int, *, header: str = ""
) -> ChoiceAnswers:
    """Ask for one space and each text after the context: the four scores of ``choice_scores``, and the bits per byte of
    the right text."""
    answers = yield [fewshot.loglikelihood(context, f" {text}", header=header) for text in texts]
    return with_bits(score_choices(answers, texts, right), answers, texts)
