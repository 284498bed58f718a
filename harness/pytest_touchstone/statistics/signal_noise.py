"""The signal-to-noise ratio of a benchmark over several trainings (Heineman et al. 2025, arXiv 2508.13144).

Of every series the last n checkpoints count (all where it has fewer), n = 5.

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
from typing import Final

from pytest_touchstone.statistics.comparison import LEVEL
from pytest_touchstone.statistics.moments import t_quantile
from pytest_touchstone.statistics.paired import SEED

LAST: Final = 5
LEAST: Final = 2
"""The last checkpoints of a series that count, and the fewest that have a deviation."""

DRAWS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalToNoise:
    """Signal and noise in the unit of the values (``spread``, ``deviation``) and relative to their mean; None where the
    mean is not above 0.

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
    """The ratio over the series, each in the order of its training; None where no series has two checkpoints.

    Series of a single checkpoint are left out. Raises ``ValueError`` for fewer than two last checkpoints.
    """
    if last < LEAST:
        raise ValueError(f"the last {last} checkpoints have no deviation; give {LEAST} or more")
    tails = [list(one[-last:]) for one in series if len(one) >= LEAST]
    if not tails:
        return None
    means = [math.fsum(one) / len(one) for one in tails]
    squares = [
        math.fsum((value - mean) ** 2 for value in one) for one, mean in zip(tails, means, strict=True)
    ]
    counts = tuple(len(one) for one in tails)
    deviation = math.fsum(math.sqrt(square / n) for square, n in zip(squares, counts, strict=True)) / len(
        tails
    )
    every = math.fsum(value for one in tails for value in one) / sum(counts)
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
    """The ratio that equally good series with so many checkpoints exceed with chance 1 - level."""
    import numpy as np

    generator = np.random.default_rng(SEED)
    draws = [generator.standard_normal((DRAWS, n)) for n in sorted(counts)]
    means = np.stack([one.mean(axis=1) for one in draws])
    deviation = np.stack([one.std(axis=1) for one in draws]).mean(axis=0)
    return float(np.quantile((means.max(axis=0) - means.min(axis=0)) / deviation, level))
