"""Known questions at the beginning and the end of asking."""

from __future__ import annotations

from pytest_touchstone.core.requests import (
    Generate,
    GenerateAnswer,
    Generated,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
)
from pytest_touchstone.engines.http.engine import MOST_PER_TOKEN, canaries, drift


def score(logprob: float, tokens: int = 10) -> LoglikelihoodAnswer:
    return LoglikelihoodAnswer(logprob, False, tokens)


def text(words: str) -> GenerateAnswer:
    return GenerateAnswer((Generated(words, "length", 8),), 4)


def test_scores_are_asked_where_a_server_gives_them_and_texts_elsewhere() -> None:
    assert {type(one) for one in canaries((Loglikelihood, Generate))} == {Loglikelihood}
    assert {type(one) for one in canaries((Generate,))} == {Generate}


def test_rounding_is_no_drift_and_another_model_is() -> None:
    near = 10 * MOST_PER_TOKEN * 0.9
    assert drift([score(-20.0)], [score(-20.0 - near)]) is None
    found = drift([score(-20.0), score(-5.0)], [score(-20.0), score(-9.0)])
    assert found is not None
    assert "-5.00 then and -9.00 at the end" in found
    assert drift([score(-20.0)], [score(-20.0, tokens=11)]) is not None


def test_most_of_the_texts_must_differ() -> None:
    before = [text("a"), text("b"), text("c"), text("d")]
    assert drift(before, [text("a"), text("b"), text("x"), text("y")]) is None
    found = drift(before, [text("a"), text("x"), text("x"), text("y")])
    assert found is not None
    assert "3 of 4 known prompts" in found


def test_a_question_without_an_answer_says_nothing() -> None:
    assert drift([score(-1.0)], [Refusal("gone")]) is None
