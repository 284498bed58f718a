"""Power before a run: the drop that a paired comparison can see, and the items that a question takes.

A ``Design`` is what is known of two runs before both are there: the number of items and the spread of an item's
difference. For right or wrong answers it is the share of items that flip.

- **Right or wrong**: exact. The number M of items that flip is binomial with their share D. Of these a true drop d
  loses each with chance (D + d) / (2 D). Given M, McNemar's exact test finds the drop where enough are lost. The
  powers are averaged over M (Duffy 1984, Biometrics 40). The design is that of Miettinen (1968, Biometrics 24) and
  Connor (1987, Biometrics 43). From 20,000 items on the normal approximation is as good.
- **Graded**: the chance that a normal mean lies farther below 0 than Gaffke's limit (``gaffke``) lies above it, with
  units that differ by one size either way. The chance that items differ both ways in like numbers is that of normal
  differences. The largest of n of these is taken to be sqrt(2 log(2 n)) standard deviations away.
- **Clusters**: n divided by the design effect, at least 1 (Kish 1965, "Survey Sampling"), as in ``paired``.
- **The best of several** as a baseline: the maximum of K independent normal errors less the new run's. Critical value
  and power are integrals over that maximum (``best_of_many`` draws it).
- **"Worse"** needs the test at alpha divided by the number of benchmarks, the first step of Holm's procedure. It needs
  a measured drop beyond the margin, too. Where other benchmarks are worse as well, Holm's later steps find more
  (``powers_together``).
- **"Not worse"** needs the lower limit of the interval above -m: Tango's by enumeration, else Gaffke's.

Powers over several benchmarks take these as independent.

**Several tests that are corrected together**: of K tests Holm compares the smallest p with alpha / K, the next with
alpha / (K - 1), and so on until one is too large. So a test finds more where others find something as well. The first
step alone is ``power_of_drop``.

Each test has its own chances of a p below every one of these levels, from its own power. How the tests fall together is
drawn: a normal number for each, by whose place in its distribution all levels are decided (a Gaussian copula; Nelsen
2006, "An Introduction to Copulas"). Tests of separate benchmarks are independent. One that is made of others, as a
composite is, is the weighted sum of their numbers. The draws are seeded, so the same tests have the same power.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.statistics.comparison import Comparison, z_quantile
from pytest_touchstone.statistics.gaffke import BOTH_WAYS, Spacings
from pytest_touchstone.statistics.intervals import Clusters, is_binary, moments_of
from pytest_touchstone.statistics.paired import SEED, SEEN, check_items
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN, POWER

if TYPE_CHECKING:
    import numpy as np

MOST_ITEMS: Final = 10_000_000
"""No question is answered with more items than this."""

_NORMAL: Final = NormalDist()
_REACH: Final = 8.0  # standard deviations beyond which no chance is counted
_WIDE: Final = 20_000
_ROUNDING: Final = 1e-9
_UNITS: Final = 400  # from which a mean of units of two sizes is as good as normal


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A comparison on the same items that is yet to be made.

    ``spread`` is the standard deviation of an item's difference where nothing is lost. ``flips`` is the share of items
    that one run has right and the other wrong, None for graded scores; ``bounded`` says that those lie in [0, 1].
    ``effect`` is the design effect of clusters. ``runs``: of so many baselines, which may all be the best, the best is
    compared with.
    """

    items: int
    spread: float
    flips: float | None = None
    effect: float = 1.0
    runs: int = 1
    bounded: bool = True

    @property
    def effective(self) -> float:
        """The number of independent items that would tell as much."""
        return self.items / max(1.0, self.effect)

    @property
    def error(self) -> float:
        """The standard error of the difference of the means where nothing is lost."""
        return self.spread / math.sqrt(self.effective)


def binary_design(items: int, flips: float, *, effect: float = 1.0, runs: int = 1) -> Design:
    """The design for right or wrong answers, of which this share differs between two equal runs.

    Raises ``ValueError`` for less than one item and for a share out of range.
    """
    if items < 1 or not 0 <= flips <= 1:
        raise ValueError(f"items={items}, flips={flips}: give at least one item, and a share of flips")
    return Design(items=items, spread=math.sqrt(flips), flips=flips, effect=effect, runs=runs)


def design_of(baseline: Sequence[float], new: Sequence[float], clusters: Clusters | None = None) -> Design:
    """The design of two runs that are there, for others like them; raises ``ValueError`` without items.

    The share of flips is (flips + 1/2) / (n + 1), so that none among few items does not promise none at all.
    """
    check_items(baseline, new, clusters)
    if not baseline:
        raise ValueError("a design of no items; give runs with items in common")
    differences = [b - a for a, b in zip(baseline, new, strict=True)]
    found = moments_of(differences, clusters)
    effect = found.variance / found.plain if found.variance and found.plain else found.n / found.kish
    if is_binary(baseline) and is_binary(new):
        return binary_design(found.n, _share(sum(map(bool, differences)), found.n), effect=max(1.0, effect))
    return Design(
        items=found.n,
        spread=math.sqrt((found.plain or 0.0) * found.n),
        effect=max(1.0, effect),
        bounded=all(0 <= value <= 1 for value in (*baseline, *new)),
    )


def design_of_comparison(comparison: Comparison, *, runs: int = 1) -> Design | None:
    """The design that a comparison had; None where it has no standard error."""
    n, error = comparison.n or comparison.units, comparison.stderr
    if error is None or n < 1:
        return None
    if comparison.gained is None or comparison.lost is None:
        return Design(items=n, spread=error * math.sqrt(n), runs=runs, bounded=SEEN not in comparison.method)
    flips = comparison.gained + comparison.lost
    plain = (flips - n * ((comparison.gained - comparison.lost) / n) ** 2) / max(1, n - 1) / n
    clustered = comparison.units < n and plain > 0
    effect = max(1.0, error**2 / plain) if clustered else max(1.0, n / comparison.units)
    return binary_design(n, _share(flips, n), effect=effect, runs=runs)


def mean_design(designs: Sequence[Design]) -> Design:
    """One design of several on the same items: their mean flips, spread and design effect."""
    if not designs:
        raise ValueError("the mean of no designs; give at least one")
    flips = [one.flips for one in designs if one.flips is not None]
    count = len(designs)
    return replace(
        designs[0],
        spread=math.sqrt(math.fsum(one.spread**2 for one in designs) / count),
        flips=math.fsum(flips) / count if len(flips) == count else None,
        effect=math.fsum(one.effect for one in designs) / count,
        bounded=all(one.bounded for one in designs),
    )


def pooled_design(designs: Sequence[Design]) -> Design:
    """The design of all items of several benchmarks as one; from the best of several it is that of as many runs as
    the benchmark with the most."""
    items = sum(one.items for one in designs)
    units = math.fsum(one.items * one.effect * one.spread**2 for one in designs)
    square = math.fsum(one.items * one.spread**2 for one in designs) / items
    known = all(one.flips is not None for one in designs)
    return Design(
        items=items,
        spread=math.sqrt(square),
        flips=min(1.0, square) if known else None,
        effect=units / (items * square) if square else 1.0,
        runs=max(one.runs for one in designs),
        bounded=all(one.bounded for one in designs),
    )


def composite_design(designs: Sequence[Design]) -> Design:
    """The design of a sum over several benchmarks, each of which has the spread of an item's weighted difference.

    Its items are those of all of them: with more of each in the same proportions, errors shrink alike.
    """
    items = sum(one.items for one in designs)
    variance = math.fsum(one.spread**2 / one.effective for one in designs)
    return Design(
        items=items,
        spread=math.sqrt(items * variance),
        runs=max(one.runs for one in designs),
        bounded=all(one.bounded for one in designs),
    )


def _share(flips: int, n: int) -> float:
    return (flips + 0.5) / (n + 1)


# Worse


def power_of_drop(
    design: Design, drop: float, *, family: int = 1, margin: float = MARGIN, alpha: float = ALPHA
) -> float:
    """The chance that a true drop of this size is called worse, among ``family`` benchmarks.

    A share of flips below the drop is raised to it: a drop makes at least as many.
    """
    _check(design, drop, family, alpha)
    level = alpha / family
    if design.runs > 1:
        found = _against_best(design, drop, level, margin)
        return found if design.flips is not None else min(found, _by_limit(design, drop, level, margin))
    if design.flips is None or design.effective > _WIDE:
        return _by_limit(design, drop, level, margin)
    n = max(1, math.floor(design.effective + _ROUNDING))
    return _enumerated(n, max(design.flips, abs(drop)), drop, level, margin)


def smallest_drop(
    design: Design,
    *,
    power: float = POWER,
    family: int = 1,
    margin: float = MARGIN,
    alpha: float = ALPHA,
) -> float | None:
    """The smallest true drop that is called worse with this power, to a thousandth of a point; None where even losing
    everything is not."""
    reach = z_quantile(1 - alpha / family) + _NORMAL.inv_cdf(power)
    guess = max(margin, reach * math.sqrt(design.spread**2 / design.effective))
    return smallest(
        lambda drop: power_of_drop(design, drop, family=family, margin=margin, alpha=alpha), power, guess
    )


def smallest(power_of: Callable[[float], float], power: float = POWER, guess: float = 0.1) -> float | None:
    """The smallest drop from 0 to 1 at which a rising chance reaches ``power``; None where none does."""
    from scipy.optimize import brentq

    high = min(1.0, max(guess, 1e-3) * 1.5)
    while (found := power_of(high)) < power and high < 1:
        high = min(1.0, 2 * high)
    if found < power:
        return None
    if power_of(0.0) >= power:
        return 0.0
    return min(high, float(brentq(lambda drop: power_of(drop) - power, 0.0, high, xtol=5e-6)) + 5e-6)


def items_for_drop(
    design: Design,
    drop: float,
    *,
    power: float = POWER,
    family: int = 1,
    margin: float = MARGIN,
    alpha: float = ALPHA,
) -> int | None:
    """About how many items it takes to call a true drop of this size worse with this power; None for a drop within
    the margin, and where it takes more than ``MOST_ITEMS``."""
    if drop <= margin:
        return None
    return _fewest(
        design,
        lambda one: power_of_drop(one, drop, family=family, margin=margin, alpha=alpha),
        power,
    )


def items_for_not_worse(
    design: Design, *, drop: float = 0.0, power: float = POWER, margin: float = MARGIN, alpha: float = ALPHA
) -> int | None:
    """About how many items it takes to rule out a loss of the margin with this power, where the true one is ``drop``;
    None where it takes more than ``MOST_ITEMS``."""
    if drop >= margin:
        return None
    return _fewest(design, lambda one: chance_not_worse(one, drop=drop, margin=margin, alpha=alpha), power)


def _fewest(design: Design, power_of: Callable[[Design], float], power: float) -> int | None:
    """The number of items from which the chance is large enough, to three digits: it rises in small steps."""
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


@functools.lru_cache(maxsize=4096)
def _enumerated(n: int, flips: float, drop: float, level: float, margin: float) -> float:
    """The sum over the numbers of flips of their chance, times the chance that so few of them are gained."""
    import numpy as np
    from scipy.special import bdtr

    counts, chance = _flip_counts(n, flips)
    few = _significant(int(counts[0]), int(counts[-1]), level)
    gained = np.minimum(few, np.ceil((counts - margin * n) / 2 - _ROUNDING) - 1)
    some = (gained >= 0) & (counts > 0)
    share = min(1.0, max(0.0, (flips - drop) / (2 * flips)))
    return min(1.0, float((chance[some] * bdtr(gained[some], counts[some], share)).sum()))


@functools.lru_cache(maxsize=256)
def _flip_counts(n: int, flips: float) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of items that may flip, and the chance of each."""
    import numpy as np
    from scipy.special import gammaln, xlog1py, xlogy

    reach = _REACH * math.sqrt(n * flips * (1 - flips)) + 20
    counts = np.arange(max(0, math.floor(n * flips - reach)), min(n, math.ceil(n * flips + reach)) + 1)
    ways = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
    return counts, np.exp(ways + xlogy(counts, flips) + xlog1py(n - counts, -flips))


@functools.lru_cache(maxsize=256)
def _significant(first: int, last: int, level: float) -> np.ndarray:
    """The most items gained, for each number of flips, at which McNemar's test is significant; -1 for none."""
    import numpy as np
    from scipy.special import bdtr, ndtri

    counts = np.arange(first, last + 1)
    few: np.ndarray = np.maximum(-1.0, np.floor(counts / 2 + ndtri(level / 2) * np.sqrt(counts) / 2))
    while (more := (few < counts) & (bdtr(few + 1, counts, 0.5) <= level / 2)).any():
        few = few + more
    while (less := (few >= 0) & (bdtr(few, counts, 0.5) > level / 2)).any():
        few = few - less
    return few


def _error(design: Design, drop: float) -> float:
    """The standard error of the difference of the means."""
    square = design.spread**2 if design.flips is None else max(design.flips, abs(drop)) - drop**2
    return math.sqrt(max(0.0, square) / design.effective)


def _by_limit(design: Design, drop: float, level: float, margin: float) -> float:
    error = _error(design, drop)
    if not error:
        return float(drop > margin)
    return math.fsum(
        chance * _NORMAL.cdf((drop - max(margin, width)) / error)
        for chance, width in _half_widths(design, error, drop, 1 - level)
    )


def _half_widths(design: Design, error: float, drop: float, level: float) -> list[tuple[float, float]]:
    """How far the interval may reach from a measured drop toward 0, with the chance of each width."""
    if design.flips is not None:
        return [(1.0, z_quantile(level) * error)]
    n = max(2.0, design.effective)
    seen = design.spread * math.sqrt(2 * math.log(2 * n))
    bounds = [(1.0, seen)]
    if design.bounded:
        like = _NORMAL.cdf(-abs(drop) / design.spread) if design.spread else 0.0
        both = _NORMAL.cdf((like - BOTH_WAYS) / math.sqrt(BOTH_WAYS * (1 - BOTH_WAYS) / n))
        bounds = [(both, min(1.0, max(0.5, seen))), (1 - both, 1.0)]
    units = min(_UNITS, round(n))
    return [
        (chance, _gaffke_width(units, error, (bound + abs(drop)) / (n + 1), level))
        for chance, bound in bounds
    ]


@functools.lru_cache(maxsize=4096)
def _gaffke_width(units: int, error: float, further: float, level: float) -> float:
    """The same of a mean with this standard error, from so many units."""
    import numpy as np

    steps = np.where(np.arange(units) % 2, error, -error) / math.sqrt(units)
    limits = Spacings(0.0, steps, further, further).limits(level)
    return 0.0 if limits is None else limits.high


def _against_best(design: Design, drop: float, level: float, margin: float) -> float:
    """The same by the gap, the maximum of the runs' errors less the new run's; each has half of the variance."""
    error = _error(design, drop) / math.sqrt(2)
    if not error:
        return float(drop > margin)
    limit = max(_gap_limit(design.runs, level / 2), margin / error + _expected_best(design.runs))
    return _gap_beyond(design.runs, limit - drop / error)


@functools.lru_cache(maxsize=64)
def _grid(runs: int) -> tuple[Any, Any]:
    """Places from -9 to 9, and the chance of the maximum's being there; of one error for ``runs`` = 1."""
    import numpy as np
    from scipy.special import ndtr

    edges = np.linspace(-9, 9, 1801)
    return (edges[1:] + edges[:-1]) / 2, np.diff(ndtr(edges) ** runs)


def _gap_beyond(runs: int, limit: float) -> float:
    """P(maximum of ``runs`` normal errors, less another one, >= limit)."""
    from scipy.special import ndtr

    places, chance = _grid(runs)
    return float((chance * ndtr(places - limit)).sum())


@functools.lru_cache(maxsize=256)
def _gap_limit(runs: int, tail: float) -> float:
    """The gap that is exceeded with this chance."""
    from scipy.optimize import brentq

    return float(brentq(lambda limit: _gap_beyond(runs, limit) - tail, -12, 16))


def _expected_best(runs: int) -> float:
    places, chance = _grid(runs)
    return float((places * chance).sum())


# Not worse


def chance_not_worse(
    design: Design, *, drop: float = 0.0, margin: float = MARGIN, alpha: float = ALPHA
) -> float:
    """The chance that a loss of more than the margin is ruled out, where the true one is ``drop``."""
    _check(design, drop, 1, alpha)
    if design.runs > 1 or design.flips is None or design.effective > _WIDE:
        error = _error(design, drop)
        return math.fsum(
            chance * _certain_of(design, error, margin - drop - width)
            for chance, width in _half_widths(design, error, drop, 1 - alpha)
        )
    n = max(1, math.floor(design.effective + _ROUNDING))
    return _not_worse_enumerated(n, max(design.flips, abs(drop)), drop, margin, 1 - alpha)


def _certain_of(design: Design, error: float, room: float) -> float:
    """The chance that the measured difference leaves so much room above the limit."""
    if not error:
        return float(room > 0)
    if design.runs > 1:
        return 1 - _gap_beyond(design.runs, room / error * math.sqrt(2))
    return _NORMAL.cdf(room / error)


@functools.lru_cache(maxsize=4096)
def _not_worse_enumerated(n: int, flips: float, drop: float, margin: float, level: float) -> float:
    """The sum over the numbers of flips of their chance, times that of so many gained that Tango's lower limit is
    above the margin."""
    import numpy as np
    from scipy.special import bdtrc

    counts, chance = _flip_counts(n, flips)
    z = z_quantile(level)
    low, high = np.full(len(counts), -1), counts + 1  # not enough gained, and enough
    while (high - low).max() > 1:
        middle = (low + high) // 2
        enough = _above(np.clip(middle, 0, counts), counts, n, margin, z)
        open_ = high - low > 1
        high = np.where(open_ & enough, middle, high)
        low = np.where(open_ & ~enough, middle, low)
    share = 0.5 if not flips else min(1.0, max(0.0, (flips - drop) / (2 * flips)))
    beyond = np.where(high == 0, 1.0, bdtrc(np.maximum(high - 1, 0), np.maximum(counts, 1), share))
    return min(1.0, float((chance * np.where(high > counts, 0.0, beyond)).sum()))


def _above(gained: np.ndarray, counts: np.ndarray, n: int, margin: float, z: float) -> np.ndarray:
    """Return where Tango's lower limit is above -margin: his statistic of a difference of -margin exceeds z
    (``intervals.tango_interval``)."""
    import numpy as np

    lost = counts - gained
    b = -(2 * n - gained + lost) * margin - counts
    c = lost * margin * (1 + margin)
    share = np.clip((np.sqrt(np.maximum(0.0, b * b - 8 * n * c)) - b) / (4 * n), margin, (1 + margin) / 2)
    variance = n * np.maximum(0.0, 2 * share - margin * (1 + margin))
    found: np.ndarray = gained - lost + n * margin > z * np.sqrt(variance)
    return found


# Several benchmarks


def any_of(chances: Iterable[float]) -> float:
    """The chance that at least one of independent things happens."""
    return 1 - math.prod(1 - chance for chance in chances)


def all_of(chances: Iterable[float]) -> float:
    """The chance that all independent things happen."""
    return math.prod(chances)


def _check(design: Design, drop: float, family: int, alpha: float) -> None:
    if design.items < 1 or family < 1 or not -1 <= drop <= 1 or not 0 < alpha < 1:
        raise ValueError(
            f"items={design.items}, drop={drop}, family={family}, alpha={alpha}: give at least one item and benchmark, "
            "a drop as a share (0.02 is two points), and a rate between 0 and 1"
        )


# Several tests corrected together


DRAWS: Final = 20_000
_MOST_LEVELS: Final = 12


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """A test and what is truly lost. One ``made_of`` others has their places, with the standard error that each adds;
    those are not made of others themselves."""

    design: Design
    drop: float
    margin: float = MARGIN
    made_of: Mapping[int, float] = field(default_factory=dict)


def powers_together(tests: Sequence[PlannedTest], *, alpha: float = ALPHA, draws: int = DRAWS) -> list[float]:
    """The chance of each test to call its drop worse, among all of them."""
    import numpy as np

    count = len(tests)
    if count < 2:
        return [power_of_drop(one.design, one.drop, margin=one.margin, alpha=alpha) for one in tests]
    place = _places(tests, draws)
    rejected, worse = _chances(tests, alpha, beyond=False), _chances(tests, alpha, beyond=True)
    told = np.zeros((draws, count), dtype=bool)
    going = np.ones(draws, dtype=bool)
    for step in range(count):
        going &= (place < rejected[step]).sum(axis=1) > step
        if not going.any():
            break
        told[going] = (place < worse[step])[going]
    return [float(share) for share in told.mean(axis=0)]


def _places(tests: Sequence[PlannedTest], draws: int) -> np.ndarray:
    """The place of each test's draw in its distribution, a column each; the least one is the worst result."""
    import numpy as np
    from scipy.special import ndtr

    found = np.random.default_rng(SEED).standard_normal((draws, len(tests)))
    for number, one in enumerate(tests):
        if one.made_of:
            parts, errors = list(one.made_of), np.asarray(list(one.made_of.values()))
            found[:, number] = found[:, parts] @ errors / np.sqrt(errors @ errors)
    places: np.ndarray = ndtr(found)
    return places


def _chances(tests: Sequence[PlannedTest], alpha: float, *, beyond: bool) -> np.ndarray:
    """The chance of each test at each step, a row for a step: of a p small enough, and with ``beyond`` of a measured
    drop beyond the margin, too. Of many steps some are computed, and the others lie between them."""
    import numpy as np

    count = len(tests)
    families = np.arange(count, 0, -1)
    known = families
    if count > _MOST_LEVELS:
        known = np.unique(np.geomspace(1, count, _MOST_LEVELS).round().astype(int))[::-1]
    found = [
        [
            power_of_drop(
                one.design, one.drop, family=int(family), margin=one.margin if beyond else 0.0, alpha=alpha
            )
            for family in known
        ]
        for one in tests
    ]
    rows = [np.interp(-np.log(families), -np.log(known), own) for own in found]
    return np.stack(rows, axis=1)
