"""MATH, what needs SymPy and math-verify: verdicts, and a limit that holds."""

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

from pytest_touchstone.metrics.math.grade import (
    MathJudge,
    grade_math,
    math_verify,
    minerva_exact,
    same_answer,
    shared_judge,
)
from pytest_touchstone.metrics.samples import majority
from tests.support.places import ROOT

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
    answers, same = ["\\frac{1}{2}", "3", "0.5", "3"], partial(same_answer, judge=judge)
    assert majority(answers, [1.0, 0.0, 1.0, 0.0], same) == 0.5
    assert majority(answers[:3], [1.0, 0.0, 1.0], same) == 1.0


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
        assert majority(answers, scores, partial(same_answer, judge=judge)) == 1.0


def test_one_output_has_a_verdict_of_each_rule(judge: MathJudge) -> None:
    grade = grade_math(GOLD, "Final Answer: The final answer is $0.50$. I hope it is correct.", judge)
    assert grade.gold == "\\frac{1}{2}"
    assert grade.scores == {"hendrycks_exact": 0.0, "minerva_exact": 1.0, "math_verify": 1.0}
    assert (grade.minerva_exact.answer, grade.math_verify.answer) == ("0.50", "0.50")


def test_an_output_without_an_answer_is_wrong_and_not_parsed(judge: MathJudge) -> None:
    grade = grade_math(GOLD, "", judge)
    assert set(grade.scores.values()) == {0.0}
    assert not any(v.parsed for v in (grade.hendrycks_exact, grade.minerva_exact, grade.math_verify))


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
        "from pytest_touchstone.metrics.math.grade import grade_math, shared_judge; "
        f"grade = grade_math({GOLD!r}, '$0.5$'); "
        "print(shared_judge().worker.pid, grade.math_verify.correct)"
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
