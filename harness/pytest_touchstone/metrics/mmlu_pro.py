"""MMLU-Pro's rows, what its two forms, generated and by letters, share, and the letter in a generated text.

Prompt and rule of the generated form are those of lm-evaluation-harness (0.4.13, tasks/mmlu_pro, version 3.1).
"""

from __future__ import annotations

import re
from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone.core.benchmark import Dataset
from pytest_touchstone.core.few_shot import Shot
from pytest_touchstone.metrics.asked_choices import lettered

_CATEGORIES: Final = {
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


class MmluProRow(TypedDict):
    """A question, its answers and the letter of the right one; ``cot_content`` is the worked answer of an example."""

    question: str
    options: list[str]
    answer: str
    category: str
    cot_content: str


MMLU_PRO: Final[dict[str, Any]] = {
    "version": 1,
    "data": Dataset("TIGER-Lab/MMLU-Pro", split="test", fewshot="validation", local="mmlu_pro/test"),
    "published_rows": _CATEGORIES,
    "row": MmluProRow,
    "prepare": lambda row: {"cot_content": "", **row},
    "group": "category",
    "num_fewshot": 5,
    "shots_pick": "first",
    "paper": "Wang et al. 2024, arXiv 2406.01574",
}
"""The declaration but for what is asked: five examples, the first of the validation split."""


def thought_prompt(row: MmluProRow) -> str:
    """The question, its answers stripped, and the beginning of a chain of thought."""
    listed = lettered([text.strip() for text in row["options"]])
    lines = ["Question:", row["question"], "Options:", *listed, "Answer: Let's think step by step."]
    return "\n".join(lines)


def thought_shot(row: MmluProRow) -> Shot:
    """The question with its worked answer."""
    return Shot(thought_prompt(row), row["cot_content"].replace("A: Let's think step by step. ", ""))


def answer_letter(text: str) -> str | None:
    """The letter A to J of the first "answer is X" or "answer is (X)" in the text; None where there is none."""
    found = re.search(r"answer is \(?([A-J])\)?", text)
    return found[1] if found else None
