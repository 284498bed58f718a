"""Real@k: does the model find the noun that is mentioned a second time?"""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from pytest_touchstone import CheckpointInfo, FillMask, Published, Scores, benchmark
from pytest_touchstone.metrics.korean import (
    REAL_METRICS,
    TOP_K,
    clip_around_mask,
    is_noun,
    nouns,
    real_scores,
    visible,
)


class Mention(TypedDict):
    """A text whose second mention of the noun ``target`` is ``[MASK]``; up to three items share a text."""

    text: str
    target: str
    text_id: NotRequired[str]


@benchmark(
    "real_coref",
    version=1,
    data="real_coref/wiki",
    row=Mention,
    asks=FillMask,
    primary="real@1",
    metrics=REAL_METRICS,
    tags=("korean",),
    cluster="text_id",
    subsets="source",
    needs={"kiwipiepy": "pip install 'pytest-touchstone[korean]'"},
    published=Published(source="Korean texts without pronouns; rules in fixtures/build/korean_rules.py"),
)
def test_real_coref(example: Mention, touchstone_checkpoint: CheckpointInfo) -> Scores:
    """Real@k, coreference without pronouns: the model is to name a noun whose second mention is masked.

    The text is clipped to 200 characters on each side of the mask, times max(1, seq_len / 512). Of the 50
    most probable tokens, less their continuation marks, those that Kiwi takes alone for exactly one noun
    (NNG, NNP) are the candidates, most probable first.

    - ``real@1`` (primary), ``real@5``: lenient, as in published tables. One of the first k candidates is
      the target, contains it, or is contained in it. No candidate is a miss.
    - ``real@1_strict``, ``real@5_strict``: one of the first k candidates is the target.
    - ``reachable``: the target is one token of this tokenizer; a strict hit is possible for these only.
    - ``copy_baseline``, ``copy_baseline_strict``: the same of an answer without a model, the most frequent
      noun of those that the clipped text shows twice or more (the first of equals; a miss where there is
      none).

    Rows of several sources (field ``source``) are also reported by source.
    """
    text = clip_around_mask(example["text"], touchstone_checkpoint.seq_len)
    answer = yield FillMask(text, top_k=TOP_K, target=example["target"])
    shown = [noun.form for noun in nouns(visible(text))]
    return real_scores(example["target"], answer, is_noun, shown)
