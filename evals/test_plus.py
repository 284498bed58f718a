"""HumanEval+ and MBPP+: the tasks of HumanEval and MBPP with EvalPlus's many more inputs."""

from __future__ import annotations

from typing import Any

from harness import Dataset, FewShot, Generate, RunProgram, Scores, benchmark
from harness.metrics.code import (
    PLUS,
    PLUS_DOCSTRING_STOPS,
    PLUS_FUNCTION_STOPS,
    PLUS_METRICS,
    PlusRow,
    evalplus_chat,
    plus_row,
)

TASKS: dict[str, Any] = {
    "version": 1,
    "row": PlusRow,
    "prepare": plus_row,
    "asks": (Generate, RunProgram),
    "primary": "pass@1",
    "metrics": PLUS_METRICS,
    "grader": PLUS,
    "paper": "Liu et al. 2023, arXiv 2305.01210",
}


def score(row: PlusRow, fewshot: FewShot, stop: tuple[str, ...], benchmark: str) -> Scores:
    """Ask for a program in EvalPlus's words, and have it judged."""
    chat = evalplus_chat(row["prompt"])
    request = fewshot.generate(row["prompt"], stop=stop, max_new_tokens=768, chat=chat, sampled=True)
    return (yield from PLUS.grade(request, row, benchmark))


@benchmark(
    "humaneval_plus",
    data=Dataset(local="humaneval_plus/HumanEvalPlus"),
    missing="the set on the Hub has no inputs; give --eval-data DIR with EvalPlus's HumanEvalPlus.jsonl.gz",
    published_rows=164,
    source="EvalPlus 0.3.1; data HumanEvalPlus 0.1.10",
    **TASKS,
)
def test_humaneval_plus(example: PlusRow, fewshot: FewShot) -> Scores:
    """HumanEval+ (Liu et al. 2023), 164 functions, 0-shot, 768 new tokens; ``--eval-samples`` per task.

    Prompt: the function's beginning, stripped, and a line break. A completion ends at EvalPlus's stops: a new
    definition, import, assertion, ``print`` or ``main``. A chat is asked, and its answer cut, as for ``humaneval``.

    The program's outputs are compared with those of the canonical solution (``harness.metrics.code.plus_rules``), which
    runs once in the sandbox, never beside a program; its outputs are kept in the cache.

    - ``pass@k`` (primary: k = 1): of k samples at least one is right on all inputs, the task's own and EvalPlus's.
    - ``base_pass@k``: right on the task's own inputs. Both are verdicts on the same samples.

    Limits of CPU time: for an input 1 s, or four times what the canonical solution took, and 62 s for all; EvalPlus has
    the same of wall time, and 62 s for either part. HumanEval/32 can be solved here; in EvalPlus 0.3.1 every solution
    of it fails, so that 163 is its ceiling. Not comparable: ``humaneval``, whose checks are other ones;
    lm-evaluation-harness's humaneval_plus, with one limit.
    """
    return (yield from score(example, fewshot, PLUS_FUNCTION_STOPS, "humaneval_plus"))


@benchmark(
    "mbpp_plus",
    data=Dataset(local="mbpp_plus/MbppPlus"),
    missing="the set on the Hub has no inputs; give --eval-data DIR with EvalPlus's MbppPlus.jsonl",
    published_rows=378,
    source="EvalPlus 0.3.1; data MbppPlus 0.2.0",
    **TASKS,
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
    return (yield from score(example, fewshot, PLUS_DOCSTRING_STOPS, "mbpp_plus"))
