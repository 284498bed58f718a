"""The noise of several runs' means: their covariance over the same items, and draws of it.

The covariance holds what the runs share by having the same items (clusters whole). Means known by their errors alone
are taken as independent.

A draw is a matrix times a vector of independent normal numbers. The **length** of that vector is independent of its
direction. A statistic that doubles where the noise does exceeds a bound just where the vector is long enough. The mean
of that chance over the directions needs no counting of draws, so it has no smallest value (``tail``).

Were the covariance known, the squared length would be chi-squared distributed. It is estimated from a number of units,
so the noise is taken as multivariate t (Kotz and Nadarajah 2004, "Multivariate t Distributions and Their
Applications").
The squared length over its dimensions then has an F distribution with units - 1 degrees of freedom. For a weighted sum
of means this is the t test. Far out, where the correction for many tests looks, the two differ by half and more.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pytest_touchstone.statistics.moments import Clusters
from pytest_touchstone.statistics.paired import SEED

if TYPE_CHECKING:
    import numpy as np


class Noise(NamedTuple):
    """The covariance of the means, the new run's last, and the number of independent units behind it."""

    covariance: np.ndarray
    units: int


def noise_of(
    runs: Sequence[Sequence[float]] | np.ndarray, new: Sequence[float] | np.ndarray, clusters: Clusters | None
) -> Noise | None:
    """The noise of the means over the items; None where a single unit leaves no variance to estimate."""
    import numpy as np

    totals = np.asarray([*runs, new], dtype=float)
    n = totals.shape[1]
    means = np.asarray([math.fsum(run) / n for run in totals.tolist()])
    sizes = np.ones(n)
    if clusters is not None and any(one is not None for one in clusters):
        places: dict[Hashable, int] = {}
        codes = [
            places.setdefault(("alone", index) if one is None else ("shared", one), len(places))
            for index, one in enumerate(clusters)
        ]
        totals = np.asarray([np.bincount(codes, weights=row) for row in totals])
        sizes = np.bincount(codes).astype(float)
    units = len(sizes)
    if units < 2:
        return None
    # Sums of products, not of products of distances: of right and wrong answers these are whole numbers,
    # so the order of the items changes nothing.
    weighed = np.outer(means, totals @ sizes)
    products = totals @ totals.T - weighed - weighed.T + np.outer(means, means) * (sizes @ sizes)
    return Noise(products / n**2 * units / (units - 1), units)


def independent_noise(errors: Sequence[float], units: int) -> Noise:
    """The noise of independent runs from the standard errors of their means, the new run's last."""
    import numpy as np

    return Noise(np.diag(np.square(np.asarray(errors, dtype=float))), units)


class Sample(NamedTuple):
    """Draws of noise: ``values`` has a row for each run; ``lengths`` are those of the vectors of so many
    ``dimensions`` that the draws were made of."""

    values: np.ndarray
    lengths: np.ndarray
    dimensions: int

    def of(self, places: Sequence[int], sign: int = 1) -> Sample:
        """The same draws of some runs, turned round with a ``sign`` of -1."""
        return self._replace(values=sign * self.values[list(places)])

    def tail(self, statistics: np.ndarray, bound: float, units: int) -> float:
        """The chance that a statistic is at least ``bound``, which is above 0. ``statistics`` are those of the draws;
        twice the noise makes each twice as large. Its covariance was estimated from so many ``units``."""
        import numpy as np
        from scipy.special import fdtrc

        positive = statistics > 0
        enough = np.square(bound * self.lengths[positive] / statistics[positive]) / self.dimensions
        return float(np.sum(fdtrc(self.dimensions, max(1, units - 1), enough))) / len(statistics)


def sample_of(covariance: np.ndarray, draws: int) -> Sample:
    """Draws of the noise; any covariance will do, singular ones too."""
    import numpy as np

    values, vectors = np.linalg.eigh(covariance)
    normals, lengths = _normals(draws, len(values))
    return Sample((vectors * np.sqrt(np.maximum(0.0, values))) @ normals, lengths, len(values))


@functools.lru_cache(maxsize=4)
def _normals(draws: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Independent normal numbers, a column for each draw, and the columns' lengths. They are the same ones each time: a
    study of many series asks for them very often."""
    import numpy as np

    found = np.ascontiguousarray(np.random.default_rng(SEED).standard_normal((draws, count)).T)
    found.flags.writeable = False
    return found, np.sqrt(np.square(found).sum(axis=0))
