"""Power before a run: the drop that a paired comparison can detect, and the items it needs.

A ``Design`` is what is known of two runs before both are there: the number of items and the spread of an item's
difference. For right or wrong answers it is the share of items that flip.

- **Right or wrong**: the normal approximation of McNemar's test (Miettinen 1968, Biometrics 24; Connor 1987,
  Biometrics 43), with one item of continuity correction for the exact test of the gate. Of fewer than 30 flips it tells
  up to 17 points less.
- **Graded**: the chance that a normal mean lies farther below 0 than Gaffke's limit (``gaffke``) lies above it, with
  units that differ by one size either way. The largest of n differences is taken to be sqrt(2 log(2 n)) standard
  deviations away; scores in [0, 1] that mostly differ one way may differ by 1.
- **Clusters**: n divided by the design effect, at least 1 (Kish 1965, "Survey Sampling"), as in ``paired``.
- **"Worse"** needs the test at alpha divided by the number of benchmarks, the first step of Holm's procedure, and a
  measured drop beyond the margin. Where other benchmarks are worse as well, Holm's later steps find more. Against the
  best of several baselines more is found, too, while "not worse" takes more items than told.
- **"Not worse"** needs the lower limit of the interval above -m: Tango's, whose variance at a loss of m follows from
  the share of flips where as many are gained as lost; else Gaffke's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

from pytest_touchstone.statistics.comparison import Comparison, z_quantile
from pytest_touchstone.statistics.gaffke import BOTH_WAYS, Spacings
from pytest_touchstone.statistics.paired import OF_REFERENCES, SEEN
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN, POWER

MOST_ITEMS: Final = 10_000_000
"""No question is answered with more items than this."""

_NORMAL: Final = NormalDist()
_UNITS: Final = 400  # from which a mean of units of two sizes is as good as normal


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A comparison on the same items that is yet to be made.

    ``spread`` is the standard deviation of an item's difference where nothing is lost. ``flips`` is the share of items
    that one run has right and the other wrong, None for graded scores; ``bounded`` says that those lie in [0, 1].
    ``effect`` is the design effect of clusters. A drop d makes a share ``churn`` * d of the items flip too.
    """

    items: int
    spread: float
    flips: float | None = None
    effect: float = 1.0
    bounded: bool = True
    churn: float = 0.0

    @property
    def effective(self) -> float:
        """Return the number of independent items with equal information."""
        return self.items / max(1.0, self.effect)

    @property
    def error(self) -> float:
        """Return the standard error of the difference of the means without a drop."""
        return self.spread / math.sqrt(self.effective)


def binary_design(items: int, flips: float, *, effect: float = 1.0) -> Design:
    """Return the design for right or wrong answers with this share of flips between equal runs."""
    return Design(items=items, spread=math.sqrt(flips), flips=flips, effect=effect)


CHURN: Final = 2.0
"""The items that flip per item lost by a fault of an engine: it breaks 1.5 of them, and mends 0.5."""


def reference_design(items: int, noise: float, runs: int) -> Design:
    """Return the design of one more run against the mean of several, of one model.

    ``noise`` is the share of items that flip between two of its runs. Of an item with variance v in a run, the
    difference has v (1 + 1 / runs), and 2 v is its share of flips.
    """
    flips = max(noise, 0.5 / (items + 1)) * (1 + 1 / runs) / 2
    return replace(binary_design(items, flips), churn=CHURN)


def design_of_comparison(comparison: Comparison) -> Design | None:
    """Return the design of a comparison; None without a standard error.

    The share of flips is (flips + 1/2) / (n + 1), so that none among few items does not promise none at all.
    """
    n, error = comparison.n or comparison.units, comparison.stderr
    if error is None or n < 1:
        return None
    if comparison.method == OF_REFERENCES:
        return replace(binary_design(n, n * error**2), churn=CHURN)
    if comparison.flips is None:
        return Design(items=n, spread=error * math.sqrt(n), bounded=SEEN not in comparison.method)
    gained, lost = comparison.flips
    flips = gained + lost
    plain = (flips - n * ((gained - lost) / n) ** 2) / max(1, n - 1) / n
    clustered = comparison.units < n and plain > 0
    effect = max(1.0, error**2 / plain) if clustered else max(1.0, n / comparison.units)
    return binary_design(n, (flips + 0.5) / (n + 1), effect=effect)


def mean_design(designs: Sequence[Design]) -> Design:
    """Return the mean of several designs on the same items: flips, spread and design effect."""
    flips = [design.flips for design in designs if design.flips is not None]
    count = len(designs)
    return replace(
        designs[0],
        spread=math.sqrt(math.fsum(design.spread**2 for design in designs) / count),
        flips=math.fsum(flips) / count if len(flips) == count else None,
        effect=math.fsum(design.effect for design in designs) / count,
        bounded=all(design.bounded for design in designs),
    )


def pooled_design(designs: Sequence[Design]) -> Design:
    """Return the design of all items of several benchmarks as one."""
    items = sum(design.items for design in designs)
    units = math.fsum(design.items * design.effect * design.spread**2 for design in designs)
    square = math.fsum(design.items * design.spread**2 for design in designs) / items
    binary = all(design.flips is not None for design in designs)
    return Design(
        items=items,
        spread=math.sqrt(square),
        flips=min(1.0, square) if binary else None,
        effect=units / (items * square) if square else 1.0,
        bounded=all(design.bounded for design in designs),
    )


def composite_design(designs: Sequence[Design]) -> Design:
    """Return the design of a sum over benchmarks, each with the spread of its weighted differences.

    Its items are those of all of them: with more of each in the same proportions, errors shrink alike.
    """
    items = sum(design.items for design in designs)
    error = math.hypot(*(design.error for design in designs))
    return Design(
        items=items, spread=error * math.sqrt(items), bounded=all(design.bounded for design in designs)
    )


# Worse


def power_of_drop(
    design: Design, drop: float, *, family: int = 1, margin: float = MARGIN, alpha: float = ALPHA
) -> float:
    """Return the power to call a true drop of this size worse, among ``family`` benchmarks.

    A share of flips below the drop is raised to it: a drop makes at least as many.
    """
    error, level = _error(design, drop), alpha / family
    if design.flips is None:
        width = _gaffke_width(design, error, drop, 1 - level)
    else:
        fewest = math.ceil(
            math.log2(2 / level)
        )  # lost, and none gained: the exact test calls no fewer significant
        width = max(z_quantile(1 - level) * error + 1 / design.effective, (fewest - 0.5) / design.effective)
    return _chance_beyond(drop - max(margin, width), error)


def smallest_drop(
    design: Design,
    *,
    power: float = POWER,
    family: int = 1,
    margin: float = MARGIN,
    alpha: float = ALPHA,
) -> float | None:
    """Return the smallest true drop that is detected with this power, to a thousandth of a point; or None."""
    from scipy.optimize import brentq

    def lacking(drop: float) -> float:
        return power - power_of_drop(design, drop, family=family, margin=margin, alpha=alpha)

    high = min(1.0, 1.5 * max(margin, 3 * design.error, 1e-3))
    while lacking(high) > 0 and high < 1:
        high = min(1.0, 2 * high)
    if lacking(high) > 0:
        return None
    if lacking(0.0) <= 0:
        return 0.0
    return min(high, float(brentq(lacking, 0.0, high, xtol=5e-6)) + 5e-6)


def items_for_drop(
    design: Design,
    drop: float,
    *,
    power: float = POWER,
    family: int = 1,
    margin: float = MARGIN,
    alpha: float = ALPHA,
) -> int | None:
    """Return about how many items are needed to call a true drop of this size worse with this power.

    None for a drop within the margin, and above ``MOST_ITEMS``.
    """
    if drop <= margin:
        return None
    return _fewest(
        design,
        lambda larger: power_of_drop(larger, drop, family=family, margin=margin, alpha=alpha),
        power,
    )


def _fewest(design: Design, power_of: Callable[[Design], float], power: float) -> int | None:
    """Return the smallest number of items with this power, to three digits; None if above ``MOST_ITEMS``."""
    high = 8
    while power_of(replace(design, items=high)) < power:
        high *= 2
        if high > MOST_ITEMS:
            return None
    low = high // 2
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(replace(design, items=middle)) >= power else (middle, high)
    return high


def _error(design: Design, drop: float) -> float:
    """Return the standard error of the difference of the means."""
    drop = abs(drop)
    flips = None if design.flips is None else max(design.flips + design.churn * drop, drop)
    square = design.spread**2 if flips is None else flips - drop**2
    return math.sqrt(max(0.0, square) / design.effective)


def _chance_beyond(distance: float, error: float) -> float:
    """Return the chance that a distance plus a normal error is above 0."""
    return _NORMAL.cdf(distance / error) if error else float(distance > 0)


def _gaffke_width(design: Design, error: float, drop: float, level: float) -> float:
    """Return how far Gaffke's interval of graded scores reaches from a measured drop toward 0."""
    n = max(2.0, design.effective)
    bound = design.spread * math.sqrt(2 * math.log(2 * n))
    if design.bounded:
        other_way = _NORMAL.cdf(-abs(drop) / design.spread) if design.spread else 0.0
        bound = min(1.0, max(0.5, bound)) if other_way >= BOTH_WAYS else 1.0
    return _width_of_units(min(_UNITS, round(n)), error, (bound + abs(drop)) / (n + 1), level)


@functools.lru_cache(maxsize=4096)
def _width_of_units(units: int, error: float, further: float, level: float) -> float:
    """Return the width of Gaffke's interval for a mean of ``units`` with this standard error."""
    import numpy as np

    steps = np.where(np.arange(units) % 2, error, -error) / math.sqrt(units)
    limits = Spacings(0.0, steps, further, further).limits(level)
    return 0.0 if limits is None else limits.high


# Not worse


def chance_not_worse(
    design: Design, *, drop: float = 0.0, margin: float = MARGIN, alpha: float = ALPHA
) -> float:
    """Return the chance to find a checkpoint not worse, if its true loss is ``drop``.

    That is to show that it loses at most the margin.
    """
    error = _error(design, drop)
    if design.flips is None:
        width = _gaffke_width(design, error, drop, 1 - alpha)
    else:
        flips = max(design.flips, abs(drop))
        at_margin = (flips + math.hypot(flips, 2 * margin)) / 2 - margin**2
        width = z_quantile(1 - alpha) * math.sqrt(at_margin / design.effective)
    return _chance_beyond(margin - drop - width, error)


def items_for_not_worse(
    design: Design, *, drop: float = 0.0, power: float = POWER, margin: float = MARGIN, alpha: float = ALPHA
) -> int | None:
    """Return about how many items are needed to call a checkpoint not worse with this power.

    Its true loss is ``drop``. None above ``MOST_ITEMS``.
    """
    if drop >= margin:
        return None
    return _fewest(
        design, lambda larger: chance_not_worse(larger, drop=drop, margin=margin, alpha=alpha), power
    )
