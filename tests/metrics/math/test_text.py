"""MATH, what needs no SymPy: boxes, Hendrycks's and Minerva's rewriting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.metrics.math.grade import hendrycks_exact
from pytest_touchstone.metrics.math.text import (
    boxed_answer,
    hendrycks_prediction,
    minerva_normalized,
    minerva_prediction,
    same_text,
)

LATEX = (
    *(
        "\\frac",
        "\\sqrt",
        "{",
        "}",
        "1",
        "2",
        "x",
        "0.5",
        ".5",
        "/",
        "=",
        "k = ",
        " ",
        "$",
        "\\$",
        "%",
        "\\%",
    ),
    *(
        "\\text{ cm}",
        "\\left",
        "(",
        ",",
        "\n",
        "\\\\",
        "^\\circ",
        "\\boxed",
        "\\boxed ",
        "\\fbox",
        "[3]",
        "cm",
    ),
    *("1,000", "{,}", "-", "Final Answer: The final answer is", ". I hope it is correct."),
)
latex = st.text() | st.lists(st.sampled_from(LATEX), max_size=9).map("".join)


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("so $\\boxed{5}$", "5"),
        ("$\\boxed{3}$ or $\\boxed{\\frac{1}{2}}$", "\\frac{1}{2}"),
        ("$\\boxed 7$.", "7"),
        ("$\\boxed{5}$, $\\boxed 7$.", "7"),
        ("$\\fbox{5}$", "5"),
        ("$\\boxed{3}$ $\\fbox{5}$", "3"),
        ("$\\boxed{3$", None),
        ("5", None),
        ("", None),
        ("\\boxed", None),
    ],
)
def test_the_gold_answer_is_what_the_last_box_holds(solution: str, answer: str | None) -> None:
    assert boxed_answer(solution) == answer


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("a $b$ c", "b"),
        ("a $b$ c $d$ e", "b$ c $d"),
        ("no formula", "no formula"),
        ("one $ sign", "one $ sign"),
        ("$$", ""),
        ("", ""),
    ],
)
def test_hendrycks_takes_what_stands_between_the_outer_dollar_signs(output: str, answer: str) -> None:
    assert hendrycks_prediction(output) == answer


def test_two_missing_answers_are_the_same_and_one_is_not() -> None:
    assert same_text(None, None)
    assert not same_text(None, "")


@pytest.mark.parametrize("text", ["x/2", "\\sqrt", "\\frac", "1\\text{ m}\\text{ s}"])
def test_what_cannot_be_rewritten_is_compared_as_it_came(text: str) -> None:
    assert same_text(text, text)
    assert not same_text(text, f"{text} ")


def test_a_blank_output_is_no_answer_and_a_solution_without_a_box_is_never_met() -> None:
    assert not hendrycks_exact("$\\boxed{5}$", " ").parsed
    assert not hendrycks_exact("5", "5").correct


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("Final Answer: The final answer is $5$. I hope it is correct.", "$5$"),
        ("Final Answer: The final answer is $5$. ", "$5$"),
        ("Final Answer: The final answer is $5$.", None),
        ("Final Answer: The final answer is. I hope it is correct.", ""),
        ("", None),
    ],
)
def test_minerva_takes_what_the_closing_sentence_says(output: str, answer: str | None) -> None:
    assert minerva_prediction(output) == answer


@pytest.mark.parametrize(
    ("answer", "normal"),
    [
        ("$x = 5$", "5"),
        ("$2\\pi$ cm", "2\\pi"),
        ("\\left( 3, 4 \\right)", "\\left(3,4\\right)"),
        ("1,000,000", "1000000"),
        ("0,1", "0,1"),
        ("\\frac12", "\\frac{1}{2}"),
        ("\\sqrt[3]8", "\\sqrt[3]{8}"),
        ("30^\\circ", "30"),
        ("\\text{Evelyn}", "Evelyn"),
        ("", ""),
    ],
)
def test_minerva_normalises(answer: str, normal: str) -> None:
    assert minerva_normalized(answer) == normal


@given(latex, latex)
def test_any_two_texts_are_compared(left: str, right: str) -> None:
    assert same_text(left, right) == same_text(right, left)
    assert same_text(left, left)
    hendrycks_exact(left, right)


@given(latex)
def test_any_text_is_searched_and_normalised(text: str) -> None:
    boxed_answer(text)
    minerva_prediction(text)
    minerva_normalized(text)


@given(st.integers(-999, 999), st.integers(1, 999))
def test_spaces_line_ends_and_the_kind_of_fraction_do_not_matter_to_hendrycks(above: int, below: int) -> None:
    gold = f"\\frac{{{above}}}{{{below}}}"
    for same in (f"{above}/{below}", f"\\dfrac {{{above}}} {{{below}}}", f"\\left{gold}\n", f"k = {gold}\\%"):
        assert same_text(same, gold)


@given(st.integers(-(10**9), 10**9))
def test_commas_between_thousands_do_not_matter_to_minerva(number: int) -> None:
    assert minerva_normalized(f"${number:,}$") == str(number)
