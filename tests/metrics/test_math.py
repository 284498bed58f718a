"""MATH: boxes, Hendrycks's and Minerva's rewriting; verdicts by SymPy and math-verify, and a limit that holds."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.metrics.math import (
    MathJudge,
    boxed_answer,
    grade_math,
    hendrycks_exact,
    hendrycks_prediction,
    is_same_answer,
    is_same_text,
    math_verify,
    minerva_exact,
    minerva_prediction,
    normalize_minerva,
    shared_judge,
)
from pytest_touchstone.metrics.samples import majority_score
from tests.support.places import ROOT

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
    assert is_same_text(None, None)
    assert not is_same_text(None, "")


@pytest.mark.parametrize("text", ["x/2", "\\sqrt", "\\frac", "1\\text{ m}\\text{ s}"])
def test_what_cannot_be_rewritten_is_compared_as_it_came(text: str) -> None:
    assert is_same_text(text, text)
    assert not is_same_text(text, f"{text} ")


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
    assert normalize_minerva(answer) == normal


@given(latex, latex)
def test_any_two_texts_are_compared(left: str, right: str) -> None:
    assert is_same_text(left, right) == is_same_text(right, left)
    assert is_same_text(left, left)
    hendrycks_exact(left, right)


@given(latex)
def test_any_text_is_searched_and_normalised(text: str) -> None:
    boxed_answer(text)
    minerva_prediction(text)
    normalize_minerva(text)


@given(st.integers(-999, 999), st.integers(1, 999))
def test_spaces_line_ends_and_the_kind_of_fraction_do_not_matter_to_hendrycks(above: int, below: int) -> None:
    gold = f"\\frac{{{above}}}{{{below}}}"
    for same in (f"{above}/{below}", f"\\dfrac {{{above}}} {{{below}}}", f"\\left{gold}\n", f"k = {gold}\\%"):
        assert is_same_text(same, gold)


@given(st.integers(-(10**9), 10**9))
def test_commas_between_thousands_do_not_matter_to_minerva(number: int) -> None:
    assert normalize_minerva(f"${number:,}$") == str(number)


# Verdicts that need SymPy and math-verify


GOLD = "So it is $\\boxed{\\frac{1}{2}}$."
PIECES = (
    "\\frac",
    "{",
    "}",
    "1",
    "2",
    "x",
    "$",
    "\\boxed{",
    "^",
    "=",
    "(",
    ",",
    " ",
    "\\",
    "\n",
    "\\left(",
    "%",
    "!",
)
HUGE = "9^{9^{9^{9}}}"


def test_answers_of_several_samples_are_one_where_math_verify_finds_them_equal(judge: MathJudge) -> None:
    answers, same = ["\\frac{1}{2}", "3", "0.5", "3"], partial(is_same_answer, judge=judge)
    assert majority_score(answers, [1.0, 0.0, 1.0, 0.0], same) == 0.5
    assert majority_score(answers[:3], [1.0, 0.0, 1.0], same) == 1.0


@pytest.mark.parametrize(
    ("one", "other"), [("(1,2)", "2,1"), ("-3<x\\le 2", "(-3,2]"), ("[2,5)", "2 \\le x < 5")]
)
def test_the_majority_does_not_depend_on_which_answer_comes_first(
    judge: MathJudge, one: str, other: str
) -> None:
    assert math_verify(f"${one}$", f"${other}$", judge) != math_verify(f"${other}$", f"${one}$", judge)
    samples = {one: 1.0, other: 1.0, "7": 0.0}
    for answers in itertools.permutations(samples):
        scores = [samples[answer] for answer in answers]
        assert majority_score(answers, scores, partial(is_same_answer, judge=judge)) == 1.0


def test_one_output_has_a_verdict_of_each_rule(judge: MathJudge) -> None:
    grade = grade_math(GOLD, "Final Answer: The final answer is $0.50$. I hope it is correct.", judge)
    assert grade.gold == "\\frac{1}{2}"
    assert grade.scores == {"hendrycks_exact": 0.0, "minerva_exact": 1.0, "math_verify": 1.0}
    assert (grade.extracted["minerva_exact"], grade.extracted["math_verify"]) == ("0.50", "0.50")


def test_an_output_without_an_answer_is_wrong_and_not_parsed(judge: MathJudge) -> None:
    grade = grade_math(GOLD, "", judge)
    assert set(grade.scores.values()) == {0.0}
    assert set(grade.extracted.values()) == {None}
    assert grade.no_answer


def test_the_gold_answer_comes_first_since_the_comparison_has_a_direction(judge: MathJudge) -> None:
    assert math_verify("$\\boxed{2 \\le x < 5}$", "$[2,5)$", judge).correct
    assert not math_verify("$\\boxed{[2,5)}$", "$2 \\le x < 5$", judge).correct


def test_a_formula_that_would_never_end_is_cut_off_and_the_next_is_answered() -> None:
    with closing(MathJudge(limit_s=1.0)) as judge:
        stuck = math_verify(GOLD, f"${HUGE}$", judge)
        assert (stuck.correct, stuck.timed_out) == (False, True)
        assert math_verify(GOLD, "$0.5$", judge).correct


def test_minervas_difference_that_would_never_end_is_cut_off() -> None:
    with closing(MathJudge(limit_s=1.0)) as judge:
        output = "Final Answer: The final answer is $100000000!$. I hope it is correct."
        stuck = minerva_exact(GOLD, output, judge)
        assert (stuck.correct, stuck.answer, stuck.timed_out) == (False, "100000000!", True)


def test_threads_may_ask(judge: MathJudge) -> None:
    verdicts: list[bool] = []

    def ask() -> None:
        verdicts.append(math_verify(GOLD, "$0.5$", judge).correct)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [True] * 4


def test_equal_texts_are_right_without_asking() -> None:
    judge = MathJudge()
    output = "Final Answer: The final answer is $\\frac12$. I hope it is correct."
    assert minerva_exact(GOLD, output, judge).correct
    assert judge.worker.pid is None


def test_there_is_one_shared_judge_and_its_process_ends_with_python() -> None:
    assert shared_judge() is shared_judge()
    program = (
        "from pytest_touchstone.metrics.math import grade_math, shared_judge; "
        f"grade = grade_math({GOLD!r}, '$0.5$'); "
        "print(shared_judge().worker.pid, grade.scores['math_verify'] == 1)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    pid, correct = found.stdout.split()
    assert correct == "True"
    assert not Path(f"/proc/{pid}").exists()


@settings(deadline=None, max_examples=40)
@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_is_graded(judge: MathJudge, output: str) -> None:
    closing = f"Final Answer: The final answer is {output}. I hope it is correct."
    for text in (output, closing):
        assert set(grade_math(GOLD, text, judge).scores.values()) <= {0.0, 1.0}


@settings(deadline=None, max_examples=15)
@given(st.integers(-99, 99), st.integers(1, 99))
def test_how_a_fraction_is_written_does_not_matter(judge: MathJudge, above: int, below: int) -> None:
    solution = f"$\\boxed{{\\frac{{{above}}}{{{below}}}}}$"
    for same in (
        f"\\frac{{{2 * above}}}{{{2 * below}}}",
        f"{above}/{below}",
        f"\\dfrac{{{above}}}{{{below}}}",
    ):
        output = f"Final Answer: The final answer is ${same}$. I hope it is correct."
        assert minerva_exact(solution, output, judge).correct
        assert math_verify(solution, output, judge).correct
