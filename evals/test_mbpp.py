"""MBPP: short Python functions from a sentence and a few assertions, judged by running them."""

from __future__ import annotations

from typing import Any

from harness import Dataset, FewShot, Generate, RunProgram, Scores, Shot, benchmark
from harness.metrics.code import (
    DOCSTRING_STOPS,
    MBPP,
    MBPP_STOPS,
    PROGRAM_METRICS,
    MbppRow,
    evalplus_chat,
    evalplus_turns,
    mbpp_row,
)

HUB = "google-research-datasets/mbpp"
FULL = Dataset(HUB, "full", fewshot="prompt")


def used(row: dict[str, Any]) -> bool:
    """Return whether a row takes part: the prompt's examples are tasks 2, 3 and 4, so task 1 does not."""
    return row.get("task_id") != 1


def paper_prompt(row: MbppRow) -> str:
    """The task with its first three tests."""
    tests = "\n".join(row["test_list"][:3])
    return (
        f"You are an expert Python programmer, and here is your task: {row['text']} "
        f"Your code should pass these tests:\n\n{tests}\n[BEGIN]\n"
    )


def docstring_prompt(row: MbppRow, tests: int = 1) -> str:
    """The task and its first tests as a docstring."""
    return "\n".join(('"""', row["text"], *row["test_list"][:tests], '"""\n'))


def shot(row: MbppRow) -> Shot:
    """The task with its program, as published."""
    turns = evalplus_turns(docstring_prompt(row, 3), row["code"])
    return Shot(paper_prompt(row), f"{row['code']}\n[DONE]", between="", turns=turns)


def ask(row: MbppRow, fewshot: FewShot, benchmark: str) -> Scores:
    """Ask for a program by the paper's prompt, or a training row's own, and have it judged."""
    own = row.get("instruction", "")
    chat = evalplus_chat(own or docstring_prompt(row, 3))
    asked = own or paper_prompt(row)
    request = fewshot.generate(asked, stop=MBPP_STOPS, max_new_tokens=512, chat=chat, sampled=True)
    return (yield from MBPP.grade(request, row, benchmark))


TASKS: dict[str, Any] = {
    "version": 2,
    "row": MbppRow,
    "prepare": mbpp_row,
    "keep": used,
    "asks": (Generate, RunProgram),
    "primary": "pass@1",
    "metrics": PROGRAM_METRICS,
    "grader": MBPP,
    "paper": "Austin et al. 2021, arXiv 2108.07732",
}
THREE_SHOT: dict[str, Any] = {
    "num_fewshot": 3,
    "shots_pick": "first",
    "shots_fixed": True,
    "own_prompt": "instruction",
    "shot": shot,
}


@benchmark(
    "mbpp",
    data=FULL,
    published_rows=500,
    source="lm-evaluation-harness 0.4.13, task mbpp (version 1)",
    **TASKS,
    **THREE_SHOT,
)
def test_mbpp(example: MbppRow, fewshot: FewShot) -> Scores:
    """MBPP (Austin et al. 2021), test split (tasks 11 to 510), the paper's prompt, 3-shot, 512 new tokens;
    ``--eval-samples`` per task.

    Prompt: "You are an expert Python programmer, and here is your task:", the task, "Your code should pass these
    tests:", a blank line, three assertions, "[BEGIN]". In the examples (always tasks 2, 3 and 4) a program and
    "[DONE]" follow. The text ends before "[DONE]"; the program is the text, or its block of code where it has one.

    Through a chat template it is asked in EvalPlus's words (0.3.1), examples as turns. A sentence asks for a
    self-contained script; a block of code has a docstring of the task and the three assertions. The answer has begun
    its block and ends with it, within 768 new tokens. It is cut as EvalPlus does: the longest run of lines that is
    Python, and of it the imports and what the functions that the tests call reach.

    Training rows (``instruction``) are asked by their own prompt, without examples.

    The program runs in the sandbox, and its three assertions, after the task's setup code, in a process of their own;
    3 s of CPU time at least. The challenge tests are not used.

    - ``pass@k`` (primary: k = 1), and with ``--eval-grader reference`` ``reference_pass@k`` and
      ``graders_differ``: as for HumanEval.

    Not comparable: a chat's answers with completions (``--eval-chat off``); ``mbpp_docstring`` and
    ``mbpp_sanitized``; scores of 0-shot or instruction prompts; MBPP+; the paper's own share of tasks solved by any
    of 80 samples.
    """
    return (yield from ask(example, fewshot, "mbpp"))


@benchmark(
    "mbpp_sanitized",
    data=Dataset(HUB, "sanitized", local="mbpp/sanitized_test", fewshot=FULL.shots),
    published_rows=257,
    source="the tasks that its authors have verified by hand",
    **TASKS,
    **THREE_SHOT,
)
def test_mbpp_sanitized(example: MbppRow, fewshot: FewShot) -> Scores:
    """MBPP, the hand-verified tasks among 11 to 510 (257 in the authors' sanitized-mbpp.json), asked and judged
    as ``mbpp``, with all their assertions (the first three are shown) and their imports.

    Not comparable: ``mbpp``, whose tasks are other ones and worded differently; EvalPlus's MBPP, a later selection of
    these with more tests, another prompt and no examples.
    """
    return (yield from ask(example, fewshot, "mbpp_sanitized"))


@benchmark(
    "mbpp_docstring",
    data=Dataset(HUB, "full"),
    published_rows=500,
    source="prompt of Fried et al. 2022 (InCoder), arXiv 2204.05999, as in bigcode-evaluation-harness, task mbpp",
    **TASKS,
)
def test_mbpp_docstring(example: MbppRow, fewshot: FewShot) -> Scores:
    """MBPP (Austin et al. 2021), test split, as a docstring, 0-shot, 512 new tokens; ``--eval-samples`` per task.

    Prompt: a docstring of two lines, the task and its first assertion. A completion ends before a line that begins
    with "class", "assert", three double quotes, "print" or "if". Through a chat template it is asked and cut as
    EvalPlus 0.3.1 does with its MBPP: see ``mbpp``, without examples, and with the first assertion alone. Judged as
    ``mbpp``.

    Not comparable: ``mbpp``, which shows three examples and all three assertions.
    """
    own = example.get("instruction", "")
    asked, stop = own or docstring_prompt(example), MBPP_STOPS if own else DOCSTRING_STOPS
    chat = evalplus_chat(asked)
    request = fewshot.generate(asked, stop=stop, max_new_tokens=512, chat=chat, sampled=True)
    return (yield from MBPP.grade(request, example, "mbpp_docstring"))
