"""The answer that a model prefers among several, from the summed log-probabilities of each.

Four rules, which differ in what the sum is divided by before the highest is taken:

    ==============  =======================================================================================
    score           divided by
    ==============  =======================================================================================
    ``acc``         nothing
    ``acc_norm``    characters of the choice (Python ``len``: code points), as lm-evaluation-harness does
    ``acc_bytes``   bytes of the choice in UTF-8 (Gao 2021, "Multiple Choice Normalization in LM Evaluation")
    ``acc_tokens``  tokens that were scored (Brown et al. 2020, section 2.4)
    ==============  =======================================================================================

The choice is taken without the delimiter that stands before it in the prompt, so characters and bytes do not count
the leading space. The token count is that of the whole continuation, delimiter included, because tokens cannot be
split. For scripts of more than one byte per character (Korean) the four can disagree about every single item: never
compare one with another.

Benchmarks ask for every choice after the same context:

    return (yield from ask_choices(fewshot, prompt, [" A", " B"], right))
    return (yield from ask_answers(fewshot, prompt, texts, right))

The first is for choices that stand in the prompt, such as letters; the second for answers that are texts, which differ
in length.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from numbers import Integral
from string import ascii_uppercase
from typing import Any, Final, NamedTuple, TypeAlias

from typing_extensions import TypedDict

from pytest_touchstone.core.aggregation import BITS_PER_BYTE, STANDARD
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.few_shot import FewShot
from pytest_touchstone.core.requests import LoglikelihoodAnswer, RollingAnswer


class AnsweredChoices(NamedTuple):
    """The answered choices of a question.

    For each choice the log-probability (nats), the text without the delimiter before it, and the number of tokens.
    """

    logprobs: Sequence[float]
    texts: Sequence[str]
    tokens: Sequence[int]

    def normalised(self, metric: str) -> list[float]:
        """Return the log-probabilities as a score compares them; those of an unknown score are not divided."""
        if metric == "acc_norm":
            lengths: Sequence[int] = [len(text) for text in self.texts]
        elif metric == "acc_bytes":
            lengths = [len(text.encode("utf-8", "surrogatepass")) for text in self.texts]
        elif metric == "acc_tokens":
            lengths = self.tokens
        else:
            return list(self.logprobs)
        return [
            logprob / n if n > 0 else -math.inf for logprob, n in zip(self.logprobs, lengths, strict=True)
        ]

    def preferred(self, metric: str) -> int:
        """Return the number of the choice that the rule of a score prefers."""
        return argmax(self.normalised(metric))


def collect_choices(
    answers: Sequence[LoglikelihoodAnswer | RollingAnswer], texts: Sequence[str]
) -> AnsweredChoices:
    """Return the choices with the answers to one request for each."""
    return AnsweredChoices(
        [answer.logprob for answer in answers], texts, [answer.tokens for answer in answers]
    )


class ChoiceScores(dict[str, float]):
    """The scores of a choice, with the index of the right choice (from 0) for display.

    ``chosen`` is the index of the preferred choice, for metrics that need it (``macro_f1``). ``choices`` are all of
    them; the soft scores are made from these (``metrics.soft``).
    """

    def __init__(
        self,
        scores: Mapping[str, float],
        right: int,
        chosen: int | None = None,
        choices: AnsweredChoices | None = None,
    ) -> None:
        super().__init__(scores)
        self.right = right
        self.chosen = chosen
        self.choices = choices


CHOICE_METRICS: Final = ("acc", "acc_norm", "acc_bytes", "acc_tokens")
"""The names of the four scores."""


def argmax(values: Sequence[float]) -> int:
    """Return the index of the highest value, the lowest one on a tie (as ``numpy.argmax``)."""
    if not values:
        raise BenchmarkError("no choices: the highest of nothing cannot be taken")
    return max(range(len(values)), key=values.__getitem__)


def grade_choices(
    answers: Sequence[LoglikelihoodAnswer | RollingAnswer], choices: Sequence[str], gold: int
) -> ChoiceScores:
    """Return ``choice_scores`` of the answers to one request per choice."""
    logprobs, texts, tokens = collect_choices(answers, choices)
    return choice_scores(logprobs, texts, tokens, gold)


BITS: Final = {BITS_PER_BYTE: STANDARD[BITS_PER_BYTE]}
"""The metric as ``aggregate`` of a benchmark may name it; it is made so without that too."""


def bits_per_byte(logprob: float, text: str) -> float:
    """Return the bits that a log-probability (nats) costs per UTF-8 byte of its text.

    The delimiter before the text does not count. Useful among small models, whose choices are hardly better than
    chance. Lower is better. Raises ``BenchmarkError`` for an empty text.
    """
    if not text:
        raise BenchmarkError("the right answer is empty: it has no bytes to count its bits by")
    return -logprob / math.log(2) / len(text.encode("utf-8", "surrogatepass"))


def with_bits(
    scores: ChoiceScores, answers: Sequence[LoglikelihoodAnswer], choices: Sequence[str]
) -> ChoiceScores:
    """Return the scores, with the bits per byte of the right choice among them."""
    bits = bits_per_byte(answers[scores.right].logprob, choices[scores.right])
    return ChoiceScores({**scores, BITS_PER_BYTE: bits}, scores.right, scores.chosen, scores.choices)


def _check_right(right: Any, choices: Sequence[str]) -> None:
    """Raise ``BenchmarkError`` unless it is the number of a choice."""
    if not isinstance(right, (int, Integral)):
        raise BenchmarkError(f"the right answer is {right!r}; give the number of its choice, from 0")
    if not 0 <= int(right) < len(choices):
        raise BenchmarkError(
            f"the right answer is number {right}, but there are {len(choices)} choices (counted from 0)"
        )


def choice_scores(
    logprobs: Sequence[float], choices: Sequence[str], tokens: Sequence[int], gold: int
) -> ChoiceScores:
    """Return 1.0 for each of the four rules that prefer choice ``gold`` (index from 0), 0.0 for the others.

    A choice of length zero has no mean log-probability. It counts as minus infinity, so it is preferred only when
    every choice is empty (then the first is). Dividing a negative sum by zero in floating point gives the same,
    without the special case 0/0. Any text is allowed, lone surrogates too (three bytes each). Raises
    ``BenchmarkError`` when the numbers of values differ, ``gold`` names no choice, or a log-probability is not a
    number.
    """
    if not len(logprobs) == len(choices) == len(tokens):
        raise BenchmarkError(
            f"{len(choices)} choices, but {len(logprobs)} log-probabilities and {len(tokens)} token counts"
        )
    _check_right(gold, choices)
    if any(math.isnan(logprob) for logprob in logprobs):
        raise BenchmarkError(
            f"log-probabilities {list(logprobs)}: one is not a number, so none is the highest"
        )
    there = AnsweredChoices(logprobs, choices, tokens)
    known = CHOICE_METRICS[:-1] if -1 in tokens else CHOICE_METRICS  # of a file of answers they are not known
    scores = {name: float(there.preferred(name) == gold) for name in known}
    return ChoiceScores(scores, gold, choices=there)


def true_share(logprobs: Sequence[float], labels: Sequence[int]) -> float:
    """Return the share of the answers with label 1 in the total probability (TruthfulQA), from 0 to 1."""
    most = max(logprobs)
    weights = [math.exp(logprob - most) for logprob in logprobs]
    true = math.fsum(weight for weight, label in zip(weights, labels, strict=True) if label == 1)
    return true / math.fsum(weights)


# Asking for every choice


ChoiceAnswers: TypeAlias = Generator[Any, Any, ChoiceScores]
"""A part of a benchmark (``yield from``) that returns the scores of a choice."""


class LabelledChoices(TypedDict):
    """Answers, and their labels, as many sets on the Hub have them."""

    text: list[str]
    label: list[str]


def format_lettered_options(texts: Sequence[str]) -> list[str]:
    """Return a line for each text, with its letter: "A. ", "B. " and so on."""
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
    """Ask for one space and each choice after the context, and score the choice with the highest log-probability.

    Args:
        fewshot: The few-shot examples of the run.
        context: The text before the choices.
        choices: The texts of the choices.
        right: The index of the right choice, from 0.
        header: The text before the few-shot examples.
        names: The scores that are 1.0 if the preferred choice (the first on a tie) is right, else 0.0.
        bits: Whether to add the bits per byte of the right choice.

    """
    _check_right(right, choices)
    answers = yield [fewshot.loglikelihood(context, f" {choice}", header=header) for choice in choices]
    there = collect_choices(answers, choices)
    chosen = argmax(there.logprobs)
    scores = ChoiceScores(dict.fromkeys(names, float(chosen == right)), right, chosen, there)
    return with_bits(scores, answers, choices) if bits else scores


def ask_answers(
    fewshot: FewShot, context: str, texts: Sequence[str], right: int, *, header: str = ""
) -> ChoiceAnswers:
    """Ask for one space and each text after the context; return ``choice_scores`` and bits per byte."""
    _check_right(right, texts)
    answers = yield [fewshot.loglikelihood(context, f" {text}", header=header) for text in texts]
    return with_bits(grade_choices(answers, texts, right), answers, texts)
