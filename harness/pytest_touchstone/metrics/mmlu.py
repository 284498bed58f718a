"""MMLU and MMLU-Pro: rows, prompts, and how letters are asked for.

MMLU has 57 subjects in the authors' four groups. Of MMLU-Pro prompt and rule of the generated form are those of
lm-evaluation-harness (0.4.13, tasks/mmlu_pro, version 3.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from typing import Any, Final, Literal

from typing_extensions import TypedDict

from pytest_touchstone.core.benchmark import Dataset, Shots
from pytest_touchstone.core.few_shot import FewShot, Shot
from pytest_touchstone.core.grade import Scores
from pytest_touchstone.core.requests import Loglikelihood
from pytest_touchstone.metrics.multiple_choice import ask_choices, format_lettered_options

LETTERS: Final = ("A", "B", "C", "D")

MMLU_CATEGORIES: Final = {
    "stem": {
        "abstract_algebra": 100,
        "astronomy": 152,
        "college_biology": 144,
        "college_chemistry": 100,
        "college_computer_science": 100,
        "college_mathematics": 100,
        "college_physics": 102,
        "computer_security": 100,
        "conceptual_physics": 235,
        "electrical_engineering": 145,
        "elementary_mathematics": 378,
        "high_school_biology": 310,
        "high_school_chemistry": 203,
        "high_school_computer_science": 100,
        "high_school_mathematics": 270,
        "high_school_physics": 151,
        "high_school_statistics": 216,
        "machine_learning": 112,
    },
    "humanities": {
        "formal_logic": 126,
        "high_school_european_history": 165,
        "high_school_us_history": 204,
        "high_school_world_history": 237,
        "international_law": 121,
        "jurisprudence": 108,
        "logical_fallacies": 163,
        "moral_disputes": 346,
        "moral_scenarios": 895,
        "philosophy": 311,
        "prehistory": 324,
        "professional_law": 1534,
        "world_religions": 171,
    },
    "social_sciences": {
        "econometrics": 114,
        "high_school_geography": 198,
        "high_school_government_and_politics": 193,
        "high_school_macroeconomics": 390,
        "high_school_microeconomics": 238,
        "high_school_psychology": 545,
        "human_sexuality": 131,
        "professional_psychology": 612,
        "public_relations": 110,
        "security_studies": 245,
        "sociology": 201,
        "us_foreign_policy": 100,
    },
    "other": {
        "anatomy": 135,
        "business_ethics": 100,
        "clinical_knowledge": 265,
        "college_medicine": 173,
        "global_facts": 100,
        "human_aging": 223,
        "management": 103,
        "marketing": 234,
        "medical_genetics": 100,
        "miscellaneous": 783,
        "nutrition": 306,
        "professional_accounting": 282,
        "professional_medicine": 272,
        "virology": 166,
    },
}
"""The authors' four groups of subjects, with the number of rows in their test/SUBJECT_test.csv."""

_CATEGORY: Final = {
    subject: category for category, subjects in MMLU_CATEGORIES.items() for subject in subjects
}

MMLU_SUBJECTS: Final = {
    subject: MMLU_CATEGORIES[_CATEGORY[subject]][subject] for subject in sorted(_CATEGORY)
}


class MmluRow(TypedDict):
    """A question of one of the subjects, its four answers and the index of the right one, from 0."""

    question: str
    subject: str
    choices: tuple[str, str, str, str]
    answer: Literal[0, 1, 2, 3]


def mmlu_prompt(row: MmluRow) -> str:
    """Return the question, its answers with their letters, and "Answer:"."""
    return "\n".join([row["question"].strip(), *format_lettered_options(row["choices"]), "Answer:"])


def mmlu_cloze(row: MmluRow) -> str:
    """Return the question and "Answer:"."""
    return f"Question: {row['question'].strip()}\nAnswer:"


def mmlu_header(row: MmluRow, what: str) -> str:
    """Return the header, such as "The following are questions (with answers) about abstract algebra."."""
    return f"The following are {what} (with answers) about {row['subject'].replace('_', ' ')}.\n\n"


def mmlu_category(row: MmluRow) -> str:
    """Return the name of the score of the row's group."""
    return f"acc_{_CATEGORY[row['subject']]}"


def mmlu_letter(row: MmluRow, fewshot: FewShot, *names: str) -> Scores:
    """Ask for every letter after the prompt; the named scores say whether the right one is preferred."""
    header = mmlu_header(row, "multiple choice questions")
    return (
        yield from ask_choices(fewshot, mmlu_prompt(row), LETTERS, row["answer"], header=header, names=names)
    )


def rows_of(subjects: Container[str]) -> Callable[[dict[str, Any]], bool]:
    """Return a filter of rows by subject.

    Rows without a subject pass; the check of their fields refuses them with a message.
    """
    return lambda row: row.get("subject") in subjects or "subject" not in row


MMLU: Final[dict[str, Any]] = {
    "version": 1,
    "data": Dataset("cais/mmlu", "all", fewshot="dev"),
    "row": MmluRow,
    "asks": Loglikelihood,
    "primary": "acc",
    "shots": Shots(5, lambda row: f"{mmlu_prompt(row)} {LETTERS[row['answer']]}", pick="first"),
    "group": "subject",
}

MMLU_PAPER: Final = "Hendrycks et al. 2020, arXiv 2009.03300"
MMLU_SOURCE: Final = "lm-evaluation-harness 0.4.13, tasks mmlu_SUBJECT"


# MMLU-Pro


MMLU_PRO_CATEGORIES: Final = {
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
    "row": MmluProRow,
    "prepare": lambda row: {"cot_content": "", **row},
    "group": "category",
}
"""The declaration but for what is asked."""

MMLU_PRO_PAPER: Final = "Wang et al. 2024, arXiv 2406.01574"


def thought_prompt(row: MmluProRow) -> str:
    """Return the question, its answers stripped, and the beginning of a chain of thought."""
    listed = format_lettered_options([text.strip() for text in row["options"]])
    lines = ["Question:", row["question"], "Options:", *listed, "Answer: Let's think step by step."]
    return "\n".join(lines)


def thought_shot(row: MmluProRow) -> Shot:
    """Return the question with its worked answer."""
    return Shot(thought_prompt(row), row["cot_content"].replace("A: Let's think step by step. ", ""))


def answer_letter(text: str) -> str | None:
    """Return the letter A to J of the first "answer is X" or "answer is (X)" in the text, or None."""
    match = re.search(r"answer is \(?([A-J])\)?", text)
    return match[1] if match else None
