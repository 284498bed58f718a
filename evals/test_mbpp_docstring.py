"""MBPP asked by a docstring, without examples."""

from __future__ import annotations

from pytest_touchstone import Dataset, FewShot, Published, Scores, benchmark
from pytest_touchstone.metrics.code import DOCSTRING_STOPS, MBPP, MBPP_STOPS, MbppRow, evalplus_chat
from pytest_touchstone.metrics.code.grader import MBPP_HUB, MBPP_PAPER, MBPP_TASKS, docstring_prompt


@benchmark(
    "mbpp_docstring",
    data=Dataset(MBPP_HUB, "full"),
    published=Published(
        500,
        paper=MBPP_PAPER,
        source="prompt of Fried et al. 2022 (InCoder), arXiv 2204.05999, as in bigcode-evaluation-harness, task mbpp",
    ),
    **MBPP_TASKS,
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
