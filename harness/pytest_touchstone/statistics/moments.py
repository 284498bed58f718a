"""A mean of items and the variance of that mean, with items in clusters or without.

- **Standard error of a mean**: sqrt(s^2 / n), s^2 with divisor n - 1. For 0/1 values that is sqrt(p (1 - p) / (n - 1)).
- **Clusters** (items that share a text): the variance of the mean is G/(G - 1) * sum_g d_g^2 / n^2, d_g being the sum
  of cluster g's deviations from the mean. It has G - 1 degrees of freedom (Liang and Zeger 1986, Biometrika 73). The
  factor is that of Cameron and Miller (2015, J. Human Resources 50); Miller (2024, arXiv 2411.00640) recommends the
  formula for evaluations of language models. With clusters of one item it is s^2 / n exactly.

Sums are taken with ``math.fsum``, so no result depends on the order of the items.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

Clusters = Sequence[Hashable | None]
"""One id per item; None stands for an item that shares nothing."""


class Moments(NamedTuple):
    """The mean over ``n`` items, the variance of that mean, and the total of each independent unit.

    ``variance`` and ``plain`` (as if the items were independent) are None for one unit. ``kish`` is the number of
    units of equal size that would weigh the same, n^2 / sum of squared sizes (Kish 1965, "Survey Sampling").
    """

    n: int
    mean: float
    totals: list[float]
    variance: float | None
    plain: float | None
    kish: float
    clustered: bool

    @property
    def one_unit(self) -> str:
        """The reason why there is no variance."""
        return "one item" if self.n == 1 else f"all {self.n} items share one cluster"


def moments_of(values: Sequence[float], clusters: Clusters | None) -> Moments:
    """The moments of at least one value; raises ``ValueError`` unless there is one cluster id per value."""
    check_clusters(values, clusters)
    n = len(values)
    mean = min(max(math.fsum(values) / n, min(values)), max(values))  # never out of range by rounding
    plain = math.fsum((one - mean) ** 2 for one in values) / (n - 1) / n if n > 1 else None
    if clusters is None or not any_shared(clusters):
        return Moments(n, mean, list(values), plain, plain, float(n), False)
    members: dict[Hashable, list[float]] = {}
    for index, (value, shared) in enumerate(zip(values, clusters, strict=True)):
        members.setdefault(("alone", index) if shared is None else ("shared", shared), []).append(value)
    units, variance = len(members), None
    if units > 1:
        square = math.fsum(math.fsum(value - mean for value in one) ** 2 for one in members.values())
        variance = square / n**2 * units / (units - 1)
    totals = [math.fsum(one) for one in members.values()]
    kish = n**2 / sum(len(one) ** 2 for one in members.values())
    return Moments(n, mean, totals, variance, plain if units > 1 else None, kish, True)


def any_shared(clusters: Clusters | None) -> bool:
    """Return whether any two items belong to one cluster."""
    ids = [one for one in clusters or () if one is not None]
    return len(set(ids)) < len(ids)


def check_clusters(values: Sequence[float], clusters: Clusters | None) -> None:
    """Raises ``ValueError`` unless there is one cluster id per value."""
    if clusters is not None and len(clusters) != len(values):
        raise ValueError(f"{len(values)} values but {len(clusters)} cluster ids; give one per item")


def t_quantile(freedom: float, level: float) -> float:
    """The number of standard errors that a two-sided t interval of this level extends."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


def is_binary(values: Sequence[float]) -> bool:
    """Return whether every value is 0 or 1."""
    return {0, 1}.issuperset(values)
