"""HumanEval+ and MBPP+: compare a program with the canonical solution on EvalPlus's inputs.

The rules are in ``plus_rules``, whose text runs beside the canonical solution in the process of the tests: the
expected outputs never reach the program. There is a verdict on the inputs of the original task (base) and one on all
(plus).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone.core.few_shot import FewShot
from pytest_touchstone.core.grade import Scores
from pytest_touchstone.core.requests import CallTests, Generate, RunProgram, RunProgramAnswer
from pytest_touchstone.metrics.code import plus_rules
from pytest_touchstone.metrics.code.extract import evalplus_chat, function_program
from pytest_touchstone.metrics.code.grader import CANONICAL, ProgramGrader
from pytest_touchstone.metrics.samples import KS

SECONDS: Final = 62.0
"""The limit of CPU time on all inputs, EvalPlus's for each part; each input has its own too (``plus_rules``)."""

MEMORY: Final = 4096
"""MiB, as in EvalPlus."""

_ENDS: Final = ("<|endoftext|>", "<|endofmask|>", "</s>", "\nif __name__", "\ndef main(", "\nprint(")

PLUS_FUNCTION_STOPS: Final = (*_ENDS, "\ndef ", "\nclass ", "\nimport ", "\nfrom ", "\nassert ")
PLUS_DOCSTRING_STOPS: Final = (*_ENDS, '\n"""', "\nassert")
"""EvalPlus 0.3.1, provider/utility.py: the ends of a completion of HumanEval+, and of MBPP+."""

PLUS_METRICS: Final = tuple(f"{prefix}pass@{k}" for prefix in ("", "base_") for k in KS)

_SHAPES: Final = {
    "arguments": (
        *(2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596),
        *(616, 630, 726, 740, 744, 809),
    ),
    "items": (63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780),
    "first's items": (75, 413, 444, 753),
    "first": (250, 307, 405, 446, 617, 720, 763, 808),
    "second": (106, 750),
    "arguments and items": (259, 401, 445),
    "first and its lists": (278,),
    "values": (722,),
    "everything": (580, 615, 791),
    "sets": (115,),
    "float, complex": (124,),
    "complex": (252,),
}
_SHAPE_OF: Final = {f"Mbpp/{number}": shape for shape, numbers in _SHAPES.items() for number in numbers}


class PlusRow(TypedDict):
    """A task: its prompt, its function's name, a right program or its end, and lists of arguments."""

    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    base_input: list[list[Any]]
    plus_input: list[list[Any]]
    atol: float


def plus_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with its prompt stripped, and missing inputs as an empty list (Mbpp/793 has ``{}``)."""
    return {**row, "prompt": f"{row['prompt'].strip()}\n", "plus_input": row["plus_input"] or []}


def plus_request(row: Mapping[str, Any], program: str, benchmark: str) -> RunProgram:
    """Return the request to compare a program with the canonical solution on all inputs, the task's own first."""
    name, inputs = row["entry_point"], [*row["base_input"], *row["plus_input"]]
    canonical = function_program(row["prompt"], name, row["canonical_solution"], stops=()).source
    # The inputs as a text: a literal of so many values takes long to compile.
    reference_task = {"name": name, "inputs": json.dumps(inputs), "shape": _SHAPE_OF.get(row["task_id"], "")}
    task = {"name": name, "base": len(row["base_input"]), "atol": row["atol"]}
    return RunProgram(
        program,
        CallTests(
            code=f"judge({name}, PREPARED, {task!r}, PASSED)\n",
            trusted=f"{inspect.getsource(plus_rules)}\nPASSED, PREPARED = [], None\n",
            names=(name,),
            prepared=f"prepared({canonical!r}, {reference_task!r})",
        ),
        task=f"{benchmark}/{row['task_id']}",
        seconds=SECONDS,
        memory=MEMORY,
        reference=canonical,
    )


@dataclass(frozen=True, slots=True)
class PlusGrader(ProgramGrader):
    """A grader of programs on the task's own inputs, and on all, in one run."""

    def part(self, row: Mapping[str, Any], answer: RunProgramAnswer) -> RunProgramAnswer:
        """Return the verdict on the task's own inputs, which come first."""
        passed = answer.outcome != "fault" and answer.tests >= len(row["base_input"])
        return replace(answer, outcome="passed") if passed else answer


PLUS: Final = PlusGrader(plus_request, lambda row: (row["entry_point"],), parts="base")

PLUS_TASKS: Final[dict[str, Any]] = {
    "version": 4,
    "row": PlusRow,
    "prepare": plus_row,
    "asks": (Generate, RunProgram),
    "primary": "pass@1",
    "metrics": PLUS_METRICS,
    "grader": PLUS,
    "solution": CANONICAL,
}
"""The part of a declaration that both benchmarks share."""

PLUS_PAPER: Final = "Liu et al. 2023, arXiv 2305.01210"


def ask_plus(row: PlusRow, fewshot: FewShot, stop: tuple[str, ...], benchmark: str) -> Scores:
    """Ask for a program in EvalPlus's words, and have it judged."""
    chat = evalplus_chat(row["prompt"])
    request = fewshot.generate(row["prompt"], stop=stop, max_new_tokens=768, chat=chat, sampled=True)
    return (yield from PLUS.grade(request, row, benchmark))
