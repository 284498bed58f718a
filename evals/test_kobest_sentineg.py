"""KoBEST SentiNeg: Korean reviews and their negations, good or bad."""

from __future__ import annotations

from pytest_touchstone import FewShot, Scores, benchmark
from pytest_touchstone.metrics.korean import KobestRow, kobest_choice, kobest_task


@benchmark("kobest_sentineg", **kobest_task("sentineg"), primary="acc", metrics=("acc",))
def test_kobest_sentineg(example: KobestRow, fewshot: FewShot) -> Scores:
    """KoBEST SentiNeg (Kim et al. 2022), test split (397 reviews, each the negation of another), 0-shot.

    Context: "문장: ", the review, " 긍부정:". Continuations: " 부정" (negative), " 긍정" (positive). Scores: those of
    ``kobest_boolq``.
    """
    return (yield from kobest_choice(example, fewshot))
