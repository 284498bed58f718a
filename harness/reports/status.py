"""How pytest shows an item that was scored: the letter of the dots line and the word of ``-v`` carry the
score.

    letter   meaning                          word
    +        1 (right)                        1.00
    -        0 (wrong)                        0.00
    0 to 9   between 0 and 1: its tenth       0.83
    ~        any other number, or no score    -12.41, SCORED

The category stays "passed": any other would turn pytest's bar yellow.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

UNGRADED: Final = "~"


class ItemStatus(NamedTuple):
    """What pytest shows of one item."""

    letter: str
    word: str


def item_status(primary: float | None) -> ItemStatus:
    """Letter and word of an item with this primary score; None when the item has no such score."""
    if primary is None or not math.isfinite(primary):
        return ItemStatus(UNGRADED, "SCORED")
    return ItemStatus(_letter(primary), f"{primary:.2f}" if abs(primary) < 1e6 else f"{primary:.2e}")


def _letter(score: float) -> str:
    if score == 1:
        return "+"
    if score == 0:
        return "-"
    # The tenth below: 0.99 is a 9, and never looks like a full score.
    return str(int(score * 10)) if 0 < score < 1 else UNGRADED
