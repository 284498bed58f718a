"""MMLU: questions with four answers about 57 subjects of school, university and professions."""

from __future__ import annotations

from pytest_touchstone import FewShot, Published, Scores, benchmark
from pytest_touchstone.metrics.mmlu import (
    MMLU,
    MMLU_CATEGORIES,
    MMLU_PAPER,
    MMLU_SOURCE,
    MMLU_SUBJECTS,
    MmluRow,
    mmlu_category,
    mmlu_letter,
    rows_of,
)


@benchmark(
    "mmlu",
    published=Published(MMLU_SUBJECTS, paper=MMLU_PAPER, source=MMLU_SOURCE),
    metrics=("acc", *(f"acc_{category}" for category in MMLU_CATEGORIES)),
    keep=rows_of(MMLU_SUBJECTS),
    **MMLU,
)
def test_mmlu(example: MmluRow, fewshot: FewShot) -> Scores:
    """MMLU (Hendrycks et al. 2020), all 57 subjects, test split (14,042 questions), 5-shot.

    Context: "The following are multiple choice questions (with answers) about SUBJECT." with spaces for
    underscores, an empty line, the first five rows of the subject's dev file, the question stripped, four
    lines "A. " to "D. ", "Answer:". Continuation: " A", " B", " C", " D".

    - ``acc`` (primary): the letter with the highest log-probability is the right one; over all questions
      (micro), as in lm-evaluation-harness and the paper's total. Subjects are groups.
    - ``acc_macro``: the mean of the subjects' means, another number.
    - ``acc_stem``, ``acc_humanities``, ``acc_social_sciences``, ``acc_other``: over all questions of the authors' four
      groups, of 18, 13, 12 and 14 subjects.

    lm-evaluation-harness has anatomy (135 questions) in its STEM group, which then has 19 subjects, the authors have
    it in the last one. So ``acc_stem`` and ``acc_other`` differ from that harness's mmlu_stem and mmlu_other; the other
    two groups and the total are the same.

    Drift: the authors' own script writes two spaces after "about", drops examples until the prompt fits, and
    takes -100 for letters outside the 100 most probable tokens; lm-evaluation-harness is 0-shot unless told
    otherwise. Numbers for the texts of the answers in place of letters (its mmlu_continuation, and the cloze form on
    many model cards) are another task.
    """
    return (yield from mmlu_letter(example, fewshot, "acc", mmlu_category(example)))
