"""The return value of a benchmark: its scores, and the number of texts without an answer."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from pytest_touchstone.core.requests import RunProgram, RunProgramAnswer, plain_text

NO_ANSWER: Final = "no_answer"
"""The name under which ``no_answer`` is stored beside scores; it is no metric, but decides whether a result is
valid."""

PASSED: Final = "passed"
"""The primary score of a benchmark that asserts: 0 where an assertion fails, and 1 where it ends without returning
scores."""


@runtime_checkable
class Grade(Protocol):
    """Scores by name, and ``no_answer``: the number of generated texts in which no answer was found."""

    @property
    def scores(self) -> Mapping[str, float]: ...

    @property
    def no_answer(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Graded:
    """A grade made of its parts; ``no_answer`` may be a bool where there is one text.

    ``extracted``, what was read out of the text by each rule, and ``gold``, the answer that was due, change no score:
    ``touchstone items`` shows them, of this and of any other grade that has them. ``same`` says whether two texts read
    out by the primary score's rule are one answer, by which ``maj@N`` counts them; None where they are no answers.
    ``parts`` is the number of parts of which a score is a share, for metrics that pool them. ``raw`` has plain data by
    the name of a fact, for aggregations that take more than a score (``Aggregation.beside``).
    """

    scores: Mapping[str, float]
    no_answer: int = 0
    extracted: Mapping[str, str | None] = field(default_factory=dict)
    gold: str | None = None
    parts: int | None = None
    same: Callable[[str, str], bool] | None = operator.eq
    raw: Mapping[str, Any] = field(default_factory=dict)


Scores: TypeAlias = Generator[Any, Any, Mapping[str, float] | Grade]
"""The return type of a benchmark: it yields requests, is sent their answers, and returns its scores."""


class Grader(Protocol):
    """The part of a declaration that has programs of a task run and judged."""

    @property
    def request(self) -> Callable[[Mapping[str, Any], str, str], RunProgram]:
        """Return the request to run a program on a task's tests.

        It is made from the row, the program and the benchmark's name.
        """

    @property
    def parts(self) -> str:
        """Return the name of a part of the tests that has its own verdict; empty if none has."""

    def part(self, row: Mapping[str, Any], answer: RunProgramAnswer, /) -> RunProgramAnswer:
        """Return the verdict on that part, from the answer to the request."""

    def begun(self, row: Mapping[str, Any], /) -> str:
        """Return the beginning of the program, which a completion continues; may be empty."""


def grade_details(returned: object) -> dict[str, Any]:
    """Return what a benchmark returns beside its scores, where present.

    ``extracted``, ``gold``, ``parts`` and the facts in ``raw`` of a grade; ``right`` and ``chosen``, the indices of the
    right choices and of the chosen one.
    """
    extracted, gold = getattr(returned, "extracted", None), getattr(returned, "gold", None)
    details: dict[str, Any] = {}
    if isinstance(extracted, Mapping) and extracted:
        details["extracted"] = {
            plain_text(str(name)): None if text is None else plain_text(join_value(text))
            for name, text in extracted.items()
        }
    if gold not in (None, ""):
        details["gold"] = plain_text(join_value(gold))
    for name in ("right", "chosen", "parts"):
        number = getattr(returned, name, None)
        if isinstance(number, int) and not isinstance(number, bool):
            details[name] = [int(number)]
    return details | {name: [fact] for name, fact in (getattr(returned, "raw", None) or {}).items()}


def join_value(value: object) -> str:
    """Format a value as one text: a list of texts with commas, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(text, str) for text in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def scores_of(returned: object, primary: str = "") -> object:
    """Return the scores of a benchmark with ``no_answer`` among them.

    A benchmark that asserts and returns nothing has passed; anything else is returned unchanged.
    """
    if returned is None and primary == PASSED:
        return {PASSED: 1.0}
    # Asked for each item; an ``isinstance`` of a Protocol costs more than all the rest of grading.
    scores, no_answer = getattr(returned, "scores", None), getattr(returned, "no_answer", None)
    if isinstance(scores, Mapping) and no_answer is not None:
        return {**scores, NO_ANSWER: no_answer}
    return returned
