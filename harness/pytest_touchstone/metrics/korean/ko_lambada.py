"""Ko-LAMBADA's rows, and how its noun is asked for, of literary texts and of Korean Wikipedia alike."""

from __future__ import annotations

from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone.core.grade import Scores
from pytest_touchstone.core.requests import FillMask
from pytest_touchstone.metrics.korean.cloze import TOP_K, clip_around_mask, hits, mask_target, noun_candidates
from pytest_touchstone.metrics.korean.morphology import Korean

# Costs nothing until the first item asks it something: Kiwi is loaded then, once for all items.
_KOREAN: Final = Korean()


class KoLambadaRow(TypedDict):
    """A text with the noun ``target`` in it."""

    text: str
    target: str


def ko_lambada_row(row: dict[str, Any]) -> dict[str, Any]:
    """The row with ``text`` and ``target``, which some copies call ``context`` and ``answer``."""
    text, target = row.get("text") or row.get("context"), row.get("target") or row.get("answer")
    named = {"text": text, "target": target}
    return {**row, **{name: value for name, value in named.items() if value is not None}}


def ask_noun(example: KoLambadaRow, seq_len: int) -> Scores:
    """Mask the target, ask for it, and score the first noun of the answer."""
    text = clip_around_mask(mask_target(example["text"], example["target"]), seq_len)
    answer = yield FillMask(text, top_k=TOP_K, target=example["target"])
    candidates = noun_candidates((c.text for c in answer.candidates), _KOREAN.is_noun)
    found = hits("lambada", example["target"], candidates, (1,))
    return {**found, "reachable": float(bool(answer.reachable))}


KO_LAMBADA: Final[dict[str, Any]] = {
    "version": 1,
    "row": KoLambadaRow,
    "prepare": ko_lambada_row,
    "asks": FillMask,
    "primary": "lambada@1",
    "metrics": ("lambada@1", "lambada@1_strict", "reachable"),
    "tags": ("korean",),
    "needs": {"kiwipiepy": "pip install 'pytest-touchstone[korean]'"},
}
