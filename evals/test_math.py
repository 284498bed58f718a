"""MATH: competition mathematics, answered with a solution and a boxed or final answer."""

from __future__ import annotations

from pytest_touchstone import Dataset, FewShot, Published, Scores, benchmark
from pytest_touchstone.metrics.math import MATH, MATH_SHOTS, MATH_SOURCE, MathRow, math_solution

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


@benchmark(
    "math",
    data=Dataset("HuggingFaceH4/MATH-500", local="math500/test", fewshot=MATH_SHOTS),
    published=Published(
        PUBLISHED,
        paper="Hendrycks et al. 2021, arXiv 2103.03874; 500 problems of Lightman et al. 2023, arXiv 2305.20050; "
        "prompt of Lewkowycz et al. 2022 (Minerva), arXiv 2206.14858",
        source=MATH_SOURCE,
    ),
    **MATH,
)
def test_math(example: MathRow, fewshot: FewShot) -> Scores:
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
    return (yield from math_solution(example, fewshot))
