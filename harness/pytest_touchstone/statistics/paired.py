"""Two runs on the same items: the difference of their means, its interval, the exact test, and the items that change.

    values        items           test                           interval
    right/wrong   independent     McNemar, exact                 Tango's score interval
    right/wrong   in clusters     signs of cluster totals        Tango's, with an effective number of items
    graded        independent     Gaffke's, of items             Gaffke's
    graded        in clusters     Gaffke's, of cluster totals    Gaffke's
    means of reference runs       t, observed variance           t

- Standard error of the difference: that of a mean of the items' differences (``intervals``).
- **Effective number of items**: n / design effect * (z / t)^2 as in ``intervals`` (Korn and Graubard 1998). For
  McNemar's test on clusters the design effect enters the same way in Eliasziw and Donner (1991, Statistics in
  Medicine 10).
- **Graded scores** may differ by little on most items and by much on a few: a test of signs or of t then calls a loss
  certain that the few make good, up to five times as often as it may. Gaffke's test and interval (``gaffke``) reckon
  with an item more, which differs by as much as it can: by 1 where scores lie in [0, 1], by a half where items differ
  both ways in like numbers.
- **Scores of no known range** (log-probabilities) can differ by any amount, and no test holds for all distributions
  (Bahadur and Savage 1956, Annals of Mathematical Statistics 27). The item more then differs as much as any seen. Where
  the differences' skewness exceeds a quarter of the root of their number, with its tail against the measured
  difference, there is no p.

**A baseline of reference runs** of a model, of which each item has the mean: the new scores differ from it by the noise
of both sides, and by what another engine changes for good. Only the observed variance has both, so t takes that; two
items more, which differ by +1 and -1, stand for what was not seen. The variance of repeats alone calls 8 to 16 % of
equal engines worse where 3 % of the items change for good (``simulations.engines``). Of a single run, t finds more
losses than McNemar's test.

Exchanging the runs reverses every sign; the order of the items does not matter.

**The paired permutation test** of clusters: the chance of so large a difference when the labels of both runs are
exchanged at random. Each independent unit (an item alone; a cluster of items with one text) has a total of differences.
Without an effect its sign is as likely + as - (Fisher 1935, "The Design of Experiments", section 21); the statistic is
the absolute sum. Three ways to the same p:

- **counted**, where all totals are whole multiples of one step (right or wrong items, pass@1): the distribution of
  the sum is built up total by total (Pagano and Tritchler 1983, JASA 78). With totals of one size it is McNemar's;
- **enumerated**: all 2^units signs, for up to 20 units that differ;
- **drawn**: else ``draws`` random signs by a seeded generator, p = (1 + as extreme) / (1 + draws). It is never
  0 and keeps the error rate (Phipson and Smyth 2010, Statistical Applications in Genetics and Molecular Biology 9).

Signs are dealt to the sizes in order, so neither the order of the items nor which run is called the new one matters.

**Items that change** between two checkpoints: an item is *right* where its score is above a half: with one answer,
where that is right; with several sampled ones, where most are.

- **Forgotten**: right, and wrong at the next checkpoint; **learned**: the other way (the "forgetting events" of Toneva
  et al. 2019, arXiv 1812.05159, over checkpoints).
- **Direction**: McNemar's exact test that as many were learned as forgotten.
- **By chance alone** items change where answers are sampled, though the model does not. Were both checkpoints one
  model, the 2k samples of an item would have fallen to either by lot. Of c right ones among them, the first gets
  a hypergeometric number, and the chance that just one of the two has most of its samples right follows. Added up over
  the items it is the expected number of changes, exactly. One sample of each item tells nothing: the lot then changes
  every item that did change.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_touchstone.statistics.comparison import (
    LEVEL,
    TOO_LARGE,
    Comparison,
    are_too_large,
    check_finite,
    undefined,
    z_quantile,
)
from pytest_touchstone.statistics.gaffke import BoundedMean, spacings_of
from pytest_touchstone.statistics.intervals import (
    Clusters,
    Moments,
    any_shared,
    are_shares,
    check_clusters,
    is_binary,
    mcnemar_p,
    moments_of,
    t_quantile,
    tango_interval,
)

if TYPE_CHECKING:
    import numpy as np


DRAWS: Final = 9_999
SEEN: Final = "largest difference seen"
"""The words in a method that takes no difference to be larger."""
OF_REFERENCES: Final = "t test and interval with the observed variance"
"""The method of a comparison with the mean of reference runs."""
TOO_SKEWED: Final = "a few items differ far more than the others, the other way: too few for a test"
SEED: Final = 0
"""The seed of all generators: the same items give the same numbers."""


def compare_paired(
    baseline: Sequence[float],
    new: Sequence[float],
    clusters: Clusters | None = None,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
) -> Comparison:
    """Compare the new run with the baseline; both have one value for each item, in the same order.

    Undefined: everything for no items, and for scores beyond 1e100; test and interval where all of several items are
    one cluster; the interval for one graded item, and where no item differs and scores are not within [0, 1]; the test
    where scores of no known range differ in too skewed a way. Raises ``ValueError`` for lists of unequal length and
    values that are not finite.
    """
    check_items(baseline, new, clusters)
    if not baseline:
        return undefined("no items in common", level=level)
    if are_too_large(baseline) or are_too_large(new):
        return undefined(TOO_LARGE, n=len(new), level=level)
    differences = list(map(operator.sub, new, baseline))
    if is_binary(baseline) and is_binary(new) and not any_shared(clusters):
        gained, lost = differences.count(1), differences.count(-1)
        right = list(new).count(1) - gained
        return compare_flips(right, gained, lost, len(new) - right - gained - lost, level=level)
    return _compare_units(baseline, new, moments_of(differences, clusters), level=level, draws=draws)


def compare_with_references(
    references: Sequence[float],
    new: Sequence[float],
    clusters: Clusters | None = None,
    *,
    level: float = LEVEL,
) -> Comparison:
    """Compare new scores with the mean scores of reference runs, by t with the observed variance.

    Undefined: everything for no items. Raises ``ValueError`` as ``compare_paired``.
    """
    from scipy.special import stdtr

    check_items(references, new, clusters)
    if not new:
        return undefined("no items in common", level=level)
    n, differences = len(new), list(map(operator.sub, new, references))
    alone = None if clusters is None else [*clusters, None, None]
    moments = moments_of([*differences, 1.0, -1.0], alone)
    difference = math.fsum(differences) / n
    stderr = math.sqrt(moments.variance or 0.0) * (n + 2) / n
    freedom = len(moments.totals) - 1
    half = t_quantile(freedom, level) * stderr
    return Comparison(
        baseline=math.fsum(references) / n,
        new=math.fsum(new) / n,
        difference=difference,
        low=max(-1.0, difference - half),
        high=min(1.0, difference + half),
        stderr=stderr,
        p=2 * float(stdtr(freedom, -abs(difference) / stderr)),
        n=n,
        units=freedom - 1,
        method=OF_REFERENCES,
        level=level,
    )


def signed_ranks(margins: Sequence[float]) -> list[float]:
    """Return the signed rank of each margin among all of them.

    It is above 1/2 for a margin above 0, and near 0 or 1 if few others are farther from 0.

    With R the rank of its absolute value (ties share the mean of theirs) and n margins, (1 + sign (R - 1/2) / n) / 2.
    The mean is a linear function of Wilcoxon's signed-rank statistic (1945, Biometrics Bulletin 1, 80).
    """
    import numpy as np

    _, places, counts = np.unique(np.abs(margins), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    signed: list[float] = ((1 + np.sign(margins) * (ranks - 0.5) / max(1, len(margins))) / 2).tolist()
    return signed


def compare_flips(right: int, gained: int, lost: int, wrong: int, *, level: float = LEVEL) -> Comparison:
    """Compare counts of independent items: both right, only the new run, only the baseline, neither."""
    n = right + gained + lost + wrong
    if not n:
        return undefined("no items in common", level=level)
    low, high = tango_interval(gained, lost, n, level)
    difference = (gained - lost) / n
    variance = (gained + lost - n * difference**2) / (n - 1) / n if n > 1 else None
    return Comparison(
        baseline=(right + lost) / n,
        new=(right + gained) / n,
        difference=difference,
        low=min(low, difference),
        high=max(high, difference),
        stderr=None if variance is None else math.sqrt(max(0.0, variance)),
        p=mcnemar_p(gained, lost),
        n=n,
        units=n,
        method="McNemar exact; Tango interval",
        flips=(gained, lost),
        level=level,
    )


def _compare_units(
    baseline: Sequence[float],
    new: Sequence[float],
    moments: Moments,
    *,
    level: float,
    draws: int,
) -> Comparison:
    n, units = moments.n, len(moments.totals)
    binary = is_binary(baseline) and is_binary(new)
    gained = sum(a < b for a, b in zip(baseline, new, strict=True))
    lost = sum(a > b for a, b in zip(baseline, new, strict=True))
    comparison = Comparison(
        baseline=math.fsum(baseline) / n,
        new=math.fsum(new) / n,
        difference=moments.mean,
        stderr=None if moments.variance is None else math.sqrt(moments.variance),
        n=n,
        units=units,
        level=level,
        flips=(gained, lost) if binary else None,
    )
    if moments.variance is None:
        return replace(comparison, why=f"{moments.one_unit}: no test of a difference")
    if binary:
        return _compare_clusters(comparison, moments, draws)
    largest = 1.0 if are_shares((*baseline, *new)) else None
    return compare_spaced(comparison, [BoundedMean(moments, largest)], largest=largest)


def compare_spaced(
    comparison: Comparison, means: Sequence[BoundedMean], *, largest: float | None
) -> Comparison:
    """Compare with Gaffke's test and interval of the sum of the means.

    ``largest`` is the largest possible sum, None if unknown.
    """
    spaced = spacings_of(means)
    limits = spaced.limits(comparison.level)
    over = (
        f" over {comparison.units} clusters"
        if any(unit_mean.moments.clustered for unit_mean in means)
        else ""
    )
    seen = f", {SEEN}" if any(unit_mean.bound is None for unit_mean in means) else ""
    comparison = replace(comparison, p=spaced.p, method=f"Gaffke's test and interval{over}{seen}")
    if limits is None:
        return replace(comparison, why="no item differs, and how far scores can is not known: no interval")
    if largest is None and spaced.against * 4 > 1:
        comparison = replace(comparison, p=None, why=TOO_SKEWED)
    low, high = limits if largest is None else (max(limits.low, -largest), min(limits.high, largest))
    return replace(comparison, low=low, high=high)


def _compare_clusters(comparison: Comparison, moments: Moments, draws: int) -> Comparison:
    """Compare right or wrong answers in clusters."""
    test = sign_flip_test(moments.totals, draws=draws)
    spread = (
        moments.variance / moments.plain if moments.variance and moments.plain else moments.n / moments.kish
    )
    share = (z_quantile(comparison.level) / t_quantile(comparison.units - 1, comparison.level)) ** 2 / max(
        1.0, spread
    )
    gained, lost = comparison.flips or (0, 0)
    low, high = tango_interval(gained * share, lost * share, moments.n * share, comparison.level)
    return replace(
        comparison,
        low=min(low, moments.mean),
        high=max(high, moments.mean),
        p=test.p,
        method=f"permutation over {comparison.units} clusters ({test.how}); Tango interval, effective n",
    )


def check_items(baseline: Sequence[float], new: Sequence[float], clusters: Clusters | None) -> None:
    """Raise ``ValueError`` unless each item has a finite value in both runs, and a cluster id."""
    if len(baseline) != len(new):
        raise ValueError(
            f"{len(baseline)} values of the baseline but {len(new)} of the new run; give both on the same items"
        )
    check_clusters(new, clusters)
    check_finite("the baseline", baseline)
    check_finite("the new run", new)


_ENUMERATED: Final = 20
_STEPS: Final = 100
_COUNTED: Final = 100_000_000  # additions, about a tenth of a second
_TOLERANCE: Final = 1e-9


class PermutationTest(NamedTuple):
    """A two-sided p and how it was found."""

    p: float
    how: str


def sign_flip_test(totals: Sequence[float], *, draws: int = DRAWS) -> PermutationTest:
    """Test that the totals of the units are as likely positive as negative; p is 1 if none differs from 0."""
    sizes = sorted(abs(total) for total in totals if total)
    if not sizes:
        return PermutationTest(1.0, "no unit differs")
    statistic = abs(math.fsum(totals))
    steps = _as_steps(sizes)
    if steps is not None:
        return PermutationTest(_counted(steps, round(statistic / (sizes[0] / steps[0]))), "exact, counted")
    least = statistic * (1 - _TOLERANCE) - _TOLERANCE * sizes[-1]
    if len(sizes) <= _ENUMERATED:
        return PermutationTest(_enumerated(sizes, least), "exact, enumerated")
    return PermutationTest(_drawn(sizes, least, draws), f"{draws} draws")


def _as_steps(sizes: Sequence[float]) -> list[int] | None:
    """Return the sizes as multiples of one step; None if there is none, or counting takes too long."""
    import numpy as np

    if sizes[0] * _COUNTED < sizes[-1]:
        return None
    ratios = np.asarray(sizes) / sizes[0]
    for denominator in range(1, _STEPS + 1):
        scaled = ratios * denominator
        whole = np.rint(scaled)
        if np.all(np.abs(scaled - whole) <= _TOLERANCE * scaled):
            steps = [int(weight) for weight in whole]
            return steps if sum(steps) * len(steps) <= _COUNTED else None
    return None


def _counted(steps: Sequence[int], statistic: int) -> float:
    """P(|sum of +-steps| >= statistic), from the distribution of the sum of the positive ones."""
    import numpy as np
    from scipy.special import bdtr, gammaln

    total = sum(steps)
    if steps[0] == steps[-1]:  # all of one size: McNemar's
        return min(1.0, 2 * float(bdtr((total - statistic) // (2 * steps[0]), len(steps), 0.5)))
    chance = np.ones(1)
    for size, count in Counter(steps).items():
        ways = np.arange(count + 1)
        binomial = np.exp(
            gammaln(count + 1) - gammaln(ways + 1) - gammaln(count - ways + 1) - count * math.log(2)
        )
        longer = np.zeros(len(chance) + size * count)
        for positive, weight in enumerate(binomial):
            longer[positive * size : positive * size + len(chance)] += weight * chance
        chance = longer
    sums = 2 * np.arange(total + 1) - total
    return min(1.0, float(chance[np.abs(sums) >= statistic].sum()))


def _enumerated(sizes: Sequence[float], least: float) -> float:
    import numpy as np

    sums = np.zeros(1)
    for size in sizes:
        sums = np.concatenate((sums + size, sums - size))
    return float(np.mean(np.abs(sums) >= least))


def _drawn(sizes: Sequence[float], least: float, draws: int) -> float:
    import numpy as np

    generator, values = np.random.default_rng(SEED), np.asarray(sizes)
    extreme, total = 0, float(values.sum())
    for start in range(0, draws, 1000):
        positive: np.ndarray = generator.random((min(1000, draws - start), len(values))) < 0.5
        extreme += int(np.count_nonzero(np.abs(2 * (positive @ values) - total) >= least))
    return (1 + extreme) / (1 + draws)


# Items that change


HALF: Final = 0.5


class FlippedItems(NamedTuple):
    """The indices of the items that were right and then wrong, and the other way.

    ``p`` is that of the test that both are equally likely.
    """

    forgotten: tuple[int, ...]
    learned: tuple[int, ...]
    p: float


def flipped_items(before: Sequence[float], after: Sequence[float]) -> FlippedItems:
    """Return the items that differ between two checkpoints."""
    import numpy as np

    was_right, is_right = np.asarray(before) > HALF, np.asarray(after) > HALF
    forgotten, learned = (
        np.flatnonzero(was_right & ~is_right).tolist(),
        np.flatnonzero(is_right & ~was_right).tolist(),
    )
    return FlippedItems(tuple(forgotten), tuple(learned), mcnemar_p(len(learned), len(forgotten)))


def changed_by_chance(before: Sequence[float], after: Sequence[float], samples: int) -> float | None:
    """Return the expected number of items that flip between two runs of one model; None for one sample."""
    if samples < 2:
        return None
    right = [round((a + b) * samples) for a, b in zip(before, after, strict=True)]
    return math.fsum(_changed_by_lot(total, samples) for total in right)


@lru_cache(maxsize=1024)
def _changed_by_lot(right: int, samples: int) -> float:
    """Return the chance that exactly one of two runs has most samples right.

    ``right`` is the number of right samples of both together, ``samples`` that of all samples of each.
    """
    ways = [
        math.comb(right, first_right) * math.comb(2 * samples - right, samples - first_right)
        for first_right in range(max(0, right - samples), min(samples, right) + 1)
        if (2 * first_right > samples) != (2 * (right - first_right) > samples)
    ]
    return sum(ways) / math.comb(2 * samples, samples)


class Trajectories(NamedTuple):
    """The places of items by their way through a series.

    ``kept``: right throughout; ``never``: wrong throughout; ``learned``: wrong at first, and right from some
    checkpoint to the last; ``lost``: the other way; ``unsteady``: changed more than once.
    """

    kept: tuple[int, ...]
    never: tuple[int, ...]
    learned: tuple[int, ...]
    lost: tuple[int, ...]
    unsteady: tuple[int, ...]


def paths(columns: Sequence[Sequence[float]] | np.ndarray) -> Trajectories:
    """Return the trajectories of the items through two or more checkpoints."""
    import numpy as np

    right = np.asarray(columns) > HALF
    changes = (right[1:] != right[:-1]).sum(axis=0)
    last = right[-1]

    def where(chosen: np.ndarray) -> tuple[int, ...]:
        return tuple(np.flatnonzero(chosen).tolist())

    return Trajectories(
        kept=where((changes == 0) & last),
        never=where((changes == 0) & ~last),
        learned=where((changes == 1) & last),
        lost=where((changes == 1) & ~last),
        unsteady=where(changes > 1),
    )
