"""The scale on which somebody's results file writes a metric: shares from 0 to 1, or per cent.

Programs write an accuracy as 0.6 or as 60.1, and some write both into one file: lm-evaluation-harness has SQuAD's
scores, BLEU, chrF and ROUGE in per cent, and all else as shares. A value above 1 cannot be a share. One of at most 1
may be either, so its own error decides, or how the same metric is written elsewhere in the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

SHARE: Final = 1
PER_CENT: Final = 100

_SHARES: Final = re.compile(
    r"(.*_)?(acc|accuracy|em|exact|exact_match|f1|pass@\d+|pass_at_\d+|precision|recall|match|mcc|math_verify|rate)"
    r"(_.*)?"
)
"""Metrics that are shares by their meaning, and so are per cent where they are above 1."""

_TEXTS: Final = re.compile(r"(sacre)?bleu.*|chrf.*|rouge.*|meteor.*|bertscore.*")
_TEXTS_OF_LM_EVAL: Final = re.compile(r"bleu|chrf|(bleu|rouge[\dL]*)_(max|diff)")
"""Scores of texts, which many programs write in per cent, and those that lm-evaluation-harness always does."""

_SQUAD: Final = re.compile(r"([^,]*[_-])?\w*quad(_?v?\d.*|[_-].*)?", re.IGNORECASE)
_OF_SQUAD: Final = re.compile(r"(exact|f1|exact_match)|(HasAns|NoAns|best)_(exact|f1)")

_OTHERWISE: Final = 3.0
"""The factor by which a share's error may exceed that of right and wrong answers; in per cent it is over ten."""


class Written(NamedTuple):
    """A metric as a file has it, by its name without a filter; the error and the number of items may not be known."""

    task: str
    name: str
    value: float
    error: float | None = None
    n: int = 0


def divisor_of(one: Written, *, mixed: bool = False, lm_eval: bool = False) -> int | None:
    """The number that makes a share of the value, 1 or 100; 1 for a metric of another kind that is at most 1.

    ``mixed``: the same metric is above 1 in another task of the file. None where the scale is not known.
    """
    name, value = one.name, abs(one.value)
    if not (_SHARES.fullmatch(name) or _TEXTS.fullmatch(name)):
        return SHARE if one.value <= 1 else None
    if value > 1:
        return PER_CENT if value <= PER_CENT else None
    if lm_eval and (_TEXTS_OF_LM_EVAL.fullmatch(name) or _is_squad(one)):
        return PER_CENT
    if one.error and one.n > 1 and value > 0:
        binary = math.sqrt(value * (1 - value) / (one.n - 1))
        return PER_CENT if one.error > _OTHERWISE * binary else SHARE
    return None if mixed and value else SHARE


def mixed_names(found: Iterable[Written]) -> frozenset[str]:
    """The metrics that are above 1 in some task, SQuAD's own scores aside."""
    return frozenset(one.name for one in found if one.value > 1 and not _is_squad(one))


def _is_squad(one: Written) -> bool:
    return _SQUAD.fullmatch(one.task) is not None and _OF_SQUAD.fullmatch(one.name) is not None
