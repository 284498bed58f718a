"""MBPP's tasks that its authors have verified by hand."""

from __future__ import annotations

from pytest_touchstone import Dataset, FewShot, Published, Scores, benchmark
from pytest_touchstone.metrics.code import MbppRow
from pytest_touchstone.metrics.code.grader import (
    MBPP_FULL,
    MBPP_HUB,
    MBPP_PAPER,
    MBPP_TASKS,
    MBPP_THREE_SHOT,
    ask_mbpp,
)


@benchmark(
    "mbpp_sanitized",
    data=Dataset(MBPP_HUB, "sanitized", local="mbpp/sanitized_test", fewshot=MBPP_FULL.shots),
    published=Published(257, paper=MBPP_PAPER, source="the tasks that its authors have verified by hand"),
    **MBPP_TASKS,
    **MBPP_THREE_SHOT,
)
def test_mbpp_sanitized(example: MbppRow, fewshot: FewShot) -> Scores:
    """MBPP, the hand-verified tasks among 11 to 510 (257 in the authors' sanitized-mbpp.json), asked and judged
    as ``mbpp``, with all their assertions (the first three are shown) and their imports.

    Not comparable: ``mbpp``, whose tasks are other ones and worded differently; EvalPlus's MBPP, a later selection of
    these with more tests, another prompt and no examples.
    """
    return (yield from ask_mbpp(example, fewshot, "mbpp_sanitized"))
