"""HAE-RAE Bench: what speakers of Korean know: words, history, and general knowledge of Korea."""

from __future__ import annotations

from pytest_touchstone import FewShot, Scores, benchmark
from pytest_touchstone.metrics.korean.haerae import HaeraeRow, haerae_choice, haerae_part


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
