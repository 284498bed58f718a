"""MBPP's prompts, and what its forms share."""

from __future__ import annotations

from typing import Any, Final

from pytest_touchstone.core.benchmark import Dataset, Shots, Solution
from pytest_touchstone.core.few_shot import FewShot, Shot
from pytest_touchstone.core.grade import Scores
from pytest_touchstone.core.requests import Generate, RunProgram
from pytest_touchstone.metrics.code.extract import MBPP_STOPS, evalplus_chat, evalplus_turns
from pytest_touchstone.metrics.code.grader import MBPP, PROGRAM_METRICS
from pytest_touchstone.metrics.code.rows import MbppRow, mbpp_row

MBPP_HUB: Final = "google-research-datasets/mbpp"
MBPP_FULL: Final = Dataset(MBPP_HUB, "full", fewshot="prompt")


def _used(row: dict[str, Any]) -> bool:
    """Return whether a row takes part: the prompt's examples are tasks 2, 3 and 4, so task 1 does not."""
    return row.get("task_id") != 1


def _paper_prompt(row: MbppRow) -> str:
    """The task with its first three tests."""
    tests = "\n".join(row["test_list"][:3])
    return (
        f"You are an expert Python programmer, and here is your task: {row['text']} "
        f"Your code should pass these tests:\n\n{tests}\n[BEGIN]\n"
    )


def docstring_prompt(row: MbppRow, tests: int = 1) -> str:
    """The task and its first tests as a docstring."""
    return "\n".join(('"""', row["text"], *row["test_list"][:tests], '"""\n'))


def _shot(row: MbppRow) -> Shot:
    """The task with its program, as published."""
    turns = evalplus_turns(docstring_prompt(row, 3), row["code"])
    return Shot(_paper_prompt(row), f"{row['code']}\n[DONE]", between="", turns=turns)


def ask_mbpp(row: MbppRow, fewshot: FewShot, benchmark: str) -> Scores:
    """Ask for a program by the paper's prompt, or a training row's own, and have it judged."""
    own = row.get("instruction", "")
    chat = evalplus_chat(own or docstring_prompt(row, 3))
    asked = own or _paper_prompt(row)
    request = fewshot.generate(asked, stop=MBPP_STOPS, max_new_tokens=512, chat=chat, sampled=True)
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
