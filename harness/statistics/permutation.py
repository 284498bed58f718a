"""The paired permutation test: were the labels of the two runs exchanged at random, how often would so much differ?

Each independent unit (an item; a cluster of items with one text) has a total of differences. Without an effect its
sign is as likely + as - (Fisher 1935, "The Design of Experiments", section 21); the statistic is the absolute sum.
Three ways to the same p:

- **counted**: where all totals are whole multiples of one step (right or wrong items, pass@1 of n samples) the
  distribution of the sum is built up total by total, for any number of units (Pagano and Tritchler 1983, JASA 78).
  With totals of one size it is McNemar's exact test;
- **enumerated**: all 2^units signs, for up to 20 units that differ;
- **drawn**: else ``draws`` random signs by a seeded generator, p = (1 + as extreme) / (1 + draws), which is never 0
  and keeps the error rate (Phipson and Smyth 2010, Statistical Applications in Genetics and Molecular Biology 9).

Signs are dealt to the sizes in order, so neither the order of the items nor which run is called the new one matters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np

DRAWS: Final = 9_999
_ENUMERATED: Final = 20
_STEPS: Final = 100
_COUNTED: Final = 100_000_000  # additions, about a tenth of a second
_TOLERANCE: Final = 1e-9


class PermutationTest(NamedTuple):
    """A two-sided p and how it was found."""

    p: float
    how: str


def sign_flip_test(totals: Sequence[float], *, seed: int = 0, draws: int = DRAWS) -> PermutationTest:
    """The test that the units' totals are as likely positive as negative; p is 1 where none differs from 0."""
    sizes = sorted(abs(total) for total in totals if total)
    if not sizes:
        return PermutationTest(1.0, "no unit differs")
    statistic = abs(math.fsum(totals))
    steps = _as_steps(sizes)
    if steps is not None:
        return PermutationTest(_counted(steps, round(statistic / (sizes[0] / steps[0]))), "exact, counted")
    least = statistic * (1 - _TOLERANCE) - _TOLERANCE * sizes[-1]
    if len(sizes) <= _ENUMERATED:
        return PermutationTest(_enumerated(sizes, least), "exact, enumerated")
    return PermutationTest(_drawn(sizes, least, seed, draws), f"{draws} draws")


def _as_steps(sizes: Sequence[float]) -> list[int] | None:
    """The sizes as whole multiples of one step, None where they have none or counting would take too long."""
    import numpy as np

    if sizes[0] * _COUNTED < sizes[-1]:
        return None
    ratios = np.asarray(sizes) / sizes[0]
    for denominator in range(1, _STEPS + 1):
        scaled = ratios * denominator
        whole = np.rint(scaled)
        if np.all(np.abs(scaled - whole) <= _TOLERANCE * scaled):
            steps = [int(one) for one in whole]
            return steps if sum(steps) * len(steps) <= _COUNTED else None
    return None


def _counted(steps: Sequence[int], statistic: int) -> float:
    """P(|sum of +-steps| >= statistic), from the distribution of the sum of the positive ones."""
    import numpy as np
    from scipy.special import gammaln

    total = sum(steps)
    chance = np.ones(1)
    for size, count in Counter(steps).items():
        ways = np.arange(count + 1)
        binomial = np.exp(
            gammaln(count + 1) - gammaln(ways + 1) - gammaln(count - ways + 1) - count * math.log(2)
        )
        longer = np.zeros(len(chance) + size * count)
        for positive, weight in enumerate(binomial):
            longer[positive * size : positive * size + len(chance)] += weight * chance
        chance = longer
    sums = 2 * np.arange(total + 1) - total
    return min(1.0, float(chance[np.abs(sums) >= statistic].sum()))


def _enumerated(sizes: Sequence[float], least: float) -> float:
    import numpy as np

    sums = np.zeros(1)
    for size in sizes:
        sums = np.concatenate((sums + size, sums - size))
    return float(np.mean(np.abs(sums) >= least))


def _drawn(sizes: Sequence[float], least: float, seed: int, draws: int) -> float:
    import numpy as np

    generator, values = np.random.default_rng(seed), np.asarray(sizes)
    extreme, total = 0, float(values.sum())
    for start in range(0, draws, 1000):
        positive: np.ndarray = generator.random((min(1000, draws - start), len(values))) < 0.5
        extreme += int(np.count_nonzero(np.abs(2 * (positive @ values) - total) >= least))
    return (1 + extreme) / (1 + draws)
