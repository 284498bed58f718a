"""The four ways of choosing an answer, against NumPy and against worked examples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.few_shot import FewShot
from pytest_touchstone.core.requests import LoglikelihoodAnswer
from pytest_touchstone.metrics import (
    argmax,
    ask_answers,
    ask_choices,
    bits_per_byte,
    choice_scores,
    grade_choices,
    with_bits,
)

logprob = st.floats(-1e6, 0, allow_nan=False)
any_text = st.text(st.characters(), max_size=20)
choice = st.tuples(logprob, any_text, st.integers(0, 40))


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[float], list[str], list[int], int]:
    """Log-probabilities, texts, token counts and the right answer's place."""
    drawn = draw(st.lists(choice, min_size=1, max_size=6))
    logprobs, texts, tokens = (list(column) for column in zip(*drawn, strict=True))
    return logprobs, texts, tokens, draw(st.integers(0, len(drawn) - 1))


def test_each_rule_can_prefer_another_choice() -> None:
    choices = ["no", "가나다라", "a much longer choice indeed"]
    scores = [choice_scores([-2.0, -3.0, -12.0], choices, [1, 8, 4], gold) for gold in range(3)]
    preferred = {rule: [score[rule] for score in scores].index(1.0) for rule in scores[0]}
    assert preferred == {"acc": 0, "acc_norm": 2, "acc_bytes": 1, "acc_tokens": 1}


def test_bytes_and_characters_differ_for_korean() -> None:
    scores = choice_scores([-6.0, -6.0], ["가나", "abcd"], [1, 1], 0)
    assert scores["acc_norm"] == 0.0
    assert scores["acc_bytes"] == 1.0


def test_a_tie_goes_to_the_lowest_index() -> None:
    assert argmax([-1.0, -0.5, -0.5]) == 1
    assert choice_scores([-1.0, -1.0], ["ab", "cd"], [1, 1], 0) == dict.fromkeys(
        ("acc", "acc_norm", "acc_bytes", "acc_tokens"), 1.0
    )


def test_an_empty_choice_is_never_preferred_per_length_while_another_has_a_length() -> None:
    scores = choice_scores([0.0, -50.0], ["", "x"], [0, 1], 1)
    assert scores == {"acc": 0.0, "acc_norm": 1.0, "acc_bytes": 1.0, "acc_tokens": 1.0}


def test_of_empty_choices_only_the_first_is_preferred() -> None:
    assert choice_scores([-3.0, -1.0], ["", ""], [0, 0], 0)["acc_norm"] == 1.0


@pytest.mark.parametrize(
    ("logprobs", "choices", "tokens", "gold", "named"),
    [
        ([-1.0], ["a", "b"], [1, 1], 0, "2 choices, but 1 log-probabilities"),
        ([-1.0, -2.0], ["a", "b"], [1], 0, "1 token counts"),
        ([-1.0, -2.0], ["a", "b"], [1, 1], 2, "right answer is number 2"),
        ([-1.0, -2.0], ["a", "b"], [1, 1], -1, "right answer is number -1"),
        ([-1.0, -2.0], ["a", "b"], [1, 1], "a", "right answer is 'a'; give the number of its choice, from 0"),
        ([-1.0, math.nan], ["a", "b"], [1, 1], 0, "not a number"),
        ([], [], [], 0, "0 choices"),
    ],
)
def test_what_cannot_be_scored_is_named(
    logprobs: list[float], choices: list[str], tokens: list[int], gold: Any, named: str
) -> None:
    with pytest.raises(BenchmarkError, match=named):
        choice_scores(logprobs, choices, tokens, gold)


@pytest.mark.parametrize("ask", [ask_choices, ask_answers])
@pytest.mark.parametrize("right", ["B", 2, None])
def test_a_right_answer_that_is_no_choices_number_is_refused_before_anything_is_asked(
    ask: Any, right: Any
) -> None:
    with pytest.raises(BenchmarkError, match="the right answer is"):
        next(ask(FewShot(), "question", ["A", "B"], right))


def test_the_highest_of_nothing_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="no choices"):
        argmax([])


@settings(deadline=None)
@given(questions())
def test_any_text_is_scored_with_zero_or_one(question: tuple[list[float], list[str], list[int], int]) -> None:
    scores = choice_scores(*question)
    assert list(scores) == ["acc", "acc_norm", "acc_bytes", "acc_tokens"]
    assert set(scores.values()) <= {0.0, 1.0}


@settings(deadline=None)
@given(questions())
def test_exactly_one_choice_is_preferred(question: tuple[list[float], list[str], list[int], int]) -> None:
    logprobs, choices, tokens, _ = question
    per_gold = [choice_scores(logprobs, choices, tokens, gold) for gold in range(len(choices))]
    for rule in per_gold[0]:
        assert sum(scores[rule] for scores in per_gold) == 1.0


@settings(deadline=None)
@given(st.lists(st.tuples(logprob, st.text(min_size=1)), min_size=1, max_size=6), st.data())
def test_agrees_with_numpy_for_choices_with_a_length(
    drawn: list[tuple[float, str]], data: st.DataObject
) -> None:
    sums, choices = np.array([one for one, _ in drawn]), [text for _, text in drawn]
    gold = data.draw(st.integers(0, len(drawn) - 1))
    scores = choice_scores(sums.tolist(), choices, [1] * len(drawn), gold)
    characters = np.array([float(len(text)) for text in choices])
    encoded = np.array([float(len(text.encode())) for text in choices])
    assert scores["acc"] == float(np.argmax(sums) == gold)
    assert scores["acc_norm"] == float(np.argmax(sums / characters) == gold)
    assert scores["acc_bytes"] == float(np.argmax(sums / encoded) == gold)
    assert scores["acc_tokens"] == scores["acc"]


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_argmax_is_numpy_argmax(values: list[float]) -> None:
    assert argmax(values) == int(np.argmax(values))


@pytest.mark.parametrize(
    ("logprob", "text", "bits"),
    [(-math.log(2), "a", 1.0), (-math.log(2) * 6, "한글", 1.0), (0.0, "a", 0.0), (-math.log(256), "ab", 4.0)],
)
def test_bits_per_byte_count_utf_8(logprob: float, text: str, bits: float) -> None:
    assert bits_per_byte(logprob, text) == pytest.approx(bits)


def test_bits_are_those_of_the_right_choice_and_an_empty_one_has_none() -> None:
    answers = [LoglikelihoodAnswer(-1.0, False, 1), LoglikelihoodAnswer(-math.log(4), False, 1)]
    found = with_bits(grade_choices(answers, ["a", "bc"], 1), answers, ["a", "bc"])
    assert found["bits_per_byte"] == pytest.approx(1.0)
    assert found.right == 1
    with pytest.raises(BenchmarkError, match="no bytes"):
        bits_per_byte(-1.0, "")
