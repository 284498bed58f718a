"""Scores of a task from what became of its programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, Final

from harness.errors import BenchmarkError
from harness.metrics.code.cutting import chat_program, script_program
from harness.metrics.code.passk import KS, pass_at
from harness.requests import GenerateAnswer, RunProgram, RunProgramAnswer

PROGRAM_METRICS: Final = (
    *(f"{grader}pass@{k}" for grader in ("", "reference_") for k in KS),
    "graders_differ",
)
"""The names of the scores of programs; which there are depends on the number of samples and the grader."""


def script_scores(
    answer: GenerateAnswer,
    stops: Sequence[str],
    request: Callable[[str], RunProgram],
    needed: Collection[str] = (),
) -> Generator[Any, Any, dict[str, float]]:
    """A part of a benchmark (``yield from``): takes the programs out of texts, has them run as ``request`` makes
    it of each, and returns the scores of the task. ``needed``: what a chat's program must define.
    """
    texts = [sample.text for sample in answer.samples]
    chat = answer.chat and bool(needed)
    programs = [chat_program(text, needed) if chat else script_program(text, stops) for text in texts]
    answers = yield [request(program.source) for program in programs]
    return {**program_scores(answers), "no_answer": float(sum(program.empty for program in programs))}


def program_scores(answers: Sequence[RunProgramAnswer]) -> dict[str, float]:
    """``pass@k`` for every k up to the number of samples; where there are verdicts of the reference grader,
    ``reference_pass@k`` too, and ``graders_differ``: samples that only one of the two graders lets pass.

    Raises ``BenchmarkError`` where a program could not be judged: it is neither right nor wrong.
    """
    faults = [answer.detail for answer in answers if "fault" in (answer.outcome, answer.reference_outcome)]
    if faults:
        raise BenchmarkError(f"{len(faults)} of {len(answers)} programs could not be judged: {faults[0]}")
    passed = [answer.outcome == "passed" for answer in answers]
    scores = pass_at(len(passed), sum(passed))
    if any(answer.reference_outcome is None for answer in answers):
        return scores
    reference = [answer.reference_outcome == "passed" for answer in answers]
    others = pass_at(len(reference), sum(reference))
    differ = sum(mine != its for mine, its in zip(passed, reference, strict=True))
    return {
        **scores,
        **{f"reference_{name}": value for name, value in others.items()},
        "graders_differ": differ,
    }
