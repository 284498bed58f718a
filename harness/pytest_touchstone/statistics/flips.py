"""Items that change between two checkpoints, over a series, and by chance alone.

An item is *right* where its score is above a half: with one answer, where that is right; with several sampled ones,
where most are.

- **Forgotten**: right, and wrong at the next checkpoint; **learned**: the other way (the "forgetting events" of Toneva
  et al. 2019, arXiv 1812.05159, over checkpoints).
- **Direction**: McNemar's exact test that as many were learned as forgotten.
- **By chance alone** items change where answers are sampled, though the model does not. Were both checkpoints one
  model, the 2k samples of an item would have fallen to either by lot. Of c right ones among them, the first gets
  a hypergeometric number, and the chance that just one of the two has most of its samples right follows. Added up over
  the items it is the expected number of changes, exactly. One sample of each item tells nothing: the lot then changes
  every item that did change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_touchstone.statistics.proportions import mcnemar_p

if TYPE_CHECKING:
    import numpy as np

HALF: Final = 0.5


class Changed(NamedTuple):
    """The places of the items that were right and then wrong, and the other way; ``p`` of the test that both are
    equally likely."""

    forgotten: tuple[int, ...]
    learned: tuple[int, ...]
    p: float


def changed(before: Sequence[float], after: Sequence[float]) -> Changed:
    """The items that differ between two checkpoints; raises ``ValueError`` for lists of unequal length."""
    import numpy as np

    if len(before) != len(after):
        raise ValueError(f"{len(before)} and {len(after)} items; compare the same items")
    one, other = np.asarray(before) > HALF, np.asarray(after) > HALF
    forgotten, learned = np.flatnonzero(one & ~other).tolist(), np.flatnonzero(other & ~one).tolist()
    return Changed(tuple(forgotten), tuple(learned), mcnemar_p(len(learned), len(forgotten)))


def changed_by_chance(before: Sequence[float], after: Sequence[float], samples: int) -> float | None:
    """The number of items that would change if both checkpoints were one model; None for one sample of each item."""
    if samples < 2:
        return None
    right = [round((a + b) * samples) for a, b in zip(before, after, strict=True)]
    return math.fsum(_changed_by_lot(total, samples) for total in right)


@lru_cache(maxsize=1024)
def _changed_by_lot(right: int, samples: int) -> float:
    """The chance that just one of two runs has most samples right, where both together have so many."""
    ways = [
        math.comb(right, one) * math.comb(2 * samples - right, samples - one)
        for one in range(max(0, right - samples), min(samples, right) + 1)
        if (2 * one > samples) != (2 * (right - one) > samples)
    ]
    return sum(ways) / math.comb(2 * samples, samples)


class Paths(NamedTuple):
    """The places of items by their way through a series.

    ``kept``: right throughout; ``never``: wrong throughout; ``learned``: wrong at first, and right from some
    checkpoint to the last; ``lost``: the other way; ``unsteady``: changed more than once.
    """

    kept: tuple[int, ...]
    never: tuple[int, ...]
    learned: tuple[int, ...]
    lost: tuple[int, ...]
    unsteady: tuple[int, ...]


def paths(columns: Sequence[Sequence[float]] | np.ndarray) -> Paths:
    """The ways of the items through two or more checkpoints; raises ``ValueError`` for fewer, and unequal lists."""
    import numpy as np

    if len(columns) < 2 or len({len(one) for one in columns}) > 1:
        raise ValueError("give two or more checkpoints with the same items")
    right = np.asarray(columns) > HALF
    changes = (right[1:] != right[:-1]).sum(axis=0)
    last = right[-1]

    def where(chosen: np.ndarray) -> tuple[int, ...]:
        return tuple(np.flatnonzero(chosen).tolist())

    return Paths(
        kept=where((changes == 0) & last),
        never=where((changes == 0) & ~last),
        learned=where((changes == 1) & last),
        lost=where((changes == 1) & ~last),
        unsteady=where(changes > 1),
    )
