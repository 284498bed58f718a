"""Ko-LAMBADA: which noun is missing? The same question over Korean Wikipedia has a name of its own."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from harness import CheckpointInfo, Dataset, FillMask, Scores, benchmark, composite
from harness.metrics.korean.cloze import TOP_K, clip_around_mask, hits, mask_target, noun_candidates
from harness.metrics.korean.morphology import Korean

# Costs nothing until the first item asks it something: Kiwi is loaded then, once for all items.
KOREAN = Korean()

REAL = {"real_coref:real@1": 0.4, "real_coref:real@5": 0.3}
composite("score", {**REAL, "ko_lambada:lambada@1": 0.3})
"""The model-selection score of the Korean masked-language-model studies."""
composite("score_wiki", {**REAL, "ko_lambada_wiki:lambada@1": 0.3})
"""The same sum over the Wikipedia form of Ko-LAMBADA, never to be compared with ``score``."""


class Passage(TypedDict):
    """A text with the noun ``target`` in it."""

    text: str
    target: str


def passage(row: dict[str, Any]) -> dict[str, Any]:
    """The row with ``text`` and ``target``, which some copies call ``context`` and ``answer``."""
    text, target = row.get("text") or row.get("context"), row.get("target") or row.get("answer")
    named = {"text": text, "target": target}
    return {**row, **{name: value for name, value in named.items() if value is not None}}


def ask(example: Passage, checkpoint: CheckpointInfo) -> Scores:
    """Mask the target, ask for it, and score the first noun of the answer."""
    text = clip_around_mask(mask_target(example["text"], example["target"]), checkpoint.seq_len)
    answer = yield FillMask(text, top_k=TOP_K, target=example["target"])
    candidates = noun_candidates((c.text for c in answer.candidates), KOREAN.is_noun)
    found = hits("lambada", example["target"], candidates, (1,))
    return {**found, "reachable": float(bool(answer.reachable))}


LAMBADA: dict[str, Any] = {
    "version": 1,
    "row": Passage,
    "prepare": passage,
    "asks": FillMask,
    "primary": "lambada@1",
    "metrics": ("lambada@1", "lambada@1_strict", "reachable"),
    "tags": ("korean",),
    "needs": {"kiwipiepy": "pip install 'pytest-touchstone[korean]'"},
}


@benchmark(
    "ko_lambada",
    data=Dataset("thunder-research-group/SNU_Ko-LAMBADA", local="ko_lambada/test"),
    published_rows=2255,
    missing="Ko-LAMBADA is on the Hugging Face Hub for people who have accepted its conditions there "
    "(thunder-research-group/SNU_Ko-LAMBADA, CC BY-NC-SA 4.0), so no rows of it are shipped. Accept them, "
    "log in and use --eval-data hub, or put its rows into ko_lambada/test.jsonl of your --eval-data folder. "
    "ko_lambada_wiki asks the same question of Korean Wikipedia.",
    source="thunder-research-group/SNU_Ko-LAMBADA",
    **LAMBADA,
)
def test_ko_lambada(example: Passage, checkpoint: CheckpointInfo) -> Scores:
    """Ko-LAMBADA: a missing noun of a literary text. Published numbers are over 600 of 2255 rows (seed 42).

    If the text ends with the target, the end is masked; else the target's first occurrence; else a mask is appended
    after a space. The text is clipped to 200 characters on each side of the mask, times max(1, seq_len / 512). Of the
    50 most probable tokens, less their continuation marks, the first that Kiwi takes alone for exactly one noun (NNG,
    NNP) is the answer.

    - ``lambada@1`` (primary): lenient. The answer is the target, contains it, or is contained in it.
    - ``lambada@1_strict``: the answer is the target.
    - ``reachable``: the target is one token of this tokenizer; a strict hit is possible for these only.
    """
    return (yield from ask(example, checkpoint))


@benchmark(
    "ko_lambada_wiki",
    data="ko_lambada_wiki/wiki",
    source="Paragraphs of Korean Wikipedia; rules in fixtures/build/korean_rules.py",
    **LAMBADA,
)
def test_ko_lambada_wiki(example: Passage, checkpoint: CheckpointInfo) -> Scores:
    """The last noun of a paragraph of Korean Wikipedia, asked for and scored as in Ko-LAMBADA.

    The paragraph is cut off after its last noun, which is masked. Its scores are named as Ko-LAMBADA's are, but the
    texts are of another kind: never compare or combine the two.
    """
    return (yield from ask(example, checkpoint))
