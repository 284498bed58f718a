"""MMLU-Pro by its letters: questions with up to ten answers from 14 subjects, the likeliest letter."""

from __future__ import annotations

from string import ascii_uppercase

from pytest_touchstone import FewShot, Loglikelihood, Published, Scores, Shots, benchmark
from pytest_touchstone.metrics import ask_choices, format_lettered_options
from pytest_touchstone.metrics.mmlu import MMLU_PRO, MMLU_PRO_CATEGORIES, MMLU_PRO_PAPER, MmluProRow


def letter_prompt(row: MmluProRow) -> str:
    """Return the question, its answers with their letters, and "Answer:"; nothing is stripped."""
    return "\n".join([row["question"], *format_lettered_options(row["options"]), "Answer:"])


@benchmark(
    "mmlu_pro_letters",
    asks=Loglikelihood,
    primary="acc",
    metrics=("acc",),
    shots=Shots(5, lambda row: f"{letter_prompt(row)} {row['answer']}", pick="first", for_all=True),
    published=Published(
        MMLU_PRO_CATEGORIES,
        paper=MMLU_PRO_PAPER,
        source="lm-evaluation-harness 0.4.13, task leaderboard_mmlu_pro",
    ),
    **MMLU_PRO,
)
def test_mmlu_pro_letters(example: MmluProRow, fewshot: FewShot) -> Scores:
    """MMLU-Pro (Wang et al. 2024), test split (12,032 questions), by log-likelihood, 5-shot: the form of the second
    Open LLM Leaderboard.

    Context: the first five rows of the validation split, which are all of mathematics, whatever the question's
    category; the question, a line "A. " to "J. " per answer, "Answer:". Continuations: " A" to " J", as many as there
    are answers. Nothing is stripped.

    - ``acc`` (primary): the letter with the highest log-probability is the right one; over all questions. Categories
      are groups. Chance is about 0.11.

    Not comparable: ``mmlu_pro``, which is generated with a chain of thought. In data of before 2026 the right answer
    alone begins with a space in 470 questions, which this form shows to the model.
    """
    letters = ascii_uppercase[: len(example["options"])]
    right = letters.index(example["answer"])
    return (yield from ask_choices(fewshot, letter_prompt(example), letters, right))
