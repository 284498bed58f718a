"""Intervals and tests of shares that are valid for few items, near 0 and 1, and where nothing differs.

- **McNemar's exact test** (McNemar 1947, Psychometrika 12; exact form: Cochran 1950, Biometrika 37): of the items
  on which two runs disagree, each is as likely to be won as lost; two-sided binomial with 1/2.
- **Tango's interval** (Tango 1998, Statistics in Medicine 17) for the difference of two shares on the same items: all
  differences that the score test does not reject. The share of lost items is estimated under each of them. At a
  difference of 0 that test is McNemar's without correction, so test and interval agree up to the exact test's
  caution. It exists where no item differs, is inside [-1, 1], and covers well for few items (Newcombe 1998,
  Statistics in Medicine 17, pages 2635-2650; Fagerland, Lydersen and Laake 2014, Statistics in Medicine 33).
- **Newcombe's interval** (method 10 of Newcombe 1998, Statistics in Medicine 17, pages 873-890) for the difference of
  two independent shares: Wilson's limits of both, combined.
- **Score test** of two independent shares: z with the pooled share, which is Pearson's chi-squared (1900) without
  correction.

Counts need not be whole: an effective number of items stands in where items depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

from pytest_touchstone.statistics.comparison import check_level, z_quantile


class Limits(NamedTuple):
    """Both ends of an interval."""

    low: float
    high: float


def mcnemar_p(gained: int, lost: int) -> float:
    """The two-sided exact p of as uneven a split of the items that differ; 1 where none does."""
    if gained < 0 or lost < 0:
        raise ValueError(f"counts of items below 0: gained={gained}, lost={lost}")
    if gained == lost:
        return 1.0
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(gained, lost), gained + lost, 0.5)))


def tango_interval(gained: float, lost: float, n: float, level: float = 0.95) -> Limits:
    """The score interval of the difference (gained - lost) / n on the same ``n`` items."""
    check_level(level)
    if n <= 0 or min(gained, lost) < 0 or gained + lost > n * (1 + 1e-9):
        raise ValueError(f"no counts of items: gained={gained}, lost={lost} of n={n}")
    if gained < lost:  # one direction of rounding only, so that both directions mirror each other
        other = tango_interval(lost, gained, n, level)
        return Limits(-other.high, -other.low)
    z, difference = z_quantile(level), (gained - lost) / n

    def excess(supposed: float, side: int) -> float:
        """The excess of the statistic of a supposed difference over z, times its standard error."""
        share = supposed_share_lost(gained, lost, n, supposed)
        variance = n * (2 * share + supposed * (1 - supposed))
        return side * (gained - lost - n * supposed) - z * math.sqrt(max(0.0, variance))

    low = _crossing(lambda one: excess(one, 1), -1.0, difference)
    high = _crossing(lambda one: excess(one, -1), 1.0, difference)
    return Limits(low, high)


def supposed_share_lost(gained: float, lost: float, n: float, difference: float) -> float:
    """The most likely share of lost items, were the difference of the shares this one (Tango 1998)."""
    a = 2 * n
    b = (2 * n - gained + lost) * difference - gained - lost
    c = -lost * difference * (1 - difference)
    root = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    return min(max(root, 0.0, -difference), (1 - difference) / 2)


def _crossing(excess: Callable[[float], float], outside: float, inside: float) -> float:
    """The place at which ``excess`` falls to 0 on the way in; ``outside`` if it is not positive there."""
    from scipy.optimize import brentq

    if excess(outside) <= 0:
        return outside
    # At the estimate itself the variance, and with it the excess, is 0 where no item differs.
    near = inside + (outside - inside) * 1e-9
    return float(brentq(excess, outside, near, xtol=1e-15, rtol=1e-14)) if excess(near) < 0 else inside


def share_test_p(hits_a: float, n_a: float, hits_b: float, n_b: float) -> float:
    """The two-sided p of the score test that two independent shares are equal; 1 where all items agree."""
    pooled = (hits_a + hits_b) / (n_a + n_b)
    variance = pooled * (1 - pooled) * (1 / n_a + 1 / n_b)
    if variance <= 0:
        return 1.0
    z = (hits_b / n_b - hits_a / n_a) / math.sqrt(variance)
    return 2 * NormalDist().cdf(-abs(z))


def newcombe_interval(hits_a: float, n_a: float, hits_b: float, n_b: float, level: float = 0.95) -> Limits:
    """The interval of share b - share a for independent runs."""
    z = z_quantile(check_level(level))
    a, b = hits_a / n_a, hits_b / n_b
    low_a, high_a = wilson_limits(a, n_a, z)
    low_b, high_b = wilson_limits(b, n_b, z)
    down, up = math.hypot(b - low_b, high_a - a), math.hypot(high_b - b, a - low_a)
    return Limits(b - a - down, b - a + up)


def wilson_limits(share: float, n: float, z: float) -> Limits:
    """Wilson's limits (1927, JASA 22) of a share of ``n`` items, ``z`` standard errors wide."""
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Limits(min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half)))
