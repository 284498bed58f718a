"""CLIcK: what one has to know of Korea's culture and language, from official examinations and textbooks.

Prompt and categories are those of lm-evaluation-harness (0.4.13, tasks/click). Its tasks overlap; here a row has one
category, the first that fits.
"""

from __future__ import annotations

import re
from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, LmEval, Loglikelihood, Published, Scores, Shots, benchmark
from pytest_touchstone.metrics import ask_choices

CLICK_CULTURE: Final = (
    "economy",
    "geography",
    "history",
    "law",
    "politics",
    "kpop",
    "society",
    "tradition",
)
CLICK_LANGUAGE: Final = ("text", "grammar", "function")

_EXAMS: Final = {"popular": "kpop", "KHB": "history", "PSAT": "law"}
"""Words in the ids of examinations that are not the names of their categories."""

_SPEECH: Final = ("대화", "발화", "질의")
"""Conversation, utterance, enquiry: by these words in its question a row of Kedu_16 is about the use of language."""

_OPENINGS: Final = {
    True: "주어진 맥락을 천천히 읽고, 질문에 대한 적절한 정답을 A, B, C, D 중에 골라 알파벳 하나로 답하시오.",
    False: "주어진 질문을 천천히 읽고, 적절한 정답을 A, B, C, D 중에 골라 알파벳 하나로 답하시오.",
}
"""The instruction, with and without a text to read."""


class ClickRow(TypedDict):
    """A context, the letters that may follow it, the number of the right one, and the row's category."""

    context: str
    letters: str
    label: int
    category: str


def click_row(row: dict[str, Any]) -> ClickRow:
    """Return the row of the Hub as it is asked: four answers are listed, though rows of the CSAT have a fifth letter.

    Raises ``ValueError`` for an answer that is none of the choices, or an id that tells no category.
    """
    category = click_category(row)
    if category is None:
        raise ValueError(f"the id {row['id']!r} tells no category")
    one, two, three, four = row["choices"][:4]
    text = f"맥락: {row['paragraph']}\n" if row["paragraph"] else ""
    asked = f"질문: {row['question']}\n보기:\nA:{one}, B: {two}, C: {three}, D: {four}\n정답:"
    return {
        "context": f"{_OPENINGS[bool(text)]}\n\n{text}{asked}",
        "letters": "ABCDE" if "CSAT" in row["id"] else "ABCD",
        "label": row["choices"].index(row["answer"]),
        "category": category,
    }


def click_category(row: dict[str, Any]) -> str | None:
    """Return the first of the eleven categories that the row's id fits; None where it fits none, and the row is not
    asked."""
    name = str(row["id"])
    for word in CLICK_CULTURE:
        if word in name.lower():
            return word
    for word, category in _EXAMS.items():
        if word in name or word in name.lower():
            return category
    return _language(name, str(row["question"]))


def _language(name: str, question: str) -> str | None:
    """One of the three categories of language, by examination, year and number."""
    number = _last_number(name)
    about_speech = any(word in question for word in _SPEECH)
    if found := re.search(r"CSAT_korean_(\d+)_(\d+)", name):
        year, first = int(found[1]), int(found[2])
        if year == 22 or (year == 23 and number < 35):
            return "text"
        if year < 21:
            return "grammar" if first > 10 else "function"
        return "function" if number > 34 else None
    if "TK" in name:
        return "text" if number > 4 else "grammar"
    if "Kedu_1" in name:
        return "function" if "Kedu_16" in name and about_speech else "grammar"
    return "function" if "PSE_korean" in name else None


def _last_number(name: str) -> int:
    """Return the number of a question, at the end of its id; 0 where there is none."""
    last = name.rpartition("_")[2]
    return int(last) if last.isdecimal() else 0


@benchmark(
    "click",
    version=1,
    data=Dataset("EunsuKim/CLIcK", split="train", local="click/train"),
    missing="its rows are not shipped, as their licence is not clear: a badge of its repository says CC BY 4.0, its "
    "card names none; give --eval-data hub",
    published=Published(
        1995,
        paper="Kim et al. 2024, arXiv 2403.06412",
        source="lm-evaluation-harness 0.4.13, tasks click_lang_NAME and click_cul_NAME",
    ),
    row=ClickRow,
    keep=lambda row: "id" not in row or click_category(row) is not None,
    prepare=click_row,
    asks=Loglikelihood,
    primary="acc",
    metrics=("acc",),
    tags=("korean",),
    group="category",
    shots=Shots(
        shot=lambda row: f"{row['context']} {row['letters'][row['label']]}", lm_eval=LmEval(drops_own=True)
    ),
)
def test_click(example: ClickRow, fewshot: FewShot) -> Scores:
    """CLIcK (Kim et al. 2024), 1,995 questions in eleven categories of culture and language, 0-shot, by letters.

    Context: an instruction in Korean to answer with one of A, B, C and D, an empty line, "맥락: " with the text where
    there is one, "질문: " with the question, "보기:", the answers in one line, "정답:". Continuations: " A" to " D",
    and " E" for rows of the CSAT, whose fifth answer is not listed, as in the reference.

    - ``acc`` (primary): the letter with the highest log-probability is the right one; over all questions. Categories
      are groups.

    A row's id tells its category. lm-evaluation-harness asks a row twice that fits two of its tasks; here it counts
    once, for culture before language, and of those for text, grammar, function. A row that fits none is left out.
    Licence, as seen in 2026: the card of EunsuKim/CLIcK has no licence. The README of rladmstn1714/CLIcK on GitHub has
    a badge for CC BY 4.0, and no licence file. The questions are of official examinations and textbooks.
    Not comparable: the paper's own form, which is generated, three times for each question with its answers in
    another order.
    """
    return (yield from ask_choices(fewshot, example["context"], example["letters"], example["label"]))
