"""Point estimates with 95 % intervals, and a stated reason where one does not exist.

Sources of the formulas:

- **t interval**: mean +- t(0.975, n - 1) * standard error (Student 1908).
- **Wilson interval** (Wilson 1927, "Probable inference", JASA 22) for 0/1 values. It exists for a single item
  and for 0 or n hits, stays within [0, 1], and is the one that Brown, Cai and DasGupta (2001, Statistical
  Science 16) recommend for few items.
- **Effective number of items** (Kish 1965, "Survey Sampling"; for intervals of proportions Korn and Graubard
  1998, Survey Methodology 24): Wilson with n / design effect * (z / t(0.975, G - 1))^2 in place of n. The
  last factor is there because the design effect of few clusters is itself uncertain. A design effect below 1 is
  not credited. Where all values are equal it cannot be estimated; then items of a cluster count as wholly
  dependent, n^2 / sum of squared cluster sizes.
- **Graded scores within [0, 1]** (pass@k, F1, a share of blanks): limits of the Bayesian bootstrap (Rubin 1981, Annals
  of Statistics 9). For each limit the scores have half an item more at its end of [0, 1]. The bootstrap is taken as the
  beta distribution of its mean and variance. With a whole item more, right and wrong items would give Clopper and
  Pearson's limits; with half of one the limits lie between these and Jeffreys' (Brown, Cai and DasGupta 2001). The half
  stands for what was not seen. Where all scores are nearly 1, the interval is about as wide as that of so many right
  items, however little they vary. Clusters enter by their variance, and as Kish's number of units.
  ``simulations.intervals`` has the coverage.
- **Macro mean** of G groups: variance = sum of the groups' s^2 / n, divided by G^2; degrees of freedom by
  Satterthwaite (1946, Biometrics 2).
- **Quantiles** (Woodruff 1952, JASA 47): the share of values up to the quantile has a t interval, whose ends are turned
  into values again.
- **Perplexity** exp(-mean): the t interval of the mean on the log scale, carried over; standard error by the
  delta method, perplexity * standard error of the mean.
- **Weighted sum of independent estimates**: standard error sqrt(sum (w * se)^2). Its interval is made of the parts'
  own limits (MOVER: Zou and Donner 2008, Statistics in Medicine 27), so it is asymmetric where theirs are, and does
  not leave [0, 1].

Of shares, valid for few items, near 0 and 1, and where nothing differs:

- **McNemar's exact test** (McNemar 1947, Psychometrika 12; exact form: Cochran 1950, Biometrika 37): of the items
  on which two runs disagree, each is as likely to be won as lost; two-sided binomial with 1/2.
- **Tango's interval** (Tango 1998, Statistics in Medicine 17) for the difference of two shares on the same items: all
  differences that the score test does not reject. The share of lost items is estimated under each of them. At a
  difference of 0 that test is McNemar's without correction, so test and interval agree up to the exact test's
  caution. It exists where no item differs, is inside [-1, 1], and covers well for few items (Newcombe 1998,
  Statistics in Medicine 17, pages 2635-2650; Fagerland, Lydersen and Laake 2014, Statistics in Medicine 33).
- **Newcombe's interval** (method 10 of Newcombe 1998, Statistics in Medicine 17, pages 873-890) for the difference of
  two independent shares: Wilson's limits of both, combined.
- **Score test** of two independent shares: z with the pooled share, which is Pearson's chi-squared (1900) without
  correction.

Counts need not be whole: an effective number of items stands in where items depend on each other.

Of means, with items in clusters or without:

- **Standard error of a mean**: sqrt(s^2 / n), s^2 with divisor n - 1. For 0/1 values that is sqrt(p (1 - p) / (n - 1)).
- **Clusters** (items that share a text): the variance of the mean is G/(G - 1) * sum_g d_g^2 / n^2, d_g being the sum
  of cluster g's deviations from the mean. It has G - 1 degrees of freedom (Liang and Zeger 1986, Biometrika 73). The
  factor is that of Cameron and Miller (2015, J. Human Resources 50); Miller (2024, arXiv 2411.00640) recommends the
  formula for evaluations of language models. With clusters of one item it is s^2 / n exactly.

Sums are taken with ``math.fsum``, so no result depends on the order of the items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, NamedTuple

from pytest_touchstone.statistics.comparison import LEVEL, TOO_LARGE, are_too_large, z_quantile


class IntervalLimits(NamedTuple):
    """Both ends of an interval."""

    low: float
    high: float


def mcnemar_p(gained: int, lost: int) -> float:
    """Return the two-sided exact p of the split of the items that differ; 1 if none does."""
    if gained == lost:
        return 1.0
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(gained, lost), gained + lost, 0.5)))


def tango_interval(gained: float, lost: float, n: float, level: float = 0.95) -> IntervalLimits:
    """Return the score interval of the difference (gained - lost) / n on the same ``n`` items."""
    if gained < lost:  # one direction of rounding only, so that both directions mirror each other
        other = tango_interval(lost, gained, n, level)
        return IntervalLimits(-other.high, -other.low)
    z, difference = z_quantile(level), (gained - lost) / n

    def excess(supposed: float, side: int) -> float:
        """Return the excess of the statistic of a supposed difference over z, times its standard error."""
        share = supposed_share_lost(gained, lost, n, supposed)
        variance = n * (2 * share + supposed * (1 - supposed))
        return side * (gained - lost - n * supposed) - z * math.sqrt(max(0.0, variance))

    low = _crossing(lambda supposed: excess(supposed, 1), -1.0, difference)
    high = _crossing(lambda supposed: excess(supposed, -1), 1.0, difference)
    return IntervalLimits(low, high)


def supposed_share_lost(gained: float, lost: float, n: float, difference: float) -> float:
    """Return the most likely share of lost items under a supposed difference of the shares (Tango 1998)."""
    a = 2 * n
    b = (2 * n - gained + lost) * difference - gained - lost
    c = -lost * difference * (1 - difference)
    root = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    return min(max(root, 0.0, -difference), (1 - difference) / 2)


def _crossing(excess: Callable[[float], float], outside: float, inside: float) -> float:
    """Return where ``excess`` falls to 0 on the way in; ``outside`` if it is not positive there."""
    from scipy.optimize import brentq

    if excess(outside) <= 0:
        return outside
    # At the estimate itself the variance, and with it the excess, is 0 where no item differs.
    near = inside + (outside - inside) * 1e-9
    return float(brentq(excess, outside, near, xtol=1e-15, rtol=1e-14)) if excess(near) < 0 else inside


def share_test_p(hits_a: float, n_a: float, hits_b: float, n_b: float) -> float:
    """Return the two-sided p of the score test that two independent shares are equal; 1 if all items agree."""
    pooled = (hits_a + hits_b) / (n_a + n_b)
    variance = pooled * (1 - pooled) * (1 / n_a + 1 / n_b)
    if variance <= 0:
        return 1.0
    z = (hits_b / n_b - hits_a / n_a) / math.sqrt(variance)
    return 2 * NormalDist().cdf(-abs(z))


def newcombe_interval(
    hits_a: float, n_a: float, hits_b: float, n_b: float, level: float = 0.95
) -> IntervalLimits:
    """Return the interval of share b - share a for independent runs."""
    z = z_quantile(level)
    a, b = hits_a / n_a, hits_b / n_b
    low_a, high_a = wilson_limits(a, n_a, z)
    low_b, high_b = wilson_limits(b, n_b, z)
    down, up = math.hypot(b - low_b, high_a - a), math.hypot(high_b - b, a - low_a)
    return IntervalLimits(b - a - down, b - a + up)


def wilson_limits(share: float, n: float, z: float) -> IntervalLimits:
    """Return Wilson's limits (1927, JASA 22) of a share of ``n`` items, ``z`` standard errors wide."""
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return IntervalLimits(min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half)))


# Means and their variance


Clusters = Sequence[Hashable | None]
"""One id per item; None stands for an item that shares nothing."""


class Moments(NamedTuple):
    """The mean over ``n`` items, the variance of that mean, and the total of each independent unit.

    ``sizes`` are the units' numbers of items. ``variance`` and ``plain`` (as if the items were independent) are None
    for one unit. ``kish`` is the number of units of equal size that would weigh the same, n^2 / sum of squared sizes
    (Kish 1965, "Survey Sampling").
    """

    n: int
    mean: float
    totals: list[float]
    sizes: list[int]
    variance: float | None
    plain: float | None
    kish: float
    clustered: bool

    @property
    def one_unit(self) -> str:
        """Return the reason why there is no variance."""
        return "one item" if self.n == 1 else f"all {self.n} items share one cluster"


def moments_of(values: Sequence[float], clusters: Clusters | None) -> Moments:
    """Return the moments of at least one value; raises ``ValueError`` unless each value has a cluster id."""
    check_clusters(values, clusters)
    n = len(values)
    mean = min(max(math.fsum(values) / n, min(values)), max(values))  # never out of range by rounding
    plain = math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n if n > 1 else None
    if clusters is None or not any_shared(clusters):
        return Moments(n, mean, list(values), [1] * n, plain, plain, float(n), False)
    members: dict[Hashable, list[float]] = {}
    for index, (value, shared) in enumerate(zip(values, clusters, strict=True)):
        members.setdefault(("alone", index) if shared is None else ("shared", shared), []).append(value)
    units, variance = len(members), None
    if units > 1:
        square = math.fsum(
            math.fsum(value - mean for value in unit_values) ** 2 for unit_values in members.values()
        )
        variance = square / n**2 * units / (units - 1)
    totals = [math.fsum(unit_values) for unit_values in members.values()]
    sizes = [len(unit_values) for unit_values in members.values()]
    kish = n**2 / sum(size**2 for size in sizes)
    return Moments(n, mean, totals, sizes, variance, plain if units > 1 else None, kish, True)


def any_shared(clusters: Clusters | None) -> bool:
    """Return whether any two items belong to one cluster."""
    ids = [cluster for cluster in clusters or () if cluster is not None]
    return len(set(ids)) < len(ids)


def check_clusters(values: Sequence[float], clusters: Clusters | None) -> None:
    """Raise ``ValueError`` unless there is one cluster id per value."""
    if clusters is not None and len(clusters) != len(values):
        raise ValueError(f"{len(values)} values but {len(clusters)} cluster ids; give one per item")


def t_quantile(freedom: float, level: float) -> float:
    """Return the half width of a two-sided t interval of this level, in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


def is_binary(values: Sequence[float]) -> bool:
    """Return whether every value is 0 or 1."""
    return {0, 1}.issuperset(values)


# Estimates


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, the limits of its 95 % interval and its standard error; None where undefined, with ``why``.

    ``method`` names the interval in words. Whatever limits exist enclose the value.
    """

    value: float | None
    low: float | None
    high: float | None
    stderr: float | None
    method: str
    why: str | None = None


def mean_estimate(
    values: Sequence[float], clusters: Clusters | None = None, *, bounded: bool = True
) -> Estimate:
    """Return the mean with an interval that fits the values.

    The interval is Wilson's if every value is 0 or 1, a beta interval if all lie within [0, 1], and else a t interval.
    The first two stay within [0, 1], and are not used for values that could leave it (``bounded=False``).

    When cluster ids repeat, standard error and interval allow for items of a cluster being alike. Undefined:
    everything for no items, and for values beyond 1e100; the standard error for one item, with the t interval; standard
    error and interval when all of several items are one cluster; the t interval when all items have one value.
    """
    if lacking := _lacking(values):
        return _value_only(None, lacking)
    moments, binary = moments_of(values, clusters), bounded and is_binary(values)
    why = f"{moments.one_unit}: no standard error" if moments.variance is None else None
    stderr = None if moments.variance is None else math.sqrt(moments.variance)
    if binary and not moments.clustered:
        low, high = _wilson(moments.mean, moments.n)
        return Estimate(moments.mean, low, high, stderr, "Wilson", why)
    if stderr is None:
        return _value_only(moments.mean, why)
    suffix = f", {len(moments.totals)} clusters" if moments.clustered else ""
    if binary:
        low, high = _wilson(moments.mean, _effective_n(moments))
        return Estimate(moments.mean, low, high, stderr, f"Wilson, effective n{suffix}")
    if bounded and are_shares(values):
        low, high = share_limits(moments.mean, stderr**2, moments.kish)
        return Estimate(moments.mean, low, high, stderr, f"beta{suffix}")
    return _student(moments.mean, stderr, len(moments.totals) - 1, suffix)


def quantile_estimate(values: Sequence[float], share: float, clusters: Clusters | None = None) -> Estimate:
    """Return the quantile at ``share`` with the limits of Woodruff's interval.

    Between two values it is interpolated (type 7 of Hyndman and Fan 1996, American Statistician 50), as NumPy does.
    Undefined: everything for no values; the interval for one item or cluster; a limit beyond the first or last value;
    the standard error always.
    """
    if lacking := _lacking(values):
        return _value_only(None, lacking)
    ordered = sorted(values)
    value = _quantile(ordered, share)
    moments = moments_of([float(observed <= value) for observed in values], clusters)
    if moments.variance is None:
        return _value_only(value, f"{moments.one_unit}: no interval")
    # Where all clusters agree their variance tells nothing; that of independent values is then the least.
    error = math.sqrt(max(moments.variance, share * (1 - share) / moments.n))
    margin = t_quantile(len(moments.totals) - 1, LEVEL) * error
    low, high = (
        _quantile(ordered, end) if 0 <= end <= 1 else None for end in (share - margin, share + margin)
    )
    why = (
        None if low is not None and high is not None else f"{moments.n} items tell no limit beyond their own"
    )
    method = "Woodruff" + (f", {len(moments.totals)} clusters" if moments.clustered else "")
    return Estimate(value, low, high, None, method, why)


def _quantile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    fraction, above = position - below, ordered[min(below + 1, len(ordered) - 1)]
    return ordered[below] + fraction * (above - ordered[below])


def share_limits(mean: float, variance: float, units: float) -> tuple[float, float]:
    """Return the limits of a mean of scores within [0, 1] over ``units`` units, with the variance of the mean."""
    low, high = (_beta_limit(mean, variance, units, end) for end in (0, 1))
    return min(mean, low), max(mean, high)


def _beta_limit(mean: float, variance: float, units: float, end: int) -> float:
    from scipy.special import betaincinv

    more = 0.5
    middle = (units * mean + more * end) / (units + more)
    apart = middle * (1 - middle)
    square = units * (units - 1) * variance + units * (mean - middle) ** 2 + more * (end - middle) ** 2
    spread = min(square / (units + more), apart)
    if not spread:  # all are at this end
        return middle
    weight = apart / spread * (units + more + 1) - 1
    chance = (1 + LEVEL) / 2 if end else (1 - LEVEL) / 2
    return float(betaincinv(middle * weight, (1 - middle) * weight, chance))


def perplexity_estimate(logprobs: Sequence[float], clusters: Clusters | None = None) -> Estimate:
    """Return exp(-mean of the log-probabilities in nats), with its interval from the log scale.

    Undefined: everything for no items, or where the perplexity is larger than a float can be; standard error
    and interval for one item or a single cluster; the interval where all values are one; single limits that a float
    cannot hold.
    """
    if lacking := _lacking(logprobs):
        return _value_only(None, lacking)
    moments = moments_of(logprobs, clusters)
    value = _exp(-moments.mean)
    if value is None:
        return _value_only(None, f"exp({-moments.mean:.6g}) is larger than a float can be")
    if moments.variance is None:
        return _value_only(value, f"{moments.one_unit}: no standard error")
    error = math.sqrt(moments.variance)
    if not error:
        return Estimate(value, None, None, 0.0, "none", _ONE_VALUE)
    margin = t_quantile(len(moments.totals) - 1, LEVEL) * error
    low, high = _exp(-moments.mean - margin), _exp(-moments.mean + margin)
    method = "t on the log scale" + (f", {len(moments.totals)} clusters" if moments.clustered else "")
    stderr = value * error
    held = high is not None and math.isfinite(stderr)
    why = None if held else "the upper limit is larger than a float can be"
    return Estimate(value, low, high, stderr if math.isfinite(stderr) else None, method, why)


def macro_estimate(groups: Sequence[Sequence[float]]) -> Estimate:
    """Return the unweighted mean of the means of groups.

    The groups are taken as independent, and as all there are. Undefined: everything without groups or with an
    empty one, since a mean over the others would be another number under the same name. Undefined too: the standard
    error, with the t interval, when a group has one item only. Values that are all 0 or 1 get a Wilson interval
    with the number of items that gives the same variance, at most the one for groups with equal means.
    """
    if not groups or not all(groups):
        empty = sum(not group for group in groups)
        lacking = f"{empty} of {len(groups)} groups have no scored items" if groups else "no groups"
        return _value_only(None, lacking)
    if any(map(are_too_large, groups)):
        return _value_only(None, TOO_LARGE)
    group_moments, count = [moments_of(group, None) for group in groups], len(groups)
    value = math.fsum(moments.mean for moments in group_moments) / count
    variances = [moments.variance / count**2 for moments in group_moments if moments.variance is not None]
    variance = math.fsum(variances) if len(variances) == count else None
    why = None if variance is not None else "a group has one item: no standard error"
    stderr = None if variance is None else math.sqrt(variance)
    most = count**2 / math.fsum(1 / len(group) for group in groups)
    if all(is_binary(group) for group in groups):
        share = value * (1 - value)
        low, high = _wilson(value, min(most, share / variance) if variance else most)
        return Estimate(value, low, high, stderr, f"Wilson, effective n, {count} groups", why)
    if stderr is None:
        return _value_only(value, why)
    if all(are_shares(group) for group in groups):
        low, high = share_limits(value, stderr**2, most)
        return Estimate(value, low, high, stderr, f"beta, {count} groups")
    return _student(
        value,
        stderr,
        satterthwaite(variances, [moments.n - 1 for moments in group_moments]),
        f", {count} groups",
    )


def composite_estimate(parts: Sequence[tuple[float, Estimate]]) -> Estimate:
    """Return the weighted sum of estimates, **assuming that they are independent of each other**.

    Parts computed on the same items (a hit among the first 1 and among the first 5) rise and fall together;
    the standard error and the interval are then too small. The largest they could be is the plain weighted
    sum of the parts' own. Undefined: everything without parts or when a part has no value; standard error or
    interval when a part lacks it.
    """
    weights = [weight for weight, _ in parts]
    values = [estimate.value for _, estimate in parts if estimate.value is not None]
    if not parts or len(values) < len(parts):
        reasons = [estimate.why or "a part has no value" for _, estimate in parts if estimate.value is None]
        return _value_only(None, reasons[0] if reasons else "no parts")
    value = math.fsum(weight * term for weight, term in zip(weights, values, strict=True))
    why = next((estimate.why for _, estimate in parts if estimate.why), None)
    errors = [weight * estimate.stderr for weight, estimate in parts if estimate.stderr is not None]
    stderr = math.hypot(*errors) if len(errors) == len(parts) else None
    lows = [estimate.low for _, estimate in parts if estimate.low is not None]
    highs = [estimate.high for _, estimate in parts if estimate.high is not None]
    if len(lows) < len(parts) or len(highs) < len(parts):
        return Estimate(value, None, None, stderr, "none", why or "a part has no interval")
    down, up = [], []
    for weight, center, low, high in zip(weights, values, lows, highs, strict=True):
        ends = (weight * (center - low), weight * (high - center))
        down.append(ends[0] if weight >= 0 else ends[1])
        up.append(ends[1] if weight >= 0 else ends[0])
    method = "MOVER from the parts' limits, assuming independent parts"
    return Estimate(value, value - math.hypot(*down), value + math.hypot(*up), stderr, method, why)


def _lacking(values: Sequence[float]) -> str:
    """Return the reason why values have no mean; empty where they have one."""
    return "no items were scored" if not values else TOO_LARGE if are_too_large(values) else ""


def are_shares(values: Sequence[float]) -> bool:
    """Return whether all values lie within [0, 1]."""
    return all(0 <= value <= 1 for value in values)


def _student(value: float, stderr: float, freedom: float, suffix: str) -> Estimate:
    if not stderr:
        return Estimate(value, None, None, 0.0, "none", _ONE_VALUE)
    margin = t_quantile(freedom, LEVEL) * stderr
    return Estimate(value, value - margin, value + margin, stderr, f"t{suffix}")


_ONE_VALUE: Final = "all items have one value, and how far others can lie is not known: no interval"


def _value_only(value: float | None, why: str | None) -> Estimate:
    return Estimate(value, None, None, None, "none", why)


def _effective_n(moments: Moments) -> float:
    if not moments.plain or moments.variance is None:
        return moments.kish
    certain = z_quantile(LEVEL) / t_quantile(len(moments.totals) - 1, LEVEL)
    return moments.n / max(1.0, moments.variance / moments.plain) * certain**2


def _wilson(share: float, n: float) -> tuple[float, float]:
    """Return Wilson's limits for a share of ``n`` items, which need not be a whole number."""
    return wilson_limits(share, n, z_quantile(LEVEL))


def satterthwaite(variances: Sequence[float], freedoms: Sequence[int]) -> float:
    """Return the degrees of freedom of a sum of independent variances."""
    total = math.fsum(variances)
    if not total:
        return float(sum(freedoms))
    return 1 / math.fsum(
        (variance / total) ** 2 / freedom for variance, freedom in zip(variances, freedoms, strict=True)
    )


def _exp(exponent: float) -> float | None:
    try:
        return math.exp(exponent)
    except OverflowError:
        return None
