"""From the texts that a checkpoint wrote to the scores of a task: one grader for each form of rows.

A benchmark hands over its request and grades the answer (``return (yield from MBPP.grade(...))``), and declares the
same grader for ``touchstone grade``, which has the programs already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.core.grade import Graded, Scores
from harness.core.requests import Generate, GenerateAnswer, RunProgram
from harness.metrics.code.calling import base_name
from harness.metrics.code.extract import Program, beginning, chat_program, function_program
from harness.metrics.code.pass_at_k import program_scores
from harness.metrics.code.requests import called_names, humaneval_request, mbpp_request, stdio_request


@dataclass(frozen=True, slots=True)
class ProgramGrader:
    """Runs the programs of a task on its tests and scores the outcomes.

    ``request`` makes the request to run a program of a row, for the benchmark of a name; ``needed`` are the names that
    a chat's program must define (none: a chat is read as any text); ``task_id`` is the field with a task's name.
    """

    request: Callable[[Mapping[str, Any], str, str], RunProgram]
    needed: Callable[[Mapping[str, Any]], Collection[str]] = lambda _: ()
    task_id: str = "task_id"

    def begun(self, row: Mapping[str, Any]) -> str:
        """The beginning of the program, which a completion continues; empty where the prompt has none."""
        return beginning(row.get("prompt", ""), row.get("entry_point", ""))

    def grade(self, request: Generate, row: Mapping[str, Any], benchmark: str) -> Scores:
        """A part of a benchmark (``yield from``): asks for texts, has their programs run, and scores the task."""
        answer: GenerateAnswer = yield request
        stops = request.stop if request.turns_stop is None or not answer.chat else request.turns_stop
        programs = [self._program(row, sample.text, stops, chat=answer.chat) for sample in answer.samples]
        answers = yield [self.request(row, program.source, benchmark) for program in programs]
        return Graded(program_scores(answers), no_answer=sum(program.empty for program in programs))

    def _program(self, row: Mapping[str, Any], text: str, stops: tuple[str, ...], *, chat: bool) -> Program:
        prompt = row.get("prompt", "")
        if chat and (needed := self.needed(row)):
            return chat_program(text, needed, prompt)
        return function_program(prompt, row.get("entry_point", ""), text, stops)


HUMANEVAL: Final = ProgramGrader(humaneval_request, lambda row: (base_name(row["entry_point"]),))
MBPP: Final = ProgramGrader(mbpp_request, called_names)
STDIO: Final = ProgramGrader(stdio_request, task_id="id")
