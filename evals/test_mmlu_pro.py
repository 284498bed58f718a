"""MMLU-Pro: questions with up to ten answers from 14 subjects, in two forms that give two different numbers."""

from __future__ import annotations

import re
from string import ascii_uppercase
from typing import Any

from typing_extensions import TypedDict

from harness import Dataset, FewShot, Generate, Graded, Loglikelihood, Scores, Shot, benchmark
from harness.metrics import ChoiceScores, argmax

CATEGORIES = {
    "biology": 717,
    "business": 789,
    "chemistry": 1132,
    "computer_science": 410,
    "economics": 844,
    "engineering": 969,
    "health": 818,
    "history": 381,
    "law": 1101,
    "math": 1351,
    "other": 924,
    "philosophy": 499,
    "physics": 1299,
    "psychology": 798,
}
"""The number of questions of each category in the published test split, 12,032 in all."""


class Question(TypedDict):
    """A question, its answers and the letter of the right one; ``cot_content`` is the worked answer of an example."""

    question: str
    options: list[str]
    answer: str
    category: str
    cot_content: str


PRO: dict[str, Any] = {
    "version": 1,
    "data": Dataset("TIGER-Lab/MMLU-Pro", split="test", fewshot="validation", local="mmlu_pro/test"),
    "published_rows": CATEGORIES,
    "row": Question,
    "prepare": lambda row: {"cot_content": "", **row},
    "group": "category",
    "num_fewshot": 5,
    "shots_pick": "first",
    "paper": "Wang et al. 2024, arXiv 2406.01574",
}


def thought_prompt(row: Question) -> str:
    """The question, its answers stripped, and the beginning of a chain of thought."""
    listed = [
        f"{letter}. {text.strip()}" for letter, text in zip(ascii_uppercase, row["options"], strict=False)
    ]
    lines = ["Question:", row["question"], "Options:", *listed, "Answer: Let's think step by step."]
    return "\n".join(lines)


def thought_shot(row: Question) -> Shot:
    """The question with its worked answer."""
    return Shot(thought_prompt(row), row["cot_content"].replace("A: Let's think step by step. ", ""))


@benchmark(
    "mmlu_pro",
    asks=Generate,
    primary="exact_match",
    metrics=("exact_match",),
    shot=thought_shot,
    source="lm-evaluation-harness 0.4.13, tasks mmlu_pro_CATEGORY (version 3.1)",
    **PRO,
)
def test_mmlu_pro(example: Question, fewshot: FewShot) -> Scores:
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


def letter_prompt(row: Question) -> str:
    """The question, its answers with their letters, and "Answer:"; nothing is stripped."""
    listed = [f"{letter}. {text}" for letter, text in zip(ascii_uppercase, row["options"], strict=False)]
    return "\n".join([row["question"], *listed, "Answer:"])


@benchmark(
    "mmlu_pro_letters",
    asks=Loglikelihood,
    primary="acc",
    metrics=("acc",),
    shots_for_all=True,
    shot=lambda row: f"{letter_prompt(row)} {row['answer']}",
    source="lm-evaluation-harness 0.4.13, task leaderboard_mmlu_pro",
    **PRO,
)
def test_mmlu_pro_letters(example: Question, fewshot: FewShot) -> Scores:
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
    asked = letter_prompt(example)
    letters = ascii_uppercase[: len(example["options"])]
    answers = yield [fewshot.loglikelihood(asked, f" {letter}") for letter in letters]
    right = letters.index(example["answer"])
    return ChoiceScores({"acc": float(argmax([one.logprob for one in answers]) == right)}, right)
