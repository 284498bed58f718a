"""The test and the interval of a mean whose values are bounded, which hold however skewed the values are.

An average over few items misses what is rare: where one item in twenty gains much and the others lose a little, many
samples hold too few of those that gain, and every test of symmetry, and t, calls the loss certain. So the mean of n
values has one more beside them, at the bound: the largest one that could have been there and was not seen.

- **Gaffke's bound** (2005, Mathematical Methods of Statistics 14): each value has a random weight, the n + 1 spacings
  of n uniform numbers, which are exponential numbers divided by their sum. The chance that the weighted mean, with one
  further value at the upper bound, is at least 0 is the p of the hypothesis that the mean is at least 0. For right and
  wrong answers that is Clopper and Pearson's test (1934). No distribution is known for which it errs more often than
  it may; that there is none is a conjecture (Learned-Miller and Thomas 2019, arXiv 1905.06208). Without the further
  value it is the Bayesian bootstrap (Rubin 1981, Annals of Statistics 9).
- **One line for test and interval**: the weighted mean is linearised, mean + sum of c_i (E_i - 1) + c E, with E_i and E
  exponential, c_i = (d_i - mean) / n, and c = (bound - mean) / (n + 1). The c_i are scaled so that their squares add
  up to the variance of the mean. Then all limits are quantiles of one distribution, p is its chance beyond 0, and an
  interval leaves out 0 just where p is small enough.
- **The bound**: a few that gain much, unseen, make good what the others lose only where nearly all others lose. Where,
  of the units that differ, at least two fifths do so in either direction, the further value is taken to be half as far
  away as the bound, or as far as the farthest seen. Smooth scores of small spread then need fewer items, and in
  ``simulations.skewed`` still no more than 2.5 % of equal runs are called worse.
- **Clusters** are units with sums in place of values; the further one is of the size n / Kish's number of units.
- **Weighted sums** of several means: the units of all have their spacings. There is one further unit, the one that
  could move the sum most.
- **The tail** of a sum of exponential numbers is Barndorff-Nielsen's r* (1991, Biometrika 78; Lugannani and Rice 1980,
  Advances in Applied Probability 12). For one exponential number it is right to a hundredth of the tail.

Nothing is drawn, so the order of the items does not matter, and no p has a smallest value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_touchstone.statistics.intervals import IntervalLimits, Moments

if TYPE_CHECKING:
    import numpy as np

BOTH_WAYS: Final = 0.4
"""The share of the units that differ that must do so in either direction for a nearer bound."""

_NEAR: Final = 1e-4  # of the mean, in standard errors
_EDGE: Final = 1 - 1e-12
_FAR: Final = 1e12


class BoundedMean(NamedTuple):
    """A mean and the bound of absolute values per item; None where it is not known."""

    moments: Moments
    bound: float | None


@dataclass(frozen=True, slots=True)
class Spacings:
    """A sum of means: ``steps`` is what the weight of each unit moves it by.

    ``above`` and ``below`` are what the further unit at either end would move it by.
    """

    mean: float
    steps: np.ndarray
    above: float
    below: float

    @property
    def p(self) -> float:
        """Return the two-sided p of the sum being 0."""
        upper = _tail(self._with(self.steps, self.above), -self.mean - self.above)
        lower = _tail(self._with(-self.steps, self.below), self.mean - self.below)
        return min(1.0, 2 * upper, 2 * lower)

    def limits(self, level: float) -> IntervalLimits | None:
        """Return the limits at this level; None if nothing varies and nothing could."""
        upper, lower = self._with(self.steps, self.above), self._with(-self.steps, self.below)
        if not upper.any() and not lower.any():
            return None
        high = self.mean + self.above + _quantile(upper, (1 - level) / 2)
        low = self.mean - self.below - _quantile(lower, (1 - level) / 2)
        return IntervalLimits(min(low, self.mean), max(high, self.mean))

    @property
    def against(self) -> float:
        """Return the skewness of the measured sum, positive if its tail is on the other side of 0.

        Then the sum is likely to be nearer to 0, or beyond it, than it was measured.
        """
        import numpy as np

        norm = math.sqrt(float(np.square(self.steps).sum()))
        return math.copysign(1.0, -self.mean) * float(((self.steps / norm) ** 3).sum()) if norm else 0.0

    @staticmethod
    def _with(steps: np.ndarray, further: float) -> np.ndarray:
        import numpy as np

        return np.sort(np.append(steps, further))


def spacings_of(means: Sequence[BoundedMean]) -> Spacings:
    """Return the spacings of a sum of independent means, each with a variance."""
    import numpy as np

    steps, above, below = [], [0.0], [0.0]
    for moments, bound in means:
        mean, variance = moments.mean, moments.variance or 0.0
        deviations = np.sort(np.asarray(moments.totals) - mean * np.asarray(moments.sizes)) / moments.n
        square = math.fsum(np.square(deviations).tolist())
        steps.append(deviations * math.sqrt(variance / square) if square else deviations)
        most = _farthest(moments, bound)
        share = 1 / (moments.kish + 1)
        above.append(share * (most - mean))
        below.append(share * (most + mean))
    return Spacings(
        math.fsum(unit_mean.moments.mean for unit_mean in means),
        np.concatenate(steps),
        max(above),
        max(below),
    )


def _farthest(moments: Moments, bound: float | None) -> float:
    """Return the largest absolute value, per item, that one more unit is assumed to have."""
    seen = max(abs(total / size) for total, size in zip(moments.totals, moments.sizes, strict=True))
    if bound is None:
        return seen
    up, down = sum(total > 0 for total in moments.totals), sum(total < 0 for total in moments.totals)
    return max(seen, bound / 2) if min(up, down) >= BOTH_WAYS * (up + down) > 0 else bound


def _tail(steps: np.ndarray, point: float) -> float:
    """Return the chance that the sum of step * (exponential number - 1) is at least ``point``."""
    import numpy as np
    from scipy.special import ndtr

    norm = math.sqrt(float(np.square(steps).sum()))
    if not norm:
        return float(point <= 0)
    scaled = steps / norm
    return float(ndtr(-_r_star(scaled, _tilt(scaled, point / norm, _place))))


def _quantile(steps: np.ndarray, tail: float) -> float:
    """Return the point that the sum of ``_tail`` exceeds with this chance."""
    import numpy as np
    from scipy.special import ndtri

    norm = math.sqrt(float(np.square(steps).sum()))
    if not norm:
        return 0.0
    scaled = steps / norm
    return norm * _place(scaled, _tilt(scaled, -float(ndtri(tail)), _r_star))


def _tilt(scaled: np.ndarray, wanted: float, function: Callable[[np.ndarray, float], float]) -> float:
    """Return the exponential tilt at which an increasing function has the wanted value.

    If it lies outside the range, the nearer end of the range is returned.
    """
    from scipy.optimize import brentq

    low = -_EDGE / max(-float(scaled[0]), 1 / _FAR)
    high = _EDGE / max(float(scaled[-1]), 1 / _FAR)
    if function(scaled, low) >= wanted:
        return low
    if function(scaled, high) <= wanted:
        return high
    return float(brentq(lambda tilt: function(scaled, tilt) - wanted, low, high, xtol=1e-13))


def _place(scaled: np.ndarray, tilt: float) -> float:
    """Return the mean of the sum under the tilt, the first derivative of its cumulants.

    Without a tilt, the sum has mean 0.
    """
    return float((scaled * (tilt * scaled) / (1 - tilt * scaled)).sum())


def _r_star(scaled: np.ndarray, tilt: float) -> float:
    """Return the normal quantile with the same upper tail as the tilted mean of a sum of variance 1."""
    import numpy as np

    if abs(tilt) < _NEAR:
        return tilt + float((scaled**3).sum()) / 3  # a sixth of the skewness
    left = 1 - tilt * scaled
    cumulants = float((-np.log(left) - tilt * scaled).sum())
    root = math.copysign(math.sqrt(max(0.0, 2 * (tilt * _place(scaled, tilt) - cumulants))), tilt)
    spread = tilt * math.sqrt(float(np.square(scaled / left).sum()))
    return root + math.log(spread / root) / root
