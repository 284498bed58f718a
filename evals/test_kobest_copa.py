"""KoBEST COPA: the cause or the effect of what a Korean sentence tells."""

from __future__ import annotations

from pytest_touchstone import FewShot, Scores, benchmark
from pytest_touchstone.metrics.korean import KobestRow, kobest_choice, kobest_task


@benchmark("kobest_copa", **kobest_task("copa"), primary="acc", metrics=("acc",))
def test_kobest_copa(example: KobestRow, fewshot: FewShot) -> Scores:
    """KoBEST COPA (Kim et al. 2022), test split (1000 rows), 0-shot.

    Context: the sentence, two spaces, "왜냐하면" (because) or "그래서" (therefore), as the row asks for a cause or an
    effect. Continuations: one space and the alternative, for both. Scores: those of ``kobest_boolq``, no length counts.
    """
    return (yield from kobest_choice(example, fewshot))
