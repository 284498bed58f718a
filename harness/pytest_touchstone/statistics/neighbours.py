"""Choosing the best checkpoint by the mean of each with its neighbours, and whether that chooses better.

Noise of the items moves each checkpoint on its own, while a training moves slowly, or does not. In the first case the
mean of a checkpoint with the ones before and after it is nearer to the truth, in the second it blurs what is there.
Which one it is, the items tell themselves, by repeated two-fold cross-validation (Stone 1974, J. Royal Statistical
Society B 36): at random they are halved, clusters whole, each benchmark by itself. One half chooses a checkpoint by its
own scores and one by the means with neighbours, and the other half scores both choices.

The means of neighbours are **founded** where their choice scores higher on the other half at least ``ODDS`` times as
often as it scores lower. Half of the items choose with more noise than all of them, which speaks for neighbours: the
odds make up for it. In simulations (``simulations.best``) this rule loses next to nothing where checkpoints jump, where
always taking the mean loses most, and has some of the gain where they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_touchstone.statistics.contrasts import totals_of_units
from pytest_touchstone.statistics.intervals import Clusters
from pytest_touchstone.statistics.paired import SEED

if TYPE_CHECKING:
    import numpy as np

SPLITS: Final = 100
"""The times that the items are halved; each half chooses once."""

ODDS: Final = 1.5


class Stratum(NamedTuple):
    """The scores of a benchmark's items, a row for each checkpoint, and the items' clusters."""

    scores: np.ndarray
    clusters: Clusters | None


class NeighbourChoice(NamedTuple):
    """The place of the best checkpoint by the means with neighbours; of so many ``choices`` by half of the items, those
    that score ``higher`` and ``lower`` on the other half than the half's own best."""

    place: int
    higher: int
    lower: int
    choices: int

    @property
    def founded(self) -> bool:
        """Return whether it is the better way to choose."""
        return self.higher > ODDS * self.lower


def means_with_neighbours(count: int, lines: Sequence[Sequence[int]]) -> np.ndarray:
    """The matrix that makes of the values of so many checkpoints the mean of each with those beside it in its line of
    places, one at an end; those in no line keep their own."""
    import numpy as np

    found = np.eye(count)
    for line in lines:
        for at, place in enumerate(line):
            beside = list(line[max(0, at - 1) : at + 2])
            found[place, beside] = 1 / len(beside)
    return found


def choose_with_neighbours(
    strata: Sequence[Stratum], lines: Sequence[Sequence[int]], *, splits: int = SPLITS
) -> NeighbourChoice | None:
    """The best of the checkpoints, by the sum over the strata of their means with neighbours; None where it is also the
    best by its own. In each stratum there must be two units."""
    import numpy as np

    units = [totals_of_units(*one) for one in strata]
    smooth = means_with_neighbours(len(units[0][0]), lines)
    whole = sum(totals.sum(axis=1) / sizes.sum() for totals, sizes in units)
    place = int((smooth @ whole).argmax())
    if place == int(whole.argmax()):
        return None
    generator = np.random.default_rng(SEED)
    first, second = np.zeros((2, len(whole), splits))
    for totals, sizes in units:
        halves = np.zeros((len(sizes), splits))
        halves[: len(sizes) // 2] = 1.0
        halves = generator.permuted(halves, axis=0)
        chosen, items = totals @ halves, sizes @ halves
        first += chosen / items
        second += (totals.sum(axis=1)[:, None] - chosen) / (sizes.sum() - items)
    gains = np.concatenate([_gains(smooth, *pair) for pair in ((first, second), (second, first))])
    # Sums of the same scores in another order differ by rounding.
    near = 1e-9 * float(np.abs(whole).max())
    higher, lower = int(np.sum(gains > near)), int(np.sum(gains < -near))
    return NeighbourChoice(place, higher, lower, len(gains))


def _gains(smooth: np.ndarray, choosing: np.ndarray, scoring: np.ndarray) -> np.ndarray:
    """By how much more the choice by neighbours scores than the plain one, in each split."""
    import numpy as np

    columns = np.arange(choosing.shape[1])
    found: np.ndarray = (
        scoring[(smooth @ choosing).argmax(axis=0), columns] - scoring[choosing.argmax(axis=0), columns]
    )
    return found
