"""MMLU's questions about 14 subjects of science and mathematics."""

from __future__ import annotations

from pytest_touchstone import FewShot, Published, Scores, benchmark
from pytest_touchstone.metrics.mmlu import (
    MMLU,
    MMLU_CATEGORIES,
    MMLU_PAPER,
    MMLU_SOURCE,
    MmluRow,
    mmlu_letter,
    rows_of,
)

NOT_IN_STEM = ("astronomy", "computer_security", "conceptual_physics", "electrical_engineering")
"""The STEM subjects that ``mmlu_stem`` does not have."""

STEM = {subject: rows for subject, rows in MMLU_CATEGORIES["stem"].items() if subject not in NOT_IN_STEM}


@benchmark(
    "mmlu_stem",
    published=Published(STEM, paper=MMLU_PAPER, source=MMLU_SOURCE),
    metrics=("acc",),
    keep=rows_of(STEM),
    **MMLU,
)
def test_mmlu_stem(example: MmluRow, fewshot: FewShot) -> Scores:
    """MMLU (Hendrycks et al. 2020), 14 of its STEM subjects, test split, 5-shot.

    The subjects: abstract algebra; college biology, chemistry, computer science, mathematics and physics;
    elementary mathematics; high-school biology, chemistry, computer science, mathematics, physics and
    statistics; machine learning. This is neither the authors' list of 18 STEM subjects (which adds astronomy,
    computer security, conceptual physics and electrical engineering; ``acc_stem`` of ``mmlu``) nor the 19 of
    lm-evaluation-harness (those and anatomy). An average over another list is another number.

    Prompt, examples and continuations are those of ``mmlu``.

    - ``acc`` (primary): the letter with the highest log-probability is the right one; over all questions
      (micro). ``acc_macro`` is the mean of the subjects' means.
    """
    return (yield from mmlu_letter(example, fewshot, "acc"))
