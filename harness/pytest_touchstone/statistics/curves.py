"""A measure along a training: its trend and its steadiness.

All start from the covariance S of the checkpoints' means over the items (``joint_noise.noise_of``), which holds what
they share by having the same items; of means with known errors only, S is diagonal.

- **Trend**: the slope of the least-squares line through the means, sum c_i y_i with c_i = (x_i - x) / sum (x_i - x)^2.
  As a weighted sum of means it has the variance c'Sc, and a t interval over the items. For shares of independent
  items this is the test of a linear trend (Armitage 1955, Biometrics 11).
- **Steadiness**: the mean absolute change between neighbours, sum |y_(i+1) - y_i| / (k - 1). Without any true change
  a difference of two means is normal with variance s_i^2 = S_ii + S_jj - 2 S_ij. Its mean absolute value is
  s_i sqrt(2 / pi), that of the half-normal distribution, so **noise alone gives** sqrt(2 / pi) sum s_i / (k - 1).
  Neighbouring changes share a checkpoint, so the range that noise alone gives is simulated: the mean absolute change
  of draws from the normal distribution with covariance S. The p is the chance of being at least as unsteady as
  measured, over the directions of the draws (``joint_noise.Sample.tail``), so that it can be as small as many tests
  need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pytest_touchstone.statistics.comparison import LEVEL
from pytest_touchstone.statistics.joint_noise import Noise, Sample, sample_of
from pytest_touchstone.statistics.moments import t_quantile

DRAWS: Final = 4_000
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
    """The mean absolute change between neighbours; what noise alone gives, with its 95 % range; p of so much."""

    change: float
    noise: float
    low: float
    high: float
    p: float


def trend(
    places: Sequence[float], means: Sequence[float], noise: Noise, level: float = LEVEL
) -> Trend | None:
    """The trend of at least three means at different places; None for fewer, and where nothing varies."""
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
    means: Sequence[float], noise: Noise, sample: Sample | None = None, level: float = LEVEL
) -> Steadiness | None:
    """The steadiness of at least three means, in the order given; ``sample`` are draws of the noise, if there are any
    yet. None for fewer, and where nothing varies."""
    import numpy as np

    if len(means) < 3:
        return None
    variances = np.diag(noise.covariance)
    shared = np.diag(noise.covariance, 1)
    errors = np.sqrt(np.maximum(0.0, variances[:-1] + variances[1:] - 2 * shared))
    if not errors.any():
        return None
    change = float(np.abs(np.diff(np.asarray(means, dtype=float))).mean())
    drawn = sample_of(noise.covariance, DRAWS) if sample is None else sample
    changes = np.abs(np.diff(drawn.values, axis=0)).mean(axis=0)
    low, high = np.quantile(changes, [(1 - level) / 2, (1 + level) / 2])
    p = drawn.tail(changes, change, noise.units) if change else 1.0
    return Steadiness(change, HALF_NORMAL * float(errors.mean()), float(low), float(high), p)
