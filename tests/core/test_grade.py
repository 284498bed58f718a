"""What a benchmark may return: a dict of scores, or a grade that knows whether there was an answer."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_touchstone import Graded
from pytest_touchstone.core.grade import Grade, grade_details, scores_of
from pytest_touchstone.metrics import ChoiceScores


def test_a_grade_tells_apart_scores_and_outputs_without_an_answer() -> None:
    assert scores_of(Graded({"acc": 1.0}, no_answer=True)) == {"acc": 1.0, "no_answer": True}
    assert scores_of(Graded({"acc": 1.0})) == {"acc": 1.0, "no_answer": 0}
    assert isinstance(Graded({}), Grade)


@pytest.mark.parametrize("returned", [{"acc": 1.0}, {"acc": 1.0, "no_answer": 2}, None, 3, "acc", [1]])
def test_anything_else_is_left_as_it_is(returned: Any) -> None:
    assert scores_of(returned) is returned


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (
            Graded({}, 0, {"strict": None, "flexible": "18"}, "17"),
            {"extracted": {"strict": None, "flexible": "18"}, "gold": "17"},
        ),
        (Graded({}), {}),
        (ChoiceScores({"acc": 1.0}, 2), {"right": [2]}),
        ({"acc": 1.0}, {}),
        (Graded({}, gold=["a", "b"]), {"gold": "a, b"}),  # type: ignore[arg-type]
        (None, {}),
    ],
)
def test_a_benchmark_tells_what_it_read_what_was_due_and_which_choice_is_right(
    returned: Any, told: Any
) -> None:
    assert grade_details(returned) == told
