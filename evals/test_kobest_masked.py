"""KoBEST COPA, HellaSwag and SentiNeg for masked models: the choice that makes the likelier text."""

from __future__ import annotations

from pytest_touchstone import Scores, benchmark
from pytest_touchstone.metrics.korean import KobestRow, kobest_masked, kobest_text


@benchmark("kobest_copa_masked", **kobest_masked("copa"))
def test_kobest_copa_masked(example: KobestRow) -> Scores:
    """KoBEST COPA (Kim et al. 2022), test split (1000 rows), for masked models, 0-shot.

    Two texts: the sentence, two spaces, "왜냐하면" (because) or "그래서" (therefore), one space, an alternative.
    The score of a text is its pseudo-log-likelihood (Salazar et al. 2020): every token is masked in turn, and the
    log-probabilities of the true tokens are added, those of the sentence too.

    - ``acc`` (primary): the alternative with the higher sum is the right one.
    - ``acc_tokens``, ``acc_norm``, ``acc_bytes``: the same per token, per character, per UTF-8 byte of the whole text.

    A word of several tokens is easily read from those that are left (Kauf and Ivanova 2023), so models with other
    vocabularies are best compared by ``acc_tokens`` too. Not comparable: ``kobest_copa``, asked of causal models.
    """
    return (yield from kobest_text(example))


@benchmark("kobest_hellaswag_masked", **kobest_masked("hellaswag"))
def test_kobest_hellaswag_masked(example: KobestRow) -> Scores:
    """KoBEST HellaSwag (Kim et al. 2022), test split (500 rows), for masked models, 0-shot.

    Four texts: "문장: ", the scene, one space, an ending. Scores: those of ``kobest_copa_masked``.
    """
    return (yield from kobest_text(example))


@benchmark("kobest_sentineg_masked", **kobest_masked("sentineg"))
def test_kobest_sentineg_masked(example: KobestRow) -> Scores:
    """KoBEST SentiNeg (Kim et al. 2022), test split (397 reviews), for masked models, 0-shot.

    Two texts: "문장: ", the review, " 긍부정: ", "부정" (negative) or "긍정" (positive). Scores: those of
    ``kobest_copa_masked``.
    """
    return (yield from kobest_text(example))
