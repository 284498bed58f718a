"""MATH: competition mathematics, answered with a solution and a boxed or final answer."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from harness import Dataset, FewShot, Generate, Graded, Scores, Shot, benchmark
from harness.metrics.math import grade_math


class Row(TypedDict):
    """A problem with its solution, in which the answer is boxed."""

    problem: str
    solution: str
    subject: str
    level: int


METRICS = tuple(
    f"{score}{level}"
    for score in ("math_verify", "minerva_exact", "hendrycks_exact")
    for level in ("", *(f"_level_{level}" for level in range(6)))
)

PUBLISHED = {
    "Algebra": 124,
    "Counting_&_Probability": 38,
    "Geometry": 41,
    "Intermediate_Algebra": 97,
    "Number_Theory": 62,
    "Prealgebra": 82,
    "Precalculus": 56,
}
"""The number of problems of each subject among the 500 (openai/prm800k, math_splits/test.jsonl)."""


def as_used(row: dict[str, Any]) -> dict[str, Any]:
    """The row with ``subject`` and a whole ``level``; the authors' files say ``type`` and "Level 3".

    Few-shot examples have neither.
    """
    if "subject" not in row and "type" not in row:
        return {**row, "subject": "", "level": 0}
    level = str(row["level"]).removeprefix("Level ").replace("?", "0")
    return {**row, "subject": row["subject"] if "subject" in row else row["type"], "level": int(level)}


def prompt(row: Row) -> str:
    """The problem."""
    return f"Problem:\n{row['problem']}\n\nSolution:"


WHOLE = {
    "Algebra": 1187,
    "Counting_&_Probability": 474,
    "Geometry": 479,
    "Intermediate_Algebra": 903,
    "Number_Theory": 540,
    "Prealgebra": 871,
    "Precalculus": 546,
}
"""The number of problems of each subject in the authors' test set."""

SHOTS = Dataset(local="minerva/shots")

MATH: dict[str, Any] = {
    "version": 1,
    "row": Row,
    "prepare": as_used,
    "asks": Generate,
    "primary": "math_verify",
    "metrics": METRICS,
    "tags": ("math",),
    "num_fewshot": 4,
    "shots_pick": "first",
    "shots_for_all": True,
    "shots_fixed": True,
    "shot": lambda row: Shot(prompt(row), row["solution"]),
    "group": "subject",
    "needs": dict.fromkeys(("sympy", "math_verify", "antlr4"), "pip install 'pytest-touchstone[math]'"),
    "source": "lm-evaluation-harness 0.4.13, tasks minerva_math (version 3.1) and hendrycks_math; Math-Verify 0.9",
}


def score(row: Row, fewshot: FewShot) -> Scores:
    """Ask for a solution, and score it by the three rules."""
    answer = yield fewshot.generate(prompt(row), stop=("Problem:",), max_new_tokens=512)
    grade = grade_math(row["solution"], answer.text)
    by_level = {f"{name}_level_{row['level']}": score for name, score in grade.scores.items()}
    return Graded({**grade.scores, **by_level}, grade.no_answer, grade.extracted, grade.gold)


@benchmark(
    "math",
    data=Dataset("HuggingFaceH4/MATH-500", local="math500/test", fewshot=SHOTS),
    published_rows=PUBLISHED,
    paper="Hendrycks et al. 2021, arXiv 2103.03874; 500 problems of Lightman et al. 2023, arXiv 2305.20050; "
    "prompt of Lewkowycz et al. 2022 (Minerva), arXiv 2206.14858",
    **MATH,
)
def test_math(example: Row, fewshot: FewShot) -> Scores:
    """MATH (Hendrycks et al. 2021), the 500 problems of Lightman et al., Minerva's 4 examples, greedy, 512 new
    tokens.

    Prompt: "Problem:", a line break, the problem, a blank line, "Solution:"; in the examples a space and a
    solution follow that ends with "Final Answer: The final answer is ... I hope it is correct." The text ends
    before "Problem:".

    - ``math_verify`` (primary): the math-verify library finds the value of the last answer in the text equal to
      the solution's.
    - ``minerva_exact``: the text after "Final Answer: The final answer is", normalised as in Minerva's appendix D, is
      the gold answer's, or SymPy simplifies their difference to 0 in time.
    - ``hendrycks_exact``: what stands between the first and the last dollar sign, or the whole text, is the
      gold answer's text after the authors' normalisation.
    - ``SCORE_level_1`` to ``_5``: the same over the problems of one level. Subjects are groups.

    Not comparable: the three scores differ by points; the whole test set of 5000 problems is other data
    (``math_5000``); other harnesses stop at 256 or at 1024 tokens.
    """
    return (yield from score(example, fewshot))


@benchmark(
    "math_5000",
    data=Dataset("DigitalLearningGmbH/MATH-lighteval", local="math/test", fewshot=SHOTS),
    published_rows=WHOLE,
    paper="Hendrycks et al. 2021, arXiv 2103.03874; prompt of Lewkowycz et al. 2022 (Minerva), arXiv 2206.14858",
    **MATH,
)
def test_math_5000(example: Row, fewshot: FewShot) -> Scores:
    """MATH (Hendrycks et al. 2021), the whole test set: 5000 problems of seven subjects, asked and scored as ``math``.

    Rows are those of the authors' files ("type", "Level 3") or of MATH-500's form, in ``math/test.jsonl`` or in a file
    per subject in ``math/test/``. None are shipped: ``math`` has a sample of its 500 problems.

    Not comparable: ``math``, which is MATH-500, a tenth of these.
    """
    return (yield from score(example, fewshot))
