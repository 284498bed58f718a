"""A measure along a training: its trend, steadiness, forecast, and signal-to-noise ratio over several trainings.

All start from the covariance S of the checkpoints' means over the items (``contrasts.noise_of``), which holds what
they share by having the same items; of means with known errors only, S is diagonal.

- **Trend**: the slope of the least-squares line through the means, sum c_i y_i with c_i = (x_i - x) / sum (x_i - x)^2.
  As a weighted sum of means it has the variance c'Sc, and a t interval over the items. For shares of independent
  items this is the test of a linear trend (Armitage 1955, Biometrics 11).
- **Steadiness**: the mean absolute change between neighbours, sum |y_(i+1) - y_i| / (k - 1). Without any true change
  a difference of two means is normal with variance s_i^2 = S_ii + S_jj - 2 S_ij. Its mean absolute value is
  s_i sqrt(2 / pi), that of the half-normal distribution, so **noise alone gives** sqrt(2 / pi) sum s_i / (k - 1).
  Neighbouring changes share a checkpoint, so the range that noise alone gives is simulated: the mean absolute change
  of draws from the normal distribution with covariance S. The p is the chance of being at least as unsteady as
  measured, over the directions of the draws (``contrasts.NoiseDraws.tail``), so that it can be as small as many tests
  need.
- **Forecast**: a random walk, whose best forecast is the last value (Box and Jenkins 1970, "Time Series Analysis").
  Its variance grows with the distance, by sum (y_(i+1) - y_i)^2 / (x_k - x_1) per unit of it, and the interval is that
  of a t distribution with k - 1 degrees of freedom, for the changes have mean 0. Noise of the items counts as walk, so
  the interval of a level curve is too wide. The walk with drift and lines in x, log x and 1 / x were tried: on
  published trainings the drift doubles the error, and of curves of another shape the lines' intervals often hold less
  than half (``simulations.forecast``).

**Signal-to-noise ratio** (Heineman et al. 2025, arXiv 2508.13144): of every series the last n checkpoints count (all
where it has fewer), n = 5.

- **Signal**: the largest difference between two series, each at the mean of those checkpoints, over their mean
  ("relative dispersion").
- **Noise**: the standard deviation of those checkpoints (divisor n) averaged over the series, over the same mean.
- **Ratio**: signal / noise; the mean cancels.

These are the formulas of the authors' program (``signal_to_noise_ratio``, with the default divisor of NumPy); the noise
is taken within each series as in its ``rel_dispersion_snr``. For small models their table takes the deviation of all
checkpoints of all models at once, which counts differences between models as noise too.

A ratio has no meaning alone: series that are equally good have a ratio as well, the larger the more they are. So
``limit`` is the ratio that equal series exceed in 5 of 100 cases, simulated for the same numbers of checkpoints with
independent, normal noise of one size. For equal numbers it is the studentized range (Tukey 1953) but for the divisor.
A trend over the last checkpoints counts as noise. What all last checkpoints of a series share does not: a ratio above
the limit says nothing of another seed of the same training.

**Floor**: the smallest difference of two single checkpoints that is above that noise: t sqrt(2) s, with s the standard
deviation within series (divisor n - 1, pooled) and its degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from pytest_touchstone.statistics.comparison import LEVEL
from pytest_touchstone.statistics.contrasts import MeanCovariance, NoiseDraws, sample_of
from pytest_touchstone.statistics.intervals import t_quantile
from pytest_touchstone.statistics.paired import SEED

CURVE_DRAWS: Final = 4_000
HALF_NORMAL: Final = math.sqrt(2 / math.pi)
"""The mean absolute value of a standard normal variable."""


@dataclass(frozen=True, slots=True)
class Trend:
    """The slope of a line through the values, its interval, and the two-sided p of no trend."""

    slope: float
    low: float
    high: float
    stderr: float
    p: float


@dataclass(frozen=True, slots=True)
class Steadiness:
    """The mean absolute change between neighbours, what noise alone gives with its 95 % range, and p."""

    change: float
    noise: float
    low: float
    high: float
    p: float


def trend(
    places: Sequence[float], means: Sequence[float], noise: MeanCovariance, level: float = LEVEL
) -> Trend | None:
    """Return the trend of means at different positions; None for fewer than three, or without variation."""
    import numpy as np
    from scipy.special import stdtr

    at = np.asarray(places, dtype=float)
    spread = at - at.mean()
    square = float(spread @ spread)
    if len(set(places)) < 3 or not square:
        return None
    weights = spread / square
    slope = float(weights @ np.asarray(means, dtype=float))
    error = math.sqrt(max(0.0, float(weights @ noise.covariance @ weights)))
    if not error:
        return None
    freedom = max(1, noise.units - 1)
    half = t_quantile(freedom, level) * error
    return Trend(slope, slope - half, slope + half, error, 2 * float(stdtr(freedom, -abs(slope) / error)))


def steadiness(
    means: Sequence[float], noise: MeanCovariance, sample: NoiseDraws | None = None, level: float = LEVEL
) -> Steadiness | None:
    """Return the steadiness of at least three means, in the order given.

    ``sample`` are draws of the noise, if there are any yet. None for fewer means, and if nothing varies.
    """
    import numpy as np

    if len(means) < 3:
        return None
    variances = np.diag(noise.covariance)
    shared = np.diag(noise.covariance, 1)
    errors = np.sqrt(np.maximum(0.0, variances[:-1] + variances[1:] - 2 * shared))
    if not errors.any():
        return None
    change = float(np.abs(np.diff(np.asarray(means, dtype=float))).mean())
    drawn = sample_of(noise.covariance, CURVE_DRAWS) if sample is None else sample
    changes = np.abs(np.diff(drawn.values, axis=0)).mean(axis=0)
    low, high = np.quantile(changes, [(1 - level) / 2, (1 + level) / 2])
    p = drawn.tail(changes, change, noise.units) if change else 1.0
    return Steadiness(change, HALF_NORMAL * float(errors.mean()), float(low), float(high), p)


FORECAST_LEAST: Final = 4
"""The values that a forecast is made from at least."""


class Forecast(NamedTuple):
    """An expected value, and the prediction interval of what the same items will measure."""

    value: float
    low: float
    high: float


def forecast(
    places: Sequence[float], values: Sequence[float], at: float, level: float = LEVEL
) -> Forecast | None:
    """Return a forecast for a place after the last one, from at least four values.

    ``places`` rise. None for fewer values, for another place, and if nothing has changed.
    """
    moved = math.fsum((after - before) ** 2 for before, after in pairwise(values))
    if len(values) < FORECAST_LEAST or not moved or not places[0] < places[-1] < at:
        return None
    error = math.sqrt(moved * (at - places[-1]) / (places[-1] - places[0]))
    half = t_quantile(len(values) - 1, level) * error
    return Forecast(values[-1], values[-1] - half, values[-1] + half)


# Signal and noise over several trainings


LAST: Final = 5
LEAST: Final = 2
"""The last checkpoints of a series that count, and the fewest that have a deviation."""

SIGNAL_DRAWS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalToNoise:
    """Signal and noise in the unit of the values (``spread``, ``deviation``) and relative to their mean.

    The relative ones are None if the mean is not above 0.

    ``ratio`` is None where no checkpoint differs from its neighbours. ``limit`` is None for one series, which has no
    signal either. ``floor`` is the smallest difference above the noise. ``counts`` are the checkpoints that each
    series gave.
    """

    spread: float | None
    deviation: float
    signal: float | None
    noise: float | None
    ratio: float | None
    limit: float | None
    floor: float
    counts: tuple[int, ...]

    @property
    def tells(self) -> bool:
        """Return whether the series differ by more than equal ones would."""
        if self.ratio is None:
            return bool(self.spread)
        return self.limit is not None and self.ratio > self.limit


def signal_to_noise(
    series: Sequence[Sequence[float]], *, last: int = LAST, level: float = LEVEL
) -> SignalToNoise | None:
    """Return the ratio over the series, each in the order of training; None unless one has two checkpoints.

    Series of a single checkpoint are left out.
    """
    tails = [list(tail[-last:]) for tail in series if len(tail) >= LEAST]
    if not tails:
        return None
    means = [math.fsum(tail) / len(tail) for tail in tails]
    squares = [
        math.fsum((value - mean) ** 2 for value in tail) for tail, mean in zip(tails, means, strict=True)
    ]
    counts = tuple(len(tail) for tail in tails)
    deviation = math.fsum(math.sqrt(square / n) for square, n in zip(squares, counts, strict=True)) / len(
        tails
    )
    every = math.fsum(value for tail in tails for value in tail) / sum(counts)
    spread = max(means) - min(means) if len(tails) > 1 else None
    freedom = sum(counts) - len(tails)
    pooled = math.sqrt(math.fsum(squares) / freedom)
    return SignalToNoise(
        spread=spread,
        deviation=deviation,
        signal=spread / every if spread is not None and every > 0 else None,
        noise=deviation / every if every > 0 else None,
        ratio=spread / deviation if spread is not None and deviation else None,
        limit=ratio_of_equals(counts, level) if len(tails) > 1 else None,
        floor=t_quantile(freedom, level) * math.sqrt(2) * pooled,
        counts=counts,
    )


@lru_cache(maxsize=64)
def ratio_of_equals(counts: tuple[int, ...], level: float = LEVEL) -> float:
    """Return the ratio that equally good series of these lengths exceed with chance 1 - level."""
    import numpy as np

    generator = np.random.default_rng(SEED)
    draws = [generator.standard_normal((SIGNAL_DRAWS, n)) for n in sorted(counts)]
    means = np.stack([curve.mean(axis=1) for curve in draws])
    deviation = np.stack([curve.std(axis=1) for curve in draws]).mean(axis=0)
    return float(np.quantile((means.max(axis=0) - means.min(axis=0)) / deviation, level))
