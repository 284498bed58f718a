"""Bootstrap intervals of means, over clusters where items share a text.

**BCa** (bias-corrected and accelerated: Efron 1987, JASA 82; Efron and Tibshirani 1993, "An Introduction to the
Bootstrap", section 14.3): percentiles of the resampled means, shifted by z0, the normal quantile of the share of them
that lies below the mean (half of ties counted), and by the acceleration, a sixth of the skewness of the jackknife
means. Units are drawn with replacement whole (Davison and Hinkley 1997, "Bootstrap Methods", section 3.8), and
a mean is the sum of the drawn units' totals over their number of items.

Units are sorted before anything is drawn and the generator is seeded: the order of the items does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final

from harness.statistics.comparison import check_finite, check_level
from harness.statistics.intervals import LEVEL, Estimate

if TYPE_CHECKING:
    import numpy as np

RESAMPLES: Final = 9_999


def bootstrap_estimate(
    values: Sequence[float],
    clusters: Sequence[Hashable | None] | None = None,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The mean with its BCa interval; the standard error is the resamples' standard deviation.

    ``clusters`` has one id an item; None stands for an item that shares nothing. Undefined: everything for no
    items; error and interval for one unit, and where all units have one mean, so that nothing varies.
    """
    import numpy as np

    check_level(level)
    check_finite("the run", values)
    if clusters is not None and len(clusters) != len(values):
        raise ValueError(f"{len(values)} values but {len(clusters)} cluster ids; give one an item")
    if not values:
        return Estimate(None, None, None, None, "none", "no items were scored")
    units = sorted(_units(values, clusters))
    mean = math.fsum(values) / len(values)
    if len(units) == 1:
        return Estimate(mean, None, None, None, "none", "one independent unit: nothing to resample")
    totals, sizes = (np.asarray(column) for column in zip(*units, strict=True))
    means = _resampled(totals, sizes, resamples, seed)
    if means.min() == means.max():
        return Estimate(mean, None, None, None, "none", "all units have the same mean: nothing varies")
    low, high = np.quantile(means, _percentiles(means, mean, _acceleration(totals, sizes), level))
    over = f", {len(units)} clusters" if len(units) < len(values) else ""
    return Estimate(
        mean, min(float(low), mean), max(float(high), mean), float(means.std(ddof=1)), f"BCa bootstrap{over}"
    )


def _units(values: Sequence[float], clusters: Sequence[Hashable | None] | None) -> list[tuple[float, int]]:
    """Total and number of items of each independent unit."""
    members: dict[Hashable, list[float]] = {}
    for index, value in enumerate(values):
        shared = None if clusters is None else clusters[index]
        members.setdefault(("alone", index) if shared is None else ("shared", shared), []).append(value)
    return [(math.fsum(one), len(one)) for one in members.values()]


def _resampled(totals: np.ndarray, sizes: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    import numpy as np

    generator, found = np.random.default_rng(seed), []
    for start in range(0, resamples, 1000):
        drawn = generator.integers(len(totals), size=(min(1000, resamples - start), len(totals)))
        found.append(totals[drawn].sum(axis=1) / sizes[drawn].sum(axis=1))
    return np.concatenate(found)


def _acceleration(totals: np.ndarray, sizes: np.ndarray) -> float:
    left_out = (totals.sum() - totals) / (sizes.sum() - sizes)
    distances = left_out.mean() - left_out
    square = float((distances**2).sum())
    return float((distances**3).sum()) / (6 * square**1.5) if square else 0.0


def _percentiles(means: np.ndarray, mean: float, acceleration: float, level: float) -> list[float]:
    from scipy.special import ndtr, ndtri

    close = 1e-12 * max(1.0, abs(mean))
    below = float((means < mean - close).mean() + (abs(means - mean) <= close).mean() / 2)
    shift = float(ndtri(min(max(below, 0.5 / len(means)), 1 - 0.5 / len(means))))
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        reach = shift + float(ndtri(tail))
        ends.append(float(ndtr(shift + reach / (1 - acceleration * reach))))
    return ends
