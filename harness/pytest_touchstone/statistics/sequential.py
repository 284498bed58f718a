"""Stop a benchmark once its verdict is settled: interim analyses that keep the error rates.

Items come in an order drawn from a seed, so the items of an interim analysis are a random part of all. At each interim
analysis the comparison of all items so far may end in:

    worse        the exact test's p is below this analysis's own level, and the difference is below -m
    better       the mirror image
    not worse    the lower limit of the interval at this analysis's own level is above -m
    (given up)   a difference that would be found worse at the end has become unlikely: "inconclusive", early
    go on        else; at the last analysis: "inconclusive"

- The levels for "worse" spend alpha / 2 over all interim analyses (``alpha_spending``; O'Brien and Fleming's shape),
  divided by the number of benchmarks. That is the first step of Holm's procedure, so a gate fails over equal runs as
  rarely as without interim analyses (group-sequential Holm procedures: Ye, Li, Liu and Yao 2013, Statistics in
  Medicine 32).
- Those for "not worse" spend alpha / 2 for each benchmark by itself, as in ``verdicts``.
- Giving up costs power only; ``beta`` = 0.02 bounds what it costs at the drop that the plan finds with power 0.98.
  A strict gate, which also fails on "inconclusive", never gives up. Against the best of several the difference counts
  as measured: shrunk, it would be given up too soon, at up to 9 points of power.
- The interval stated at a stop has the level of its analysis (repeated confidence interval: Jennison and Turnbull 1989,
  JRSS B 51): it holds whenever one stops. The difference itself is biased away from 0 after an early stop.

Boundaries of group-sequential tests: the limits of a statistic at each of several interim analyses of growing data.

Everything is on the scale of a standard normal statistic Z that is large when the hypothesis is false. At the
fraction t of all information Z(t) sqrt(t) is Brownian motion with drift theta, which is the mean of Z at the end
(Jennison and Turnbull 2000, "Group Sequential Methods", section 3.1).

- **Error spending** (Lan and DeMets 1983, Biometrika 70): of the error rate a, at most ``spent(t, a)`` may be used
  up to fraction t. Here the function that imitates O'Brien and Fleming (1979, Biometrics 35),
  2 - 2 Phi(z(1 - a/2) / sqrt(t)): next to nothing early, so the last analysis costs little.
- **Upper boundary**: at each analysis the chance of a first crossing without drift equals what is newly spent.
- **Lower boundary** (giving up): the same with the chance of missing a drift theta, for which the whole procedure
  has power 1 - beta (Pampallona, Tsiatis and Kim 2001, Drug Information Journal 35). It is not binding: the upper one
  is computed as if it were not there, so going on in spite of it costs no error.
- Chances by recursive integration over the analyses (Armitage, McPherson and Rowe 1969, JRSS A 132).
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from pytest_touchstone.statistics.comparison import Comparison, VerdictKind
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN, kind_of

if TYPE_CHECKING:
    import numpy as np

_NORMAL: Final = NormalDist()
_NODES: Final = 96
_FAR: Final = 9.0


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Upper and lower limits of Z at each analysis; ``drift`` is detected with power 1 - beta.

    ``lower`` and ``drift`` are None where no giving up is planned.
    """

    fractions: tuple[float, ...]
    upper: tuple[float, ...]
    lower: tuple[float, ...] | None = None
    drift: float | None = None


def spent(fraction: float, error: float) -> float:
    """Return the part of the one-sided ``error`` rate that may be used at this fraction of the information."""
    if fraction >= 1:
        return error
    return 2 * _NORMAL.cdf(-_NORMAL.inv_cdf(1 - error / 2) / math.sqrt(fraction)) if fraction > 0 else 0.0


def upper_boundaries(fractions: Sequence[float], alpha: float) -> Boundaries:
    """Return the limits of a one-sided test of level ``alpha``."""
    boundaries: list[float] = []
    path = _BrownianPath()
    for new in _steps(fractions, alpha):
        boundaries.append(path.advance_upper(fractions[len(boundaries)], new))
    return Boundaries(tuple(fractions), tuple(boundaries))


def two_boundaries(fractions: Sequence[float], alpha: float, beta: float) -> Boundaries:
    """Return the boundaries of a one-sided test of level ``alpha`` with a futility boundary.

    It gives up if a drift that is found with power 1 - ``beta`` has become unlikely; at the last analysis both
    boundaries meet.
    """
    upper = upper_boundaries(fractions, alpha).upper
    least = _NORMAL.inv_cdf(1 - alpha) + _NORMAL.inv_cdf(1 - beta)

    # The larger the drift, the less of it is missed at the last analysis beyond what may be.
    drift = _root(lambda trial: _lower(fractions, upper, beta, trial)[1], 0.9 * least, 1.6 * least)
    lower, _ = _lower(fractions, upper, beta, drift)
    return Boundaries(tuple(fractions), upper, (*lower, upper[-1]), drift)


def _lower(
    fractions: Sequence[float], upper: Sequence[float], beta: float, drift: float
) -> tuple[list[float], float]:
    """Return the lower boundaries of all analyses but the last, and the excess of the error missed there."""
    path, boundaries, steps = _BrownianPath(drift), list[float](), _steps(fractions, beta)
    for fraction, high, new in zip(fractions[:-1], upper, steps, strict=False):
        boundaries.append(path.advance_lower(fraction, high, new))
    return boundaries, path.under(fractions[-1], upper[-1]) - steps[-1]


def _steps(fractions: Sequence[float], error: float) -> list[float]:
    total = [spent(fraction, error) for fraction in fractions]
    return [now - before for now, before in zip(total, [0.0, *total[:-1]], strict=True)]


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-10))


class _BrownianPath:
    """The part of the Brownian motion that has not stopped: nodes, their weights and the density there."""

    def __init__(self, drift: float = 0.0) -> None:
        import numpy as np

        self.drift = drift
        self.fraction = 0.0
        self.rule = np.polynomial.legendre.leggauss(_NODES)
        self.nodes: np.ndarray | None = None
        self.mass: np.ndarray | None = None  # density times weight

    def advance_upper(self, fraction: float, chance: float) -> float:
        """Return the limit that is crossed with this chance at the next analysis."""
        if chance <= 0:  # so early that the part to be spent is too small for a float
            return _FAR
        limit = _root(lambda z: self._tail(fraction, z, 1.0) - chance, -_FAR, _FAR)
        self._keep(fraction, -_FAR, limit)
        return limit

    def advance_lower(self, fraction: float, high: float, chance: float) -> float:
        """Return the limit below which this chance lies at the next analysis, at most ``high``."""
        if self.under(fraction, high) <= chance:
            limit = high
        elif self.under(fraction, -_FAR) >= chance:
            limit = -_FAR
        else:
            limit = _root(lambda z: self.under(fraction, z) - chance, -_FAR, high)
        self._keep(fraction, limit, high)
        return limit

    def under(self, fraction: float, z: float) -> float:
        """Return the chance of lying below the limit at the next analysis."""
        return self._tail(fraction, z, -1.0)

    def _tail(self, fraction: float, z: float, side: float) -> float:
        from scipy.special import ndtr

        step = fraction - self.fraction
        limit = z * math.sqrt(fraction)
        if self.nodes is None or self.mass is None:
            return float(ndtr(side * (self.drift * step - limit) / math.sqrt(step)))
        reach = (self.nodes + self.drift * step - limit) / math.sqrt(step)
        return float(self.mass @ ndtr(side * reach))

    def _keep(self, fraction: float, low: float, high: float) -> None:
        """Carry the density over to the part between both limits at this analysis."""
        step, root = fraction - self.fraction, math.sqrt(fraction)
        centre = self.drift * fraction
        start = max(low * root, centre - _FAR * root)
        end = max(start, min(high * root, centre + _FAR * root))
        points, weights = self.rule
        nodes = start + (points + 1) * (end - start) / 2
        if self.nodes is None or self.mass is None:
            density = _density(nodes - self.drift * step, step)
        else:
            density = _density(nodes[:, None] - self.nodes[None, :] - self.drift * step, step) @ self.mass
        self.nodes, self.mass, self.fraction = nodes, density * weights * (end - start) / 2, fraction


def _density(distance: np.ndarray, variance: float) -> np.ndarray:
    import numpy as np

    density: np.ndarray = np.exp(-(distance**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
    return density


# Interim analyses


FRACTIONS: Final = (0.2, 0.4, 0.6, 0.8, 1.0)
BETA: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisPlan:
    """The interim analyses, as numbers of items, and the limits of the comparison at each."""

    analyses: tuple[int, ...]
    worse: Boundaries
    not_worse: Boundaries
    margin: float

    @property
    def levels(self) -> tuple[float, ...]:
        """Return the level of the interval at each interim analysis."""
        return tuple(1 - 2 * _NORMAL.cdf(-z) for z in self.not_worse.upper)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStop:
    """The stop of a benchmark after ``items`` of ``total``, with its verdict and the reason."""

    kind: VerdictKind
    items: int
    total: int
    why: str

    @property
    def text(self) -> str:
        """Return the stopping point in words."""
        return f"settled after {self.items} of {self.total} items: {self.kind}"


def item_order(
    ids: Sequence[str], clusters: Sequence[Hashable | None] | None = None, *, seed: int = 0
) -> list[int]:
    """Return the indices of the items in a random order by ``seed``, with clusters kept together.

    It depends on ids and seed only, not on the order given, so two runs ask the same items first.
    """
    shared = clusters if clusters is not None else [None] * len(ids)

    def key(index: int) -> tuple[str, str]:
        unit = ids[index] if shared[index] is None else f"cluster {shared[index]}"
        return _hashed(seed, unit), _hashed(seed, ids[index])

    return sorted(range(len(ids)), key=key)


def cut(
    ordered_clusters: Sequence[Hashable | None], fractions: Sequence[float] = FRACTIONS
) -> tuple[int, ...]:
    """Return the number of items at each interim analysis, rounded up to the end of a cluster.

    Analyses that fall together are one.
    """
    total, counts = len(ordered_clusters), list[int]()
    for fraction in fractions:
        count = min(total, math.ceil(fraction * total - 1e-9))
        while 0 < count < total and _joined(ordered_clusters[count - 1], ordered_clusters[count]):
            count += 1
        if count and count not in counts:
            counts.append(count)
    return tuple(counts)


def plan_analyses(
    analyses: Sequence[int],
    *,
    family: int = 1,
    margin: float = MARGIN,
    alpha: float = ALPHA,
    beta: float = BETA,
    strict: bool = False,
) -> AnalysisPlan:
    """Plan interim analyses after these numbers of items (the last: all); ``family`` counts the benchmarks."""
    fractions = tuple(analysis / analyses[-1] for analysis in analyses)
    alpha_each = alpha / 2 / family
    worse, not_worse = (
        _limits(fractions, alpha_each, None if strict else beta),
        _limits(fractions, alpha / 2, None),
    )
    return AnalysisPlan(analyses=tuple(analyses), worse=worse, not_worse=not_worse, margin=margin)


@functools.lru_cache(maxsize=256)  # benchmarks of one size have the same
def _limits(fractions: tuple[float, ...], alpha: float, beta: float | None) -> Boundaries:
    return upper_boundaries(fractions, alpha) if beta is None else two_boundaries(fractions, alpha, beta)


def decide_at(
    plan: AnalysisPlan, analysis: int, comparison: Comparison, measured: Comparison | None = None
) -> EarlyStop | None:
    """Return the decision of an interim analysis on all items so far; None: go on.

    Args:
        plan: The analyses and their boundaries.
        analysis: Its index, from 0.
        comparison: The comparison of all items so far, with an interval of level ``plan.levels[analysis]``.
        measured: The comparison without a correction for the choice of the baseline, if there is one; it
            decides futility.

    Raises:
        ValueError: If the interval has another level.

    """
    if comparison.low is not None and abs(comparison.level - plan.levels[analysis]) > 1e-9:
        raise ValueError(
            f"interim analysis {analysis} needs an interval of level {plan.levels[analysis]}, not {comparison.level}"
        )
    p, last = comparison.p, analysis == len(plan.analyses) - 1
    significant = p is not None and p / 2 <= _NORMAL.cdf(-plan.worse.upper[analysis])
    kind = kind_of(comparison, significant=significant, margin=plan.margin)
    why = _REASONS.get(kind, "")
    if not why and last:
        defined = comparison.difference is not None
        why = "all items were asked" if defined else comparison.why or "nothing to compare"
    elif not why and _is_futile(plan, analysis, comparison, (measured or comparison).oriented.difference):
        why = "more items are unlikely to find it worse"
    if not why:
        return None
    return EarlyStop(kind=kind, items=plan.analyses[analysis], total=plan.analyses[-1], why=why)


_REASONS: Final[dict[VerdictKind, str]] = {
    "worse": "the loss is beyond what chance gives at this interim analysis",
    "better": "the gain is beyond what chance gives at this interim analysis",
    "not worse": "at most the margin worse, at this interim analysis",
}


def _is_futile(plan: AnalysisPlan, analysis: int, comparison: Comparison, measured: float | None) -> bool:
    """Return whether a loss has become unlikely to be found at the end."""
    if measured is None or plan.worse.lower is None or comparison.stderr is None:
        return False
    z = -measured / comparison.stderr if comparison.stderr else 0.0
    return z < plan.worse.lower[analysis]


def _hashed(seed: int, text: str) -> str:
    return hashlib.sha256(f"{seed}\n{text}".encode()).hexdigest()


def _joined(cluster: Hashable | None, other: Hashable | None) -> bool:
    return cluster is not None and cluster == other
