"""MBPP+: tasks of MBPP with EvalPlus's many more inputs."""

from __future__ import annotations

from pytest_touchstone import Dataset, FewShot, Published, Scores, benchmark
from pytest_touchstone.metrics.code import PLUS_DOCSTRING_STOPS, PLUS_TASKS, PlusRow, ask_plus
from pytest_touchstone.metrics.code.plus import PLUS_PAPER


@benchmark(
    "mbpp_plus",
    data=Dataset(local="mbpp_plus/MbppPlus"),
    missing="the set on the Hub has no inputs; give --eval-data DIR with EvalPlus's MbppPlus.jsonl",
    published=Published(378, paper=PLUS_PAPER, source="EvalPlus 0.3.1; data MbppPlus 0.2.0"),
    **PLUS_TASKS,
)
def test_mbpp_plus(example: PlusRow, fewshot: FewShot) -> Scores:
    """MBPP+ (Liu et al. 2023), 378 tasks, 0-shot, 768 new tokens; ``--eval-samples`` per task.

    Prompt: a docstring of the task and its first assertion, stripped, and a line break. A completion ends at three
    double quotes or an assertion that begin a line. Asked through a chat, judged and scored as ``humaneval_plus``;
    inputs are brought back from JSON first (tuples, sets, complex numbers).

    Some tasks compare by rules of their own, as in EvalPlus: eight as sets, three by whether there is an output at all,
    and Mbpp/164 takes any. Left out are the inputs of Mbpp/255 whose outputs have more than a million parts. Not
    comparable: ``mbpp``; lm-evaluation-harness's mbpp_plus, which runs three assertions.
    """
    return (yield from ask_plus(example, fewshot, PLUS_DOCSTRING_STOPS, "mbpp_plus"))
