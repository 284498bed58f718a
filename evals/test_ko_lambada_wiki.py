"""The question of Ko-LAMBADA over Korean Wikipedia, which has a name of its own."""

from __future__ import annotations

from pytest_touchstone import CheckpointInfo, Published, Scores, benchmark, composite
from pytest_touchstone.metrics.korean import KO_LAMBADA, KoLambadaRow, ask_noun

composite(
    "score_wiki", {"real_coref:real@1": 0.4, "real_coref:real@5": 0.3, "ko_lambada_wiki:lambada@1": 0.3}
)
"""The sum of ``score`` over the Wikipedia form of Ko-LAMBADA, never to be compared with it."""


@benchmark(
    "ko_lambada_wiki",
    data="ko_lambada_wiki/wiki",
    published=Published(source="Paragraphs of Korean Wikipedia; rules in fixtures/build/korean_rules.py"),
    **KO_LAMBADA,
)
def test_ko_lambada_wiki(example: KoLambadaRow, touchstone_checkpoint: CheckpointInfo) -> Scores:
    """The last noun of a paragraph of Korean Wikipedia, asked for and scored as in Ko-LAMBADA.

    The paragraph is cut off after its last noun, which is masked. Its scores are named as Ko-LAMBADA's are, but the
    texts are of another kind: never compare or combine the two.
    """
    return (yield from ask_noun(example, touchstone_checkpoint.seq_len))
