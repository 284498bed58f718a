"""MMLU-Pro: questions with up to ten answers from 14 subjects, answered with a chain of thought."""

from __future__ import annotations

import re
from string import ascii_uppercase

from harness import FewShot, Generate, Graded, Scores, Shot, benchmark
from harness.metrics.mmlu_pro import MMLU_PRO, MmluProRow


def thought_prompt(row: MmluProRow) -> str:
    """The question, its answers stripped, and the beginning of a chain of thought."""
    listed = [
        f"{letter}. {text.strip()}" for letter, text in zip(ascii_uppercase, row["options"], strict=False)
    ]
    lines = ["Question:", row["question"], "Options:", *listed, "Answer: Let's think step by step."]
    return "\n".join(lines)


def thought_shot(row: MmluProRow) -> Shot:
    """The question with its worked answer."""
    return Shot(thought_prompt(row), row["cot_content"].replace("A: Let's think step by step. ", ""))


@benchmark(
    "mmlu_pro",
    asks=Generate,
    primary="exact_match",
    metrics=("exact_match",),
    shot=thought_shot,
    source="lm-evaluation-harness 0.4.13, tasks mmlu_pro_CATEGORY (version 3.1)",
    **MMLU_PRO,
)
def test_mmlu_pro(example: MmluProRow, fewshot: FewShot) -> Scores:
    """MMLU-Pro (Wang et al. 2024), test split (12,032 questions), 5-shot with chains of thought, greedy, 2048 new
    tokens.

    Prompt: "The following are multiple choice questions (with answers) about CATEGORY. Think step by step and then
    finish your answer with "the answer is (X)" where X is the correct letter choice.", a line break, the five
    validation rows of the category, the question. That is "Question:", the text, "Options:", a line "A. " to "J. " per
    answer, stripped, "Answer: Let's think step by step." The text ends before "Question:".

    - ``exact_match`` (primary): the first "answer is X" or "answer is (X)" names the right letter, A to J. A text
      without one is wrong. Over all questions; categories are groups.

    The rule reads "answer is Both" as B, and finds nothing in "answer is **C**" or "answer is: C". The authors' own
    script drops options "N/A", looks for a letter in two more ways, and guesses where there is none, so that published
    numbers hold lucky guesses. Not comparable: ``mmlu_pro_letters``; other states of the data, whose answers were
    corrected several times; the question after "Q:", as asked until 2025.
    """
    about = example["category"].replace("_", " ")
    header = (
        f"The following are multiple choice questions (with answers) about {about}. Think step by step and then "
        'finish your answer with "the answer is (X)" where X is the correct letter choice.\n'
    )
    request = fewshot.generate(
        thought_prompt(example), header=header, stop=("Question:",), max_new_tokens=2048
    )
    answer = yield request
    found = re.search(r"answer is \(?([A-J])\)?", answer.text)
    letter = found[1] if found else None
    scores = {"exact_match": float(letter == example["answer"])}
    return Graded(scores, found is None, {"letter": letter}, example["answer"])
