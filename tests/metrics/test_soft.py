from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.benchmark import Benchmark, Dataset
from pytest_touchstone.core.requests import Loglikelihood, LoglikelihoodAnswer, PseudoLoglikelihood
from pytest_touchstone.metrics import ChoiceScores, grade_choices
from pytest_touchstone.metrics.multiple_choice import AnsweredChoices
from pytest_touchstone.metrics.soft import (
    MAX_NATS,
    TEMPERATURES,
    soft_names,
    soft_of,
    soft_scores,
    temperature_of,
)

LOGPROBS = st.one_of(st.just(-math.inf), st.floats(-1e6, 0.0))


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[float], int, float]:
    values = draw(st.lists(LOGPROBS, min_size=1, max_size=6))
    return values, draw(st.integers(0, len(values) - 1)), draw(st.floats(1e-3, 100.0))


def spec(primary: str = "acc", asks: Any = Loglikelihood, **more: Any) -> Benchmark:
    return Benchmark(name="b", version=1, data=Dataset(rows=[]), asks=(asks,), primary=primary, **more)


def answers(*logprobs: float, tokens: int = 2) -> list[LoglikelihoodAnswer]:
    return [LoglikelihoodAnswer(logprob=one, is_greedy=False, tokens=tokens) for one in logprobs]


def test_the_probability_of_the_right_choice_is_its_share_among_the_choices() -> None:
    found = soft_scores([math.log(0.3), math.log(0.1), math.log(0.2)], 0, 1.0)
    assert found["p_right"] == pytest.approx(0.5, abs=1e-6)
    assert found["log_odds"] == pytest.approx(0.0, abs=1e-6)
    assert found["logprob_margin"] == pytest.approx(math.log(1.5), abs=1e-6)


def test_a_temperature_sharpens_the_probability_alone() -> None:
    plain, sharp = (soft_scores([-1.0, -1.1], 0, one) for one in (1.0, 0.01))
    assert plain.pop("p_right") == pytest.approx(0.525, abs=1e-3)
    assert sharp.pop("p_right") == pytest.approx(1.0, abs=1e-4)
    assert plain == sharp


@given(questions())
def test_soft_scores_are_finite_whatever_the_log_probabilities(
    question: tuple[list[float], int, float],
) -> None:
    found = soft_scores(*question)
    assert 0.0 <= found["p_right"] <= 1.0
    assert all(-MAX_NATS <= value <= MAX_NATS for name, value in found.items() if name != "p_right")
    assert all(math.isfinite(value) for value in found.values())


@given(questions())
def test_the_probabilities_of_all_choices_add_up_to_one(question: tuple[list[float], int, float]) -> None:
    values, _, temperature = question
    shares = [soft_scores(values, place, temperature)["p_right"] for place in range(len(values))]
    assert math.fsum(shares) == pytest.approx(1.0, abs=1e-5)


@given(questions())
def test_the_margin_is_above_zero_only_where_the_answer_is_right(
    question: tuple[list[float], int, float],
) -> None:
    values, right, temperature = question
    margin = soft_scores(values, right, temperature).get("logprob_margin", 0.0)
    best = max(values)
    assert margin <= 0 or values[right] == best
    assert margin >= 0 or values[right] < best


def test_choices_that_tie_are_equally_probable() -> None:
    assert soft_scores([-2.0] * 4, 1, 0.1) == {
        "p_right": 0.25,
        "log_odds": pytest.approx(-math.log(3), abs=1e-6),
        "logprob_margin": 0.0,
    }
    assert soft_scores([-math.inf] * 4, 1, 0.1) == soft_scores([-2.0] * 4, 1, 0.1)


def test_a_single_choice_has_nothing_to_be_held_against() -> None:
    assert soft_scores([-3.0], 0, 1.0) == {"p_right": 1.0}


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_log_probability_has_no_soft_scores(wrong: float) -> None:
    assert soft_scores([-1.0, wrong], 0, 1.0) == {}


@pytest.mark.parametrize(
    ("primary", "lengths"),
    [("acc", (1, 1)), ("acc_norm", (2, 3)), ("acc_bytes", (6, 3)), ("acc_tokens", (2, 2))],
)
def test_the_primary_score_says_how_lengths_count(primary: str, lengths: tuple[int, int]) -> None:
    returned = grade_choices(answers(-6.0, -3.0), ["가나", "abc"], 0)
    expected = soft_scores([-6.0 / lengths[0], -3.0 / lengths[1]], 0, temperature_of(spec(primary)))
    found = soft_of(returned, spec(primary))
    assert {name: found[name] for name in expected} == expected
    assert (found["logprob_margin"] >= 0) == (returned[primary] == 1.0)


def test_a_benchmark_may_declare_its_temperature() -> None:
    assert temperature_of(spec("acc_norm")) == TEMPERATURES["acc_norm"]
    assert temperature_of(spec("right")) == TEMPERATURES["acc"]
    assert temperature_of(spec("acc_norm", temperature=0.25)) == 0.25


def test_bits_are_those_of_a_right_choice_with_bytes_that_is_possible() -> None:
    asked = spec()
    bits = soft_of(grade_choices(answers(-2 * math.log(2), -1.0), ["ab", "c"], 0), asked)["bits_per_byte"]
    assert bits == pytest.approx(1.0, abs=1e-6)
    assert "bits_per_byte" not in soft_of(grade_choices(answers(-1.0, -1.0), ["", "c"], 0), asked)
    assert "bits_per_byte" not in soft_of(grade_choices(answers(-math.inf, -1.0), ["a", "c"], 0), asked)


def test_a_masked_model_has_no_bits() -> None:
    masked = spec(asks=PseudoLoglikelihood)
    of_an_item = set(soft_names(masked)) - {"soft"}
    assert soft_of(grade_choices(answers(-1.0, -2.0), ["a", "b"], 0), masked).keys() == of_an_item


def test_scores_without_their_choices_have_no_soft_scores() -> None:
    assert soft_of({"acc": 1.0}, spec()) == {}
    assert soft_of(ChoiceScores({"acc": 1.0}, 0), spec()) == {}


@pytest.mark.parametrize(("right", "texts"), [(2, ["a", "b"]), (-1, ["a", "b"]), (0, ["a"])])
def test_choices_that_do_not_fit_have_no_soft_scores(right: int, texts: list[str]) -> None:
    choices = AnsweredChoices([-1.0, -2.0], texts, [1, 1])
    assert soft_of(ChoiceScores({"acc": 1.0}, right, choices=choices), spec()) == {}


def test_the_preferred_choice_is_the_first_of_the_highest() -> None:
    assert AnsweredChoices([-1.0, -1.0], ["a", "b"], [1, 1]).preferred("acc") == 0
