"""Weighted sums of measured means, such as a difference of two series or a value between two checkpoints.

The means of runs on the same items have a covariance (``covariance_of_means``). A weighted sum w'm of them has the
variance w'Cw (the delta method, exact for a linear function), and a t interval with one degree of freedom less than
there are independent units. Runs on other items are independent of them: their covariance is 0.

- **Totals**: of means known by their errors alone nothing tells how they are correlated. On the same items they rise
  and fall together, in full at most. So means with weights of one sign are taken as wholly dependent, and those with
  the other sign as independent of them: no correlations from 0 to 1 give a larger variance.
- **Two items more**: where scores lie in [0, 1], each weight of 1 adds the variance of a further item gained and one
  lost (Bonett and Price 2012, J. Educational and Behavioral Statistics 37, do so for right and wrong answers). So few
  items, or items that all score the same, leave an interval that has a width.
- **Sums over benchmarks**: benchmarks are independent, so their covariances add. The number of units behind a sum is
  one more than Satterthwaite's degrees of freedom (1946, Biometrics 2), and each benchmark has its own two items more:
  a benchmark of few items counts by its share.
- **Between two checkpoints**: (1 - t) a + t b. The line's own error is measured where a checkpoint was left out: it is
  compared with the line through its neighbours. What the squares of these misses exceed the variance by that their
  noise explains is the variance of interpolation. Below three checkpoints nothing can be left out, and there is none.

**The noise of several runs' means**: the covariance holds what the runs share by having the same items (clusters
whole). Means known by their errors alone are taken as independent.

A draw is a matrix times a vector of independent normal numbers. The **length** of that vector is independent of its
direction. A statistic that doubles where the noise does exceeds a bound just where the vector is long enough. The mean
of that chance over the directions needs no counting of draws, so it has no smallest value (``tail``).

Were the covariance known, the squared length would be chi-squared distributed. It is estimated from a number of units,
so the noise is taken as multivariate t (Kotz and Nadarajah 2004, "Multivariate t Distributions and Their
Applications"). The squared length over its dimensions then has an F distribution with units - 1 degrees of freedom. For
a weighted sum of means this is the t test. Far out, where the correction for many tests looks, the two differ by half
and more.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pytest_touchstone.statistics.comparison import LEVEL
from pytest_touchstone.statistics.intervals import Clusters, satterthwaite, t_quantile
from pytest_touchstone.statistics.paired import SEED

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A weighted sum with its standard error, interval and two-sided p of being 0; None without noise."""

    value: float
    stderr: float | None
    low: float | None
    high: float | None
    p: float | None

    @property
    def opposite(self) -> Contrast:
        """Return the sum with all weights negated."""
        low, high = (None if limit is None else -limit for limit in (self.high, self.low))
        return replace(self, value=-self.value, low=low, high=high)


class ContrastTerm(NamedTuple):
    """The index of a mean among the measured ones, and its weight."""

    mean_index: int
    weight: float


def _variance(covariance: np.ndarray, weights: Sequence[ContrastTerm]) -> float:
    import numpy as np

    indices = [index for index, _ in weights]
    sizes = np.asarray([weight for _, weight in weights])
    return float(sizes @ covariance[np.ix_(indices, indices)] @ sizes)


def contrast(
    means: Sequence[float],
    covariance: np.ndarray | None,
    weights: Sequence[ContrastTerm],
    *,
    units: int,
    errors: Sequence[float] | None = None,
    further: float | None = None,
    extra: float = 0.0,
    level: float = LEVEL,
) -> Contrast:
    """Return a weighted sum of means with its test and interval.

    ``covariance`` is that of the means by their items; ``errors`` are the standard errors of means that are given as
    totals only. ``extra`` is a variance in addition to that of the items. ``further`` is the most by which one more
    item moves a mean: by default 1 / (units + 2), 0 for scores of unknown range.

    ``units`` is the smallest number of independent items behind a mean. Without a covariance, or with fewer than two
    units, the value stands alone.
    """
    value = math.fsum(weight * means[index] for index, weight in weights)
    if covariance is None or units < 2:
        return Contrast(value=value, stderr=None, low=None, high=None, p=None)
    variance = max(0.0, _variance(covariance, weights)) + extra
    for sign in (1, -1):
        variance += (
            math.fsum(max(0.0, sign * term_weight) * errors[index] for index, term_weight in weights) ** 2
            if errors
            else 0
        )
    most = math.fsum(abs(weight) for _, weight in weights) / 2  # of one run's mean in a difference of two
    more = variance + 2 * (most * (1 / (units + 2) if further is None else further)) ** 2
    error = math.sqrt(more)
    if not error:
        return Contrast(value=value, stderr=0.0, low=None, high=None, p=None)
    from scipy.special import stdtr

    half = t_quantile(units - 1, level) * error
    return Contrast(
        value=value,
        stderr=math.sqrt(variance),
        low=value - half,
        high=value + half,
        p=min(1.0, 2 * float(stdtr(units - 1, -abs(value) / error))),
    )


def between_weights(indices: Sequence[int], at: Sequence[float], wanted: float) -> list[ContrastTerm] | None:
    """Return the weights of the neighbours for the value at ``wanted``; None outside the range. ``at`` increases.

    A checkpoint exactly there is the value itself.
    """
    for (left, x), (right, y) in pairwise(zip(indices, at, strict=True)):
        if x < wanted < y:
            share = (wanted - x) / (y - x)
            return [ContrastTerm(left, 1 - share), ContrastTerm(right, share)]
    return next(
        ([ContrastTerm(index, 1.0)] for index, x in zip(indices, at, strict=True) if x == wanted),
        None,
    )


def interpolation_variance(
    means: Sequence[float], covariance: np.ndarray, indices: Sequence[int], at: Sequence[float]
) -> float | None:
    """Return the variance of interpolation between checkpoints; None for fewer than three.

    It is the variance by which checkpoints miss the line through their neighbours, less what their noise explains.
    """
    if len(indices) < 3:
        return None
    excess = []
    for middle in range(1, len(indices) - 1):
        kept = [indices[middle - 1], indices[middle + 1]]
        line = between_weights(kept, [at[middle - 1], at[middle + 1]], at[middle]) or []
        weights = [
            ContrastTerm(indices[middle], 1.0),
            *(ContrastTerm(index, -weight) for index, weight in line),
        ]
        miss = math.fsum(weight * means[index] for index, weight in weights)
        excess.append(miss**2 - _variance(covariance, weights))
    return max(0.0, math.fsum(excess) / len(excess))


# The noise that runs have in common


class MeanCovariance(NamedTuple):
    """The covariance of the means, the new run's last, and the number of independent units behind it."""

    covariance: np.ndarray
    units: int


def covariance_of_means(
    runs: Sequence[Sequence[float]] | np.ndarray, new: Sequence[float] | np.ndarray, clusters: Clusters | None
) -> MeanCovariance | None:
    """Return the covariance of the means over the items; None for a single unit."""
    import numpy as np

    scores = np.asarray([*runs, new], dtype=float)
    n = scores.shape[1]
    means = np.asarray([math.fsum(run) / n for run in scores.tolist()])
    totals, sizes = totals_of_units(scores, clusters)
    units = len(sizes)
    if units < 2:
        return None
    # Sums of products, not of products of distances: of right and wrong answers these are whole numbers,
    # so the order of the items changes nothing.
    weighed = np.outer(means, totals @ sizes)
    products = totals @ totals.T - weighed - weighed.T + np.outer(means, means) * (sizes @ sizes)
    return MeanCovariance(products / n**2 * units / (units - 1), units)


def noise_of_sum(covariances: Sequence[MeanCovariance]) -> MeanCovariance:
    """Return the covariance of the sums of means over independent benchmarks, at least one."""
    import numpy as np

    variances = [float(np.trace(covariance.covariance)) for covariance in covariances]
    freedom = satterthwaite(variances, [covariance.units - 1 for covariance in covariances])
    return MeanCovariance(
        sum((covariance.covariance for covariance in covariances[1:]), covariances[0].covariance),
        1 + round(freedom),
    )


def totals_of_units(scores: np.ndarray, clusters: Clusters | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the runs' sums over each independent unit (cluster or single item), and the sizes of the units.

    ``scores`` has a row for each run.
    """
    import numpy as np

    if clusters is None or all(cluster is None for cluster in clusters):
        return scores, np.ones(scores.shape[1])
    codes_by_unit: dict[Hashable, int] = {}
    codes = [
        codes_by_unit.setdefault(
            ("alone", index) if cluster is None else ("shared", cluster), len(codes_by_unit)
        )
        for index, cluster in enumerate(clusters)
    ]
    return np.asarray([np.bincount(codes, weights=row) for row in scores]), np.bincount(codes).astype(float)


class NoiseDraws(NamedTuple):
    """Draws of noise, with a row of ``values`` for each run.

    ``lengths`` are those of the vectors that the draws were made from, which have this number of ``dimensions``.
    """

    values: np.ndarray
    lengths: np.ndarray
    dimensions: int

    def of(self, indices: Sequence[int], sign: int = 1) -> NoiseDraws:
        """Return the draws of some runs, with their sign changed if ``sign`` is -1."""
        return self._replace(values=sign * self.values[list(indices)])

    def tail(self, statistics: np.ndarray, bound: float, units: int) -> float:
        """Return the chance that a statistic is at least ``bound``, which is above 0.

        ``statistics`` are those of the draws; twice the noise makes each twice as large. The covariance of the noise
        was estimated from ``units`` items or clusters.
        """
        import numpy as np
        from scipy.special import fdtrc

        positive = statistics > 0
        enough = np.square(bound * self.lengths[positive] / statistics[positive]) / self.dimensions
        return float(np.sum(fdtrc(self.dimensions, max(1, units - 1), enough))) / len(statistics)


def sample_of(covariance: np.ndarray, draws: int) -> NoiseDraws:
    """Draw noise with this covariance, which may be singular."""
    import numpy as np

    values, vectors = np.linalg.eigh(covariance)
    normals, lengths = _normals(draws, len(values))
    return NoiseDraws((vectors * np.sqrt(np.maximum(0.0, values))) @ normals, lengths, len(values))


@functools.lru_cache(maxsize=4)
def _normals(draws: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return independent normal numbers, a column for each draw, and the lengths of the columns.

    The numbers are cached and equal in every call, because a study of many series asks for them often.
    """
    import numpy as np

    normals = np.ascontiguousarray(np.random.default_rng(SEED).standard_normal((draws, count)).T)
    normals.flags.writeable = False
    return normals, np.sqrt(np.square(normals).sum(axis=0))
