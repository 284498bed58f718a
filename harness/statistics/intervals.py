"""Point estimates with 95 % intervals, and a stated reason where one does not exist.

Sources of the formulas:

- **Standard error of a mean**: sqrt(s^2 / n), s^2 with divisor n - 1. For 0/1 values that is sqrt(p (1 - p) /
  (n - 1)).
- **t interval**: mean +- t(0.975, n - 1) * standard error (Student 1908).
- **Wilson interval** (Wilson 1927, "Probable inference", JASA 22) for 0/1 values. It exists for a single item
  and for 0 or n hits, stays within [0, 1], and is the one that Brown, Cai and DasGupta (2001, Statistical
  Science 16) recommend for few items.
- **Clusters** (items that share a text): the variance of the mean is G/(G - 1) * sum over the G clusters of
  (sum of the cluster's deviations from the mean)^2 / n^2, with G - 1 degrees of freedom (Liang and Zeger
  1986, Biometrika 73; the factor as in Cameron and Miller 2015, J. Human Resources 50; for evaluations of
  language models Miller 2024, arXiv 2411.00640). With clusters of one item it is s^2 / n exactly.
- **Effective number of items** (Kish 1965, "Survey Sampling"; for intervals of proportions Korn and Graubard
  1998, Survey Methodology 24): Wilson with n / design effect * (z / t(0.975, G - 1))^2 in place of n, the
  last factor because the design effect of few clusters is itself uncertain. A design effect below 1 is not
  credited. Where all values are equal it cannot be estimated; then items of a cluster count as wholly
  dependent, n^2 / sum of squared cluster sizes.
- **Macro mean** of G groups: variance = sum of the groups' s^2 / n, divided by G^2; degrees of freedom by
  Satterthwaite (1946, Biometrics 2).
- **Perplexity** exp(-mean): the t interval of the mean on the log scale, carried over; standard error by the
  delta method, perplexity * standard error of the mean.
- **Weighted sum of independent estimates**: standard error sqrt(sum (w * se)^2); interval from the parts' own
  limits (MOVER: Zou and Donner 2008, Statistics in Medicine 27), so that it is asymmetric where theirs are
  and does not leave [0, 1].

Sums are taken with ``math.fsum``, so no result depends on the order of the items.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, NamedTuple

LEVEL: Final = 0.95
_Z: Final = NormalDist().inv_cdf((1 + LEVEL) / 2)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, the limits of its 95 % interval and its standard error; None where undefined, with ``why``.

    ``method`` names the interval for a person. Whatever limits exist enclose the value.
    """

    value: float | None
    low: float | None
    high: float | None
    stderr: float | None
    method: str
    why: str | None = None


def mean_estimate(values: Sequence[float], clusters: Sequence[Hashable | None] | None = None) -> Estimate:
    """The mean, with a Wilson interval when every value is 0 or 1, else a t interval.

    ``clusters`` has one id an item; None stands for an item that shares nothing. When ids repeat, standard
    error and interval allow for items of a cluster being alike. Undefined: everything for no items; the
    standard error for one item, with the t interval; standard error and interval when all of several items
    are one cluster.
    """
    spread = _spread(values, clusters)
    if spread is None:
        return Estimate(None, None, None, None, "none", "no items were scored")
    stderr = None if spread.variance is None else math.sqrt(spread.variance)
    if not spread.clustered and _all_binary(values):
        low, high = _wilson(spread.mean, len(values))
        return Estimate(spread.mean, low, high, stderr, "Wilson", spread.why)
    if stderr is None:
        return Estimate(spread.mean, None, None, None, "none", spread.why)
    suffix = f", {spread.units} clusters" if spread.clustered else ""
    if _all_binary(values):
        low, high = _wilson(spread.mean, _effective_n(spread, len(values)))
        return Estimate(spread.mean, low, high, stderr, f"Wilson, effective n{suffix}")
    margin = _t_quantile(spread.units - 1) * stderr
    return Estimate(spread.mean, spread.mean - margin, spread.mean + margin, stderr, f"t{suffix}")


def perplexity_estimate(
    logprobs: Sequence[float], clusters: Sequence[Hashable | None] | None = None
) -> Estimate:
    """exp(-mean of the log-probabilities), one value an item in nats, with its interval from the log scale.

    Undefined: everything for no items, or where the perplexity is larger than a float can be; standard error
    and interval for one item or a single cluster; single limits that a float cannot hold.
    """
    spread = _spread(logprobs, clusters)
    if spread is None:
        return Estimate(None, None, None, None, "none", "no items were scored")
    value = _exp(-spread.mean)
    if value is None:
        return Estimate(
            None, None, None, None, "none", f"exp({-spread.mean:.6g}) is larger than a float can be"
        )
    if spread.variance is None:
        return Estimate(value, None, None, None, "none", spread.why)
    error = math.sqrt(spread.variance)
    margin = _t_quantile(spread.units - 1) * error
    low, high = _exp(-spread.mean - margin), _exp(-spread.mean + margin)
    method = "t on the log scale" + (f", {spread.units} clusters" if spread.clustered else "")
    stderr = value * error
    why = (
        None
        if high is not None and math.isfinite(stderr)
        else "the upper limit is larger than a float can be"
    )
    return Estimate(value, low, high, stderr if math.isfinite(stderr) else None, method, why)


def macro_estimate(groups: Sequence[Sequence[float]]) -> Estimate:
    """The mean over groups of the groups' means; each group counts the same.

    The groups are taken as independent, and as all there are. Undefined: everything without groups or with an
    empty one (a mean over the others would be another number under the same name); the standard error, with
    the t interval, when a group has one item only. Values that are all 0 or 1 get a Wilson interval with the
    number of items that gives the same variance, at most the one for groups with equal means.
    """
    spreads = [_spread(group, None) for group in groups]
    known = [spread for spread in spreads if spread is not None]
    if not known or len(known) < len(groups):
        empty = len(groups) - len(known)
        why = f"{empty} of {len(groups)} groups have no scored items" if groups else "no groups"
        return Estimate(None, None, None, None, "none", why)
    count = len(known)
    value = math.fsum(spread.mean for spread in known) / count
    parts = [spread.variance / count**2 for spread in known if spread.variance is not None]
    variance = math.fsum(parts) if len(parts) == count else None
    lacking = None if variance is not None else "a group has one item: no standard error"
    stderr = None if variance is None else math.sqrt(variance)
    if all(_all_binary(group) for group in groups):
        most = count**2 / math.fsum(1 / len(group) for group in groups)
        share = value * (1 - value)
        low, high = _wilson(value, min(most, share / variance) if variance else most)
        return Estimate(value, low, high, stderr, f"Wilson, effective n, {count} groups", lacking)
    if stderr is None:
        return Estimate(value, None, None, None, "none", lacking)
    margin = _t_quantile(_satterthwaite(parts, [len(group) - 1 for group in groups])) * stderr
    return Estimate(value, value - margin, value + margin, stderr, f"t, {count} groups")


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
        return Estimate(None, None, None, None, "none", reasons[0] if reasons else "no parts")
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


class _Spread(NamedTuple):
    """A mean, the variance of that mean and the number of independent units.

    ``plain`` is the variance as if the items were independent, ``sizes`` are those of the clusters; a
    variance that is undefined is None, with ``why``.
    """

    mean: float
    variance: float | None
    units: int
    clustered: bool
    sizes: list[int]
    plain: float | None
    why: str | None


def _spread(values: Sequence[float], clusters: Sequence[Hashable | None] | None) -> _Spread | None:
    n = len(values)
    if clusters is not None and len(clusters) != n:
        raise ValueError(f"{n} values but {len(clusters)} cluster ids; give one an item")
    if not n:
        return None
    mean = min(max(math.fsum(values) / n, min(values)), max(values))
    if n == 1:
        return _Spread(mean, None, 1, False, [1], None, "one item: no standard error")
    plain = math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n
    members: dict[Hashable, list[float]] = {}
    for index, value in enumerate(values):
        shared = None if clusters is None else clusters[index]
        members.setdefault(("alone", index) if shared is None else ("shared", shared), []).append(
            value - mean
        )
    units, sizes = len(members), [len(one) for one in members.values()]
    if units == n:
        return _Spread(mean, plain, n, False, sizes, plain, None)
    if units == 1:
        return _Spread(
            mean, None, 1, True, sizes, plain, f"all {n} items share one cluster: no standard error"
        )
    total = math.fsum(math.fsum(deviations) ** 2 for deviations in members.values())
    return _Spread(mean, total / n**2 * units / (units - 1), units, True, sizes, plain, None)


def _effective_n(spread: _Spread, n: int) -> float:
    if not spread.plain or spread.variance is None:
        return n**2 / math.fsum(size**2 for size in spread.sizes)
    return n / max(1.0, spread.variance / spread.plain) * (_Z / _t_quantile(spread.units - 1)) ** 2


def _wilson(share: float, n: float) -> tuple[float, float]:
    """The limits for a share of hits among ``n`` items, which need not be a whole number."""
    z = _Z
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # Rounding must not push a limit over the value or out of [0, 1].
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))


def _satterthwaite(parts: Sequence[float], freedoms: Sequence[int]) -> float:
    """Degrees of freedom of a sum of independent variances."""
    total = math.fsum(parts)
    if not total:
        return float(sum(freedoms))
    return 1 / math.fsum((part / total) ** 2 / freedom for part, freedom in zip(parts, freedoms, strict=True))


def _t_quantile(freedom: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + LEVEL) / 2))


def _all_binary(values: Sequence[float]) -> bool:
    return all(value in (0, 1) for value in values)


def _exp(exponent: float) -> float | None:
    try:
        return math.exp(exponent)
    except OverflowError:
        return None
