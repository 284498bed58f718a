"""HAE-RAE Bench: what speakers of Korean know: words, history, and general knowledge of Korea."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from harness import Dataset, FewShot, Loglikelihood, Scores, benchmark
from harness.metrics import ChoiceScores, argmax

CHOICES = ("(A)", "(B)", "(C)", "(D)", "(E)")


class Row(TypedDict):
    """A question with its answers in it, and the letter of the right one in brackets."""

    query: str
    answer: str


def part(name: str) -> dict[str, Any]:
    """The declaration of one of the five parts."""
    return {
        "version": 1,
        "data": Dataset("HAERAE-HUB/HAE_RAE_BENCH", name, split="test", local=f"haerae/{name}"),
        "missing": "its licence (CC BY-NC-ND 4.0) lets no part of it be shipped; give --eval-data hub",
        "row": Row,
        "asks": Loglikelihood,
        "primary": "acc",
        "metrics": ("acc",),
        "tags": ("korean",),
        "shot": lambda row: f"{row['query']} {row['answer']}",
        "paper": "Son et al. 2023, arXiv 2309.02706",
        "source": f"lm-evaluation-harness 0.4.13, task haerae_{name}",
    }


def score(row: Row, fewshot: FewShot) -> Scores:
    """Ask for each letter."""
    answers = yield [fewshot.loglikelihood(row["query"], f" {choice}") for choice in CHOICES]
    right = CHOICES.index(row["answer"].strip())
    return ChoiceScores({"acc": float(argmax([one.logprob for one in answers]) == right)}, right)


@benchmark("haerae_general_knowledge", **part("general_knowledge"))
def test_haerae_general_knowledge(example: Row, fewshot: FewShot) -> Scores:
    """HAE-RAE Bench (Son et al. 2023), general knowledge, test split, 0-shot.

    Context: the question, in which the answers are listed. Continuations: " (A)" to " (E)".

    - ``acc`` (primary): the letter with the highest log-probability is the right one.
    """
    return (yield from score(example, fewshot))


@benchmark("haerae_history", **part("history"))
def test_haerae_history(example: Row, fewshot: FewShot) -> Scores:
    """HAE-RAE Bench, history of Korea; asked and scored as ``haerae_general_knowledge``."""
    return (yield from score(example, fewshot))


@benchmark("haerae_loan_word", **part("loan_words"))
def test_haerae_loan_word(example: Row, fewshot: FewShot) -> Scores:
    """HAE-RAE Bench, Korean words for foreign ones; asked and scored as ``haerae_general_knowledge``."""
    return (yield from score(example, fewshot))


@benchmark("haerae_rare_word", **part("rare_words"))
def test_haerae_rare_word(example: Row, fewshot: FewShot) -> Scores:
    """HAE-RAE Bench, meanings of rare words; asked and scored as ``haerae_general_knowledge``."""
    return (yield from score(example, fewshot))


@benchmark("haerae_standard_nomenclature", **part("standard_nomenclature"))
def test_haerae_standard_nomenclature(example: Row, fewshot: FewShot) -> Scores:
    """HAE-RAE Bench, unified terms of trades; asked and scored as ``haerae_general_knowledge``."""
    return (yield from score(example, fewshot))
