"""ARC's rows, and what its two sets, Easy and Challenge, share."""

from __future__ import annotations

from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone.core.aggregation import BITS_PER_BYTE
from pytest_touchstone.core.few_shot import FewShot
from pytest_touchstone.core.grade import Scores
from pytest_touchstone.core.requests import Loglikelihood
from pytest_touchstone.metrics.multiple_choice import CHOICE_METRICS, ask_answers


class _Choice(TypedDict):
    """An answer and its label: A to E, or 1 to 5."""

    text: str
    label: str


class _Question(TypedDict):
    """A question with its three to five answers."""

    stem: str
    choices: list[_Choice]


class ArcRow(TypedDict):
    """A row as the authors published it."""

    id: str
    question: _Question
    answerKey: str


def arc_row(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its choices nested in the question, as the authors published it; the Hub's form has them side by
    side."""
    if not isinstance(row["question"], str):
        return row
    texts, labels = row["choices"]["text"], row["choices"]["label"]
    choices = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    return {**row, "question": {"stem": row["question"], "choices": choices}}


def arc_prompt(row: ArcRow) -> str:
    """The question; the choices are not listed."""
    return f"Question: {row['question']['stem']}\nAnswer:"


def arc_gold(row: ArcRow) -> int:
    """The index of the right answer, found by its label."""
    return [choice["label"] for choice in row["question"]["choices"]].index(row["answerKey"])


def arc_shot(row: ArcRow) -> str:
    """The question with its right answer."""
    return f"{arc_prompt(row)} {row['question']['choices'][arc_gold(row)]['text']}"


def arc_answers(row: ArcRow, fewshot: FewShot) -> Scores:
    """Ask for every choice after the prompt; the scores are those of ``ask_answers``."""
    texts = [choice["text"] for choice in row["question"]["choices"]]
    return (yield from ask_answers(fewshot, arc_prompt(row), texts, arc_gold(row)))


ARC: Final[dict[str, Any]] = {
    "version": 1,
    "row": ArcRow,
    "prepare": arc_row,
    "asks": Loglikelihood,
    "metrics": (*CHOICE_METRICS, BITS_PER_BYTE),
}

ARC_PAPER: Final = "Clark et al. 2018, arXiv 1803.05457"
