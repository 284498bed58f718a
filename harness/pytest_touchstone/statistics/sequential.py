"""Stop a benchmark once its verdict is settled: interim analyses of growing shares of the items, error rates kept.

Items come in an order drawn from a seed, so the items of an interim analysis are a random part of all.
At each interim analysis the comparison of all items so far may end in:

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
  A strict gate, which also fails on "inconclusive", never gives up.
- The interval stated at a stop has the level of its analysis (repeated confidence interval: Jennison and Turnbull 1989,
  JRSS B 51): it holds whenever one stops. The difference itself is biased away from 0 after an early stop.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, cast

from pytest_touchstone.statistics.alpha_spending import Boundaries, two_boundaries, upper_boundaries
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN, ROUNDING, Kind

FRACTIONS: Final = (0.2, 0.4, 0.6, 0.8, 1.0)
BETA: Final = 0.02

_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The interim analyses, as numbers of items, and the limits of the comparison at each."""

    analyses: tuple[int, ...]
    worse: Boundaries
    not_worse: Boundaries
    margin: float

    @property
    def levels(self) -> tuple[float, ...]:
        """The level of the interval at each interim analysis."""
        return tuple(1 - 2 * _NORMAL.cdf(-z) for z in self.not_worse.upper)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The stop of a benchmark after ``items`` of ``total``, with its verdict and the reason."""

    kind: Kind
    analysis: int
    items: int
    total: int
    comparison: Comparison
    why: str


def item_order(
    ids: Sequence[str], clusters: Sequence[Hashable | None] | None = None, *, seed: int = 0
) -> list[int]:
    """The places of the items in the order in which to ask them: at random by ``seed``, clusters kept together.

    It depends on ids and seed only, not on the order given, so two runs ask the same items first.
    """
    shared = clusters if clusters is not None else [None] * len(ids)

    def key(place: int) -> tuple[str, str]:
        unit = ids[place] if shared[place] is None else f"cluster {shared[place]}"
        return _hashed(seed, unit), _hashed(seed, ids[place])

    return sorted(range(len(ids)), key=key)


def cut(
    ordered_clusters: Sequence[Hashable | None], fractions: Sequence[float] = FRACTIONS
) -> tuple[int, ...]:
    """The number of items at each interim analysis: the fraction, rounded up to the end of a cluster.

    Analyses that fall together are one.
    """
    total, found = len(ordered_clusters), list[int]()
    for fraction in fractions:
        count = min(total, math.ceil(fraction * total - 1e-9))
        while 0 < count < total and _joined(ordered_clusters[count - 1], ordered_clusters[count]):
            count += 1
        if count and count not in found:
            found.append(count)
    return tuple(found)


def plan_analyses(
    analyses: Sequence[int],
    *,
    family: int = 1,
    margin: float = MARGIN,
    alpha: float = ALPHA,
    beta: float = BETA,
    strict: bool = False,
) -> Plan:
    """The plan for interim analyses after these numbers of items (the last: all); ``family`` counts the benchmarks."""
    if not analyses or family < 1:
        raise ValueError(
            f"analyses={tuple(analyses)}, family={family}: give at least one interim analysis and one benchmark"
        )
    fractions = tuple(analysis / analyses[-1] for analysis in analyses)
    own = alpha / 2 / family
    worse, not_worse = _limits(fractions, own, None if strict else beta), _limits(fractions, alpha / 2, None)
    return Plan(analyses=tuple(analyses), worse=worse, not_worse=not_worse, margin=margin)


@functools.lru_cache(maxsize=256)  # benchmarks of one size have the same
def _limits(fractions: tuple[float, ...], alpha: float, beta: float | None) -> Boundaries:
    return upper_boundaries(fractions, alpha) if beta is None else two_boundaries(fractions, alpha, beta)


def decide_at(plan: Plan, analysis: int, comparison: Comparison) -> Stop | None:
    """The decision of an interim analysis (by number, from 0) on the comparison of all items so far; None: go on.

    The comparison's interval must have the level ``plan.levels[analysis]``; raises ``ValueError`` for any other.
    """
    if comparison.low is not None and abs(comparison.level - plan.levels[analysis]) > 1e-9:
        raise ValueError(
            f"interim analysis {analysis} needs an interval of level {plan.levels[analysis]}, not {comparison.level}"
        )
    settled = _settled(plan, analysis, comparison)
    if settled is None and analysis == len(plan.analyses) - 1:
        known = comparison.difference is not None
        settled = "inconclusive", "all items were asked" if known else comparison.why or "nothing to compare"
    if settled is None:
        return None
    return Stop(
        kind=settled[0],
        analysis=analysis,
        items=plan.analyses[analysis],
        total=plan.analyses[-1],
        comparison=comparison,
        why=settled[1],
    )


def _settled(plan: Plan, analysis: int, comparison: Comparison) -> tuple[Kind, str] | None:
    better = comparison.oriented
    difference, p, low = better.difference, comparison.p, better.low
    if difference is None:
        return None
    certain = p is not None and p / 2 <= _NORMAL.cdf(-plan.worse.upper[analysis])
    if certain and abs(difference) > plan.margin + ROUNDING:
        word, kind = ("loss", "worse") if difference < 0 else ("gain", "better")
        return cast(Kind, kind), f"the {word} is beyond what chance gives at this interim analysis"
    if low is not None and low > -plan.margin:
        return "not worse", "a loss of more than the margin is ruled out at this interim analysis"
    if plan.worse.lower is not None and comparison.stderr is not None and analysis < len(plan.analyses) - 1:
        z = -difference / comparison.stderr if comparison.stderr else 0.0
        if z < plan.worse.lower[analysis]:
            return "inconclusive", "more items are unlikely to find it worse"
    return None


def _hashed(seed: int, text: str) -> str:
    return hashlib.sha256(f"{seed}\n{text}".encode()).hexdigest()


def _joined(one: Hashable | None, other: Hashable | None) -> bool:
    return one is not None and one == other
