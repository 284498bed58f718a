"""KoBEST BoolQ: a question about a Korean paragraph, yes or no."""

from __future__ import annotations

from pytest_touchstone import FewShot, Scores, benchmark
from pytest_touchstone.metrics.korean import KobestRow, kobest_choice, kobest_task


@benchmark("kobest_boolq", **kobest_task("boolq"), primary="acc", metrics=("acc",))
def test_kobest_boolq(example: KobestRow, fewshot: FewShot) -> Scores:
    """KoBEST BoolQ (Kim et al. 2022), test split (1404 rows), 0-shot.

    Context: the paragraph, " 질문: ", the question, " 답변: ". Continuations: " 아니오", " 예"; the context ends in a
    space already, so two stand before the answer. Cells keep the white space around them.

    - ``acc`` (primary): the choice with the highest log-probability is the right one.
    - ``f1``: macro F1 of the same choices; one answer to all rows gives about 0.33.

    Published KoBEST numbers are often F1, and at 5, 10 or 50 shots. lm-evaluation-harness's group ``kobest`` gives an
    average of F1 values weighted by rows, which is no F1.
    """
    return (yield from kobest_choice(example, fewshot))
