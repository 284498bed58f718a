"""HumanEval+: the functions of HumanEval with EvalPlus's many more inputs."""

from __future__ import annotations

from pytest_touchstone import Dataset, FewShot, Published, Scores, benchmark
from pytest_touchstone.metrics.code import PLUS_FUNCTION_STOPS, PLUS_TASKS, PlusRow, ask_plus
from pytest_touchstone.metrics.code.plus import PLUS_PAPER


@benchmark(
    "humaneval_plus",
    data=Dataset(local="humaneval_plus/HumanEvalPlus"),
    missing="the set on the Hub has no inputs; give --eval-data DIR with EvalPlus's HumanEvalPlus.jsonl.gz",
    published=Published(164, paper=PLUS_PAPER, source="EvalPlus 0.3.1; data HumanEvalPlus 0.1.10"),
    **PLUS_TASKS,
)
def test_humaneval_plus(example: PlusRow, fewshot: FewShot) -> Scores:
    """HumanEval+ (Liu et al. 2023), 164 functions, 0-shot, 768 new tokens; ``--eval-samples`` per task.

    Prompt: the function's beginning, stripped, and a line break. A completion ends at EvalPlus's stops: a new
    definition, import, assertion, ``print`` or ``main``. A chat is asked, and its answer cut, as for ``humaneval``.

    The program's outputs are compared with those of the canonical solution
    (``pytest_touchstone.metrics.code.plus_rules``), which runs once in the sandbox, never beside a program; its outputs
    are kept in the cache.

    - ``pass@k`` (primary: k = 1): of k samples at least one is right on all inputs, the task's own and EvalPlus's.
    - ``base_pass@k``: right on the task's own inputs. Both are verdicts on the same samples.

    Limits of CPU time: for an input 1 s, or four times what the canonical solution took, and 62 s for all; EvalPlus has
    the same of wall time, and 62 s for either part. HumanEval/32 can be solved here; in EvalPlus 0.3.1 every solution
    of it fails, so that 163 is its ceiling. Not comparable: ``humaneval``, whose checks are other ones;
    lm-evaluation-harness's humaneval_plus, with one limit.
    """
    return (yield from ask_plus(example, fewshot, PLUS_FUNCTION_STOPS, "humaneval_plus"))
