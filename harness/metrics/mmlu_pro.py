"""MMLU-Pro's rows and what its two forms, generated and by letters, share."""

from __future__ import annotations

from typing import Any, Final

from typing_extensions import TypedDict

from harness.core.benchmark import Dataset

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
