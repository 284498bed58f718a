"""MBPP: short Python functions from a sentence and a few assertions, judged by running them."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

from harness.core.benchmark import HubData, benchmark
from harness.core.few_shot import Sampling, Shot
from harness.core.requests import Generate, RunProgram, Turn
from harness.metrics.code import (
    DOCSTRING_STOPS,
    MBPP_STOPS,
    PROGRAM_METRICS,
    MbppRow,
    asked_in_chat,
    called_names,
    chat_answer,
    chat_question,
    mbpp_request,
    mbpp_row,
    script_scores,
    unix_lines,
)

SOURCE = "Austin et al. 2021, arXiv 2108.07732"
HUB = "google-research-datasets/mbpp"


def used(row: dict[str, Any]) -> bool:
    """Whether a row takes part: the prompt's examples are tasks 2, 3 and 4, so that task 1 does not."""
    return row.get("task_id") != 1


def paper_prompt(row: MbppRow) -> str:
    """The task with its first three tests."""
    tests = "\n".join(row["test_list"][:3])
    return (
        f"You are an expert Python programmer, and here is your task: {row['text']} "
        f"Your code should pass these tests:\n\n{tests}\n[BEGIN]\n"
    )


def shot(row: MbppRow) -> Shot:
    """The task with its program, as published."""
    code = row["code"]
    chat = chat_question(docstring_prompt(row, 3)), chat_answer(unix_lines(code))
    return Shot(paper_prompt(row), f"{code}\n[DONE]", between="", turns=chat)


def own_prompt(row: MbppRow) -> str:
    """The prompt that a training row has itself; empty for a published one."""
    return row.get("instruction", "")


def docstring_prompt(row: MbppRow, tests: int = 1) -> str:
    """The task and its first tests as a docstring."""
    return "\n".join(('"""', row["text"], *row["test_list"][:tests], '"""\n'))


@benchmark(
    name="mbpp",
    version=2,
    data="mbpp/test",
    published_rows=500,
    row=MbppRow,
    prepare=mbpp_row,
    keep=used,
    asks=(Generate, RunProgram),
    primary="pass@1",
    metrics=PROGRAM_METRICS,
    num_fewshot=3,
    shots_from="mbpp/prompt",
    shots_pick="first",
    shots_fixed=True,
    own_prompt="instruction",
    shot=shot,
    hub=HubData(HUB, "test", "full"),
    hub_shots=HubData(HUB, "prompt", "full"),
    source=f"{SOURCE}; lm-evaluation-harness 0.4.13, task mbpp (version 1)",
)
def test_mbpp(
    example: MbppRow, shots: str, turns: tuple[Turn, ...], sampling: Sampling
) -> Generator[Any, Any, dict[str, float]]:
    """MBPP (Austin et al. 2021), test split (tasks 11 to 510), the paper's prompt, 3-shot, 512 new tokens;
    ``--eval-samples`` a task.

    Prompt: "You are an expert Python programmer, and here is your task:", the task, "Your code should pass these
    tests:", a blank line, three assertions, "[BEGIN]"; in the examples (tasks 2, 3 and 4, always these) a program
    and "[DONE]" follow. The text ends before "[DONE]"; the program is the text, or its block of code where it has
    one.

    Through a chat template it is asked in EvalPlus's words (0.3.1), examples as turns: a sentence that asks for a
    self-contained script, and in a block of code a docstring of the task and the three assertions; the answer has
    begun its block and ends with it; 768 new tokens. Cut as EvalPlus does: the longest run of lines that is Python,
    and of it the imports and what the functions that the tests call reach.

    Training rows (``instruction``) are asked by their own prompt, without examples.

    The program runs in the sandbox, and its three assertions, behind the task's setup code, in a process of their
    own; 3 s of CPU time at least. The challenge tests are not used.

    - ``pass@k`` (primary: k = 1), and with ``--eval-grader reference`` ``reference_pass@k`` and
      ``graders_differ``: as for HumanEval.

    Not comparable: a chat's answers and completions (``--eval-chat off``); ``mbpp_docstring`` and
    ``mbpp_sanitized``; scores of 0-shot or instruction prompts; MBPP+; the paper's own share of tasks solved by any of
    80 samples.
    """
    asked = own_prompt(example) or paper_prompt(example)
    answer = yield Generate(
        shots + asked,
        stop=MBPP_STOPS,
        max_new_tokens=512,
        **asked_in_chat(own_prompt(example) or docstring_prompt(example, 3), turns),
        **sampling.arguments(),
    )
    judged = partial(mbpp_request, example, benchmark="mbpp")
    return (yield from script_scores(answer, MBPP_STOPS, judged, called_names(example)))


@benchmark(
    name="mbpp_sanitized",
    version=2,
    data="mbpp/sanitized_test",
    published_rows=257,
    row=MbppRow,
    prepare=mbpp_row,
    keep=used,
    asks=(Generate, RunProgram),
    primary="pass@1",
    metrics=PROGRAM_METRICS,
    num_fewshot=3,
    shots_from="mbpp/prompt",
    shots_pick="first",
    shots_fixed=True,
    own_prompt="instruction",
    shot=shot,
    hub=HubData(HUB, "test", "sanitized"),
    hub_shots=HubData(HUB, "prompt", "full"),
    source=f"{SOURCE}, the tasks that its authors have verified by hand",
)
def test_mbpp_sanitized(
    example: MbppRow, shots: str, turns: tuple[Turn, ...], sampling: Sampling
) -> Generator[Any, Any, dict[str, float]]:
    """MBPP, the hand-verified tasks among 11 to 510 (257 in the authors' sanitized-mbpp.json), asked and judged
    as ``mbpp``, with all their assertions (the first three are shown) and their imports.

    Not comparable: ``mbpp``, whose tasks are other ones and worded otherwise; EvalPlus's MBPP, which is a later
    selection of these with more tests, another prompt and no examples.
    """
    asked = own_prompt(example) or paper_prompt(example)
    answer = yield Generate(
        shots + asked,
        stop=MBPP_STOPS,
        max_new_tokens=512,
        **asked_in_chat(own_prompt(example) or docstring_prompt(example, 3), turns),
        **sampling.arguments(),
    )
    judged = partial(mbpp_request, example, benchmark="mbpp_sanitized")
    return (yield from script_scores(answer, MBPP_STOPS, judged, called_names(example)))


@benchmark(
    name="mbpp_docstring",
    version=2,
    data="mbpp/test",
    published_rows=500,
    row=MbppRow,
    prepare=mbpp_row,
    keep=used,
    asks=(Generate, RunProgram),
    primary="pass@1",
    metrics=PROGRAM_METRICS,
    hub=HubData(HUB, "test", "full"),
    source=f"{SOURCE}; prompt of Fried et al. 2022 (InCoder), arXiv 2204.05999, as in "
    "bigcode-evaluation-harness, task mbpp",
)
def test_mbpp_docstring(example: MbppRow, sampling: Sampling) -> Generator[Any, Any, dict[str, float]]:
    """MBPP (Austin et al. 2021), test split, as a docstring, 0-shot, 512 new tokens; ``--eval-samples`` a task.

    Prompt: a docstring of two lines, the task and its first assertion. A completion ends before a line that begins
    with "class", "assert", three double quotes, "print" or "if". Through a chat template it is asked and cut as
    EvalPlus 0.3.1 does with its MBPP: see ``mbpp``, without examples, and with the first assertion alone. Judged as
    ``mbpp``.

    Not comparable: ``mbpp``, which shows three examples and all three assertions.
    """
    asked = own_prompt(example) or docstring_prompt(example)
    stops = MBPP_STOPS if own_prompt(example) else DOCSTRING_STOPS
    answer = yield Generate(
        asked,
        stop=stops,
        max_new_tokens=512,
        **asked_in_chat(asked),
        **sampling.arguments(),
    )
    judged = partial(mbpp_request, example, benchmark="mbpp_docstring")
    return (yield from script_scores(answer, stops, judged, called_names(example)))
