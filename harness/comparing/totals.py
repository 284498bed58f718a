"""Two totals -> a comparison, by what is known of them.

    both numbers of items, and errors as those of right and wrong items (or none)    shares: score test, Newcombe
    both numbers of items and errors                                                 means: Welch
    both errors                                                                      normal approximation
    otherwise                                                                        the difference alone

A mean of scores within [0, 1] varies most where all are 0 or 1: taking it as a share when its error is not known claims
too little rather than too much, unless items share a text, which a table does not say.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Final

from harness.results import Metric
from harness.statistics.comparison import Comparison, undefined, z_quantile
from harness.statistics.unpaired import Total, compare_means, compare_rates

CLOSE: Final = 0.02
"""How far a written error may be from that of right and wrong items, as a fraction: errors are rounded."""


def compare_totals(baseline: Metric, new: Metric, *, benchmark: str, level: float) -> Comparison:
    """The new total against the baseline's; undefined where either has no value."""
    a, b = baseline.value, new.value
    if a is None or b is None:
        return undefined((new if b is None else baseline).why or "no value", level=level)
    if baseline.n and new.n and _is_share(baseline) and _is_share(new):
        return compare_rates(a, baseline.n, b, new.n, level=level)
    if baseline.stderr is not None and new.stderr is not None:
        if baseline.n and new.n:
            return compare_means(
                Total(a, baseline.stderr, baseline.n), Total(b, new.stderr, new.n), level=level
            )
        return _by_errors(a, b, math.hypot(baseline.stderr, new.stderr), level)
    what = "numbers of items" if _bounded(a) and _bounded(b) else "standard errors"
    remedy = f"; --items {benchmark}=N gives them" if what == "numbers of items" else ""
    return _plain(a, b, level, f"{what} are not known{remedy}")


def _is_share(metric: Metric) -> bool:
    """Whether the value may be a share of right items, as far as its error tells."""
    value, error = metric.value, metric.stderr
    if value is None or not _bounded(value):
        return False
    if error is None:
        return True
    square = value * (1 - value)
    errors = (math.sqrt(square / metric.n), math.sqrt(square / max(1, metric.n - 1)))
    return any(math.isclose(error, one, rel_tol=CLOSE, abs_tol=1e-9) for one in errors)


def _bounded(value: float) -> bool:
    return 0 <= value <= 1


def _by_errors(a: float, b: float, error: float, level: float) -> Comparison:
    known = _plain(a, b, level, "numbers of items are not known: normal approximation on different items")
    if not error:
        return replace(known, why="both standard errors are 0: nothing to test with")
    half = z_quantile(level) * error
    return replace(
        known,
        low=b - a - half,
        high=b - a + half,
        stderr=error,
        p=2 * NormalDist().cdf(-abs(b - a) / error),
        method="z test of two means",
    )


def _plain(a: float, b: float, level: float, why: str) -> Comparison:
    return replace(undefined(why, level=level), baseline=a, new=b, difference=b - a)
