"""KoBEST WiC: a Korean word in two sentences, in one sense or in two."""

from __future__ import annotations

from pytest_touchstone import FewShot, Scores, benchmark
from pytest_touchstone.metrics.korean import KobestRow, kobest_choice, kobest_task


@benchmark("kobest_wic", **kobest_task("wic"), primary="acc", metrics=("acc",))
def test_kobest_wic(example: KobestRow, fewshot: FewShot) -> Scores:
    """KoBEST WiC (Kim et al. 2022), test split (1260 rows), 0-shot.

    Context: "문장1: ", a sentence, " 문장2: ", another, " 두 문장에서 ", the word, "가 같은 뜻으로 쓰였나?".
    The particle is always 가, and the word stands in brackets in both sentences. Continuations: " 아니오", " 예".
    Scores: those of ``kobest_boolq``.
    """
    return (yield from kobest_choice(example, fewshot))
