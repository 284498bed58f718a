"""The change of one measure that goes with a change of another, over checkpoints that have both.

Both changes of each pair of checkpoints are measured on the same items, so both have errors, which are correlated. The
line through the origin whose slope b makes

    S(b) = sum over pairs of (y - b x)^2 / (var(y) - 2 b cov(x, y) + b^2 var(x))

smallest is the best one for such errors (York et al. 2004, American Journal of Physics 72, 367, without an intercept:
no change of one measure is none of the other). The interval holds the slopes whose S exceeds the least by no more than
a chi-squared quantile with one degree of freedom, times S / (pairs - 1) where that is above 1: then pairs lie farther
from a line than their errors explain, as benchmarks do that two kinds of training move differently. Pairs with one
checkpoint in common share its luck, so the interval is rather too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pytest_touchstone.statistics.comparison import LEVEL, z_quantile

FEWEST: Final = 3
"""Pairs below which nothing is said."""

SMALLEST: Final = 1e-12
"""A variance of no error: two measures that always move alike have none in their common direction."""

STEPS: Final = 180
"""Directions that are tried before the best is found exactly."""


@dataclass(frozen=True, slots=True)
class PairedChange:
    """The changes of two measures between two checkpoints, with the variances of their errors and the covariance."""

    x: float
    y: float
    x_variance: float
    y_variance: float
    covariance: float


@dataclass(frozen=True, slots=True)
class Slope:
    """The change of y for a change of x by one, with the limits of its interval; None where the pairs leave them
    open. ``pairs`` is their number."""

    value: float
    low: float | None
    high: float | None
    pairs: int


def slope(changes: Sequence[PairedChange], *, level: float = LEVEL) -> Slope | None:
    """The slope by the module's formula; None for fewer than three pairs with errors, or where no slope fits better
    than others."""
    from scipy.optimize import brentq, minimize_scalar

    known = [one for one in changes if one.x_variance > 0 and one.y_variance > 0]
    if len(known) < FEWEST:
        return None
    # A slope is the tangent of an angle, so all of them lie on half a circle, also the steep ones.
    step = math.pi / STEPS
    start = min((place * step for place in range(STEPS)), key=lambda angle: _misfit(known, angle))
    found = minimize_scalar(
        lambda angle: _misfit(known, angle), bounds=(start - step, start + step), method="bounded"
    )
    best, least = float(found.x), float(found.fun)
    bound = least + z_quantile(level) ** 2 * max(1.0, least / (len(known) - 1))
    limits = []
    for way in (-step, step):
        outside = next(
            (best + n * way for n in range(1, STEPS) if _misfit(known, best + n * way) > bound), None
        )
        if outside is None:
            return None
        limits.append(float(brentq(lambda angle: _misfit(known, angle) - bound, outside - way, outside)))
    best, low, high = (_within_half_a_circle(angle) for angle in (best, *limits))
    return Slope(
        value=math.tan(best),
        low=math.tan(low) if low <= best else None,
        high=math.tan(high) if high >= best else None,
        pairs=len(known),
    )


def _within_half_a_circle(angle: float) -> float:
    return (angle + math.pi / 2) % math.pi - math.pi / 2


def _misfit(changes: Sequence[PairedChange], angle: float) -> float:
    """S at the slope of an angle: both sides of each fraction times the square of its cosine."""
    rise, run = math.sin(angle), math.cos(angle)
    return math.fsum(
        (run * one.y - rise * one.x) ** 2
        / max(
            SMALLEST,
            run**2 * one.y_variance - 2 * run * rise * one.covariance + rise**2 * one.x_variance,
        )
        for one in changes
    )
