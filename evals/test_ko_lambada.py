"""Ko-LAMBADA: which noun of a literary text is missing?"""

from __future__ import annotations

from pytest_touchstone import CheckpointInfo, Dataset, Published, Scores, benchmark, composite
from pytest_touchstone.metrics.korean import KO_LAMBADA, KoLambadaRow, ask_noun

composite("score", {"real_coref:real@1": 0.4, "real_coref:real@5": 0.3, "ko_lambada:lambada@1": 0.3})
"""The model-selection score of the Korean masked-language-model studies."""


@benchmark(
    "ko_lambada",
    data=Dataset("thunder-research-group/SNU_Ko-LAMBADA", local="ko_lambada/test"),
    published=Published(2255, source="thunder-research-group/SNU_Ko-LAMBADA"),
    missing="Ko-LAMBADA is on the Hugging Face Hub for people who have accepted its conditions there "
    "(thunder-research-group/SNU_Ko-LAMBADA, CC BY-NC-SA 4.0), so no rows of it are shipped. Accept them, "
    "log in and use --eval-data hub, or put its rows into ko_lambada/test.jsonl of your --eval-data folder. "
    "ko_lambada_wiki asks the same question of Korean Wikipedia.",
    **KO_LAMBADA,
)
def test_ko_lambada(example: KoLambadaRow, touchstone_checkpoint: CheckpointInfo) -> Scores:
    """Ko-LAMBADA: a missing noun of a literary text. Published numbers are over 600 of 2255 rows (seed 42).

    If the text ends with the target, the end is masked; else the target's first occurrence; else a mask is appended
    after a space. The text is clipped to 200 characters on each side of the mask, times max(1, seq_len / 512). Of the
    50 most probable tokens, less their continuation marks, the first that Kiwi takes alone for exactly one noun (NNG,
    NNP) is the answer.

    - ``lambada@1`` (primary): lenient. The answer is the target, contains it, or is contained in it.
    - ``lambada@1_strict``: the answer is the target.
    - ``reachable``: the target is one token of this tokenizer; a strict hit is possible for these only.
    """
    return (yield from ask_noun(example, touchstone_checkpoint.seq_len))
