"""MMLU by the texts of its answers, as small models are compared."""

from __future__ import annotations

from pytest_touchstone import FewShot, Published, Scores, Shots, benchmark
from pytest_touchstone.metrics import BITS_PER_BYTE, CHOICE_METRICS, ask_answers
from pytest_touchstone.metrics.mmlu import (
    MMLU,
    MMLU_CATEGORIES,
    MMLU_PAPER,
    MMLU_SUBJECTS,
    MmluRow,
    mmlu_category,
    mmlu_cloze,
    mmlu_header,
    rows_of,
)


@benchmark(
    "mmlu_continuation",
    published=Published(
        MMLU_SUBJECTS,
        paper=MMLU_PAPER,
        source="lm-evaluation-harness 0.4.13, tasks mmlu_SUBJECT_continuation",
    ),
    metrics=(*CHOICE_METRICS, BITS_PER_BYTE, *(f"acc_{category}" for category in MMLU_CATEGORIES)),
    keep=rows_of(MMLU_SUBJECTS),
    **{
        **MMLU,
        "shots": Shots(shot=lambda row: f"{mmlu_cloze(row)} {row['choices'][row['answer']]}", pick="first"),
    },
)
def test_mmlu_continuation(example: MmluRow, fewshot: FewShot) -> Scores:
    """MMLU (Hendrycks et al. 2020) by the texts of its answers, all 57 subjects, test split (14,042 questions), 0-shot.

    Context: "The following are questions (with answers) about SUBJECT.", an empty line, "Question: ", the question
    stripped, a line break, "Answer:"; examples (``--eval-shots 5``) are the first rows of the subject's dev file.
    Continuation: one space and the text of the answer, which is not shown before, for each of the four.

    - ``acc`` (primary): the highest summed log-probability is the right answer's; over all questions.
    - ``acc_norm``, ``acc_bytes``, ``acc_tokens``: highest per character, per UTF-8 byte, per token of the answer.
    - ``bits_per_byte``: bits per UTF-8 byte of the right answer, by which small models are compared; lower is better.
    - ``acc_macro``, ``acc_stem`` and the other groups: as in ``mmlu``.

    Not comparable: ``mmlu``, which asks for letters: small models do better here, large ones there. Model cards of
    small models quote such a form under the name MMLU (lighteval's, OLMo's), each with a prompt of its own.
    """
    texts, header = example["choices"], mmlu_header(example, "questions")
    found = yield from ask_answers(fewshot, mmlu_cloze(example), texts, example["answer"], header=header)
    found[mmlu_category(example)] = found["acc"]
    return found
