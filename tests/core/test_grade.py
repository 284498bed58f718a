"""What a benchmark may return: a dict of scores, or a grade that knows whether there was an answer."""

from __future__ import annotations

from typing import Any

import pytest

from harness import Graded
from harness.core.grade import Grade, scores_of


def test_a_grade_tells_apart_scores_and_outputs_without_an_answer() -> None:
    assert scores_of(Graded({"acc": 1.0}, no_answer=True)) == {"acc": 1.0, "no_answer": True}
    assert scores_of(Graded({"acc": 1.0})) == {"acc": 1.0, "no_answer": 0}
    assert isinstance(Graded({}), Grade)


@pytest.mark.parametrize("returned", [{"acc": 1.0}, {"acc": 1.0, "no_answer": 2}, None, 3, "acc", [1]])
def test_anything_else_is_left_as_it_is(returned: Any) -> None:
    assert scores_of(returned) is returned
