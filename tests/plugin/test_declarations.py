"""The scores that a benchmark returns are read off its code where that shows them all, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_touchstone.core.grade import Graded
from pytest_touchstone.plugin.declarations import returned_names


def plain(example: Any) -> dict[str, float]:
    def other() -> dict[str, float]:
        return {"not mine": 1.0}

    if example:
        return {"acc": 1.0, **more(example)}
    return {"acc": 0.0, "rare": other()["not mine"]}


def more(example: Any) -> dict[str, float]:
    return {"f1": float(bool(example))}


def graded(example: Any) -> Graded:
    return Graded({"acc": 1.0, **more(example)}, no_answer=not example)


def graded_by_name(example: Any) -> Graded:
    return Graded(no_answer=0, scores={"acc": float(example)})


def unknown_grade(example: Any) -> Graded:
    return Graded(example)


def delegating(example: Any) -> Any:
    return (yield from plain(example))


def computed(example: Any) -> dict[str, float]:
    return {f"pass@{k}": 1.0 for k in example}


def keyed(example: Any) -> dict[str, float]:
    return {f"pass@{example}": 1.0}


def variable(example: Any) -> dict[str, float]:
    scores = {"acc": 1.0}
    scores.update(example)
    return scores


def partly(example: Any) -> dict[str, float]:
    return {"acc": 1.0} if example else {"f1": 1.0}


def calling_itself(example: Any) -> Any:
    return calling_itself(example)


def asserting(example: Any) -> None:
    assert example


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (plain, {"acc", "f1", "rare"}),
        (delegating, {"acc", "f1", "rare"}),
        (more, {"f1"}),
        (asserting, {"passed"}),
        (graded, {"acc", "f1"}),
        (graded_by_name, {"acc"}),
    ],
)
def test_the_keys_of_returned_dicts_are_its_scores(function: Callable[..., Any], names: set[str]) -> None:
    assert returned_names(function) == names


@pytest.mark.parametrize("function", [computed, keyed, variable, partly, unknown_grade, calling_itself, len])
def test_what_the_code_does_not_show_is_not_known(function: Callable[..., Any]) -> None:
    assert returned_names(function) is None
