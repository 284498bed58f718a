"""HAE-RAE Bench: what speakers of Korean know: words, history, and general knowledge of Korea."""

from __future__ import annotations

from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone import Dataset, FewShot, Loglikelihood, Published, Scores, Shots, benchmark
from pytest_touchstone.metrics import ask_choices

_LETTERS: Final = ("(A)", "(B)", "(C)", "(D)", "(E)")


class HaeraeRow(TypedDict):
    """A question with its answers in it, and the letter of the right one in brackets."""

    query: str
    answer: str


def haerae_part(name: str) -> dict[str, Any]:
    """Return the declaration of one of the five parts, by its name on the Hub."""
    return {
        "version": 1,
        "data": Dataset("HAERAE-HUB/HAE_RAE_BENCH", name, split="test", local=f"haerae/{name}"),
        "missing": "its licence (CC BY-NC-ND 4.0) lets no part of it be shipped; give --eval-data hub",
        "row": HaeraeRow,
        "asks": Loglikelihood,
        "primary": "acc",
        "metrics": ("acc",),
        "tags": ("korean",),
        "shots": Shots(shot=lambda row: f"{row['query']} {row['answer']}"),
        "published": Published(
            paper="Son et al. 2023, arXiv 2309.02706",
            source=f"lm-evaluation-harness 0.4.13, task haerae_{name}",
        ),
    }


def haerae_choice(row: HaeraeRow, fewshot: FewShot) -> Scores:
    """Ask for each letter after the question."""
    right = _LETTERS.index(row["answer"].strip())
    return (yield from ask_choices(fewshot, row["query"], _LETTERS, right))


@benchmark("haerae_general_knowledge", **haerae_part("general_knowledge"))
def test_haerae_general_knowledge(example: HaeraeRow, fewshot: FewShot) -> Scores:
    """HAE-RAE Bench (Son et al. 2023), general knowledge, test split, 0-shot.

    Context: the question, in which the answers are listed. Continuations: " (A)" to " (E)".

    - ``acc`` (primary): the letter with the highest log-probability is the right one.
    """
    return (yield from haerae_choice(example, fewshot))


@benchmark("haerae_history", **haerae_part("history"))
def test_haerae_history(example: HaeraeRow, fewshot: FewShot) -> Scores:
    """HAE-RAE Bench, history of Korea; asked and scored as ``haerae_general_knowledge``."""
    return (yield from haerae_choice(example, fewshot))


@benchmark("haerae_loan_word", **haerae_part("loan_words"))
def test_haerae_loan_word(example: HaeraeRow, fewshot: FewShot) -> Scores:
    """HAE-RAE Bench, Korean words for foreign ones; asked and scored as ``haerae_general_knowledge``."""
    return (yield from haerae_choice(example, fewshot))


@benchmark("haerae_rare_word", **haerae_part("rare_words"))
def test_haerae_rare_word(example: HaeraeRow, fewshot: FewShot) -> Scores:
    """HAE-RAE Bench, meanings of rare words; asked and scored as ``haerae_general_knowledge``."""
    return (yield from haerae_choice(example, fewshot))


@benchmark("haerae_standard_nomenclature", **haerae_part("standard_nomenclature"))
def test_haerae_standard_nomenclature(example: HaeraeRow, fewshot: FewShot) -> Scores:
    """HAE-RAE Bench, unified terms of trades; asked and scored as ``haerae_general_knowledge``."""
    return (yield from haerae_choice(example, fewshot))
