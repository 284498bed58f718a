"""Point estimates with 95 % intervals, and a stated reason where one does not exist.

Sources of the formulas (means and their variances: ``moments``):

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
- **Perplexity** exp(-mean): the t interval of the mean on the log scale, carried over; standard error by the
  delta method, perplexity * standard error of the mean.
- **Weighted sum of independent estimates**: standard error sqrt(sum (w * se)^2). Its interval is made of the parts'
  own limits (MOVER: Zou and Donner 2008, Statistics in Medicine 27), so it is asymmetric where theirs are, and does
  not leave [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_touchstone.statistics.comparison import LEVEL, z_quantile
from pytest_touchstone.statistics.moments import (
    Clusters,
    Moments,
    check_clusters,
    is_binary,
    moments_of,
    t_quantile,
)
from pytest_touchstone.statistics.proportions import wilson_limits


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


def mean_estimate(values: Sequence[float], clusters: Clusters | None = None) -> Estimate:
    """The mean, with a Wilson interval when every value is 0 or 1, a beta interval when all lie within [0, 1], else a t
    interval. The first two stay within [0, 1].

    When cluster ids repeat, standard error and interval allow for items of a cluster being alike. Undefined:
    everything for no items; the standard error for one item, with the t interval; standard error and interval when
    all of several items are one cluster.
    """
    check_clusters(values, clusters)
    if not values:
        return _value_only(None, "no items were scored")
    found, binary = moments_of(values, clusters), is_binary(values)
    why = f"{found.one_unit}: no standard error" if found.variance is None else None
    stderr = None if found.variance is None else math.sqrt(found.variance)
    if binary and not found.clustered:
        low, high = _wilson(found.mean, found.n)
        return Estimate(found.mean, low, high, stderr, "Wilson", why)
    if stderr is None:
        return _value_only(found.mean, why)
    suffix = f", {len(found.totals)} clusters" if found.clustered else ""
    if binary:
        low, high = _wilson(found.mean, _effective_n(found))
        return Estimate(found.mean, low, high, stderr, f"Wilson, effective n{suffix}")
    if _are_shares(values):
        low, high = share_limits(found.mean, stderr**2, found.kish)
        return Estimate(found.mean, low, high, stderr, f"beta{suffix}")
    return _student(found.mean, stderr, len(found.totals) - 1, suffix)


def share_limits(mean: float, variance: float, units: float) -> tuple[float, float]:
    """The limits of a mean of scores within [0, 1] over so many independent units; ``variance`` is the mean's."""
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
    """exp(-mean of the log-probabilities), one value per item in nats, with its interval from the log scale.

    Undefined: everything for no items, or where the perplexity is larger than a float can be; standard error
    and interval for one item or a single cluster; single limits that a float cannot hold.
    """
    check_clusters(logprobs, clusters)
    if not logprobs:
        return _value_only(None, "no items were scored")
    found = moments_of(logprobs, clusters)
    value = _exp(-found.mean)
    if value is None:
        return _value_only(None, f"exp({-found.mean:.6g}) is larger than a float can be")
    if found.variance is None:
        return _value_only(value, f"{found.one_unit}: no standard error")
    error = math.sqrt(found.variance)
    margin = t_quantile(len(found.totals) - 1, LEVEL) * error
    low, high = _exp(-found.mean - margin), _exp(-found.mean + margin)
    method = "t on the log scale" + (f", {len(found.totals)} clusters" if found.clustered else "")
    stderr = value * error
    held = high is not None and math.isfinite(stderr)
    why = None if held else "the upper limit is larger than a float can be"
    return Estimate(value, low, high, stderr if math.isfinite(stderr) else None, method, why)


def macro_estimate(groups: Sequence[Sequence[float]]) -> Estimate:
    """The mean over groups of the groups' means; each group counts the same.

    The groups are taken as independent, and as all there are. Undefined: everything without groups or with an
    empty one, since a mean over the others would be another number under the same name. Undefined too: the standard
    error, with the t interval, when a group has one item only. Values that are all 0 or 1 get a Wilson interval
    with the number of items that gives the same variance, at most the one for groups with equal means.
    """
    if not groups or not all(groups):
        empty = sum(not group for group in groups)
        lacking = f"{empty} of {len(groups)} groups have no scored items" if groups else "no groups"
        return _value_only(None, lacking)
    found, count = [moments_of(group, None) for group in groups], len(groups)
    value = math.fsum(one.mean for one in found) / count
    parts = [one.variance / count**2 for one in found if one.variance is not None]
    variance = math.fsum(parts) if len(parts) == count else None
    why = None if variance is not None else "a group has one item: no standard error"
    stderr = None if variance is None else math.sqrt(variance)
    most = count**2 / math.fsum(1 / len(group) for group in groups)
    if all(is_binary(group) for group in groups):
        share = value * (1 - value)
        low, high = _wilson(value, min(most, share / variance) if variance else most)
        return Estimate(value, low, high, stderr, f"Wilson, effective n, {count} groups", why)
    if stderr is None:
        return _value_only(value, why)
    if all(_are_shares(group) for group in groups):
        low, high = share_limits(value, stderr**2, most)
        return Estimate(value, low, high, stderr, f"beta, {count} groups")
    return _student(value, stderr, _satterthwaite(parts, [one.n - 1 for one in found]), f", {count} groups")


def composite_estimate(parts: Sequence[tuple[float, Estimate]]) -> Estimate:
    """The weighted sum of estimates, **assuming that they are independent of each other**.

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
    value = math.fsum(weight * one for weight, one in zip(weights, values, strict=True))
    why = next((estimate.why for _, estimate in parts if estimate.why), None)
    errors = [weight * estimate.stderr for weight, estimate in parts if estimate.stderr is not None]
    stderr = math.hypot(*errors) if len(errors) == len(parts) else None
    lows = [estimate.low for _, estimate in parts if estimate.low is not None]
    highs = [estimate.high for _, estimate in parts if estimate.high is not None]
    if len(lows) < len(parts) or len(highs) < len(parts):
        return Estimate(value, None, None, stderr, "none", why or "a part has no interval")
    down, up = [], []
    for weight, one, low, high in zip(weights, values, lows, highs, strict=True):
        ends = (weight * (one - low), weight * (high - one))
        down.append(ends[0] if weight >= 0 else ends[1])
        up.append(ends[1] if weight >= 0 else ends[0])
    method = "MOVER from the parts' limits, assuming independent parts"
    return Estimate(value, value - math.hypot(*down), value + math.hypot(*up), stderr, method, why)


def _are_shares(values: Sequence[float]) -> bool:
    """Return whether all values lie within [0, 1]."""
    return all(0 <= value <= 1 for value in values)


def _student(value: float, stderr: float, freedom: float, suffix: str) -> Estimate:
    margin = t_quantile(freedom, LEVEL) * stderr
    return Estimate(value, value - margin, value + margin, stderr, f"t{suffix}")


def _value_only(value: float | None, why: str | None) -> Estimate:
    return Estimate(value, None, None, None, "none", why)


def _effective_n(found: Moments) -> float:
    if not found.plain or found.variance is None:
        return found.kish
    certain = z_quantile(LEVEL) / t_quantile(len(found.totals) - 1, LEVEL)
    return found.n / max(1.0, found.variance / found.plain) * certain**2


def _wilson(share: float, n: float) -> tuple[float, float]:
    """The limits for a share of hits among ``n`` items, which need not be a whole number."""
    return wilson_limits(share, n, z_quantile(LEVEL))


def _satterthwaite(parts: Sequence[float], freedoms: Sequence[int]) -> float:
    """Degrees of freedom of a sum of independent variances."""
    total = math.fsum(parts)
    if not total:
        return float(sum(freedoms))
    return 1 / math.fsum((part / total) ** 2 / freedom for part, freedom in zip(parts, freedoms, strict=True))


def _exp(exponent: float) -> float | None:
    try:
        return math.exp(exponent)
    except OverflowError:
        return None
