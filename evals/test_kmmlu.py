"""KMMLU: questions of Korean examinations in 45 subjects, with four answers each."""

from __future__ import annotations

from pytest_touchstone import Dataset, FewShot, LmEval, Loglikelihood, Scores, benchmark
from pytest_touchstone.metrics import ask_choices
from pytest_touchstone.metrics.korean.kmmlu import (
    KMMLU_GROUPS,
    KMMLU_SUBJECTS,
    LETTERS,
    KmmluRow,
    kmmlu_prompt,
    kmmlu_row,
    kmmlu_scores,
)


@benchmark(
    "kmmlu",
    version=1,
    data=Dataset("HAERAE-HUB/KMMLU", KMMLU_SUBJECTS, fewshot="dev", local="kmmlu/test"),
    missing="its licence (CC BY-ND 4.0) lets no part of it be shipped in another form; give --eval-data hub",
    published_rows=35_030,
    row=KmmluRow,
    prepare=kmmlu_row,
    asks=Loglikelihood,
    primary="acc",
    metrics=("acc", *(f"acc_{group}" for group in KMMLU_GROUPS)),
    tags=("korean",),
    group="file",
    num_fewshot=5,
    lm_eval=LmEval(5),
    shot=lambda row: f"{kmmlu_prompt(row)} {LETTERS[row['answer'] - 1]}",
    paper="Son et al. 2024, arXiv 2402.11548",
    source="lm-evaluation-harness 0.4.13, tasks kmmlu_SUBJECT (version 2)",
)
def test_kmmlu(example: KmmluRow, fewshot: FewShot) -> Scores:
    """KMMLU (Son et al. 2024), 45 subjects, test split (35,030 questions), 5-shot, by letters.

    Context: the five rows of the subject's dev split; the question stripped, four lines "A. " to "D. ", "정답："
    (answer, with a wide colon). Continuations: " A" to " D".

    - ``acc`` (primary): the letter with the highest log-probability is the right one; over all questions (micro), as in
      lm-evaluation-harness. Subjects are groups.
    - ``acc_macro``: the mean of the subjects' means, which the paper reports.
    - ``acc_stem``, ``acc_applied_science``, ``acc_humss``, ``acc_other``: over all questions of the authors' four
      groups of subjects, of 11, 12, 11 and 11.

    Licence, as seen in 2026: CC BY-ND 4.0, since 5 March 2024 in the card of HAERAE-HUB/KMMLU.
    Not comparable: lm-evaluation-harness's default, which is 0-shot; its kmmlu_direct, which is generated, and its
    kmmlu_hard and kmmlu_hard_cot, a selection of the questions. KMMLU-Redux and KMMLU-Pro are other sets.
    """
    names = kmmlu_scores(example)
    return (
        yield from ask_choices(fewshot, kmmlu_prompt(example), LETTERS, example["answer"] - 1, names=names)
    )
