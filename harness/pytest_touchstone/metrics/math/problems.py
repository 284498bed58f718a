"""MATH's rows, Minerva's prompt, and what MATH-500 and the whole test set share."""

from __future__ import annotations

from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone.core.benchmark import Dataset
from pytest_touchstone.core.few_shot import FewShot, Shot
from pytest_touchstone.core.grade import Graded, Scores
from pytest_touchstone.core.requests import Generate
from pytest_touchstone.metrics.math.grade import grade_math


class MathRow(TypedDict):
    """A problem with its solution, in which the answer is boxed."""

    problem: str
    solution: str
    subject: str
    level: int


_METRICS: Final = tuple(
    f"{score}{level}"
    for score in ("math_verify", "minerva_exact", "hendrycks_exact")
    for level in ("", *(f"_level_{level}" for level in range(6)))
)


def _as_used(row: dict[str, Any]) -> dict[str, Any]:
    """The row with ``subject`` and a whole ``level``; the authors' files say ``type`` and "Level 3".

    Few-shot examples have neither.
    """
    if "subject" not in row and "type" not in row:
        return {**row, "subject": "", "level": 0}
    level = str(row["level"]).removeprefix("Level ").replace("?", "0")
    return {**row, "subject": row["subject"] if "subject" in row else row["type"], "level": int(level)}


def _prompt(row: MathRow) -> str:
    """The problem."""
    return f"Problem:\n{row['problem']}\n\nSolution:"


MATH_SHOTS: Final = Dataset(local="minerva/shots")

MATH: Final[dict[str, Any]] = {
    "version": 1,
    "row": MathRow,
    "prepare": _as_used,
    "asks": Generate,
    "primary": "math_verify",
    "metrics": _METRICS,
    "tags": ("mathematics",),
    "num_fewshot": 4,
    "shots_pick": "first",
    "shots_for_all": True,
    "shots_fixed": True,
    "shot": lambda row: Shot(_prompt(row), row["solution"]),
    "group": "subject",
    "needs": dict.fromkeys(("sympy", "math_verify", "antlr4"), "pip install 'pytest-touchstone[math]'"),
    "source": "lm-evaluation-harness 0.4.13, tasks minerva_math (version 3.1) and hendrycks_math; Math-Verify 0.9",
}


def math_solution(row: MathRow, fewshot: FewShot) -> Scores:
    """Ask for a solution, and score it by the three rules."""
    answer = yield fewshot.generate(_prompt(row), stop=("Problem:",), max_new_tokens=512)
    grade = grade_math(row["solution"], answer.text)
    by_level = {f"{name}_level_{row['level']}": score for name, score in grade.scores.items()}
    return Graded({**grade.scores, **by_level}, grade.no_answer, grade.extracted, grade.gold)
