"""Two runs with known totals only, such as rows of a published table.

- **Shares** (a rate and its number of items): the score test, and Newcombe's interval (both in ``intervals``).
- **Means** (mean, standard error, number of items): Welch's t test (1947, Biometrika 34) with the degrees of freedom
  of Satterthwaite (1946, Biometrics 2), and its interval.

Both take the runs as independent. Runs on the same items rise and fall together, so their difference is known better
than these say: the tests find less than the paired ones would, and no more than they should.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from pytest_touchstone.statistics.comparison import LEVEL, Comparison, check_finite, undefined
from pytest_touchstone.statistics.intervals import newcombe_interval, share_test_p, t_quantile

_WHY = "only totals are known: taken as runs on different items"


def compare_rates(
    baseline: float, n_baseline: int, new: float, n_new: int, *, level: float = LEVEL
) -> Comparison:
    """Compare two shares of right items; undefined without items on either side.

    A rate that was rounded for printing is used as printed.
    """
    check_finite("the rates", (baseline, new))
    for name, rate, n in (("baseline", baseline, n_baseline), ("new", new, n_new)):
        if n < 0 or (n and not 0 <= rate <= 1):
            raise ValueError(
                f"{name}: {rate} of {n} items is no share; give a rate from 0 to 1, not per cent"
            )
    if not n_baseline or not n_new:
        return undefined("a run has no items", level=level)
    hits_a, hits_b = baseline * n_baseline, new * n_new
    low, high = newcombe_interval(hits_a, n_baseline, hits_b, n_new, level)
    variances = [
        rate * (1 - rate) / (n - 1) if n > 1 else None for rate, n in ((baseline, n_baseline), (new, n_new))
    ]
    defined = [variance for variance in variances if variance is not None]
    return Comparison(
        baseline=baseline,
        new=new,
        difference=new - baseline,
        low=low,
        high=high,
        stderr=math.sqrt(math.fsum(defined)) if len(defined) == 2 else None,
        p=share_test_p(hits_a, n_baseline, hits_b, n_new),
        n=min(n_baseline, n_new),
        units=min(n_baseline, n_new),
        method="score test of two shares; Newcombe interval",
        level=level,
        why=_WHY,
    )


class SummaryStatistics(NamedTuple):
    """A run's mean, its standard error and the number of items, as a table has them."""

    mean: float
    stderr: float
    n: int


def compare_means(baseline: SummaryStatistics, new: SummaryStatistics, *, level: float = LEVEL) -> Comparison:
    """Compare two means with their standard errors.

    Test and interval are undefined when a run has fewer than two items or both errors are 0.
    """
    check_finite("the totals", (*baseline, *new))
    if min(baseline.stderr, new.stderr) < 0 or min(baseline.n, new.n) < 0:
        raise ValueError("standard errors and numbers of items are not below 0")
    difference, n = new.mean - baseline.mean, min(baseline.n, new.n)
    if not n:
        return undefined("a run has no items", level=level)
    error = math.hypot(baseline.stderr, new.stderr)
    low = high = p = None
    why = _WHY
    if n < 2:
        why = "a run has one item: no standard error"
    elif not error:
        why = "both standard errors are 0: nothing to test with"
    else:
        from scipy.special import stdtr

        freedom = 1 / math.fsum((side.stderr / error) ** 4 / (side.n - 1) for side in (baseline, new))
        half = t_quantile(freedom, level) * error
        low, high = difference - half, difference + half
        p = 2 * float(stdtr(freedom, -abs(difference) / error))
    return Comparison(
        baseline=baseline.mean,
        new=new.mean,
        difference=difference,
        low=low,
        high=high,
        stderr=error if n > 1 else None,
        p=p,
        n=n,
        units=n,
        method="Welch's t test" if p is not None else "none",
        level=level,
        why=why,
    )
