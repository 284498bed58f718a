"""MBPP: short Python functions from a sentence and a few assertions, judged by running them."""

from __future__ import annotations

from pytest_touchstone import FewShot, Published, Scores, benchmark
from pytest_touchstone.metrics.code import MbppRow
from pytest_touchstone.metrics.code.grader import MBPP_FULL, MBPP_PAPER, MBPP_TASKS, MBPP_THREE_SHOT, ask_mbpp


@benchmark(
    "mbpp",
    data=MBPP_FULL,
    published=Published(500, paper=MBPP_PAPER, source="lm-evaluation-harness 0.4.13, task mbpp (version 1)"),
    **MBPP_TASKS,
    **MBPP_THREE_SHOT,
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
    3 s of CPU time at least. What a row's tests import is imported into the program too, as where both are one script.
    The challenge tests are not used.

    - ``pass@k`` (primary: k = 1), and with ``--eval-set grader=reference`` ``reference_pass@k`` and
      ``graders_differ``: as for HumanEval.

    Not comparable: a chat's answers with completions (``--eval-chat off``); ``mbpp_docstring`` and
    ``mbpp_sanitized``; scores of 0-shot or instruction prompts; MBPP+; the paper's own share of tasks solved by any
    of 80 samples.
    """
    return (yield from ask_mbpp(example, fewshot, "mbpp"))
