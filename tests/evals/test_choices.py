"""Choices whose rows are published in two forms: both are asked and scored alike, and the rows that are not shipped
are asked as the reference asks them."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_touchstone.core.grade import grade_details
from pytest_touchstone.core.requests import Loglikelihood, LoglikelihoodAnswer
from tests.evals.test_causal import ask, checked, preferring, score

FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "boolq": (
        {"question": "is it so", "title": "It", "answer": True, "passage": "So it is."},
        {"question": "is it so", "passage": "It -- So it is.", "label": 1, "idx": 4},
    ),
    "kobest_boolq": (
        {"ID": "1", "Text": "글 ", "Question": "맞나?", "Answer": "TRUE"},
        {"paragraph": "글 ", "question": "맞나?", "label": 1},
    ),
    "kobest_copa": (
        {
            "ID": "1",
            "sentence": "비가 왔다.",
            "question": "결과",
            "1": "젖었다.",
            "2": "말랐다.",
            "Answer": "2",
        },
        {
            "premise": "비가 왔다.",
            "question": "결과",
            "alternative_1": "젖었다.",
            "alternative_2": "말랐다.",
            "label": 1,
        },
    ),
    "kobest_hellaswag": (
        {"context": "밤", **{f"choice{n}": f"끝 {n}" for n in range(1, 5)}, "label": "1"},
        {"context": "밤", **{f"ending_{n}": f"끝 {n}" for n in range(1, 5)}, "label": 1},
    ),
    "kobest_sentineg": ({"ID": "1", "Text": "좋아요", "Label": "1"}, {"sentence": "좋아요", "label": 1}),
    "kobest_wic": (
        {"ID": "1", "Target": "배", "SENTENCE1": "[배]를 타다", "SENTENCE2": "[배]를 먹다", "ANSWER": "True"},
        {"word": "배", "context_1": "[배]를 타다", "context_2": "[배]를 먹다", "label": 1},
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_both_published_forms_of_a_row_are_asked_and_scored_alike(name: str) -> None:
    theirs, hub = (checked(name, dict(row)) for row in FORMS[name])
    asked = ask(name, theirs)
    assert asked == ask(name, hub)
    for row in (theirs, hub):
        found = [score(name, row, preferring(place, len(asked)))["acc"] for place in range(len(asked))]
        assert found == [float(place == 1) for place in range(len(asked))]


def test_a_choice_with_macro_f1_tells_its_right_and_its_chosen_answer() -> None:
    row = checked("kobest_sentineg", dict(FORMS["kobest_sentineg"][0]))
    assert grade_details(score("kobest_sentineg", row, preferring(0, 2))) == {"right": [1], "chosen": [0]}


def test_f1_of_hellaswag_is_of_the_highest_sum_not_of_the_normalised_choice() -> None:
    row: Any = {"context": "c", "choices": ["a", "b" * 40, "c", "d"], "label": 1}
    answers = [LoglikelihoodAnswer(logprob, False, 2) for logprob in (-3.0, -4.0, -9.0, -9.0)]
    found = score("kobest_hellaswag", row, answers)
    assert (found["acc"], found["acc_norm"]) == (0.0, 1.0)
    assert grade_details(found)["chosen"] == [0]


def test_openbookqa_asks_for_the_answers_after_the_stem_alone() -> None:
    choices = {"text": ["lions", "grass"], "label": ["A", "B"]}
    row = checked(
        "openbookqa", {"id": "1", "question_stem": "Cows eat", "choices": choices, "answerKey": "B"}
    )
    assert ask("openbookqa", row) == [
        Loglikelihood("Cows eat", " lions"),
        Loglikelihood("Cows eat", " grass"),
    ]
    assert score("openbookqa", row, preferring(1, 2))["acc"] == 1.0
