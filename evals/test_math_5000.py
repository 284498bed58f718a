"""MATH's whole test set."""

from __future__ import annotations

from pytest_touchstone import Dataset, FewShot, Published, Scores, benchmark
from pytest_touchstone.metrics.math import MATH, MATH_SHOTS, MATH_SOURCE, MathRow, math_solution

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


@benchmark(
    "math_5000",
    data=Dataset("DigitalLearningGmbH/MATH-lighteval", local="math/test", fewshot=MATH_SHOTS),
    published=Published(
        WHOLE,
        paper="Hendrycks et al. 2021, arXiv 2103.03874; prompt of Lewkowycz et al. 2022 (Minerva), arXiv 2206.14858",
        source=MATH_SOURCE,
    ),
    **MATH,
)
def test_math_5000(example: MathRow, fewshot: FewShot) -> Scores:
    """MATH (Hendrycks et al. 2021), the whole test set: 5000 problems of seven subjects, asked and scored as ``math``.

    Rows are those of the authors' files ("type", "Level 3") or of MATH-500's form, in ``math/test.jsonl`` or in a file
    per subject in ``math/test/``. None are shipped: ``math`` has a sample of its 500 problems.

    Not comparable: ``math``, which is MATH-500, a tenth of these.
    """
    return (yield from math_solution(example, fewshot))
