"""How small a difference a comparison could have found, and how many items it would take.

For a two-sided test of level alpha with standard error s, a true difference d is found with the given power when
d = (z(1 - alpha/2) + z(power)) s; s falls with the square root of the number of items (Cohen 1988, "Statistical
Power Analysis", chapter 2; for evaluations Miller 2024, arXiv 2411.00640, section 5). The same count shows that two
equal runs differ by no more than d (Blackwelder 1982, Controlled Clinical Trials 3).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

from harness.statistics.comparison import Comparison, z_quantile

POWER: Final = 0.8


def reach(alpha: float = 0.05, power: float = POWER) -> float:
    """The difference that is found, in standard errors; raises ``ValueError`` for rates out of range."""
    if not 0 < alpha < 1 or not 0.5 <= power < 1:
        raise ValueError(f"alpha={alpha}, power={power}: give 0 < alpha < 1 and 0.5 <= power < 1")
    normal = NormalDist()
    return normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)


def minimum_detectable(stderr: float | None, *, alpha: float = 0.05, power: float = POWER) -> float | None:
    """The smallest true difference found with this power; None where there is no standard error or it is 0."""
    return reach(alpha, power) * stderr if stderr else None


def items_needed(
    stderr: float | None, n: int, effect: float, *, alpha: float = 0.05, power: float = POWER
) -> int | None:
    """How many items find ``effect``, when ``n`` of them gave this standard error; None as above, or for no
    effect."""
    if not stderr or not effect:
        return None
    return math.ceil(n * (reach(alpha, power) * stderr / effect) ** 2 - 1e-9)


def items_to_settle(
    comparison: Comparison, margin: float, *, alpha: float = 0.05, power: float = POWER
) -> int | None:
    """About how many items it takes to tell no difference from one of ``margin``; None without an interval.

    The standard error is read from the width of the interval, which allows for clusters and for few items; for one
    where nothing differed the count is on the high side.
    """
    if comparison.low is None or comparison.high is None or margin <= 0:
        return None
    error = (comparison.high - comparison.low) / 2 / z_quantile(comparison.level)
    return items_needed(error, comparison.n, margin, alpha=alpha, power=power)
