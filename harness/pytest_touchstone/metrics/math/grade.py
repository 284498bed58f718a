"""MATH: its rows, Minerva's prompt, the three verdicts on an output, and the process that two of them need.

``hendrycks_exact`` is a pure function of two texts. The others ask a ``MathJudge``; one that exceeds its time
is wrong and says ``timed_out``, as in the reference, where a comparison that takes too long is wrong as well.
"""

from __future__ import annotations

import atexit
import functools
import sys
from dataclasses import dataclass
from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone.core.benchmark import Dataset, FinalAnswer, Shots, Solution
from pytest_touchstone.core.few_shot import FewShot, Shot
from pytest_touchstone.core.grade import Graded, Scores
from pytest_touchstone.core.requests import Generate
from pytest_touchstone.metrics.math.text import (
    boxed_answer,
    hendrycks_prediction,
    minerva_normalized,
    minerva_prediction,
    same_text,
)
from pytest_touchstone.metrics.solutions import final_number
from pytest_touchstone.metrics.subprocess_worker import TimeLimitedWorker, WorkerReply

COMMAND: Final = (sys.executable, "-P", "-W", "ignore", "-m", "pytest_touchstone.metrics.math.worker")
"""Modules of the working folder are not found by it."""

VERDICTS: Final = ("hendrycks_exact", "minerva_exact", "math_verify")

LIMIT_S: Final = 5.0
"""Seconds of processor time for one question to the judge."""


@dataclass(frozen=True, slots=True)
class MathVerdict:
    """The verdict of one rule on an output, and the answer read out of it (None: nothing)."""

    correct: bool
    answer: str | None
    timed_out: bool = False
    error: str | None = None

    @property
    def parsed(self) -> bool:
        """Return whether an answer was found in the output; one that took too long was."""
        return self.answer is not None or self.timed_out


@dataclass(frozen=True, slots=True)
class MathGrade:
    """The verdicts of all three rules, and the gold answer they were compared with (None: no box)."""

    gold: str | None
    hendrycks_exact: MathVerdict
    minerva_exact: MathVerdict
    math_verify: MathVerdict

    @property
    def no_answer(self) -> bool:
        """Return whether math-verify found no answer in the output."""
        return not self.math_verify.parsed

    @property
    def extracted(self) -> dict[str, str | None]:
        """The three answers by rule."""
        return {name: getattr(self, name).answer for name in VERDICTS}

    @property
    def scores(self) -> dict[str, float]:
        """The three verdicts as numbers, by name."""
        return {name: float(getattr(self, name).correct) for name in VERDICTS}


class MathJudge:
    """A judge that asks SymPy and math-verify, in a process that is started when it is first needed."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        self.worker = TimeLimitedWorker(COMMAND)

    def ask(self, rule: str, gold: str, output: str) -> WorkerReply:
        """The reply of the process, None for its value when it exceeded the limit or failed."""
        return self.worker.ask([rule, gold, output], self.limit_s)

    def close(self) -> None:
        """Ends the process, if there is one."""
        self.worker.close()


@functools.cache
def shared_judge() -> MathJudge:
    """The one judge of this process, closed when Python ends: starting takes a second, so all items share it."""
    judge = MathJudge()
    atexit.register(judge.close)
    return judge


def hendrycks_exact(solution: str, output: str) -> MathVerdict:
    """Hendrycks's verdict; an output is always an answer, but a blank one counts as none."""
    gold, answer = boxed_answer(solution), hendrycks_prediction(output)
    return MathVerdict(gold is not None and same_text(answer, gold), answer if answer.strip() else None)


def minerva_exact(solution: str, output: str, judge: MathJudge) -> MathVerdict:
    """Minerva's verdict; ``answer`` is the normalised one. The judge is asked only if the texts differ."""
    gold, found = boxed_answer(solution), minerva_prediction(output)
    if found is None:
        return MathVerdict(False, None)
    answer = minerva_normalized(found)
    if gold is None:
        return MathVerdict(False, answer)
    wanted = minerva_normalized(gold)
    if not answer or not wanted or answer == wanted:
        return MathVerdict(bool(answer) and answer == wanted, answer)
    reply = judge.ask("minerva", answer, wanted)
    # SymPy's errors are the rule's way of saying that two answers cannot be compared.
    return MathVerdict(reply.value is True, answer, reply.timed_out)


def math_verify(solution: str, output: str, judge: MathJudge) -> MathVerdict:
    """The verdict of the math-verify library."""
    reply = judge.ask("math_verify", solution, output)
    value: dict[str, Any] = reply.value or {"correct": False, "answer": None}
    return MathVerdict(value["correct"], value["answer"], reply.timed_out, reply.error)


def same_answer(one: str, other: str, judge: MathJudge | None = None) -> bool:
    """Return whether math-verify finds two answers equal that it read out of outputs, whichever is taken for the gold
    one: of ``(1,2)`` and ``2,1``, or ``-3<x\\le 2`` and ``(-3,2]``, it finds so in one direction only."""
    judge = judge or shared_judge()
    return one == other or any(
        math_verify(f"${gold}$", f"${answer}$", judge).correct
        for gold, answer in ((one, other), (other, one))
    )


def grade_math(solution: str, output: str, judge: MathJudge | None = None) -> MathGrade:
    """All three verdicts on one output; ``solution`` is the gold solution with its boxed answer.

    Without a judge the shared one is asked. Raises ``BenchmarkError`` where SymPy or math-verify is missing.
    """
    judge = judge or shared_judge()
    return MathGrade(
        gold=boxed_answer(solution),
        hendrycks_exact=hendrycks_exact(solution, output),
        minerva_exact=minerva_exact(solution, output, judge),
        math_verify=math_verify(solution, output, judge),
    )


# Rows and prompts


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


def _final(row: dict[str, Any]) -> FinalAnswer | None:
    """The box at the end of a solution that holds a whole number, from the last space before it."""
    solution = str(row.get("solution"))
    number = boxed_answer(solution) or ""
    place = solution.rfind(f"\\boxed{{{number}}}")
    before, space, head = solution[: max(place, 0)].rpartition(" ")
    return final_number(before, number, f"{head}\\boxed{{", "}") if space else None


MATH_SHOTS: Final = Dataset(local="minerva/shots")

MATH: Final[dict[str, Any]] = {
    "version": 1,
    "row": MathRow,
    "prepare": _as_used,
    "asks": Generate,
    "primary": "math_verify",
    "metrics": _METRICS,
    "tags": ("mathematics",),
    "shots": Shots(
        4, lambda row: Shot(_prompt(row), row["solution"]), pick="first", for_all=True, fixed=True
    ),
    "group": "subject",
    "solution": Solution(lambda row: row["solution"], final=_final),
    "needs": dict.fromkeys(("sympy", "math_verify", "antlr4"), "pip install 'pytest-touchstone[math]'"),
}

MATH_SOURCE: Final = (
    "lm-evaluation-harness 0.4.13, tasks minerva_math (version 3.1) and hendrycks_math; Math-Verify 0.9"
)


def math_solution(row: MathRow, fewshot: FewShot) -> Scores:
    """Ask for a solution, and score it by the three rules."""
    answer = yield fewshot.generate(_prompt(row), stop=("Problem:",), max_new_tokens=512)
    grade = grade_math(row["solution"], answer.text)
    by_level = {f"{name}_level_{row['level']}": score for name, score in grade.scores.items()}
    scores = {**grade.scores, **by_level}
    return Graded(scores, grade.no_answer, grade.extracted, grade.gold, same=same_answer)
