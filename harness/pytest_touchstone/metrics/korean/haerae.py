"""HAE-RAE Bench: its rows, and the declaration and the scores that its five parts share."""

from __future__ import annotations

from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone.core.benchmark import Dataset
from pytest_touchstone.core.few_shot import FewShot
from pytest_touchstone.core.grade import Scores
from pytest_touchstone.core.requests import Loglikelihood
from pytest_touchstone.metrics.multiple_choice import ask_choices

_LETTERS: Final = ("(A)", "(B)", "(C)", "(D)", "(E)")


class HaeraeRow(TypedDict):
    """A question with its answers in it, and the letter of the right one in brackets."""

    query: str
    answer: str


def haerae_part(name: str) -> dict[str, Any]:
    """The declaration of one of the five parts, by its name on the Hub."""
    return {
        "version": 1,
        "data": Dataset("HAERAE-HUB/HAE_RAE_BENCH", name, split="test", local=f"haerae/{name}"),
        "missing": "its licence (CC BY-NC-ND 4.0) lets no part of it be shipped; give --eval-data hub",
        "row": HaeraeRow,
        "asks": Loglikelihood,
        "primary": "acc",
        "metrics": ("acc",),
        "tags": ("korean",),
        "shot": lambda row: f"{row['query']} {row['answer']}",
        "paper": "Son et al. 2023, arXiv 2309.02706",
        "source": f"lm-evaluation-harness 0.4.13, task haerae_{name}",
    }


def haerae_choice(row: HaeraeRow, fewshot: FewShot) -> Scores:
    """Ask for each letter after the question."""
    right = _LETTERS.index(row["answer"].strip())
    return (yield from ask_choices(fewshot, row["query"], _LETTERS, right))
